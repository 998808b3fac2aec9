"""Nodes that running tasks add to their job: stored with the report or at once, by the task that holds the lease."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dagmaster.engine.status import AttemptStatus
from dagmaster.errors import NodesRejected, StatementFailed
from dagmaster.ports.added_nodes import (
    ADDED_AT_ONCE,
    BatchKey,
    BatchRows,
    DependencyRecord,
    GroupRecord,
    MemberKind,
    NodeRecord,
)
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.store.postgres import added_nodes
from dagmaster.store.result_notifications import fits_notification
from dagmaster.worker.report_delivery import mark_rejected
from tests.conformance.jobs import Scene, a_job, a_turn

TASK, GROUP = MemberKind.TASK, MemberKind.GROUP
KEY = BatchKey("a", 0, "digest")


def some_rows(world, number: int = 1) -> BatchRows:
    """Return two nodes, a group, and what they wait for."""
    definition = json.dumps({"handler": "h", "queue": "q", "params": {"text": "{{ x }}"}})
    return BatchRows(
        [NodeRecord(int(world.ids.new()), f"n{number}_{i}", "g", definition) for i in range(2)],
        [GroupRecord(int(world.ids.new()), "g", None)],
        [DependencyRecord(TASK, "a", GROUP, "g"), DependencyRecord(GROUP, "g", TASK, "b")],
    )


async def a_held_task(world):
    scene = await Scene.begin(world)
    await scene.dispatch("a")
    worker = await world.worker()
    (task,) = await worker.claim(1)
    return scene, worker, task


async def test_nodes_of_a_report_are_stored_with_it_and_read_with_the_result(world):
    scene, worker, task = await a_held_task(world)
    rows = some_rows(world)
    report = TaskReport(task.task_id, task.token, AttemptStatus.COMPLETED, output=JsonText("{}"))
    report.added_rows = lambda _number: rows
    assert await worker.report([report]) == {task.task_id}
    (result,) = await scene.orchestrator.read_results(10)
    assert result.batches == "1"
    (batch,) = await scene.orchestrator.load_batches(scene.job_id, [1])
    assert list(batch.nodes) == list(rows.nodes)
    assert list(batch.groups) == list(rows.groups)
    assert list(batch.dependencies) == list(rows.dependencies)
    assert await scene.orchestrator.load_batches(scene.job_id) == [], "its owner has not accepted it"


async def test_nodes_of_a_report_that_comes_too_late_are_not_stored(world):
    scene, worker, task = await a_held_task(world)
    report = TaskReport(task.task_id, task.token + 1, AttemptStatus.COMPLETED, output=JsonText("{}"))
    report.added_rows = lambda _number: some_rows(world)
    assert await worker.report([report]) == set()
    assert await scene.orchestrator.read_results(10) == []
    assert await scene.orchestrator.load_batches(scene.job_id, range(5)) == []


async def test_a_report_with_nodes_is_accepted_together_with_others(world):
    scene, worker, task = await a_held_task(world)
    other = await scene.dispatch("b")
    (second,) = await worker.claim(1)
    reports = [
        TaskReport(t.task_id, t.token, AttemptStatus.COMPLETED, output=JsonText("{}")) for t in (task, second)
    ]
    reports[0].added_rows = lambda _number: some_rows(world)
    assert await worker.report(reports) == {task.task_id, other}
    results = {result.node_id: result.batches for result in await scene.orchestrator.read_results(10)}
    assert results == {"a": "1", "b": None}


async def test_nodes_that_are_added_at_once_are_a_command_to_the_owner(world):
    scene, worker, task = await a_held_task(world)
    reserved = await worker.reserve_batch(task.task_id, task.token, KEY)
    assert reserved == (1, False)
    assert await worker.add_batch(task.task_id, task.token, 1, some_rows(world))
    (command,) = await scene.orchestrator.read_commands(10)
    assert (command.kind, command.body["batch"], command.body["node"]) == ("add_nodes", 1, "a")
    assert command.sent_by == "task a"


async def test_the_result_of_a_task_that_added_nodes_at_once_says_so(world):
    scene, worker, task = await a_held_task(world)
    await worker.reserve_batch(task.task_id, task.token, KEY)
    await worker.add_batch(task.task_id, task.token, 1, some_rows(world))
    report = TaskReport(task.task_id, task.token, AttemptStatus.COMPLETED, output=JsonText("{}"))
    assert not fits_notification([replace(report, added_at_once=True)]), "its owner has to read the row"
    assert await worker.report([report]) == {task.task_id}
    (result,) = await scene.orchestrator.read_results(10)
    assert result.batches == str(ADDED_AT_ONCE)


async def test_a_call_that_is_repeated_by_a_later_attempt_reserves_the_same_batch(world):
    scene, worker, task = await a_held_task(world)
    rows = some_rows(world)
    await worker.reserve_batch(task.task_id, task.token, KEY)
    await worker.add_batch(task.task_id, task.token, 1, rows)
    await scene.dispatch("a", attempt=2)
    (again,) = await worker.claim(1)
    assert await worker.reserve_batch(again.task_id, again.token, KEY) == (1, True)
    stored = await worker.batch_rows(again.task_id, again.token, 1)
    assert (list(stored.nodes), list(stored.groups)) == (list(rows.nodes), list(rows.groups))
    assert await worker.add_batch(again.task_id, again.token, 1, rows) is False, "it has its rows"
    assert await worker.reserve_batch(again.task_id, again.token, KEY._replace(call_number=1)) == (2, False)
    assert await worker.reserve_batch(again.task_id, again.token, KEY._replace(digest="other")) == (3, False)
    assert len(await scene.orchestrator.read_commands(10)) == 1


async def test_a_batch_that_was_reserved_and_never_written_is_reserved_again(world):
    _, worker, task = await a_held_task(world)
    await worker.reserve_batch(task.task_id, task.token, KEY)
    assert await worker.reserve_batch(task.task_id, task.token, KEY) == (1, False)


async def test_a_task_that_is_not_held_adds_nothing(world):
    scene, worker, task = await a_held_task(world)
    token = task.token + 1
    assert await worker.reserve_batch(task.task_id, token, KEY) is None
    await worker.reserve_batch(task.task_id, task.token, KEY)
    assert await worker.add_batch(task.task_id, token, 1, some_rows(world)) is False
    assert await worker.batch_rows(task.task_id, token, 1) == BatchRows()
    assert await scene.orchestrator.read_commands(10) == []
    assert await scene.orchestrator.load_batches(scene.job_id, [1]) == []


async def test_an_accepted_batch_is_loaded_with_its_job_in_the_order_of_acceptance(world):
    scene, worker, task = await a_held_task(world)
    for number in (1, 2):
        await worker.reserve_batch(task.task_id, task.token, KEY._replace(call_number=number))
        await worker.add_batch(task.task_id, task.token, number, some_rows(world, number))
    await scene.write(batches={2: 1, 1: 2})
    assert [batch.number for batch in await scene.orchestrator.load_batches(scene.job_id)] == [2, 1]
    (claimed,) = await scene.orchestrator.load_owned([scene.job_id])
    assert [(batch.number, batch.accepted_order) for batch in claimed.batches] == [(2, 1), (1, 2)]
    assert [node.node_id for node in claimed.batches[1].nodes] == ["n1_0", "n1_1"]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100])
async def test_the_nodes_of_many_batches_are_read_in_parts(world, limit, monkeypatch):
    monkeypatch.setattr(added_nodes, "_NODES_AT_ONCE", limit)
    scene, worker, task = await a_held_task(world)
    batches = {}
    for number in (1, 2, 3):
        await worker.reserve_batch(task.task_id, task.token, KEY._replace(call_number=number))
        batches[number] = some_rows(world, number)
        await worker.add_batch(task.task_id, task.token, number, batches[number])
    loaded = await scene.orchestrator.load_batches(scene.job_id, [1, 3])
    assert {batch.number: list(batch.nodes) for batch in loaded} == {
        n: list(batches[n].nodes) for n in (1, 3)
    }


async def test_the_call_of_a_rejected_batch_adds_its_nodes_when_a_later_attempt_repeats_it(world):
    """Its job was cancelled in between: after a resume the nodes must not be missing."""
    scene, worker, task = await a_held_task(world)
    await worker.reserve_batch(task.task_id, task.token, KEY)
    await worker.add_batch(task.task_id, task.token, 1, some_rows(world))
    await scene.write(batches={1: "no"})
    assert await scene.orchestrator.load_batches(scene.job_id) == []
    await scene.dispatch("a", attempt=2)
    (again,) = await worker.claim(1)
    assert await worker.reserve_batch(again.task_id, again.token, KEY) == (2, False)
    assert await worker.add_batch(again.task_id, again.token, 2, some_rows(world, 2))


async def test_a_node_that_is_run_again_from_the_beginning_adds_its_nodes_again(world):
    scene, worker, task = await a_held_task(world)
    reader = await world.reader()
    before = (await reader.job(scene.job_id)).nodes_total
    await worker.reserve_batch(task.task_id, task.token, KEY)
    await worker.add_batch(task.task_id, task.token, 1, some_rows(world))
    await scene.write(superseded=["n1_0"], adders=["a"])
    assert await worker.reserve_batch(task.task_id, task.token, KEY) == (1, True), "it was not accepted yet"
    await scene.write(batches={1: 1})
    await scene.write(superseded=["n1_0", "n1_1", "g"], adders=["other", "a"])
    await scene.dispatch("a", attempt=2)
    (again,) = await worker.claim(1)
    assert await worker.reserve_batch(again.task_id, again.token, KEY) == (2, False)
    await worker.add_batch(again.task_id, again.token, 2, some_rows(world, 2))
    await scene.write(batches={2: 2})
    batches = await scene.orchestrator.load_batches(scene.job_id)
    assert [(batch.number, batch.added_by) for batch in batches] == [(1, "a"), (2, "a")], (
        "both are part of its graph"
    )
    assert (await reader.job(scene.job_id)).nodes_total == before + 3, "the batch before is not counted"


async def test_a_batch_from_outside_was_added_by_no_node(world):
    scene, worker, task = await a_held_task(world)
    report = TaskReport(task.task_id, task.token, AttemptStatus.COMPLETED, output=JsonText("{}"))
    report.added_rows = lambda number: some_rows(world, number)
    await worker.report([report])
    client = await world.client()
    number = await client.reserve_batch(scene.job_id)
    await client.add_batch(scene.job_id, number, some_rows(world, number), "ada")
    batches = await scene.orchestrator.load_batches(scene.job_id, [1, number])
    assert [batch.added_by for batch in batches] == ["a", None]


async def test_the_group_of_a_node_is_not_that_of_a_failed_attempt(world):
    scene, worker, task = await a_held_task(world)
    failed, retried = some_rows(world), some_rows(world, 2)
    await worker.reserve_batch(task.task_id, task.token, KEY)
    await worker.add_batch(task.task_id, task.token, 1, failed)
    await scene.write(batches={1: "no"})
    await scene.dispatch("a", attempt=2)
    (again,) = await worker.claim(1)
    await worker.reserve_batch(again.task_id, again.token, KEY)
    await worker.add_batch(again.task_id, again.token, 2, retried)
    nodes = (await world.reader()).added_nodes
    pending = await nodes.find_node(retried.nodes[0].id)
    assert pending.group_id == retried.groups[0].id, "the group of its own batch"
    await scene.write(batches={2: 1})
    later = BatchRows(some_rows(world, 3).nodes)
    await worker.reserve_batch(again.task_id, again.token, KEY._replace(call_number=1))
    await worker.add_batch(again.task_id, again.token, 3, later)
    for node in (*retried.nodes, *later.nodes):
        assert (await nodes.find_node(node.id)).group_id == retried.groups[0].id


async def test_nodes_and_groups_count_in_lists_of_jobs_once_they_are_accepted(world):
    scene, worker, task = await a_held_task(world)
    reader = await world.reader()

    async def nodes_total() -> int:
        total: int = (await reader.job(scene.job_id)).nodes_total
        return total

    before = await nodes_total()
    for number in (1, 2):
        await worker.reserve_batch(task.task_id, task.token, KEY._replace(call_number=number))
        await worker.add_batch(task.task_id, task.token, number, some_rows(world, number))
    assert await nodes_total() == before
    await scene.write(batches={2: 1})
    assert await nodes_total() == before + 3
    await scene.write(batches={1: 2})
    assert await nodes_total() == before + 6


async def test_nodes_with_an_id_of_others_are_rejected_and_the_report_is_accepted_without_them(world):
    scene, worker, task = await a_held_task(world)
    rows = some_rows(world)
    await worker.reserve_batch(task.task_id, task.token, KEY)
    await worker.add_batch(task.task_id, task.token, 1, rows)
    report = TaskReport(task.task_id, task.token, AttemptStatus.COMPLETED, output=JsonText("{}"))
    report.added_rows = lambda _number: rows
    with pytest.raises(
        StatementFailed, match=rf"task n1_0: its id {rows.nodes[0].id} is that of another task"
    ):
        await worker.report([report])
    await worker.reserve_batch(task.task_id, task.token, KEY._replace(call_number=1))
    with pytest.raises(NodesRejected, match="is that of another task"):
        await worker.add_batch(task.task_id, task.token, 2, rows)
    mark_rejected(report, task, StatementFailed("in use"))
    assert await worker.report([report]) == {task.task_id}
    (result,) = await scene.orchestrator.read_results(10)
    assert (result.status, result.batches) == ("FAILED", str(ADDED_AT_ONCE))


async def test_a_task_learns_the_decision_about_its_batch_and_ids_of_a_rejected_one_are_free(world):
    scene, worker, task = await a_held_task(world)
    await worker.reserve_batch(task.task_id, task.token, KEY)
    rows = some_rows(world)
    await worker.add_batch(task.task_id, task.token, 1, rows)
    assert await worker.decision_about(task.task_id, task.token, 1) is None
    await scene.write(batches={1: "no"})
    assert await worker.decision_about(task.task_id, task.token, 1) == (False, "no")
    assert await worker.reserve_batch(task.task_id, task.token, KEY) == (2, False)
    assert await worker.add_batch(task.task_id, task.token, 2, rows), "the same ids"
    await scene.write(batches={2: 1})
    assert await worker.decision_about(task.task_id, task.token, 2) == (True, None)
    assert await worker.decision_about(task.task_id, task.token + 1, 2) is None
    (batch,) = await scene.orchestrator.load_batches(scene.job_id)
    assert (list(batch.nodes), list(batch.groups)) == (list(rows.nodes), list(rows.groups))
    assert list(batch.dependencies) == list(rows.dependencies)


async def test_a_rejection_leaves_an_accepted_batch_as_it_is(world):
    scene, worker, task = await a_held_task(world)
    await worker.reserve_batch(task.task_id, task.token, KEY)
    await worker.add_batch(task.task_id, task.token, 1, some_rows(world))
    await scene.write(batches={1: 1})
    await scene.write(batches={1: "no"})
    assert [batch.number for batch in await scene.orchestrator.load_batches(scene.job_id)] == [1]
    assert await worker.reserve_batch(task.task_id, task.token, KEY) == (1, True)


async def test_a_former_owner_accepts_no_batch(world):
    scene, worker, task = await a_held_task(world)
    await worker.reserve_batch(task.task_id, task.token, KEY)
    await worker.add_batch(task.task_id, task.token, 1, some_rows(world))
    turn = a_turn(await scene.now(), batches={1: 1})
    await scene.orchestrator.load_owned([scene.job_id])
    assert await scene.orchestrator.commit_turns([turn], scene.orchestrator.clock.now()) == set()
    assert await scene.orchestrator.load_batches(scene.job_id) == []


async def test_the_id_of_a_task_is_used_once_and_nothing_is_stored_otherwise(world):
    client, reader = await world.client(), await world.reader()
    rows = some_rows(world)
    first = a_job(world)
    await client.put_graph(first.content_hash, "{}")
    assert (await client.submit_graph(first, rows)).is_new
    second = a_job(world)
    with pytest.raises(NodesRejected, match=rf"task n1_0: its id {rows.nodes[0].id} is that of another task"):
        await client.submit_graph(second, rows)
    assert await reader.job(second.id) is None
    other = some_rows(world, 2)
    number = await client.reserve_batch(first.id)
    with pytest.raises(NodesRejected, match="task n1_1: "):
        await client.add_batch(first.id, number, BatchRows([*other.nodes, rows.nodes[1]]), "someone")
    assert await reader.pending_commands(first.id) == []
    twice = BatchRows([other.nodes[0], other.nodes[1]._replace(id=other.nodes[0].id)])
    with pytest.raises(NodesRejected, match=f"its id {other.nodes[0].id} is that of another task"):
        await client.submit_graph(a_job(world), twice)


async def test_the_same_graph_with_the_same_key_is_the_same_job(world):
    client = await world.client()
    rows = some_rows(world)
    first, second = (a_job(world, idempotency_key="key", body_hash="same") for _ in range(2))
    await client.put_graph(first.content_hash, "{}")
    assert (await client.submit_graph(first, rows)).is_new
    again = await client.submit_graph(second, rows)
    assert (again.job_id, again.is_new, again.same) == (first.id, False, True)
