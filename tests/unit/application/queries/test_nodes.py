"""One node with its attempts and values, and nodes and tasks across jobs."""

from __future__ import annotations

import json

import pytest

from dagmaster.application.queries.nodes import (
    list_attempts,
    list_children,
    list_nodes,
    list_tasks,
    node_detail,
)
from dagmaster.engine.status import AttemptStatus, Isolation, NodeStatus
from dagmaster.errors import CursorInvalid, NodeNotFound
from dagmaster.ports.read_store import NodeFilter
from dagmaster.records.nodes import ChildCounts, NodeRecord, NodeValues, ProgressRecord
from dagmaster.records.tasks import AttemptRecord, TaskRecord
from tests.unit.application.world import DONE, SECRET, TILES, FakeReadStore, a_record, an_application, run


def a_child(index: int, job_id: str = "7") -> NodeRecord:
    return NodeRecord(
        node_id=f"tiles__{index}", status=NodeStatus.COMPLETED, job_id=job_id, parent_node_id="tiles",
        fan_out_index=index,
    )  # fmt: skip


def test_a_node_has_its_attempts_and_values_without_secrets():
    attempt = AttemptRecord(
        job_id="7", node_id="tiles__0", attempt=1, task_id="5", status=AttemptStatus.FAILED, queue="q", worker_id="3", worker="h:1",
        dispatched_at=100.0, claimed_at=100.5, started_at=101.0, finished_at=103.5,
        error={"message": f"no {SECRET}"}, metrics={"note": "other-secret"},
    )  # fmt: skip
    values = NodeValues(
        output={"a": SECRET}, params={"text": f"{SECRET} other-secret"}, hidden=("other-secret",), has_item=True,
        item={"by": SECRET},
    )  # fmt: skip
    store = FakeReadStore(
        [a_record()], node_records=[TILES, a_child(0)], values={"tiles__0": values}, attempt_records=[attempt]
    )
    view = run(node_detail(an_application(store), "7", "tiles__0"))
    document = view.to_dict()
    assert (document["params"], document["item"], document["output"]) == (
        {"text": "*** ***"},
        {"by": "***"},
        {"a": "***"},
    )
    assert document["attempts"][0]["duration_seconds"] == 2.5
    assert (document["action"], document["parent_node_id"], document["fan_out_index"]) == ("echo", "tiles", 0)
    text = json.dumps(document)
    assert SECRET not in text
    assert "other-secret" not in text


def test_an_output_in_a_blob_is_loaded():
    store = FakeReadStore([a_record()], node_records=[DONE], values={"fetch": NodeValues(output_ref="out")})
    assert run(node_detail(an_application(store, out=b"[1]"), "7", "fetch")).output == [1]


def test_a_fan_out_has_its_children_counted():
    store = FakeReadStore(
        [a_record()], node_records=[TILES], counts={"tiles": ChildCounts({NodeStatus.FAILED: 2})}
    )
    children = run(node_detail(an_application(store), "7", "tiles")).children
    assert children is not None
    assert children.to_dict() == {"total": 10, "counts": {"FAILED": 2, "PENDING": 8}}


def test_a_node_that_is_not_there_is_not_found():
    with pytest.raises(NodeNotFound, match=r"flow has no node 'fetsch'\. Did you mean 'fetch'"):
        run(node_detail(an_application(FakeReadStore([a_record()])), "7", "fetsch"))


def test_children_are_paged_by_index():
    store = FakeReadStore([a_record()], node_records=[TILES, *(a_child(index) for index in range(12))])
    app = an_application(store)
    first = run(list_children(app, "7", "tiles", limit=10))
    assert first.items[-1].node_id == "tiles__9"
    second = run(list_children(app, "7", "tiles", cursor=first.next_cursor, limit=10))
    assert [node.node_id for node in second.items] == ["tiles__10", "tiles__11"]
    assert second.next_cursor is None


def test_nodes_across_jobs_are_paged_newest_job_first():
    nodes = [
        NodeRecord(node_id="fetch", status=NodeStatus.FAILED, job_id=job_id) for job_id in ("7", "9", "8")
    ]
    store = FakeReadStore([a_record(job_id=job_id) for job_id in ("7", "8", "9")], node_records=nodes)
    app = an_application(store)
    first = run(list_nodes(app, NodeFilter(statuses=frozenset({NodeStatus.FAILED})), limit=2))
    assert [node.job_id for node in first.items] == ["9", "8"]
    assert [node.job_id for node in run(list_nodes(app, cursor=first.next_cursor, limit=2)).items] == ["7"]
    with pytest.raises(CursorInvalid):
        run(list_nodes(app, NodeFilter(job_id="7"), cursor=first.next_cursor))


def test_attempts_are_paged_newest_first_and_the_detail_has_the_last_ones():
    attempts = [
        AttemptRecord(
            job_id="7", node_id="fetch", attempt=number, task_id=str(number), status=AttemptStatus.FAILED, queue="q", worker_id=None, worker=None,
            dispatched_at=1.0, claimed_at=None, error={"message": f"no {SECRET}"},
        )
        for number in range(1, 104)
    ]  # fmt: skip
    app = an_application(FakeReadStore([a_record()], node_records=[DONE], attempt_records=attempts))
    first = run(list_attempts(app, "7", "fetch", limit=2))
    second = run(list_attempts(app, "7", "fetch", cursor=first.next_cursor, limit=2))
    assert [view.attempt for view in (*first.items, *second.items)] == [103, 102, 101, 100]
    assert first.items[0].error == {"message": "no ***"}
    assert [view.attempt for view in run(node_detail(app, "7", "fetch")).attempts] == list(range(4, 104))
    with pytest.raises(NodeNotFound):
        run(list_attempts(app, "7", "fetsch"))


def test_tasks_across_jobs_are_paged_and_redacted():
    tasks = [
        TaskRecord(
            task_id=str(number), job_id="7", node_id="fetch", attempt=1, queue="q", priority=5, handler="echo",
            isolation=Isolation.SHARED, status=NodeStatus.DISPATCHED, dispatched_at=100.0, worker_id=None, claimed_at=None, started_at=None,
            stop_requested_at=None,
            progress=ProgressRecord(current=1, total=4, message=SECRET),
        )
        for number in (1, 2, 3)
    ]  # fmt: skip
    app = an_application(FakeReadStore([a_record()], task_records=tasks))
    first = run(list_tasks(app, limit=2))
    assert [task.task_id for task in first.items] == ["3", "2"]
    assert first.items[0].to_dict()["progress"] == {"current": 1, "total": 4, "message": "***"}
    assert [task.task_id for task in run(list_tasks(app, cursor=first.next_cursor, limit=2)).items] == ["1"]
