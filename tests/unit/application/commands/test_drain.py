"""Which services can be drained, and what the answer says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dagmaster.application.commands.drain import drain_service, undrain_service
from dagmaster.errors import CommandInvalid, DrainRejected, ServiceNotFound
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.records.fleet import FleetRecord, OrchestratorRecord, WorkerRecord
from tests.unit.application.queries.test_fleet import a_worker
from tests.unit.application.world import FakeReadStore, an_application, run


class Client:
    """Keeps what it is asked for; `is_registered`: what it answers."""

    def __init__(self, *, is_registered: bool) -> None:
        self.is_registered = is_registered
        self.asked: list[Any] = []

    async def drain(self, service_id: str, *, grace_seconds: float | None, audit: Any) -> bool:
        self.asked.append(
            (service_id, grace_seconds, [(one.actor, one.action, one.details) for one in audit])
        )
        return self.is_registered

    async def undrain(self, service_id: str, *, audit: Any) -> bool:
        self.asked.append((service_id, [one.action for one in audit]))
        return self.is_registered


def an_owner(**changes: Any) -> OrchestratorRecord:
    owner = OrchestratorRecord(
        orchestrator_id="3", host="o", pid=4, version="1", is_alive=True, has_died=False, lease_seconds=15.0,
        silent_seconds=2.0, age_seconds=90.0, stopped_seconds=None, jobs=2, counters={},
    )  # fmt: skip
    return replace(owner, **changes)


def an_app(
    *workers: WorkerRecord, owners: tuple[OrchestratorRecord, ...] = (), is_registered: bool = True
) -> tuple[Any, Client]:
    record = FleetRecord(orchestrators=owners, workers=workers, queues=(), unowned_jobs=0)
    app, client = an_application(FakeReadStore(fleet_record=record)), Client(is_registered=is_registered)
    object.__setattr__(app, "client", client)
    return app.on_behalf_of(ChangeOrigin(actor="server")), client


def test_a_worker_is_named_by_id_or_place_and_the_actor_is_recorded():
    for name in ("5", "h:9"):
        app, client = an_app(a_worker(), a_worker(worker_id="6", pid=10))
        result = run(drain_service(app, name, sent_by="ada", grace_seconds=60.0))
        details = {"where": "h:9", "grace_seconds": 60.0}
        assert client.asked == [("5", 60.0, [("ada", "worker.drain", details)])]
        assert (result.service_id, result.kind, result.held_count) == ("5", "worker", 11)
        assert (
            result.sentence
            == "worker h:9 drains: it claims no more tasks, and holds 11 tasks, for 1 min at most"
        )


def test_the_last_one_of_its_kind_is_drained_and_the_answer_says_what_waits():
    app, _ = an_app(a_worker(), a_worker(worker_id="6", pid=10, is_draining=True), owners=(an_owner(),))
    assert "No other worker claims" in run(drain_service(app, "5", sent_by="ada")).sentence
    result = run(drain_service(app, "3", sent_by="ada"))
    assert result.sentence == (
        "orchestrator o:4 drains: it claims no more jobs, and releases what it owns: 2 jobs. No other orchestrator"
        " claims: jobs wait until one starts"
    )


def test_services_of_a_run_are_rejected():
    of_run = a_worker("run:7", host="o", pid=4)
    app, client = an_app(of_run, owners=(an_owner(),))
    for name in ("5", "3"):
        with pytest.raises(DrainRejected, match="belongs to a `dagmaster run`"):
            run(drain_service(app, name, sent_by="ada"))
    assert client.asked == []


def test_one_that_is_gone_is_rejected_with_its_state():
    died = a_worker(is_alive=False, has_died=True, silent_seconds=90.0)
    app, _ = an_app(died, a_worker(worker_id="6", pid=10, is_alive=False, stopped_seconds=30.0))
    for command in (drain_service, undrain_service):
        with pytest.raises(DrainRejected, match="worker h:9 died 1 min ago"):
            run(command(app, "5", sent_by="ada"))
        with pytest.raises(DrainRejected, match="worker h:10 stopped 30 s ago"):
            run(command(app, "6", sent_by="ada"))
        with pytest.raises(ServiceNotFound, match="there is no orchestrator or worker 'x'"):
            run(command(app, "x", sent_by="ada"))


def test_one_that_stops_in_the_meantime_is_rejected():
    app, _ = an_app(a_worker(is_draining=True), is_registered=False)
    with pytest.raises(DrainRejected, match="stopped a moment ago"):
        run(drain_service(app, "5", sent_by="ada"))
    with pytest.raises(DrainRejected, match="nothing asked it to drain"):
        run(undrain_service(app, "5", sent_by="ada"))


@pytest.mark.parametrize(
    ("sender", "seconds"), [("", None), ("ada", -1.0), ("ada", float("nan")), ("ada", 1e6)]
)
def test_an_invalid_sender_or_grace_period_is_rejected(sender: str, seconds: float | None):
    app, client = an_app(a_worker())
    with pytest.raises(CommandInvalid):
        run(drain_service(app, "5", sent_by=sender, grace_seconds=seconds))
    assert client.asked == []


def test_a_grace_period_is_for_workers_only():
    app, client = an_app(a_worker(), owners=(an_owner(),))
    with pytest.raises(CommandInvalid, match="an orchestrator has no grace period"):
        run(drain_service(app, "3", sent_by="ada", grace_seconds=0.0))
    assert client.asked == []
