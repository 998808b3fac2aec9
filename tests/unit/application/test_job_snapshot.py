"""The status of groups as it is shown: RUNNING once a member has begun, in every view of a job."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from dagmaster.application.job_snapshot import JobSnapshot
from dagmaster.application.progress import report_progress
from dagmaster.application.queries.job_detail import job_detail
from dagmaster.application.queries.nodes import MEMBERS_AT_ONCE, node_detail
from dagmaster.application.secret_inputs import JobRedactor
from dagmaster.application.views.jobs import JobDetailView
from dagmaster.engine.status import JobStatus, NodeStatus
from dagmaster.records.nodes import NodeRecord
from dagmaster.records.parsing import parse_record
from tests.unit.application.world import FakeReadStore, a_record, an_application, graph, run

TASK = {"handler": "echo", "queue": "default"}
GROUPED: dict[str, Any] = {
    "workflow_id": "flow",
    "version": 2,
    "nodes": {
        "fetch": TASK,
        "outer": {"type": "group"},
        "inner": {"type": "group", "group": "outer"},
        "ask": {"type": "approval", "message": "Go on?", "group": "inner"},
        "tiles": {"type": "fan_out", "source": [1], "task": TASK, "group": "inner"},
        "other": {"type": "group"},
        "later": {**TASK, "group": "other"},
        "empty": {"type": "group", "group": "other"},
    },
}
PENDING, RUNNING = NodeStatus.PENDING, NodeStatus.RUNNING
NOT_BEGUN = [PENDING, NodeStatus.READY, NodeStatus.SKIPPED]
DEPTH, MEMBERS = 40, 500


def a_row(node_id: str, status: NodeStatus) -> NodeRecord:
    return NodeRecord(node_id=node_id, status=status, job_id="7")


def a_store(rows: dict[str, NodeStatus], **job: Any) -> FakeReadStore:
    records = [a_row(node_id, status) for node_id, status in rows.items()]
    return FakeReadStore([a_record(**job)], definitions={"x": GROUPED}, node_records=records)


def shown(store: FakeReadStore) -> dict[str, NodeStatus]:
    """Return the statuses of the groups, after a check that all views of the job agree about them."""
    app = an_application(store)
    view = run(job_detail(app, "7"))
    groups = {node_id: view.nodes[node_id].status for node_id in ("outer", "inner", "other")}
    assert groups == {node_id: run(node_detail(app, "7", node_id)).status for node_id in groups}
    assert groups == {node_id: view.statuses.get(node_id, PENDING) for node_id in groups}
    assert Counter(view.counts) == Counter(node.status.value for node in view.nodes.values())
    return groups


@pytest.mark.parametrize("status", [status for status in NodeStatus if status is not NodeStatus.CLAIMED])
@pytest.mark.parametrize("member", ["ask", "tiles"])
def test_groups_run_once_a_member_is_neither_ready_nor_skipped(member, status):
    begun = PENDING if status in NOT_BEGUN else RUNNING
    assert shown(a_store({member: status})) == {"outer": begun, "inner": begun, "other": PENDING}


def test_a_group_does_not_run_because_an_empty_group_in_it_has_ended():
    assert shown(a_store({"empty": NodeStatus.COMPLETED}))["other"] is PENDING


def test_a_group_has_its_stored_status_when_it_or_its_job_has_ended():
    assert shown(a_store({"ask": NodeStatus.COMPLETED, "inner": NodeStatus.COMPLETED})) == {
        "outer": RUNNING,
        "inner": NodeStatus.COMPLETED,
        "other": PENDING,
    }
    ended = a_store({"ask": NodeStatus.FAILED}, status=JobStatus.CANCELLED, finished_at=110.0)
    assert set(shown(ended).values()) == {PENDING}


@pytest.mark.parametrize("status", NOT_BEGUN)
def test_a_member_that_has_begun_is_read_after_many_that_have_not(status):
    members = {f"m{number}": {**TASK, "group": "many"} for number in range(MEMBERS_AT_ONCE + 1)}
    definition = {"workflow_id": "flow", "version": 2, "nodes": {"many": {"type": "group"}, **members}}
    rows = [a_row(member, status) for member in members]
    rows[-1] = replace(rows[-1], status=RUNNING)
    store = FakeReadStore([a_record()], definitions={"x": definition}, node_records=rows)
    assert run(node_detail(an_application(store), "7", "many")).status is RUNNING


def test_the_statuses_of_a_job_are_those_that_a_client_derives_from_its_json():
    view = run(
        job_detail(an_application(a_store({"fetch": NodeStatus.COMPLETED, "ask": NodeStatus.WAITING})), "7")
    )
    assert parse_record(JobDetailView, view.to_dict(), read_at=111.0).statuses == view.statuses


def test_a_group_is_no_work_in_progress():
    rows = {"fetch": NodeStatus.COMPLETED, "ask": NodeStatus.WAITING}
    report = run(report_progress(an_application(a_store(rows)), "7"))
    assert (report.nodes.completed, report.nodes.running, report.nodes.pending) == (1, 0, 7)
    assert report.estimate is None
    report = run(report_progress(an_application(a_store({**rows, "later": RUNNING})), "7"))
    assert (report.nodes.running, report.estimate is None) == (1, False)


class CountedSpecs(dict[str, Any]):
    """Specs that count how often one of them is looked up."""

    lookups = 0

    def __getitem__(self, node_id: str) -> Any:
        self.lookups += 1
        return super().__getitem__(node_id)

    def get(self, node_id: str, default: Any = None) -> Any:
        self.lookups += 1
        return super().get(node_id, default)


@pytest.mark.parametrize("status", [NodeStatus.READY, RUNNING])
def test_the_statuses_of_groups_cost_as_much_as_there_are_nodes_however_deep_the_groups_are(status):
    groups = {f"g{depth}": {"type": "group", "group": f"g{depth - 1}"} for depth in range(1, DEPTH)}
    members = {f"m{number}": {**TASK, "group": f"g{DEPTH - 1}"} for number in range(MEMBERS)}
    nodes = {"g0": {"type": "group"}, **groups, **members}
    flow = graph({"workflow_id": "flow", "version": 1, "nodes": nodes})
    specs = CountedSpecs(flow.specs)
    snapshot = JobSnapshot(
        job=a_record(),
        graph=replace(flow, specs=specs),
        redact=JobRedactor({}, {}),
        lease_seconds=15.0,
        nodes={member: a_row(member, status) for member in members},
    )
    snapshot.counts()
    views = [snapshot.node_view(snapshot.node(f"g{depth}")) for depth in range(DEPTH)]
    assert {view.status for view in views} == {RUNNING if status is RUNNING else PENDING}
    assert specs.lookups < 5 * (MEMBERS + DEPTH)
