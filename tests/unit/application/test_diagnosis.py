"""Why a job and a node have their status: one job shape, chains, child jobs, no secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dagmaster.application.diagnosis import why_job, why_node
from dagmaster.application.queries.jobs import list_jobs
from dagmaster.engine.diagnosis.context import InFlightTask, Service
from dagmaster.engine.diagnosis.reasons import ReasonCode
from dagmaster.engine.status import JobStatus, NodeStatus
from dagmaster.engine.stored_rows import JobRow, NodeRow
from dagmaster.errors import NodeNotFound
from dagmaster.ports.read_store import DiagnosisFacts, PendingCommand
from dagmaster.records.nodes import WaitInfo
from tests.unit.application.world import SECRET, FakeReadStore, a_record, an_application, run

OWNER = Service(id="1", where="h:4", silent_seconds=1.0, lease_seconds=15.0)


def facts(*nodes: NodeRow, tasks: dict[str, InFlightTask] | None = None, **job: Any) -> DiagnosisFacts:
    return DiagnosisFacts(
        job=JobRow(**({"id": "7", "status": JobStatus.RUNNING} | job)),
        nodes=nodes, owner=OWNER, orchestrators=1, draining_orchestrators=0, advance_failure=None, cancelled_by=None, cancelled_at=None,
        tasks=tasks or {}, reports={}, attempts={}, queues={},
    )  # fmt: skip


def in_queue() -> DiagnosisFacts:
    task = InFlightTask(queue="default", dispatched_at=102.0)
    return facts(NodeRow(id="fetch", status=NodeStatus.DISPATCHED, attempt=1), tasks={"fetch": task})


def test_a_job_is_explained_with_the_shape_that_lists_have():
    app = an_application(FakeReadStore([a_record()], facts=in_queue()))
    view = run(why_job(app, "last"))
    document = json.loads(json.dumps(view.to_dict()))
    assert document["job"] == json.loads(json.dumps(run(list_jobs(app)).items[0].to_dict()))
    assert document["reason"]["code"] == "no_worker"
    assert (document["reason"]["code"], document["reason"]["data"]["queue"]) == ("no_worker", "default")
    assert document["nodes"]["tiles"]["because"] == ["fetch"]
    assert (document["nodes"]["fetch"]["status"], document["nodes"]["fetch"]["data"]["queue"]) == (
        "DISPATCHED",
        "default",
    )
    assert document["groups"][0]["count"] == 1


def test_a_job_is_explained_without_compiling_its_workflow(monkeypatch):
    def compile_nothing(*_: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr("dagmaster.authoring.compiler.compile.compile_definition", compile_nothing)
    app = an_application(FakeReadStore([a_record()], facts=in_queue()))
    assert run(why_job(app, "last")).reason.code == "no_worker"


def test_a_node_is_explained_link_by_link():
    app = an_application(FakeReadStore([a_record()], facts=in_queue()))
    view = run(why_node(app, "7", "after"))
    chain = [(link.node_id, link.code) for link in view.chain]
    assert chain == [("after", "nodes"), ("release", "nodes"), ("fetch", "no_worker")]
    assert view.to_dict()["node_id"] == "after"


def test_a_group_has_the_status_that_other_views_show():
    nodes = {
        "outer": {"type": "group"},
        "inner": {"type": "group", "group": "outer"},
        "fetch": {"handler": "echo", "queue": "default", "group": "inner"},
        "after": {"handler": "echo", "queue": "default", "depends_on": "outer"},
    }
    definition = {"workflow_id": "flow", "version": 2, "nodes": nodes}
    app = an_application(FakeReadStore([a_record()], definitions={"x": definition}, facts=in_queue()))
    view = run(why_job(app, "7"))
    assert {node_id: view.nodes[node_id].status for node_id in ("outer", "inner", "after")} == {
        "outer": NodeStatus.RUNNING,
        "inner": NodeStatus.RUNNING,
        "after": NodeStatus.PENDING,
    }
    chain = {link.node_id: link.status for link in run(why_node(app, "7", "after")).chain}
    assert (chain["outer"], chain["fetch"]) == (NodeStatus.RUNNING, NodeStatus.DISPATCHED)


def test_a_node_that_does_not_exist_is_not_found():
    app = an_application(FakeReadStore([a_record()], facts=in_queue()))
    with pytest.raises(NodeNotFound, match="Did you mean 'fetch'"):
        run(why_node(app, "7", "fetsch"))


def test_rows_that_make_no_sense_are_explained_as_a_failure_to_advance():
    broken = facts(NodeRow(id="not_in_the_graph", status=NodeStatus.READY))
    view = run(why_job(an_application(FakeReadStore([a_record()], facts=broken)), "7"))
    assert view.reason.code == ReasonCode.ADVANCE_FAILED.value


def test_pending_commands_are_named():
    store = FakeReadStore(
        [a_record()], facts=in_queue(), commands=[PendingCommand("3", "cancel", "ada", 60.0)]
    )
    (reason,) = run(why_job(an_application(store), "7")).commands
    assert reason.sentence == "a cancel by ada has been waiting 1 min to be processed"


def test_no_secret_is_in_an_explanation():
    leak = {"message": f"no {SECRET}", "kind": "x"}
    nodes = (
        NodeRow(id="fetch", status=NodeStatus.FAILED, attempt=1, error=leak),
        NodeRow(id="release", status=NodeStatus.WAITING),
    )
    store = FakeReadStore(
        [a_record(error=leak, status=JobStatus.RUNNING)],
        facts=facts(*nodes, ending=True),
        wait_infos={"release": WaitInfo(100.0, f"use {SECRET}?")},
    )
    app = an_application(store)
    text = json.dumps([run(why_job(app, "7")).to_dict(), run(why_node(app, "7", "after")).to_dict()])
    assert "***" in text
    assert SECRET not in text
