"""Jobs for tests of stores: one whose turns a test writes itself, and one that the engine decides."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.authoring.compiler.compile import compile_definition, compile_text
from dagmaster.engine.events import JobStarted
from dagmaster.engine.model import Job, row_of
from dagmaster.engine.status import AttemptStatus, Isolation, JobStatus
from dagmaster.errors import PermanentError
from dagmaster.orchestrator.audit_log import to_audit_events
from dagmaster.orchestrator.inbox import PendingEvents, result_event
from dagmaster.orchestrator.owned_job import OwnedJob
from dagmaster.orchestrator.turn import run_turn
from dagmaster.orchestrator.turn_commit import to_commit
from dagmaster.ports.job_records import NewJob
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.ports.tasks import NewTask
from dagmaster.ports.turn_records import TurnCommit
from tests import patience

if TYPE_CHECKING:
    from dagmaster.engine.events import EngineEvent
    from dagmaster.engine.graph import Graph
    from dagmaster.engine.stored_rows import NodeRow
    from dagmaster.ports.client_store import ClientStore
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.ports.orchestrator_store import OrchestratorStore
    from dagmaster.ports.task_source import ClaimedTask
    from tests.conformance.stores import WorkerStore, World

ONE = compile_text("{name: one, nodes: {a: {handler: h, queue: q}, b: {handler: h, queue: q}}}").graph


def a_job(world: World, graph: Graph = ONE, **fields: Any) -> NewJob:
    """Return a job that is not stored yet."""
    values: dict[str, Any] = {
        "id": world.ids.new(),
        "workflow_id": graph.workflow_id,
        "version": graph.version,
        "content_hash": graph.content_hash,
        "inputs": "{}",
    }
    return NewJob(**(values | fields))


async def submitted(world: World, client: ClientStore, graph: Graph = ONE, **fields: Any) -> str:
    """Store a job."""
    await client.put_graph(graph.content_hash, json.dumps(graph.definition))
    (accepted,) = await client.submit([a_job(world, graph, **fields)])
    assert accepted.is_new
    return accepted.job_id


def a_turn(claimed: ClaimedJob, graph: Graph = ONE, **fields: Any) -> TurnCommit:
    """Return a turn of a running job in which nothing is decided but the given parts."""
    job = Job.rebuild(graph, claimed.row, claimed.nodes)
    job.status = JobStatus.RUNNING
    seq = claimed.event_seq + len(fields.get("events", ()))
    for task in fields.get("tasks", ()):
        task.job_id = job.id
    return TurnCommit(job, claimed.epoch, seq, claimed.new.priority, **fields)


def a_task(
    world: World,
    node: str = "a",
    *,
    attempt: int = 1,
    queue: str = "q",
    params: str = "{}",
    isolation: Isolation = Isolation.SHARED,
    handler: str = "h",
) -> NewTask:
    """Return a task to dispatch; `a_turn` makes it one of its job."""
    return NewTask(
        world.ids.new(), "", node, handler, attempt, params, None, 60.0, queue=queue, isolation=isolation
    )


async def stops_of(worker: WorkerStore, held: list[str], counters: dict[str, Any]) -> set[str]:
    """Renew the lease of a worker; return the tasks that it has to stop."""
    answer = await worker.heartbeat(held, counters)
    assert answer is not None
    return answer.stops


class Scene:
    """A running job and its orchestrator. The test defines its turns."""

    def __init__(
        self, world: World, client: ClientStore, orchestrator: OrchestratorStore, job_id: str
    ) -> None:
        self.world = world
        self.client = client
        self.orchestrator = orchestrator
        self.job_id = job_id

    @classmethod
    async def begin(cls, world: World, orchestrator: OrchestratorStore | None = None, **fields: Any) -> Scene:
        """Submit and claim a job."""
        client = await world.client()
        orchestrator = orchestrator or await world.orchestrator()
        job_id = await submitted(world, client, **fields)
        (claimed,) = await orchestrator.claim(10)
        assert claimed.row.id == job_id
        return cls(world, client, orchestrator, job_id)

    async def now(self) -> ClaimedJob:
        """Return the job as it is stored."""
        (claimed,) = await self.orchestrator.load_owned([self.job_id])
        return claimed

    async def write(self, **fields: Any) -> None:
        """Write a turn."""
        turn = a_turn(await self.now(), **fields)
        assert await self.orchestrator.commit_turns([turn], self.orchestrator.clock.now()) == {self.job_id}

    async def dispatch(self, node: str = "a", **fields: Any) -> str:
        """Put a task into a queue."""
        task = a_task(self.world, node, **fields)
        await self.write(tasks=[task])
        return task.task_id

    async def results(self) -> list[tuple[str, int, str]]:
        """Return the results that no turn has committed yet."""
        results = await self.orchestrator.read_results(100)
        return [(result.node_id, result.attempt, result.status) for result in results]


class Played:
    """A job that the engine decides, driven step by step through the stores as the services do."""

    def __init__(
        self, world: World, orchestrator: OrchestratorStore, worker: WorkerStore, held: OwnedJob
    ) -> None:
        self.world = world
        self.orchestrator = orchestrator
        self.worker = worker
        self.held = held
        self.job_id = held.job.id
        # Lease tokens of the tasks that a test has claimed itself, by node.
        self.tokens: dict[str, int] = {}

    @classmethod
    async def begin(
        cls, world: World, text: str, orchestrator: OrchestratorStore | None = None, **inputs: Any
    ) -> Played:
        """Submit a workflow, claim the job and start it."""
        graph = compile_text(text).graph
        client, worker = await world.client(), await world.worker()
        orchestrator = orchestrator or await world.orchestrator()
        await submitted(world, client, graph, inputs=json.dumps(inputs))
        (claimed,) = await orchestrator.claim(10)
        definition = await orchestrator.definition(claimed.new.content_hash)
        assert definition is not None
        played = cls(
            world, orchestrator, worker, OwnedJob(claimed, compile_definition(definition), orchestrator)
        )
        await played.turn(JobStarted())
        return played

    async def turn(
        self,
        *events: EngineEvent,
        reported: dict[tuple[str, int], JsonText] | None = None,
        results: list[int] | None = None,
        started: dict[str, float] | None = None,
    ) -> TurnCommit:
        """Run a turn and commit it."""
        held, now = self.held, self.orchestrator.clock.now()
        writes = await run_turn(
            held.job,
            events,
            reported=reported or {},
            scopes=held.scopes,
            values=held.values,
            now=now,
            reuse=held.reuse,
        )
        turn = await to_commit(held, writes, ids=self.orchestrator.ids, blobs=self.world.blobs, now=now)
        turn.results = results or []
        turn.started |= started or {}
        turn.events = to_audit_events(held.job, writes, {}, PendingEvents())
        held.event_seq += len(turn.events)
        turn.event_seq = held.event_seq
        held.keep_sources(writes.sources)
        assert await self.orchestrator.commit_turns([turn], now) == {self.job_id}
        return turn

    async def gather(self) -> TurnCommit:
        """Commit every result in one turn."""
        results = await self.orchestrator.read_results(1000)
        reported = {(row.node_id, row.attempt): row.output for row in results if row.output is not None}
        started = {row.node_id: row.started_at for row in results if row.started_at is not None}
        return await self.turn(
            *map(result_event, results),
            reported=reported,
            results=[row.id for row in results],
            started=started,
        )

    async def work(self, outputs: dict[str, Any]) -> TurnCommit:
        """Claim all tasks, report these outputs (an exception is a failure), and commit the next turn."""
        claimed = await self.worker.claim(1000)
        assert sorted(task.node_id for task in claimed) == sorted(outputs)
        reports = [_report(task, outputs[task.node_id]) for task in claimed]
        assert await self.worker.report(reports) == {task.task_id for task in claimed}
        return await self.gather()

    async def stored(self) -> Job:
        """Rebuild the job from its rows alone."""
        (claimed,) = await self.orchestrator.load_owned([self.job_id])
        # Loading raises the epoch.
        self.held.epoch = claimed.epoch
        return Job.rebuild(self.held.job.graph, claimed.row, claimed.nodes)

    async def check_rows(self) -> None:
        """Check that the stored rows equal the job in memory."""
        stored, row = await self.stored(), self.held.job.row()
        assert rows_of(stored) == nearly(rows_of(self.held.job))
        assert stored.row() == replace(row, deadline_at=_near(row.deadline_at))


def _report(task: ClaimedTask, output: Any) -> TaskReport:
    if isinstance(output, Exception):
        error = {"kind": "error", "message": str(output)}
        permanent = isinstance(output, PermanentError)
        return TaskReport(task.task_id, task.token, AttemptStatus.FAILED, permanent, error=json.dumps(error))
    text = JsonText(json.dumps(output))
    return TaskReport(task.task_id, task.token, AttemptStatus.COMPLETED, output=text, handler_version="7")


def rows_of(job: Job) -> list[NodeRow]:
    """Return the rows of all nodes."""
    return [row_of(node) for node in job.walk()]


def nearly(rows: list[NodeRow]) -> list[NodeRow]:
    """Return the rows with times rounded to microseconds, as a database keeps them."""
    return [row._replace(wake_at=_near(row.wake_at)) for row in rows]


def _near(at: float | None) -> Any:
    return None if at is None else pytest.approx(at, rel=0, abs=1e-5)


async def wait_for_event(event: asyncio.Event) -> None:
    """Wait until an event is set."""
    async with asyncio.timeout(patience.PATIENCE_SECONDS):
        await event.wait()
