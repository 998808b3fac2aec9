"""Queues and the fleet: what waits for how long, who is alive, and what became of what the dead held."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

from dagmaster.application.views import (
    DrainRecord,
    FleetRecord,
    LeftJobsRecord,
    LeftTasksRecord,
    OrchestratorRecord,
    QueueRecord,
    TaskNodeRecord,
    WorkerRecord,
)
from dagmaster.http import auth
from dagmaster.ports.api_keys import Scope
from dagmaster.ui.pages.fleet import fleet_page, queues_page
from dagmaster.ui.routes import fleet as fleet_routes
from tests.patience import PATIENCE_SECONDS
from tests.unit.ui.page_client import opened_pages, text_of

LIVE: dict[str, Any] = {
    "host": "h", "pid": 7, "version": "1.0", "is_alive": True, "has_died": False, "lease_seconds": 10.0,
    "silent_seconds": 1.0, "age_seconds": 90.0, "stopped_seconds": None, "counters": {"completed": 1200}, "left": None,
    "is_draining": False, "drain": None,
}  # fmt: skip


def a_worker(**changes: Any) -> WorkerRecord:
    values = {
        "worker_id": "5", "queues": ("tiles",), "concurrency": 4, "running": 2, "prefetched": 1,
        "processes": 0, "processes_busy": 0, "finished_last_minute": {"tiles": 60},
    }  # fmt: skip
    return WorkerRecord(**{**LIVE, **values, **changes})


def a_queue(**changes: Any) -> QueueRecord:
    values = {
        "queue": "tiles", "waiting": 120, "waiting_exclusive": 0, "claimed": 3, "oldest_seconds": 65.0,
        "finished_last_minute": 60, "workers": 1, "note": None,
    }  # fmt: skip
    return QueueRecord(**{**values, **changes})


def a_fleet(
    *workers: WorkerRecord, queues: tuple[QueueRecord, ...] = (), orchestrators: int = 1
) -> FleetRecord:
    owner = OrchestratorRecord(orchestrator_id="3", jobs=2, **{**LIVE, "counters": {"turns": 9}})
    return FleetRecord(orchestrators=(owner,) * orchestrators, workers=workers, queues=queues, unowned_jobs=0)


def test_the_queue_whose_oldest_task_waits_longest_is_first_and_says_when_it_is_empty():
    young = a_queue(queue="young", waiting=1, oldest_seconds=6.5, finished_last_minute=0)
    page = queues_page(a_fleet(a_worker(), queues=(young, a_queue())))
    assert [row.record.queue for row in page.rows] == ["tiles", "young"]
    assert (page.headline, page.oldest, page.rate) == (
        "121 tasks wait, the oldest for 1 min",
        "1 min 05 s",
        "60",
    )
    assert (page.rows[0].age_percent, page.rows[1].age_percent) == (100, 10)
    assert page.rows[0].drained == "empty in about 2 min"
    assert page.rows[1].drained == ""


def test_a_queue_without_workers_is_the_headline():
    page = queues_page(a_fleet(queues=(a_queue(workers=0, note="no live worker serves tiles"),)))
    assert (page.headline, page.tone, page.rows[0].record.is_stuck) == (
        "No worker serves tiles",
        "failed",
        True,
    )


def test_an_empty_queue_of_a_live_worker_is_listed():
    page = queues_page(a_fleet(a_worker(queues=("idle",), finished_last_minute={})))
    assert [(row.record.queue, row.record.waiting, row.record.workers) for row in page.rows] == [
        ("idle", 0, 1)
    ]
    assert page.headline == "No task waits"


def test_the_fleet_counts_slots_and_versions_of_the_living():
    late = a_worker(worker_id="6", version="1.1", silent_seconds=8.0, is_draining=True)
    page = fleet_page(a_fleet(a_worker(), late))
    assert (page.headline, page.slots) == ("1 orchestrator and 2 workers alive", "4 of 8")
    assert page.versions == (("1.0", "2"), ("1.1", "1"))
    first, second = page.workers
    assert (first.state.word, first.lease, first.lease_tone) == ("busy", 90, "ok")
    assert (second.state.word, second.lease, second.lease_tone) == ("draining", 20, "warning")
    assert first.counts == (("1,200", "completed"),)
    assert first.tasks_href == "/ui/tasks?worker_id=5"


def test_a_dead_worker_names_what_it_ran_alone():
    alone = TaskNodeRecord(job_id="7", node_id="tiles__3")
    left = LeftTasksRecord(tasks=1, not_reclaimed=0, now={}, alone_with=alone, crashed=())
    dead = a_worker(is_alive=False, has_died=True, stopped_seconds=30.0, left=left)
    (row,) = fleet_page(a_fleet(dead)).workers
    assert (row.state.word, row.state.tone, row.lease) == ("died", "failed", 0)
    assert (row.left, row.left_href) == ("died while it ran only tiles__3", "/ui/jobs/7/nodes/tiles__3")
    several = LeftTasksRecord(
        tasks=3, not_reclaimed=1, now={"completed": 2, "failed": 0}, alone_with=None, crashed=()
    )
    (row,) = fleet_page(a_fleet(a_worker(is_alive=False, left=several))).workers
    assert row.left == "left 3 tasks: 1 not reclaimed yet, 2 completed"
    (row,) = fleet_page(a_fleet(a_worker(is_alive=False, left=replace(several, crashed=(alone,))))).workers
    assert row.left == "left 3 tasks: 1 not reclaimed yet, 2 completed; crashed since: tiles__3"
    assert row.left_href == "/ui/jobs/7/nodes/tiles__3"


def test_members_that_stopped_and_left_nothing_are_one_line():
    none = LeftTasksRecord(tasks=0, not_reclaimed=0, now={}, alone_with=None, crashed=())
    gone: dict[str, Any] = {"is_alive": False, "stopped_seconds": 30.0}
    own = LeftJobsRecord(jobs=1, owned_again=1, unowned=0, not_reclaimed=0, reassigned=0)
    owner = OrchestratorRecord(**{**LIVE, **gone, "stopped_seconds": 20.0}, orchestrator_id="3", jobs=0)
    fleet = replace(
        a_fleet(
            a_worker(),
            a_worker(worker_id="6", left=none, **gone),
            a_worker(worker_id="7", left=replace(none, tasks=1, not_reclaimed=1), **gone),
            a_worker(worker_id="8", left=none, has_died=True, **gone),
        ),
        orchestrators=(
            replace(owner, left=own),
            replace(owner, orchestrator_id="4", left=replace(own, unowned=1)),
        ),
    )
    page = fleet_page(fleet)
    assert [(kind, row.member_id) for kind, row in page.stopped] == [("orchestrator", "3"), ("worker", "6")]
    assert [row.member_id for row in page.workers] == ["5", "7", "8"]
    assert [row.member_id for row in page.orchestrators] == ["4"]


def test_a_member_offers_the_drain_or_its_end():
    seen, unseen = (
        DrainRecord(requested_seconds=90.0, is_seen=True),
        DrainRecord(requested_seconds=90.0, is_seen=False),
    )
    page = fleet_page(
        a_fleet(
            a_worker(),
            a_worker(is_draining=True, drain=seen),
            a_worker(is_draining=True, running=0, prefetched=0, drain=seen),
            a_worker(is_draining=True, drain=unseen),
            a_worker(is_draining=True),
            a_worker(is_alive=False),
        )
    )
    rows = [*page.workers, *(row for _, row in page.stopped)]
    assert [(row.state.word, row.drain_href.rpartition("/")[2], row.drain_note) for row in rows] == [
        ("busy", "drain", ""),
        ("draining", "undrain", "asked 1 min ago"),
        ("drained", "undrain", "asked 1 min ago"),
        ("draining", "undrain", "does not answer: an older version"),
        # It was asked to stop by a signal.
        ("draining", "", ""),
        ("stopped", "", ""),
    ]
    assert page.orchestrators[0].drain_href == "/ui/fleet/3/drain"
    assert fleet_page(a_fleet(a_worker(is_draining=True, drain=seen))).tone == "failed"


def test_a_drain_is_confirmed_and_can_be_withdrawn_without_scripts():
    async def main() -> None:
        async with opened_pages() as pages:
            fleet = (await pages.get("/ui/fleet")).text
            confirm = re.findall(r'href="(/ui/fleet/\d+/drain)"', fleet)[1]
            asked = await pages.get(confirm)
            assert "No other worker claims: tasks wait until one starts." in text_of(asked.text)
            assert f'action="{confirm}"' in asked.text
            bad = await pages.post(confirm, {"grace_seconds": "5"})
            assert bad.status_code == 400
            orchestrator = re.findall(r'href="(/ui/fleet/\d+/drain)"', fleet)[0]
            bad = await pages.post(orchestrator, {"grace_seconds": "60"})
            assert (bad.status_code, "orchestrator has no grace period" in text_of(bad.text)) == (400, True)
            done = await pages.post(confirm, {"grace_seconds": "60"})
            assert (done.status_code, done.headers["location"]) == (303, "/ui/fleet")
            shown = (await pages.get("/ui/fleet")).text
            assert re.search(r"drain(ing|ed)", text_of(shown))
            undrain = confirm.replace("/drain", "/undrain")
            assert f'href="{undrain}"' in shown
            assert "It claims tasks again." in text_of((await pages.get(undrain)).text)
            assert (await pages.post(undrain)).status_code == 303
            assert f'href="{undrain}"' not in (await pages.get("/ui/fleet")).text
            assert (await pages.get("/ui/fleet/7/drain")).status_code == 404
            await pages.log_in(Scope.READ)
            assert "/drain" not in (await pages.get("/ui/fleet")).text

    asyncio.run(main())


def test_the_pages_show_the_services_that_run():
    async def main() -> None:
        async with opened_pages() as pages:
            assert "1 orchestrator and 1 worker alive" in text_of((await pages.get("/ui/fleet")).text)
            assert "No task waits" in text_of((await pages.get("/ui/queues")).text)
            assert "data-poll" in (await pages.get("/ui/queues", **{"X-Fragment": "content"})).text

    asyncio.run(main())


def test_the_fleet_shows_contracts_of_handlers_that_wait_for_an_administrator():
    async def main() -> None:
        async with opened_pages() as pages:
            assert "wait for an administrator" not in (await pages.get("/ui/fleet")).text
            admin = pages.api.headers
            await pages.api.use_key(Scope.WORK, name="stranger")
            await pages.api.post("/api/v1/workers", {"handlers": [{"name": "greet", "queue": "evil"}]})
            pages.api.headers = admin
            text = text_of((await pages.get("/ui/fleet")).text)
            assert "greet contract of installation key:stranger" in text
            assert "evil" in text

    asyncio.run(main())


def test_an_administrator_trusts_or_rejects_a_contract_on_the_page():
    async def main() -> None:
        async with opened_pages() as pages:
            admin = pages.api.headers
            for name in ("friend", "stranger"):
                await pages.api.use_key(Scope.WORK, name=name)
                await pages.api.post("/api/v1/workers", {"handlers": [{"name": "greet", "queue": name}]})
            pages.api.headers = admin
            html = (await pages.get("/ui/fleet")).text
            forms = re.findall(r'<form method="post" action="(/ui/fleet/\w+)">(.*?)</form>', html)
            fields = [(path, dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))) for path, form in forms]
            assert {(path, one["handler"], one["caller"]) for path, one in fields} == {
                (f"/ui/fleet/{verb}", "greet", f"key:{name}")
                for verb in ("trust", "distrust")
                for name in ("friend", "stranger")
            }
            trusting = {"handler": "greet", "caller": "key:friend"}
            assert (await pages.post("/ui/fleet/trust", trusting, token="x")).status_code == 403
            answer = await pages.post("/ui/fleet/trust", trusting)
            assert (answer.status_code, answer.headers["location"]) == (303, "/ui/fleet")
            assert (
                await pages.post("/ui/fleet/distrust", {**trusting, "caller": "key:stranger"})
            ).status_code == 303
            assert "wait for an administrator" not in (await pages.get("/ui/fleet")).text
            audit = text_of((await pages.get("/ui/audit")).text)
            assert "handler.trust" in audit
            assert "handler.distrust" in audit

    asyncio.run(main())


def test_only_an_administrator_sees_the_buttons_of_contracts_and_may_use_them():
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.use_key(Scope.WORK, name="stranger")
            await pages.api.post("/api/v1/workers", {"handlers": [{"name": "greet", "queue": "evil"}]})
            await pages.log_in(Scope.READ, Scope.OPERATE)
            html = (await pages.get("/ui/fleet")).text
            assert "key:stranger" in html
            assert "/ui/fleet/trust" not in html
            body = {"handler": "greet", "caller": "key:stranger"}
            for path in ("trust", "distrust"):
                assert (await pages.post(f"/ui/fleet/{path}", body)).status_code == 403

    asyncio.run(main())


def test_the_pages_of_services_are_shown_soon_while_the_database_does_not_answer(monkeypatch):
    monkeypatch.setattr(auth, "CACHE_SECONDS", -1.0)
    monkeypatch.setattr(auth, "KNOWN_SECONDS", 0.05)
    monkeypatch.setattr(fleet_routes, "ANSWER_SECONDS", 0.05)

    async def hang(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    async def main() -> None:
        async with opened_pages() as pages:
            services = pages.api.services
            assert "does not answer" not in text_of((await pages.get("/ui/fleet")).text)
            monkeypatch.setattr(services.fleet, "_answer_seconds", 0.05)
            for name in ("fleet", "handlers"):
                monkeypatch.setattr(services.application.read, name, hang)
            for name in ("find", "find_session"):
                monkeypatch.setattr(services.keys, name, hang)
            for path in ("/ui/fleet", "/ui/queues"):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    answer = await pages.get(path)
                assert answer.status_code == 200, path
                assert "The database does not answer: these values are" in text_of(answer.text)
            monkeypatch.undo()

    asyncio.run(main())
