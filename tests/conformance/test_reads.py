"""Every read store answers alike: every method of the read port, every filter, pages under inserts, hostile text."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest

from dagmaster.application.queries.events_and_logs import list_logs
from dagmaster.application.queries.fleet import list_queues
from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.engine.decisions import FinishJob
from dagmaster.engine.events import Approved, TaskLost, TimerFired
from dagmaster.engine.status import AttemptStatus, Isolation, JobStatus, NodeStatus
from dagmaster.ports.audit_events import AuditEvent, EventType
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.job_filter import JobFilter
from dagmaster.ports.job_records import ParentNode, StoredWorkflow
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.read_store import LogFilter, NodeFilter, TaskFilter
from dagmaster.ports.task_journal import LogChunk
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.records.fleet import LeftJobsRecord, LeftTasksRecord, TaskNodeRecord
from dagmaster.records.nodes import ChildCounts, NodeValues, ProgressRecord
from tests.conformance.jobs import ONE, Played, Scene, a_job, a_task, a_turn, submitted
from tests.conformance.stores import PostgresWorld
from tests.patience import PATIENCE_SECONDS
from tests.unit.application.world import application_on

if TYPE_CHECKING:
    from dagmaster.engine.graph import Graph
    from dagmaster.ports.orchestrator_store import OrchestratorStore
    from dagmaster.ports.read_store import ReadStore
    from tests.conformance.stores import World

TILES = """
name: tiles
inputs: {key: {type: string, default: ""}}
nodes:
  plan: {handler: h, queue: q, next: [tiles]}
  tiles: {type: fan_out, source: "{{ nodes.plan.output.items }}", task: {handler: h, queue: q, params: {it: "{{ item }}"}}, next: [release]}
  release: {type: approval, message: "Release it?"}
"""
ITEMS = [{"footprint": [0, 0, 1, 1]}, {"n": 1}, "text"]
HOSTILE = [
    "%",
    "_",
    "\\",
    "a%b",
    "nul\0",
    "\ud800",
    "'; DROP TABLE dag_jobs; --",
    "x" * 100_000,
    "\U0010ffff",
    "\uff10",
]
UNKNOWN = ["0", "9", str(2**63), "9" * 40, "-1", "abc", "", " 1", "1\0", "\uff11"]


async def ids(reader: ReadStore, **fields: Any) -> list[str]:
    return [record.job_id for record in await reader.jobs(JobFilter(**fields), limit=100)]


def id_of(service: Any) -> str:
    """Return the id under which an orchestrator or a worker is registered."""
    return str(getattr(service, "owner_id", "") or service.worker_id)


async def finish(
    orchestrator: OrchestratorStore, job_id: str, status: JobStatus, at: float | None = None
) -> None:
    """Finish a job that this orchestrator owns, now or at a time."""
    (claimed,) = await orchestrator.load_owned([job_id])
    error = None if status is JobStatus.COMPLETED else {"message": "no"}
    result = JsonText('{"r": 1}') if error is None else None
    turn = a_turn(claimed, finished=FinishJob(status, error=error), result=result)
    turn.job.status = status
    now = orchestrator.clock.now() if at is None else at
    assert await orchestrator.commit_turns([turn], now) == {job_id}


async def in_every_status(world: World) -> dict[JobStatus, str]:
    """Return one job in each status, the first one the oldest."""
    client, orchestrator = await world.client(), await world.orchestrator()
    jobs: dict[JobStatus, str] = {}
    for status in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.RUNNING):
        jobs[status] = await submitted(world, client, name=f"is {status.lower()}")
        await orchestrator.claim(1)
        if status is JobStatus.RUNNING:
            (claimed,) = await orchestrator.load_owned([jobs[status]])
            await orchestrator.commit_turns([a_turn(claimed)], orchestrator.clock.now())
        else:
            await finish(orchestrator, jobs[status], status)
    jobs[JobStatus.WAITING] = (await waiting(world, orchestrator)).job_id
    jobs[JobStatus.PENDING] = await submitted(world, client)
    return jobs


async def waiting(world: World, orchestrator: OrchestratorStore | None = None) -> Played:
    """Return a job of which only an approval is open."""
    return await Played.begin(
        world, "{name: ask, nodes: {ask: {type: approval, message: 'Go on?'}}}", orchestrator
    )


# ── Jobs ──


async def test_a_job_is_read_with_everything_that_is_stored_of_it(world):
    reader, client = await world.reader(), await world.client()
    job_id = await submitted(
        world, client, inputs='{"a": 1}', name="tuesday", submitted_by="ada", correlation_id="c-1",
        idempotency_key="k", body_hash="x", priority=7, queue="run:1",
    )  # fmt: skip
    record = await reader.job(job_id)
    assert record is not None
    assert (record.job_id, record.name, record.workflow_id, record.version) == (
        job_id,
        "tuesday",
        ONE.workflow_id,
        1,
    )
    assert (record.content_hash, record.status, record.run, record.priority) == (
        ONE.content_hash,
        "PENDING",
        1,
        7,
    )
    assert (record.submitted_by, record.correlation_id, record.idempotency_key) == ("ada", "c-1", "k")
    assert (record.queue, record.inputs, record.result, record.result_ref) == ("run:1", {"a": 1}, None, None)
    assert (record.event_seq, record.is_cancelling, record.is_ending, record.error) == (1, False, False, None)
    assert (record.nodes_total, record.nodes_finished, record.owner, record.is_finished) == (
        2,
        0,
        None,
        False,
    )
    assert (record.parent_job_id, record.parent_node_id, record.resumed_from) == (None, None, None)
    assert (record.started_at, record.finished_at, record.resumed_at, record.deadline_at) == (None,) * 4
    assert record.created_at == record.updated_at
    assert 0 <= record.read_at - record.created_at < 60
    assert record.duration_seconds is None


async def test_an_empty_store_has_no_jobs(world):
    reader = await world.reader()
    assert await reader.jobs(JobFilter()) == []
    assert await reader.newest_job_id() is None
    assert await reader.job_counts(JobFilter()) == {}


async def test_a_list_has_the_same_records_without_values(world):
    reader, client = await world.reader(), await world.client()
    await submitted(world, client, inputs='{"a": 1}')
    (listed,) = await reader.jobs(JobFilter())
    alone = await reader.job(listed.job_id)
    assert alone is not None
    assert (listed.inputs, alone.inputs) == ({}, {"a": 1})
    assert dataclasses.replace(alone, inputs={}, read_at=0.0) == dataclasses.replace(listed, read_at=0.0)


async def test_a_finished_job_has_its_result_or_its_error_and_times(world):
    jobs, reader = await in_every_status(world), await world.reader()
    done, failed = await reader.job(jobs[JobStatus.COMPLETED]), await reader.job(jobs[JobStatus.FAILED])
    assert done is not None
    assert failed is not None
    assert (done.result, done.error, failed.result, failed.error) == ({"r": 1}, None, None, {"message": "no"})
    assert done.is_finished
    assert done.started_at is not None
    assert done.finished_at == done.updated_at >= done.started_at
    assert done.duration_seconds == done.finished_at - done.started_at
    assert (done.nodes_finished, done.nodes_total) == (2, 2)


async def test_an_owned_job_names_its_owner(world):
    scene, reader = await Scene.begin(world), await world.reader()
    await world.silence(scene.orchestrator, 5.0)
    record = await reader.job(scene.job_id)
    assert record is not None
    assert record.owner is not None
    assert record.owner.orchestrator_id == id_of(scene.orchestrator)
    assert record.owner.pid == os.getpid()
    assert 5.0 <= record.owner.silent_seconds < 60.0


async def test_every_status_is_found_alone_and_with_others(world):
    jobs, reader = await in_every_status(world), await world.reader()
    newest_first = sorted(jobs.values(), key=int, reverse=True)
    for status, job_id in jobs.items():
        assert await ids(reader, statuses=frozenset({status})) == [job_id]
        (record,) = await reader.jobs(JobFilter(statuses=frozenset({status})))
        assert record.status is status
        assert (await reader.job(job_id)) is not None
    assert await ids(reader) == await ids(reader, statuses=frozenset(JobStatus)) == newest_first
    some = frozenset({JobStatus.WAITING, JobStatus.FAILED, JobStatus.PENDING})
    assert await ids(reader, statuses=some) == [
        job_id for job_id in newest_first if job_id in {jobs[s] for s in some}
    ]
    assert await reader.job_counts(JobFilter()) == dict.fromkeys(JobStatus, 1)
    assert await reader.job_counts(JobFilter(statuses=some)) == dict.fromkeys(some, 1)
    assert await reader.job_counts(JobFilter(name="is failed")) == {JobStatus.FAILED: 1}
    assert await reader.job_counts(JobFilter(text="is ")) == dict.fromkeys(
        (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.RUNNING), 1
    )


async def test_a_job_that_runs_again_after_an_approval_is_not_waiting_any_more(world):
    reader = await world.reader()
    played = await Played.begin(
        world, "{name: n, nodes: {ask: {type: approval, message: m, next: a}, a: {handler: h, queue: q}}}"
    )
    assert [record.status for record in await reader.jobs(JobFilter())] == [JobStatus.WAITING]
    await played.turn(Approved("ask", "ada", "2026-11-16T00:00:00Z"))
    record = await reader.job(played.job_id)
    assert record is not None
    assert record.status is JobStatus.RUNNING
    assert (record.nodes_finished, record.nodes_total) == (1, 2)


async def test_a_job_that_waits_for_an_approval_and_for_a_task_is_running(world):
    reader = await world.reader()
    played = await Played.begin(
        world, "{name: n, nodes: {ask: {type: approval, message: m}, a: {handler: h, queue: q}}}"
    )
    assert [record.status for record in await reader.jobs(JobFilter())] == [JobStatus.RUNNING]
    assert await ids(reader, statuses=frozenset({JobStatus.WAITING})) == []
    assert await ids(reader, statuses=frozenset({JobStatus.RUNNING})) == [played.job_id]


async def test_every_field_filters(world):
    reader, client, orchestrator = await world.reader(), await world.client(), await world.orchestrator()
    other = compile_text("{name: other, version: 3, nodes: {a: {handler: h, queue: q}}}").graph
    fields = {
        "name": "n1", "submitted_by": "ada", "correlation_id": "c1", "idempotency_key": "k1",
    }  # fmt: skip
    parent = await submitted(world, client)
    mine = await submitted(world, client, other, **fields)
    theirs = await submitted(world, client, ONE, **{name: f"{value}x" for name, value in fields.items()})
    await orchestrator.claim(10)
    (claimed,) = await orchestrator.load_owned([parent])
    child = a_job(world, parent=ParentNode(parent, "a", 1), depth=1)
    await orchestrator.commit_turns([a_turn(claimed, children=[child])], orchestrator.clock.now())
    for name, value in fields.items():
        assert await ids(reader, **{name: value}) == [mine]
        assert await ids(reader, **{name: f"{value}x"}) == [theirs]
        assert await ids(reader, **{name: "nothing"}) == []
    assert await ids(reader, workflow_id=other.workflow_id) == await ids(reader, version=3) == [mine]
    assert await ids(reader, workflow_id=other.workflow_id, version=1) == []
    assert await ids(reader, parent_job_id=parent) == [child.id]
    assert await ids(reader, **fields, version=3, statuses=frozenset({JobStatus.PENDING}), text="ad") == [
        mine
    ]
    assert await ids(reader, **fields, statuses=frozenset({JobStatus.FAILED})) == []
    assert await reader.newest_job_id() == theirs
    assert await reader.newest_job_id(submitted_by="ada") == mine
    assert await reader.newest_job_id(submitted_by="nobody") is None
    assert await reader.child_jobs(parent) == {"a": (child.id, JobStatus.PENDING)}
    # By default a job has the name of its workflow, and no submitter.
    assert set(await ids(reader, name=ONE.workflow_id)) == {parent, child.id}
    assert set(await ids(reader, text=ONE.workflow_id[:2])) == {parent, child.id}
    assert set(await ids(reader, submitted_by="")) == {parent, child.id}
    assert await ids(reader, name=ONE.workflow_id, text="ad") == []


@pytest.mark.parametrize("statuses", [frozenset(), frozenset({JobStatus.PENDING})])
async def test_the_oldest_jobs_come_first_where_that_is_asked(world, statuses):
    reader, client = await world.reader(), await world.client()
    for number in ("100", "200", "300"):
        await submitted(world, client, id=number)
    oldest = await reader.jobs(JobFilter(statuses=statuses), limit=2, oldest_first=True)
    assert [job.job_id for job in oldest] == ["100", "200"]


async def test_the_newest_job_of_each_workflow_is_read_without_hidden_ones(world):
    reader, client = await world.reader(), await world.client()
    await submitted(world, client, id="100")
    await submitted(world, client, id="200")
    await submitted(world, client, id="300", workflow_id="other")
    await submitted(world, client, id="400", is_hidden=True)
    newest = await reader.newest_jobs([ONE.workflow_id, "other", "unknown", "\0"])
    assert [(job.workflow_id, job.job_id) for job in newest] == [("other", "300"), (ONE.workflow_id, "200")]
    assert [job.job_id for job in await reader.newest_jobs(["other"])] == ["300"]
    assert await reader.newest_jobs([]) == []


async def test_a_text_is_a_prefix_of_the_id_the_name_the_submitter_or_the_correlation_id(world):
    reader, client = await world.reader(), await world.client()
    by_id = await submitted(world, client, id="123456")
    named = await submitted(world, client, id="900", name="12 apples")
    sent = await submitted(world, client, id="901", submitted_by="1234")
    related = await submitted(world, client, id="902", correlation_id="123")
    both = await submitted(world, client, id="903", name="123", submitted_by="123")
    assert await ids(reader, text="12") == [by_id, both, related, sent, named]
    assert await ids(reader, text="123") == [by_id, both, related, sent]
    assert await ids(reader, text="123456") == [by_id]
    assert await ids(reader, text="1234567") == await ids(reader, text="2") == []
    assert await ids(reader, text="90") == [both, related, sent, named]
    assert await reader.job_counts(JobFilter(text="12")) == {JobStatus.PENDING: 5}
    assert [record.job_id for record in await reader.jobs(JobFilter(text="12"), after=(both,), limit=2)] == [
        related,
        sent,
    ]


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_text_is_no_pattern_and_raises_nothing(world, text):
    reader, client = await world.reader(), await world.client()
    await submitted(world, client, name="plain", submitted_by="a_b", correlation_id="50% off")
    for field in ("name", "submitted_by", "correlation_id", "idempotency_key", "workflow_id", "text"):
        assert await ids(reader, **{field: text}) == []
        assert await reader.job_counts(JobFilter(**{field: text})) == {}
    assert await ids(reader, text="a_") == await ids(reader, text="50%") == await ids(reader)
    assert await reader.list_nodes(NodeFilter(workflow_id=text)) == []
    assert await reader.list_nodes(NodeFilter(job_id="1", parent_node_id=text)) == []
    assert await reader.tasks(TaskFilter(queue=text, handler=text)) == []
    assert await reader.recent_events(types=[text]) == []
    assert await reader.versions(text) == []
    assert await reader.definition(text) is None
    assert await reader.nodes("1", [text]) == []
    assert await reader.waits("1", [text]) == {}
    assert await reader.outputs("1", [text]) == {}
    assert await reader.child_counts("1", [text]) == {text: ChildCounts()}
    assert await reader.attempts("1", text) == []
    assert await reader.node_values("1", text, child_of=(text, 2**40)) == NodeValues()
    assert await reader.logs("1", LogFilter(node_ids=(text,))) == []
    assert await reader.events("1", node_ids=[text]) == []
    assert await reader.workflows(after=(text,)) == []
    assert await reader.list_nodes(NodeFilter(), after=(text, text)) == []
    assert await reader.list_nodes(NodeFilter(job_id="1"), after=(text, 2**40, text)) == []


@pytest.mark.parametrize("text", ["ä", "日本", "a\\b", "100%", "a_b", "q\"uo'te"])
async def test_text_of_every_kind_is_found_as_it_is(world, text):
    reader, client = await world.reader(), await world.client()
    job_id = await submitted(world, client, name=f"{text} and more", submitted_by=text)
    await submitted(world, client, name="aXb")
    assert await ids(reader, text=text) == await ids(reader, submitted_by=text) == [job_id]


@pytest.mark.parametrize("job_id", UNKNOWN)
async def test_an_id_that_no_job_has_is_nothing_everywhere(world, job_id):
    reader, client = await world.reader(), await world.client()
    await submitted(world, client, id="7")
    assert await reader.job(job_id) is None
    assert await reader.diagnosis(job_id) is None
    assert await ids(reader, parent_job_id=job_id) == []
    assert await reader.list_nodes(NodeFilter(job_id=job_id)) == []
    assert await reader.tasks(TaskFilter(job_id=job_id)) == []
    assert await reader.tasks(TaskFilter(worker_id=job_id)) == []
    assert await reader.child_jobs(job_id) == await reader.waits(job_id, ["a"]) == {}
    assert await reader.nodes(job_id, ["a"]) == await reader.attempts(job_id, "a") == []
    assert await reader.events(job_id) == await reader.logs(job_id) == await reader.footprints(job_id) == []
    assert await reader.backlog(job_id) == await reader.pending_commands(job_id) == []
    assert await reader.timelines.rows(job_id) == []
    assert await reader.timelines.last_children(job_id, ["a"]) == {}
    assert await reader.attempt_count(job_id) == 0
    assert await reader.node_values(job_id, "a", child_of=("f", 0)) == NodeValues()
    assert await reader.outputs(job_id, ["a"]) == {}
    async with reader.subscribe(job_id) as subscription:
        assert not await subscription.wait(0.01)


async def test_jobs_are_texts_of_the_times_of_their_creation_and_end(world):
    reader, client, orchestrator = await world.reader(), await world.client(), await world.orchestrator(1e6)
    jobs = []
    for _ in range(3):
        jobs.append(await submitted(world, client, id=await world.new_id()))
        await world.move(100.0)
    records = {record.job_id: record for record in await reader.jobs(JobFilter())}
    created = [records[job_id].created_at for job_id in jobs]
    assert await ids(reader, created_after=created[1]) == [jobs[2], jobs[1]]
    assert await ids(reader, created_before=created[1]) == [jobs[0]]
    assert await ids(reader, created_after=created[0] + 1, created_before=created[2]) == [jobs[1]]
    assert (
        await ids(reader, created_after=created[2] + 1) == await ids(reader, created_before=created[0]) == []
    )
    assert await ids(reader, created_after=-1e300, created_before=1e300) == jobs[::-1]
    await orchestrator.claim(10)
    await finish(orchestrator, jobs[0], JobStatus.COMPLETED, created[2] + 100.0)
    await finish(orchestrator, jobs[1], JobStatus.FAILED, created[2] + 200.0)
    ended = [record.finished_at for record in map(await by_id(reader), jobs[:2])]
    assert ended[0] is not None
    assert ended[1] is not None
    assert await ids(reader, finished_after=ended[0]) == [jobs[1], jobs[0]]
    assert await ids(reader, finished_after=ended[0] + 1) == [jobs[1]]
    assert await ids(reader, finished_before=ended[1]) == [jobs[0]]
    assert await ids(reader, finished_before=1e300, finished_after=-1.0) == [jobs[1], jobs[0]]
    counts = await reader.job_counts(JobFilter(finished_after=ended[0] + 1))
    assert counts == {JobStatus.FAILED: 1}


async def by_id(reader: ReadStore) -> Any:
    records = {record.job_id: record for record in await reader.jobs(JobFilter(), limit=100)}
    return records.__getitem__


async def test_pages_of_jobs_are_stable_while_jobs_are_added(world):
    reader, client = await world.reader(), await world.client()
    jobs = [await submitted(world, client, name=f"job {number}") for number in range(5)]
    pages, after = [], None
    while page := await reader.jobs(JobFilter(text="job"), after=after, limit=2):
        pages.append([record.job_id for record in page])
        after = (page[-1].job_id,)
        await submitted(world, client, name="job new")
    assert pages == [[jobs[4], jobs[3]], [jobs[2], jobs[1]], [jobs[0]]]


# ── Nodes ──


async def tiled(world: World) -> Played:
    """Return a job with a fan-out of three: one child done, one failed, one claimed by a worker."""
    played = await Played.begin(world, TILES)
    await played.work({"plan": {"items": ITEMS}})
    claimed = {task.node_id: task for task in await played.worker.claim(100)}
    played.tokens = {node_id: task.token for node_id, task in claimed.items()}
    done, failed = claimed["tiles__0"], claimed["tiles__1"]
    await played.worker.report(
        [
            TaskReport(
                done.task_id,
                done.token,
                AttemptStatus.COMPLETED,
                output=JsonText('{"x": 1}'),
                handler_version="7",
            ),
            TaskReport(
                failed.task_id,
                failed.token,
                AttemptStatus.FAILED,
                permanent=True,
                error='{"message": "no"}',
                metrics="{}",
            ),
        ]
    )
    await played.gather()
    return played


async def test_the_nodes_of_a_job_are_read_by_id_with_their_tasks(world):
    played, reader = await tiled(world), await world.reader()
    nodes = {
        record.node_id: record
        for record in await reader.nodes(played.job_id, ["plan", "tiles__2", "nothing"])
    }
    assert list(nodes) == ["plan", "tiles__2"]
    plan, claimed = nodes["plan"], nodes["tiles__2"]
    assert (plan.status, plan.job_id, plan.workflow_id) == (NodeStatus.COMPLETED, played.job_id, "tiles")
    assert (plan.attempt, plan.handler_version, plan.task_id, plan.fan_out_index) == (1, "7", None, None)
    assert plan.finished_at is not None
    assert plan.updated_at is not None
    assert plan.updated_at >= plan.finished_at
    assert (claimed.status, claimed.parent_node_id, claimed.fan_out_index) == (NodeStatus.CLAIMED, "tiles", 2)
    assert (claimed.queue, claimed.worker_id) == ("q", id_of(played.worker))
    assert claimed.task_id is not None
    assert claimed.dispatched_at is not None
    assert claimed.started_at is None


async def test_the_children_of_a_fan_out_are_counted_and_listed(world):
    played, reader = await tiled(world), await world.reader()
    counts = await reader.child_counts(played.job_id, ["tiles", "plan"])
    assert counts["tiles"].counts == {NodeStatus.COMPLETED: 1, NodeStatus.FAILED: 1, NodeStatus.CLAIMED: 1}
    assert counts["plan"] == ChildCounts()

    async def listed(**fields: Any) -> list[str]:
        return [
            record.node_id for record in await reader.list_nodes(NodeFilter(job_id=played.job_id, **fields))
        ]

    assert await listed() == ["plan", "tiles", "tiles__0", "tiles__1", "tiles__2"]
    assert await listed(top_level=True) == ["plan", "tiles"]
    assert await listed(parent_node_id="tiles") == ["tiles__0", "tiles__1", "tiles__2"]
    assert await listed(statuses=frozenset({NodeStatus.FAILED})) == ["tiles__1"]
    assert await listed(statuses=frozenset({NodeStatus.CLAIMED}), parent_node_id="tiles") == ["tiles__2"]
    assert await listed(statuses=frozenset({NodeStatus.DISPATCHED})) == []
    assert await listed(workflow_id="tiles", top_level=True) == ["plan", "tiles"]
    assert await listed(workflow_id="other") == []
    pages, after = [], None
    while page := await reader.list_nodes(NodeFilter(job_id=played.job_id), after=after, limit=2):
        pages.append([record.node_id for record in page])
        after = page[-1].place_in_job
    assert pages == [["plan", "tiles"], ["tiles__0", "tiles__1"], ["tiles__2"]]


async def test_nodes_across_jobs_come_newest_job_first(world):
    reader = await world.reader()
    first, second = await tiled(world), await waiting(world)
    await submitted(world, await world.client())

    async def listed(**fields: Any) -> list[tuple[str, str]]:
        return [(record.job_id, record.node_id) for record in await reader.list_nodes(NodeFilter(**fields))]

    tiles = [(first.job_id, node) for node in ("plan", "tiles", "tiles__0", "tiles__1", "tiles__2")]
    assert await listed() == [(second.job_id, "ask"), *tiles]
    assert await listed(workflow_id="ask") == await listed(statuses=frozenset({NodeStatus.WAITING}))
    assert await listed(workflow_id="ask") == [(second.job_id, "ask")]
    assert await listed(statuses=frozenset({NodeStatus.RUNNING}), workflow_id="tiles")
    assert await listed(statuses=frozenset({NodeStatus.CLAIMED})) == [(first.job_id, "tiles__2")]
    assert await listed(statuses=frozenset({NodeStatus.COMPLETED, NodeStatus.FAILED})) == [
        tiles[0],
        *tiles[2:4],
    ]
    pages, after = [], None
    while page := await reader.list_nodes(NodeFilter(), after=after, limit=4):
        pages.append([record.node_id for record in page])
        after = (page[-1].job_id, page[-1].node_id)
    assert pages == [["ask", "plan", "tiles", "tiles__0"], ["tiles__1", "tiles__2"]]


async def test_the_values_of_a_node_are_its_output_its_params_and_its_item(world):
    played, reader = await tiled(world), await world.reader()
    assert await reader.node_values(played.job_id, "plan") == NodeValues(output={"items": ITEMS})
    done = await reader.node_values(played.job_id, "tiles__0", child_of=("tiles", 0))
    assert done == NodeValues(output={"x": 1}, has_item=True, item=ITEMS[0])
    claimed = await reader.node_values(played.job_id, "tiles__2", child_of=("tiles", 2))
    assert claimed == NodeValues(params={"it": "text"}, has_item=True, item="text")
    assert not (await reader.node_values(played.job_id, "tiles__9", child_of=("tiles", 9))).has_item
    assert await reader.outputs(played.job_id, ["plan", "tiles__0", "tiles__1"]) == {
        "plan": {"items": ITEMS},
        "tiles__0": {"x": 1},
    }


async def test_attempts_are_the_finished_ones_and_the_one_in_flight(world):
    played, reader = await tiled(world), await world.reader()
    (failed,) = await reader.attempts(played.job_id, "tiles__1")
    assert (failed.node_id, failed.attempt, failed.status, failed.queue) == ("tiles__1", 1, "FAILED", "q")
    assert (failed.error, failed.metrics, failed.progress) == ({"message": "no"}, {}, None)
    assert failed.worker_id == id_of(played.worker)
    assert failed.worker is not None
    assert failed.worker.endswith(f":{os.getpid()}")
    assert failed.claimed_at is not None
    assert failed.finished_at is not None
    assert failed.dispatched_at <= failed.claimed_at <= failed.finished_at
    (claimed,) = await reader.attempts(played.job_id, "tiles__2")
    assert (claimed.attempt, claimed.status, claimed.finished_at, claimed.error) == (
        1,
        "CLAIMED",
        None,
        None,
    )
    assert claimed.worker == failed.worker
    assert await reader.attempts(played.job_id, "release") == []
    assert await reader.attempt_count(played.job_id) == 3


async def test_an_attempt_that_no_worker_has_claimed_is_dispatched(world):
    reader = await world.reader()
    played = await Played.begin(
        world, "{name: n, nodes: {a: {handler: h, queue: q, retry: {max_attempts: 3}}}}"
    )
    (waits,) = await reader.attempts(played.job_id, "a")
    assert (waits.attempt, waits.status, waits.worker_id, waits.worker, waits.claimed_at) == (
        1,
        "DISPATCHED",
        *[None] * 3,
    )
    await played.work({"a": ValueError("again")})
    (node,) = await reader.nodes(played.job_id, ["a"])
    assert (node.status, node.failed_attempts, node.lost_attempts) == (NodeStatus.READY, 1, 0)
    assert node.wake_at is not None
    assert [(each.attempt, each.status) for each in await reader.attempts(played.job_id, "a")] == [
        (1, "FAILED")
    ]


async def test_attempts_are_paged_newest_first(world):
    reader = await world.reader()
    retry = "retry: {max_attempts: 3, initial_delay_seconds: 0}"
    played = await Played.begin(world, f"{{name: n, nodes: {{a: {{handler: h, queue: q, {retry}}}}}}}")
    for _ in range(2):
        await played.work({"a": ValueError("again")})
        await played.turn(TimerFired("a"))
    await played.worker.claim(1)
    pages, after = [], None
    while page := await reader.attempts(played.job_id, "a", after=after, limit=2):
        pages.append([(record.attempt, record.status) for record in page])
        after = (page[-1].attempt,)
    assert pages == [[(3, "CLAIMED"), (2, "FAILED")], [(1, "FAILED")]]
    assert await reader.attempts(played.job_id, "a", after=(-(2**40),)) == []
    assert len(await reader.attempts(played.job_id, "a", after=(2**40,))) == 3


async def test_tasks_in_flight_are_listed_across_jobs(world):
    played, reader = await tiled(world), await world.reader()
    scene = await Scene.begin(world)
    waits = await scene.dispatch(queue="other")
    worker_id = id_of(played.worker)
    (claimed,) = await reader.tasks(TaskFilter(worker_id=worker_id))
    assert (claimed.job_id, claimed.node_id, claimed.attempt) == (played.job_id, "tiles__2", 1)
    assert (claimed.queue, claimed.handler, claimed.priority) == ("q", "h", 5)
    assert (claimed.stop_requested_at, claimed.progress) == (None, None)
    assert claimed.claimed_at is not None
    (unclaimed,) = await reader.tasks(TaskFilter(is_claimed=False))
    assert (unclaimed.task_id, unclaimed.worker_id, unclaimed.claimed_at) == (waits, None, None)
    assert [task.task_id for task in await reader.tasks(TaskFilter(queue="other"))] == [waits]
    assert [task.task_id for task in await reader.tasks(TaskFilter(job_id=scene.job_id))] == [waits]
    assert await reader.tasks(TaskFilter(is_claimed=True)) == [claimed]
    assert await reader.tasks(TaskFilter(handler="nothing")) == []
    everything = await reader.tasks(TaskFilter(handler="h"))
    assert [task.task_id for task in everything] == sorted((waits, claimed.task_id), key=int, reverse=True)
    (first,) = await reader.tasks(TaskFilter(), limit=1)
    (second,) = await reader.tasks(TaskFilter(), after=(first.task_id,))
    assert [first, second] == everything


async def test_pages_of_tasks_lose_nothing_while_tasks_of_other_machines_are_added(world):
    reader, scene = await world.reader(), await Scene.begin(world)
    result = [a_task(world, node=f"n{number}") for number in range(9)]
    # Ids of several machines are not in the order of their commits.
    await scene.write(tasks=result[2:7])
    pages, after, later = [], None, [result[7], result[1], result[8], result[0]]
    while page := await reader.tasks(TaskFilter(), after=after, limit=2):
        pages += [record.task_id for record in page]
        after = (page[-1].task_id,)
        await scene.write(tasks=[later.pop(0)])
    present = [task.task_id for task in reversed(result[2:7])]
    assert [task_id for task_id in pages if task_id in present] == present
    assert len(set(pages)) == len(pages)
    assert result[7].task_id not in pages


async def test_progress_is_shown_while_a_task_is_in_flight(world):
    played, reader = await tiled(world), await world.reader()
    (task,) = await reader.tasks(TaskFilter(job_id=played.job_id))
    await played.worker.progress(
        {task.task_id: (played.tokens["tiles__2"], '{"current": 1, "message": "one"}')}
    )
    (node,) = await reader.nodes(played.job_id, ["tiles__2"])
    (attempt,) = await reader.attempts(played.job_id, "tiles__2")
    (task,) = await reader.tasks(TaskFilter(job_id=played.job_id))
    assert (
        node.progress
        == attempt.progress
        == task.progress
        == ProgressRecord(current=1, total=None, message="one")
    )


async def test_a_waiting_node_has_the_reason_why_it_waits(world):
    reader, played = await world.reader(), await waiting(world)
    waits = await reader.waits(played.job_id, ["ask", "other"])
    assert list(waits) == ["ask"]
    assert (waits["ask"].message, waits["ask"].until) == ("Go on?", None)
    record = await reader.job(played.job_id)
    assert record is not None
    assert 0 <= record.read_at - waits["ask"].since < 60
    assert await reader.waits(played.job_id, []) == {}


async def test_a_node_that_asked_twice_waits_for_the_last_request(world):
    scene, reader = await Scene.begin(world), await world.reader()
    requests = [
        AuditEvent(EventType.APPROVAL_REQUESTED, node="a", data=json.dumps({"message": message}))
        for message in ("First?", "Second?")
    ]
    await scene.write(events=requests)
    assert (await reader.waits(scene.job_id, ["a"]))["a"].message == "Second?"


async def test_the_backlog_of_a_job_names_the_workers_of_its_queues(world):
    reader = await world.reader()
    played = await Played.begin(
        world, "{name: n, nodes: {a: {handler: h, queue: q}, b: {handler: h, queue: other}}}"
    )
    await world.worker("other")
    backlog = {each.queue: each for each in await reader.backlog(played.job_id)}
    assert {
        queue: (each.tasks, each.state.workers, each.state.slots, each.state.busy)
        for queue, each in backlog.items()
    } == {
        "q": (1, 1, 4, 0),
        "other": (1, 2, 8, 0),
    }
    assert 0 <= backlog["q"].oldest_seconds < 60
    await world.silence(played.worker, 60.0)
    assert {each.queue: each.state.workers for each in await reader.backlog(played.job_id)} == {
        "q": 0,
        "other": 1,
    }
    await played.worker.claim(100)
    assert await reader.backlog(played.job_id) == []


async def test_a_task_that_must_run_alone_is_reported_apart_everywhere(world):
    reader = await world.reader()
    played = await Played.begin(
        world, "{name: n, nodes: {a: {handler: h, queue: q}, b: {handler: h, queue: q}}}"
    )
    for attempt in (1, 2, 3):
        await played.worker.claim(1 if attempt == 1 else 100)
        await played.turn(TaskLost("a", attempt, "h:1", alone=False))
    (alone,) = await reader.tasks(TaskFilter(is_claimed=False, job_id=played.job_id, handler="h", queue="q"))
    assert (alone.node_id, alone.isolation) == ("a", Isolation.EXCLUSIVE)
    records = {record.node_id: record for record in await reader.list_nodes(NodeFilter(job_id=played.job_id))}
    assert {node: (record.shared_losses, record.lost_attempts) for node, record in records.items()} == {
        "a": (3, 0),
        "b": (0, 0),
    }
    (backlog,) = await reader.backlog(played.job_id)
    assert (backlog.tasks, backlog.is_exclusive) == (1, True)
    (queue,) = (await reader.fleet()).queues
    assert (queue.waiting, queue.waiting_exclusive) == (1, 1)
    facts = await reader.diagnosis(played.job_id)
    assert facts is not None
    assert facts.tasks["a"].queue_position is None, "it is not claimed in the order of the queue"
    dispatched = [
        event.data for event in await reader.events(played.job_id) if event.type == "NodeDispatched"
    ]
    assert dispatched == [
        {},
        {},
        {"isolation": "process"},
        {"isolation": "process"},
        {"isolation": "exclusive"},
    ]


async def test_footprints_come_from_items_or_outputs(world):
    played, reader = await tiled(world), await world.reader()
    (record,) = await reader.footprints(played.job_id)
    assert (record.child.node_id, record.child.parent_node_id, record.child.fan_out_index) == (
        "tiles__0",
        "tiles",
        0,
    )
    assert (record.child.status, record.child.attempt, record.child.error) == (NodeStatus.COMPLETED, 1, None)
    assert record.footprint == [0, 0, 1, 1]


async def test_footprints_are_paged_by_fan_out_and_index_over_items_without_one(world):
    reader, played = await world.reader(), await Played.begin(world, TILES)
    items = [{"footprint": [n, 0, n + 1, 1]} if n % 3 == 0 else {"n": n} for n in range(11)]
    await played.work({"plan": {"items": items}})
    pages, after = [], None
    while page := await reader.footprints(played.job_id, after=after, limit=2):
        pages.append([record.child.fan_out_index for record in page])
        after = page[-1].position
    assert pages == [[0, 3], [6, 9]]
    assert await reader.footprints(played.job_id, after=("tiles", 2**40)) == []
    assert await reader.footprints(played.job_id, after=("x", -(2**40))) == []
    assert await reader.footprints(played.job_id, after=("x\0", 0)) == []


async def test_a_timeline_has_every_attempt_and_every_node_that_ran_without_a_task(world):
    played, reader = await tiled(world), await world.reader()
    rows = {(row.node_id, row.attempt): row for row in await reader.timelines.rows(played.job_id)}
    ran = {(node, attempt): row.status for (node, attempt), row in rows.items() if node != "plan"}
    attempts = [
        one for node in ("plan", "tiles__0", "tiles__1") for one in await reader.attempts(played.job_id, node)
    ]
    assert ("plan", 1) in rows
    assert ran["tiles", 0] in (NodeStatus.RUNNING, NodeStatus.COMPLETED)
    for attempt in attempts:
        row = rows[attempt.node_id, attempt.attempt]
        assert (row.status, row.worker, row.queued_at) == (
            attempt.status,
            attempt.worker,
            attempt.dispatched_at,
        )
        assert row.finished_at == attempt.finished_at
        assert row.started_at in (attempt.started_at, attempt.claimed_at)


async def test_a_timeline_has_what_runs_now_and_a_node_without_a_row_is_not_in_it(world):
    reader, played = await world.reader(), await Played.begin(world, TILES)
    (waiting,) = await reader.timelines.rows(played.job_id)
    assert (waiting.node_id, waiting.attempt, waiting.status) == ("plan", 1, NodeStatus.DISPATCHED)
    assert (waiting.worker, waiting.started_at, waiting.finished_at) == (None, None, None)
    await played.worker.claim(1)
    (claimed,) = await reader.timelines.rows(played.job_id)
    assert (claimed.status, claimed.queued_at) == (NodeStatus.CLAIMED, waiting.queued_at)
    assert claimed.worker is not None


async def test_a_timeline_is_paged_by_node_and_attempt(world):
    played, reader = await tiled(world), await world.reader()
    rows = await reader.timelines.rows(played.job_id)
    pages, after = [], None
    while page := await reader.timelines.rows(played.job_id, after=after, limit=2):
        pages += page
        after = (page[-1].node_id, page[-1].attempt)
    assert pages == rows == sorted(rows, key=lambda row: (row.node_id, row.attempt))
    assert await reader.timelines.rows(played.job_id, after=("zzz", 2**40)) == []


async def test_the_last_child_of_a_fan_out_is_the_one_that_finished_last(world):
    reader, played = await world.reader(), await Played.begin(world, TILES)
    await played.work({"plan": {"items": [1, 2, 3]}})
    assert await reader.timelines.last_children(played.job_id, ["tiles"]) == {}
    tasks = {task.node_id: task for task in await played.worker.claim(10)}
    for node_id in ("tiles__2", "tiles__0"):
        report = TaskReport(
            tasks[node_id].task_id, tasks[node_id].token, AttemptStatus.COMPLETED, output=JsonText("{}")
        )
        await played.worker.report([report])
        await played.gather()
    assert await reader.timelines.last_children(played.job_id, ["tiles", "plan", "nul\0"]) == {
        "tiles": "tiles__0"
    }
    assert await reader.timelines.last_children("9", ["tiles"]) == {}


# ── Commands, events, logs ──


async def test_pending_commands_are_those_that_no_owner_has_processed(world):
    scene, reader = await Scene.begin(world), await world.reader()
    await scene.client.send(scene.job_id, CommandKind.CANCEL, {}, "ada")
    await scene.client.send(scene.job_id, CommandKind.SIGNAL, {"name": "s"}, "bob")
    pending = await reader.pending_commands(scene.job_id)
    assert [(each.kind, each.sent_by) for each in pending] == [("cancel", "ada"), ("signal", "bob")]
    assert 0 <= pending[0].age_seconds < 60
    assert [each.kind for each in await reader.pending_commands(scene.job_id, limit=1)] == ["cancel"]
    (second,) = await reader.pending_commands(scene.job_id, after=(pending[0].command_id,))
    assert second.command_id == pending[1].command_id
    assert await reader.pending_commands(scene.job_id, after=(pending[1].command_id,)) == []
    commands = await scene.orchestrator.read_commands(10)
    await scene.write(commands=[command.id for command in commands])
    assert await reader.pending_commands(scene.job_id) == []


async def test_events_of_a_job_are_read_in_pages_and_by_node(world):
    played, reader = await tiled(world), await world.reader()
    events = await reader.events(played.job_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events == await world.events(played.job_id)
    assert await reader.events(played.job_id, after=2, limit=2) == events[2:4]
    assert await reader.events(played.job_id, after=2**40) == []
    kept = await reader.events(played.job_id, node_ids=["plan"])
    failures = {EventType.ATTEMPT_FAILED, EventType.NODE_FAILED}
    assert kept == [event for event in events if event.node_id in (None, "plan") or event.type in failures]
    assert any(event.type in failures for event in kept)


async def test_recent_events_come_newest_first_across_jobs(world):
    reader, client = await world.reader(), await world.client()
    jobs = []
    for _ in range(3):
        jobs.append(await submitted(world, client))
        await world.move(5000.0)
    orchestrator = await world.orchestrator()
    await orchestrator.claim(1)
    events = await reader.recent_events()
    assert [(each.job_id, each.event.type) for each in events] == [
        (jobs[0], "JobClaimed"), (jobs[2], "JobSubmitted"), (jobs[1], "JobSubmitted"), (jobs[0], "JobSubmitted"),
    ]  # fmt: skip
    assert [each.job_id for each in await reader.recent_events(types=["JobSubmitted"])] == jobs[::-1]
    assert await reader.recent_events(since=events[1].event.at) == events[:2]
    assert await reader.recent_events(types=["JobFinished"]) == []
    pages, after = [], None
    while page := await reader.recent_events(after=after, limit=2):
        pages.append(page)
        after = (page[-1].event.at, page[-1].job_id, page[-1].event.seq)
        await submitted(world, client)
    assert [each for page in pages for each in page] == events
    assert await reader.recent_events(after=(-1e300, "x", -(2**40))) == []


async def test_events_of_one_moment_are_not_lost_between_pages(world):
    scene, reader = await Scene.begin(world), await world.reader()
    await scene.write(events=[AuditEvent(EventType.SIGNAL_RECEIVED, data=f'{{"n": {n}}}') for n in range(5)])
    events = await reader.recent_events(types=["SignalReceived"])
    assert [each.event.data["n"] for each in events] == [4, 3, 2, 1, 0]
    after = (events[1].event.at, events[1].job_id, events[1].event.seq)
    assert await reader.recent_events(types=["SignalReceived"], after=after, limit=2) == events[2:4]


async def test_events_are_counted_by_type(world):
    reader, client = await world.reader(), await world.client()
    await submitted(world, client)
    await world.move(100.0)
    await submitted(world, client)
    orchestrator = await world.orchestrator()
    await orchestrator.claim(1)
    assert await reader.event_counts() == {"JobSubmitted": 2, "JobClaimed": 1}
    first = (await reader.recent_events())[-1].event.at
    assert await reader.event_counts(since=first + 1) == {"JobSubmitted": 1, "JobClaimed": 1}
    assert await reader.event_counts(until=first + 1) == {"JobSubmitted": 1}
    assert await reader.event_counts(since=-1e300, until=1e300) == await reader.event_counts()


async def test_logs_come_in_the_order_in_which_they_were_written(world):
    reader = await world.reader()
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a")
    await scene.dispatch("b")
    tasks = {task.node_id: task for task in await worker.claim(10)}
    for node, chunk, text in [("a", 1, "1\n"), ("b", 1, "2\n"), ("a", 2, "3\n"), ("b", 2, "ä%_\n")]:
        await worker.append_logs([LogChunk(tasks[node].task_id, tasks[node].token, chunk, text)])
        await world.move(1.0)
    records = await reader.logs(scene.job_id)
    assert [(each.node_id, each.attempt, each.text) for each in records] == [
        ("a", 1, "1\n"), ("b", 1, "2\n"), ("a", 1, "3\n"), ("b", 1, "ä%_\n"),
    ]  # fmt: skip
    assert [each.at for each in records] == sorted(each.at for each in records)
    assert await reader.logs(scene.job_id, LogFilter(node_ids=("b", "a"))) == records
    assert await reader.logs(scene.job_id, LogFilter(node_ids=("b",))) == records[1::2]
    assert await reader.logs(scene.job_id, LogFilter(node_ids=("b",), attempt=1)) == records[1::2]
    for attempt in (2, 2**40):
        assert await reader.logs(scene.job_id, LogFilter(attempt=attempt)) == []
    assert await reader.logs(scene.job_id, after=records[0].position, limit=2) == records[1:3]
    assert await reader.logs(scene.job_id, after=records[3].position) == []
    assert await reader.logs(scene.job_id, after=(1e300, "x", 2**40)) == []


async def test_logs_are_read_backwards_and_searched(world):
    reader, scene, worker = await world.reader(), await Scene.begin(world), await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(10)
    texts = ["ERROR one\n", "Two ÄÖ%_\n", "three error\n", "WARNING ä two\n"]
    for chunk, text in enumerate(texts, 1):
        await worker.append_logs([LogChunk(task.task_id, task.token, chunk, text)])
        await world.move(1.0)
    records = await reader.logs(scene.job_id)

    async def texts_of(after=None, limit=10, newest_first=False, **selection):
        page = await reader.logs(
            scene.job_id, LogFilter(**selection), after=after, limit=limit, newest_first=newest_first
        )
        return [record.text for record in page]

    assert await texts_of(newest_first=True) == texts[::-1]
    assert await texts_of(newest_first=True, after=records[2].position, limit=1) == [texts[1]]
    assert await texts_of(newest_first=True, after=records[0].position) == []
    assert await texts_of(newest_first=True, after=(1e300, "x", 2**40)) == texts[::-1]
    assert await texts_of(since=records[1].at, until=records[2].at) == texts[1:3]
    assert await texts_of(since=records[2].at, newest_first=True) == [texts[3], texts[2]]
    assert await texts_of(since=1e300) == await texts_of(until=-1e300) == []
    assert await texts_of(contains="TWO") == [texts[1], texts[3]]
    assert await texts_of(contains="%_") == [texts[1]]
    # ASCII letters match in either case, others as they are.
    assert await texts_of(contains="ä") == [texts[3]]
    assert await texts_of(contains="\0") == await texts_of(contains="\ud800") == []
    assert await texts_of(words=("ERROR", "WARNING")) == [texts[0], texts[3]]
    assert await texts_of(words=("error",), contains="error") == [texts[2]]


async def test_chunks_are_searched_for_what_may_go_on_in_the_next_one(world):
    reader, scene, worker = await world.reader(), await Scene.begin(world), await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(10)
    texts = ["ERROR one, the Nee", "d", "le ÄÖ", "Ü\nWARN", "ING two\n", "plain need\n", "ÄÖ"]
    await worker.append_logs(
        [LogChunk(task.task_id, task.token, chunk, text) for chunk, text in enumerate(texts, 1)]
    )
    (first,) = await reader.logs(scene.job_id, limit=1)
    task_id = str(first.position[1])

    async def chunks_of(**selection):
        return [record.position[2] for record in await reader.logs(scene.job_id, LogFilter(**selection))]

    # Chunk 4 ends with its first letter.
    assert await chunks_of(contains="needle") == [1, 4]
    assert await chunks_of(contains="two") == [5]
    assert await chunks_of(contains="ÄÖÜ") == [3, 7]
    assert await chunks_of(words=("ERROR", "WARNING")) == [1, 4]
    # The level of what chunk 3 goes on with is in the chunk before.
    assert await chunks_of(words=("ERROR",), contains="le") == [3]
    assert await chunks_of(words=("ERROR",), contains="plain") == []
    assert await reader.log_chunk(task_id, 1) == first
    assert await reader.log_chunk(task_id, 99) is await reader.log_chunk("1", 1) is None
    assert await reader.log_chunk(task_id, 2**40) is None


async def test_pages_of_a_running_jobs_logs_lose_no_chunk_that_becomes_visible_late(world):
    app, scene, worker = application_on(await world.reader()), await Scene.begin(world), await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(10)

    async def write(chunk: int, text: str) -> None:
        await worker.append_logs([LogChunk(task.task_id, task.token, chunk, text)])

    async def page(cursor: str | None, limit: int) -> tuple[list[str], str | None]:
        logs = await list_logs(app, scene.job_id, cursor=cursor, limit=limit)
        return [log.text for log in logs.items], logs.next_cursor

    await write(1, "first")
    await world.move(100.0)
    await write(2, "third")
    first, cursor = await page(None, 1)
    assert first == ["first"]
    # The newest chunk is too young: one with an earlier time may not be visible yet, as the next one.
    assert await page(cursor, 1) == ([], None)
    await world.move(-1.0)
    await write(3, "second")
    await world.move(10.0)
    assert await page(cursor, 2) == (["second", "third"], ANY)
    await write(4, "last")
    assert await page(None, 10) == (["first", "second", "third"], None)
    await finish(scene.orchestrator, scene.job_id, JobStatus.COMPLETED)
    assert await page(None, 10) == (["first", "second", "third", "last"], None)


async def test_chunks_of_one_moment_are_not_lost_between_pages(world):
    reader, scene, worker = await world.reader(), await Scene.begin(world), await world.worker()
    await scene.dispatch("a")
    (task,) = await worker.claim(10)
    await worker.append_logs([LogChunk(task.task_id, task.token, chunk, str(chunk)) for chunk in range(1, 6)])
    texts, after = [], None
    while page := await reader.logs(scene.job_id, after=after, limit=2):
        texts += [record.text for record in page]
        after = page[-1].position
    assert texts == ["1", "2", "3", "4", "5"]


# ── Workflows ──


async def test_published_workflows_and_their_versions_are_listed(world):
    reader, client = await world.reader(), await world.client()
    named = compile_text(
        "{name: b-flow, version: 2, tags: [x, flood], nodes: {a: {handler: h, queue: q}}}"
    ).graph
    for graph in (ONE, named):
        await client.put_graph(graph.content_hash, json.dumps(graph.definition))
    for workflow_id, version, graph in (("b", 1, ONE), ("b", 2, named), ("B", 1, ONE), ("a", 1, ONE)):
        await client.publish(StoredWorkflow(workflow_id, version, graph.content_hash))
    await client.publish(StoredWorkflow("a", 2, ONE.content_hash), activate=False)
    workflows = await reader.workflows()
    assert [(each.workflow_id, each.versions_total, each.newest_version, each.active_version) for each in workflows] == [
        ("B", 1, 1, 1), ("a", 2, 2, 1), ("b", 2, 2, 2),
    ]  # fmt: skip
    assert workflows[2].name == named.definition.get("name")
    assert all(0 <= each.read_at - each.published_at < 60 for each in workflows)
    assert [each.workflow_id for each in await reader.workflows(limit=2)] == ["B", "a"]
    assert [each.workflow_id for each in await reader.workflows(after=("a",))] == ["b"]
    assert [each.tags for each in workflows] == [(), (), ("x", "flood")]
    assert [each.workflow_id for each in await reader.workflows(tag="flood")] == ["b"]
    assert await reader.workflows(tag="flo") == []
    # The tags of the active version count.
    await client.publish(StoredWorkflow("b", 1, ONE.content_hash))
    assert await reader.workflows(tag="flood") == []
    await client.publish(StoredWorkflow("b", 2, named.content_hash))
    versions = await reader.versions("b")
    assert [(each.workflow_id, each.version, each.content_hash, each.is_active) for each in versions] == [
        ("b", 1, ONE.content_hash, False), ("b", 2, named.content_hash, True),
    ]  # fmt: skip
    assert await reader.versions("c") == []
    assert [each.version for each in await reader.versions("b", limit=1)] == [1]
    assert [each.version for each in await reader.versions("b", after=(1,), limit=5)] == [2]
    assert await reader.versions("b", after=(2**40,)) == []
    assert await reader.definition(named.content_hash) == named.definition
    assert await reader.definition("nothing") is None


async def test_a_version_keeps_its_time_of_publishing_until_its_content_changes(world):
    reader, client = await world.reader(), await world.client()
    other = compile_text("{name: other, nodes: {a: {handler: h, queue: q}}}").graph
    for graph in (ONE, other):
        await client.put_graph(graph.content_hash, json.dumps(graph.definition))

    async def published_at(graph: Graph) -> float:
        await client.publish(StoredWorkflow("flow", 1, graph.content_hash))
        await world.move(10.0)
        (workflow,) = await reader.workflows()
        assert workflow.active_version == 1
        return float(workflow.published_at)

    first = await published_at(ONE)
    assert await published_at(ONE) == first
    assert await published_at(other) > first


# ── The fleet ──


async def test_live_and_dead_services_are_distinguished(world):
    reader = await world.reader()
    assert await reader.fleet_counts() == (0, 0, 0, 0)
    owner, dead = await world.orchestrator(), await world.orchestrator()
    worker, gone = await world.worker("q"), await world.worker()
    await world.silence(dead, 100.0)
    await world.silence(gone, 100.0)
    assert await reader.fleet_counts() == (1, 1, 0, 0)
    await owner.heartbeat({"database_condition": "database_disk_full"})
    assert await reader.fleet_counts() == (1, 1, 0, 1)
    assert (reader.lease_seconds, reader.worker_lease_seconds) == (15.0, 6.0)
    fleet = await reader.fleet()
    assert {each.orchestrator_id: (each.is_alive, each.has_died) for each in fleet.orchestrators} == {
        id_of(owner): (True, False),
        id_of(dead): (False, True),
    }
    assert {each.worker_id: (each.is_alive, each.queues, each.concurrency) for each in fleet.workers} == {
        id_of(worker): (True, ("q",), 4),
        id_of(gone): (False, (), 4),
    }
    silent = {each.worker_id: each.silent_seconds for each in fleet.workers}
    assert 100.0 <= silent[id_of(gone)] < 160.0
    assert (fleet.queues, fleet.unowned_jobs) == ((), 0)
    await worker.deregister()
    stopped = {each.worker_id: each for each in (await reader.fleet()).workers}[id_of(worker)]
    assert (stopped.is_alive, stopped.has_died) == (False, False)
    assert stopped.stopped_seconds is not None


async def test_a_service_that_died_more_than_an_hour_ago_is_not_listed(world):
    reader = await world.reader()
    dead, gone = await world.orchestrator(), await world.worker()
    await world.silence(dead, 4000.0)
    await world.silence(gone, 4000.0)
    fleet = await reader.fleet()
    assert (fleet.orchestrators, fleet.workers) == ((), ())


async def test_a_service_that_stopped_is_listed_for_an_hour(world):
    reader = await world.reader()
    worker = await world.worker()
    await worker.deregister()
    await world.move(3000.0)
    assert [each.worker_id for each in (await reader.fleet()).workers] == [id_of(worker)]
    await world.move(700.0)
    assert (await reader.fleet()).workers == ()


async def test_a_dead_worker_of_several_tasks_names_those_that_crashed_since(world):
    await world.move(1000.0)
    reader = await world.reader()
    played = await Played.begin(
        world, "{name: n, nodes: {a: {handler: h, queue: q}, b: {handler: h, queue: q}}}"
    )
    dead, other = played.worker, await world.worker()
    assert len(await dead.claim(10)) == 2
    await world.silence(dead, 100.0)
    assert len(await played.orchestrator.mark_lost_tasks()) == 2
    await played.gather()
    worker = next(each for each in (await reader.fleet()).workers if not each.is_alive)
    assert worker.left == LeftTasksRecord(tasks=2, not_reclaimed=0, now={"dispatched": 2})
    tasks = {task.node_id: task for task in await other.claim(10)}
    errors = {"a": '{"kind": "error", "message": "no"}', "b": '{"kind": "crashed", "message": "ended"}'}
    await other.report(
        [
            TaskReport(task.task_id, task.token, AttemptStatus.FAILED, error=errors[node])
            for node, task in tasks.items()
        ]
    )
    await played.gather()
    worker = next(each for each in (await reader.fleet()).workers if not each.is_alive)
    crashed = (TaskNodeRecord(job_id=played.job_id, node_id="b"),)
    assert worker.left == LeftTasksRecord(tasks=2, not_reclaimed=0, now={"ready": 2}, crashed=crashed)


async def test_what_dead_services_left_is_counted_by_what_became_of_it(world):
    # Nothing expires in the first lease after the store came up.
    await world.move(1000.0)
    reader, played = await world.reader(), await tiled(world)
    other = await world.orchestrator()
    await world.silence(played.worker, 100.0)
    assert len(await other.mark_lost_tasks()) == 1
    (worker,) = (await reader.fleet()).workers
    alone_with = TaskNodeRecord(job_id=played.job_id, node_id="tiles__2")
    assert worker.left == LeftTasksRecord(
        tasks=1, not_reclaimed=0, now={"dispatched": 1}, alone_with=alone_with
    )
    await world.silence(played.orchestrator, 100.0)
    assert len(await other.reclaim()) == 1
    fleet = await reader.fleet()
    left = {each.orchestrator_id: each.left for each in fleet.orchestrators}
    assert left[id_of(played.orchestrator)] == LeftJobsRecord(
        jobs=1, owned_again=0, unowned=1, not_reclaimed=0, reassigned=0
    )
    assert left[id_of(other)] is None
    assert fleet.unowned_jobs == 1


async def test_tasks_of_a_dead_worker_are_stale_if_they_are_not_reclaimed_in_time(world):
    await world.move(1000.0)
    reader, played = await world.reader(), await tiled(world)
    for silent_seconds, stale in ((0.0, 0), (15.0, 0), (30.0, 1), (4000.0, 1)):
        await world.silence(played.worker, silent_seconds)
        assert (await reader.fleet()).stale_tasks == (stale, 0), (
            f"its last heartbeat was {silent_seconds} s ago"
        )
    await played.orchestrator.mark_lost_tasks()
    assert (await reader.fleet()).stale_tasks == (0, 0)


async def test_a_started_task_of_a_live_worker_is_stale_long_after_its_timeout(world):
    reader, played = await world.reader(), await tiled(world)
    (task,) = await reader.tasks(TaskFilter(job_id=played.job_id))
    await played.worker.mark_started({task.task_id: (played.tokens[task.node_id], 3650.0)})
    assert (await reader.fleet()).stale_tasks == (0, 0), "its worker has time to stop it"
    await world.move(20.0)
    await world.silence(played.worker, 0.0)
    assert (await reader.fleet()).stale_tasks == (0, 1)
    await world.silence(played.worker, 100.0)
    assert (await reader.fleet()).stale_tasks == (1, 0)


async def test_queues_count_what_waits_and_what_is_claimed(world):
    reader, played = await world.reader(), await tiled(world)
    await played.worker.heartbeat([], {"running": 1, "processes": 2, "processes_busy": 1, "claimed": 9})
    fleet = await reader.fleet()
    (queue,) = fleet.queues
    assert (queue.queue, queue.waiting, queue.claimed, queue.oldest_seconds) == ("q", 0, 1, None)
    (worker,) = fleet.workers
    assert (worker.running, worker.prefetched, worker.processes, worker.processes_busy) == (1, 0, 2, 1)
    assert (dict(worker.counters), worker.is_draining) == ({"claimed": 9}, False)
    (owner,) = fleet.orchestrators
    assert (owner.jobs, owner.left) == (1, None)


# ── Diagnosis ──


async def test_the_facts_of_a_diagnosis_are_the_job_its_tasks_and_their_services(world):
    reader, played = await world.reader(), await tiled(world)
    facts = await reader.diagnosis(played.job_id)
    assert facts is not None
    assert facts.job == played.held.job.row()
    assert {row.id for row in facts.nodes} == {"plan", "tiles", "tiles__0", "tiles__1", "tiles__2"}
    assert facts.owner is not None
    assert facts.owner.id == id_of(played.orchestrator)
    assert not facts.owner.is_dead
    assert (facts.orchestrators, facts.advance_failure, facts.cancelled_by, facts.cancelled_at) == (
        1,
        None,
        None,
        None,
    )
    task = facts.tasks["tiles__2"]
    assert task.worker is not None
    assert (task.queue, task.worker.id, task.queue_position) == ("q", id_of(played.worker), None)
    assert {node: (each.attempt, each.status) for node, each in facts.attempts.items()} == {
        "plan": (1, "COMPLETED"), "tiles__0": (1, "COMPLETED"), "tiles__1": (1, "FAILED"),
    }  # fmt: skip
    assert (facts.reports, facts.queues) == ({}, {})


async def test_the_queue_of_a_run_is_served_as_it_is_shown_while_its_worker_lives_dies_and_is_expired(world):
    """The fleet, the diagnosis, the backlog and a claim agree."""
    await world.move(1000.0)
    reader = await world.reader()
    played = await Played.begin(world, "{name: n, nodes: {a: {handler: h, queue: 'run:x'}}}")
    runs, app = await world.worker("run:x"), application_on(reader)

    async def shown() -> set[int]:
        facts = await reader.diagnosis(played.job_id)
        assert facts is not None
        (queue,) = (await list_queues(app)).items
        (backlog,) = await reader.backlog(played.job_id)
        return {queue.workers, facts.queues["run:x"].workers, backlog.state.workers}

    # played.worker serves all queues.
    assert (await shown(), await played.worker.claim(1)) == ({1}, [])
    await world.silence(runs, 100.0)
    played.worker.rescan_queues()
    assert (await shown(), await played.worker.claim(1)) == ({0}, []), "dead, and not expired yet"
    await played.orchestrator.mark_lost_tasks()
    assert await shown() == {1}, "now it falls to the workers that serve all queues"
    played.worker.rescan_queues()
    assert len(await played.worker.claim(1)) == 1


async def test_a_diagnosis_knows_positions_in_queues_reports_and_quarantines(world):
    reader = await world.reader()
    played = await Played.begin(
        world,
        "{name: n, nodes: {a: {handler: h, queue: q}, b: {handler: h, queue: q}, c: {handler: h, queue: run:x}}}",
    )
    facts = await reader.diagnosis(played.job_id)
    assert facts is not None
    assert {node: task.queue_position for node, task in facts.tasks.items()} == {"a": 1, "b": 2, "c": 1}
    assert {queue: (state.workers, state.slots) for queue, state in facts.queues.items()} == {
        "q": (1, 4),
        "run:x": (1, 4),
    }
    (task, *_) = await played.worker.claim(1)
    await played.worker.report(
        [TaskReport(task.task_id, task.token, AttemptStatus.COMPLETED, output=JsonText("1"))]
    )
    now = played.orchestrator.clock.now()
    await played.orchestrator.heartbeat({"quarantined": {played.job_id: [now + 50.0, "KeyError"]}})
    facts = await reader.diagnosis(played.job_id)
    assert facts is not None
    assert {node: report.status for node, report in facts.reports.items()} == {task.node_id: "COMPLETED"}
    assert facts.advance_failure is not None
    assert facts.advance_failure.error == "KeyError"
    assert 0 < facts.advance_failure.retry_in_seconds <= 50.0


async def test_a_diagnosis_names_who_cancelled_the_job(world):
    scene, reader = await Scene.begin(world), await world.reader()
    turn = a_turn(await scene.now(), events=[AuditEvent(EventType.CANCEL_REQUESTED, by="ada")])
    turn.job.cancel_requested = True
    await scene.orchestrator.commit_turns([turn], scene.orchestrator.clock.now())
    facts = await reader.diagnosis(scene.job_id)
    assert facts is not None
    assert (facts.cancelled_by, facts.job.cancel_requested) == ("ada", True)
    assert facts.cancelled_at is not None
    record = await reader.job(scene.job_id)
    assert record is not None
    assert record.is_cancelling


# ── Wake-ups ──


async def test_a_subscription_wakes_when_a_job_finishes_and_when_a_command_was_processed(world):
    scene, reader = await Scene.begin(world), await world.reader()
    async with reader.subscribe(scene.job_id) as subscription, reader.subscribe(scene.job_id) as second:
        await scene.dispatch()
        assert not await subscription.wait(0.05)
        await scene.client.send(scene.job_id, CommandKind.SIGNAL, {"name": "s"}, "ada")
        (command,) = await scene.orchestrator.read_commands(10)
        await scene.write(commands=[command.id])
        assert await subscription.wait(PATIENCE_SECONDS)
        assert await second.wait(PATIENCE_SECONDS)
        assert not await subscription.wait(0.05)
        await finish(scene.orchestrator, scene.job_id, JobStatus.COMPLETED)
        assert await subscription.wait(PATIENCE_SECONDS)
    async with reader.subscribe(scene.job_id) as subscription:
        assert not await subscription.wait(0.05)


async def test_a_subscription_is_notified_of_its_job_only(world):
    reader, mine, orchestrator = await world.reader(), await Scene.begin(world), None
    other = await Scene.begin(world, orchestrator)
    async with reader.subscribe(mine.job_id) as subscription:
        await finish(other.orchestrator, other.job_id, JobStatus.FAILED)
        await world.deliver_notifications()
        assert not await subscription.wait(0.05)


async def test_a_subscription_says_whether_notifications_arrive(world):
    job_id = await submitted(world, await world.client())
    async with (await world.reader()).subscribe(job_id) as subscription:
        assert subscription.has_notifications
    if isinstance(world, PostgresWorld):
        for direct in (None, world.dsn):
            async with (await world.reader(is_pooled=True, direct=direct)).subscribe(job_id) as subscription:
                assert subscription.has_notifications == (direct is not None)


async def test_a_subscription_that_was_disconnected_wakes_its_reader_and_listens_again(world):
    scene, reader = await Scene.begin(world), await world.reader()
    async with reader.subscribe(scene.job_id) as subscription:
        if isinstance(world, PostgresWorld):
            await world.disconnect(reader.subscriptions.listener)
            assert await subscription.wait(PATIENCE_SECONDS), (
                "the connection was lost: a notification may have been missed"
            )
            # Loss and reconnection are one wake-up if the loss was seen before the wait, and two otherwise.
            await reader.subscriptions.listener.open()
            while await subscription.wait(0.05):
                pass
        await finish(scene.orchestrator, scene.job_id, JobStatus.COMPLETED)
        assert await subscription.wait(PATIENCE_SECONDS)


async def test_reads_run_side_by_side(world):
    reader, client = await world.reader(), await world.client()
    job_id = await submitted(world, client)
    records = await asyncio.gather(*(reader.job(job_id) for _ in range(20)))
    assert {record.job_id for record in records if record is not None} == {job_id}
