"""The store in memory and PostgreSQL, driven side by side by chance: whatever is asked of them, they answer alike.

The simulation runs on the one and users on the other. Owners, workers and tokens have other numbers in each; all else
is to be the same: who gets what, what is refused, what is left.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dagmaster.engine.decisions import FinishJob
from dagmaster.engine.status import AttemptStatus, JobStatus
from dagmaster.errors import OwnershipLost
from dagmaster.host.clocks import SystemClock
from dagmaster.host.snowflakes import Snowflakes
from dagmaster.ports.audit_events import AuditEvent, EventType
from dagmaster.ports.read_store import TaskFilter
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.ports.tasks import NewTask
from dagmaster.ports.turn_records import Withdrawal
from tests.conformance.jobs import ONE, a_job, a_turn
from tests.conformance.stores import MemoryWorld, PostgresWorld, SeenAttempt

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.ports.task_source import ClaimedTask

LEASE = 15.0
WORKER_LEASE = 6.0
LONG_AGO = 1000.0
_PLACES = ("before", "where", "worker")


@dataclass
class Owner:
    """An orchestrator in both worlds, and the claims that it ever made, the stale ones as well."""

    stores: list[Any]
    held: list[list[ClaimedJob]]


@dataclass
class Worker:
    """A worker in both worlds, and the tasks that it believes to hold."""

    stores: list[Any]
    held: dict[str, list[ClaimedTask]]


class Alike(RuleBasedStateMachine):
    """What is done to both."""

    server = ""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.worlds: list[Any] = [MemoryWorld(), PostgresWorld(self.server)]
        self.ids = Snowflakes(SystemClock(), 1)
        self.owners: list[Owner] = []
        self.workers: list[Worker] = []
        self.jobs: list[str] = []
        self.attempts: dict[tuple[str, str], int] = {}
        self.told: dict[str, int] = {}

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def both(self, ask: Callable[[int], Coroutine[Any, Any, Any]]) -> list[Any]:
        """Ask both, and give both answers; a refusal is an answer."""

        async def each(place: int) -> Any:
            try:
                return await ask(place)
            except OwnershipLost:
                return "lost"

        return [self.run(each(place)) for place in (0, 1)]

    def alike(self, ask: Callable[[int], Coroutine[Any, Any, Any]]) -> Any:
        """Ask both, and give the answer, which is the same."""
        first, second = self.both(ask)
        assert first == second
        return first

    @initialize()
    def begin(self) -> None:
        for world in self.worlds:
            self.run(world.open())
            # The first lease after the server's start is long over.
            self.run(world.move(3600))
        self.clients = self.both(lambda place: self.worlds[place].client())
        self.readers = self.both(lambda place: self.worlds[place].reader())
        self.both(lambda place: self.clients[place].put_graph(ONE.content_hash, json.dumps(ONE.definition)))
        self.new_owner()
        self.new_worker()
        self.new_worker()
        # Something to begin with: a job that runs, with tasks that wait.
        self.submit(None, "1", 5)
        (owner,) = self.owners
        self.hold(owner, self.both(lambda place: owner.stores[place].claim(1)))
        for node in ("a", "b"):
            self.take_turn(owner, owner.held[0], "dispatch", node)

    def teardown(self) -> None:
        try:
            if hasattr(self, "clients"):
                self.look_at_everything()
        finally:
            for world in self.worlds:
                self.run(world.close())
            self.loop.close()

    # ── Coming in ──

    @rule(key=st.sampled_from([None, "x", "y"]), body=st.sampled_from(["1", "2"]), priority=st.integers(4, 6))
    def submit(self, key: str | None, body: str, priority: int) -> None:
        job = a_job(self.worlds[0], id=self.ids.new(), idempotency_key=key, body_hash=body, priority=priority)
        (answer,) = self.alike(lambda place: self.clients[place].submit([job]))
        if answer.is_new:
            self.jobs.append(answer.job_id)

    @precondition(lambda self: len(self.owners) < 3)
    @rule()
    def new_owner(self) -> None:
        stores = self.both(lambda place: self.worlds[place].orchestrator(LEASE, WORKER_LEASE))
        self.owners.append(Owner(stores, []))

    @precondition(lambda self: len(self.workers) < 3)
    @rule()
    def new_worker(self) -> None:
        self.workers.append(Worker(self.both(lambda place: self.worlds[place].worker("q")), {}))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(self.jobs))

        async def send(place: int) -> bool:
            # Each store numbers the commands itself.
            return await self.clients[place].send(job_id, "cancel", {}, "ada") is not None

        assert self.alike(send)

    # ── Owning ──

    @rule(data=st.data(), limit=st.integers(1, 3))
    def claim_jobs(self, data: st.DataObject, limit: int) -> None:
        owner = data.draw(st.sampled_from(self.owners))
        self.hold(owner, self.both(lambda place: owner.stores[place].claim(limit)))

    @rule(data=st.data())
    def load(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.owners))
        self.hold(owner, self.both(lambda place: owner.stores[place].load_owned()))

    def hold(self, owner: Owner, claimed: list[list[ClaimedJob]]) -> None:
        first, second = claimed
        assert [_said(each) for each in first] == [_said(each) for each in second]
        owner.held += [list(pair) for pair in zip(first, second, strict=True)]

    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.owners))
        self.alike(lambda place: owner.stores[place].heartbeat({}))

    @rule(data=st.data(), seconds=st.sampled_from([1.0, LONG_AGO]))
    def fall_silent(self, data: st.DataObject, seconds: float) -> None:
        everybody: list[Owner | Worker] = [*self.owners, *self.workers]
        who = data.draw(st.sampled_from(everybody))
        self.both(lambda place: self.worlds[place].silence(who.stores[place], seconds))

    @rule(data=st.data())
    def reclaim(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.owners))
        self.alike(lambda place: owner.stores[place].reclaim())
        self.alike(lambda place: owner.stores[place].mark_lost_tasks())

    @precondition(lambda self: len(self.owners) > 1)
    @rule(data=st.data())
    def owner_leaves(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.owners))
        self.owners.remove(owner)
        self.both(lambda place: owner.stores[place].deregister())

    # ── Turns, by every orchestrator that believes that it owns the job ──

    @rule(
        data=st.data(),
        kind=st.sampled_from(["say", "dispatch", "take", "stop", "withdraw", "release", "finish"]),
    )
    def write(self, data: st.DataObject, kind: str) -> None:
        owner = data.draw(st.sampled_from(self.owners))
        if owner.held:
            self.take_turn(
                owner, data.draw(st.sampled_from(owner.held)), kind, data.draw(st.sampled_from(["a", "b"]))
            )

    def take_turn(self, owner: Owner, claims: list[ClaimedJob], kind: str, node: str) -> None:
        job_id = claims[0].row.id
        fields = self.decided(kind, owner, job_id, node)
        written = self.alike(
            lambda place: self.written(owner.stores[place], claims[place], kind, fields[place])
        )
        if job_id in written:
            claims[:] = [replace(each, event_seq=each.event_seq + 1) for each in claims]

    def decided(self, kind: str, owner: Owner, job_id: str, node: str) -> list[dict[str, Any]]:
        """Return the turn for each world: tasks have the same ids, results do not."""
        out = sorted(task for worker in self.workers for task in worker.held)
        if kind == "dispatch":
            attempt = self.attempts[job_id, node] = self.attempts.get((job_id, node), 0) + 1
            task = NewTask(self.ids.new(), job_id, node, "h", attempt, "{}", None, 60.0, queue="q")
            return [{"tasks": [task]}, {"tasks": [task]}]
        if kind == "take":
            result = self.both(lambda place: owner.stores[place].read_results(100))
            mine = [[each for each in results if each.job_id == job_id] for results in result]
            assert [_result(each) for each in mine[0]] == [_result(each) for each in mine[1]]
            asked = self.both(lambda place: owner.stores[place].read_commands(100))
            return [
                {
                    "results": [each.id for each in mine[place]],
                    "commands": [each.id for each in asked[place] if each.job_id == job_id],
                }
                for place in (0, 1)
            ]
        if kind == "stop":
            return [{"stops": out}, {"stops": out}]
        if kind == "withdraw":
            queued = self.alike(lambda place: self.worlds[place].queued())
            taken = [Withdrawal(task_id, AttemptStatus.RELEASED) for task_id in sorted(queued)]
            return [{"withdrawals": taken}, {"withdrawals": taken}]
        return [{"release": kind == "release"}, {"release": kind == "release"}]

    async def written(self, store: Any, claim: ClaimedJob, kind: str, fields: dict[str, Any]) -> set[str]:
        turn = a_turn(claim, events=[AuditEvent(EventType.JOB_STARTED)], **fields)
        if kind == "finish":
            turn.job.status = JobStatus.COMPLETED
            turn.finished = FinishJob(JobStatus.COMPLETED)
        done: set[str] = await store.commit_turns([turn], store.clock.now())
        return done

    @rule(data=st.data())
    def sweep(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from(self.owners))
        self.alike(lambda place: owner.stores[place].release_stopped())

    # ── Tasks ──

    @rule(data=st.data(), limit=st.integers(1, 3))
    def claim_tasks(self, data: st.DataObject, limit: int) -> None:
        worker = data.draw(st.sampled_from(self.workers))
        first, second = self.both(lambda place: worker.stores[place].claim(limit))
        assert [_task(each) for each in first] == [_task(each) for each in second]
        for pair in zip(first, second, strict=True):
            worker.held[pair[0].task_id] = list(pair)

    @rule(
        data=st.data(),
        status=st.sampled_from([AttemptStatus.COMPLETED, AttemptStatus.FAILED, AttemptStatus.RELEASED]),
        running_seconds=st.sampled_from([None, 0.5]),
        wrong=st.booleans(),
    )
    def report(
        self, data: st.DataObject, status: AttemptStatus, running_seconds: float | None, wrong: bool
    ) -> None:
        worker = data.draw(st.sampled_from(self.workers))
        pair = self.held_by(worker, data, wrong=wrong)
        if pair is not None:
            self.alike(
                lambda place: worker.stores[place].report(
                    [TaskReport(pair[0].task_id, pair[place].token, status, running_seconds=running_seconds)]
                )
            )

    @rule(data=st.data(), wrong=st.booleans())
    def mark_started(self, data: st.DataObject, wrong: bool) -> None:
        worker = data.draw(st.sampled_from(self.workers))
        pair = self.held_by(worker, data, wrong=wrong)
        if pair is not None:
            self.alike(
                lambda place: worker.stores[place].mark_started({pair[0].task_id: (pair[place].token, 0.5)})
            )

    def held_by(self, worker: Worker, data: st.DataObject, *, wrong: bool) -> list[ClaimedTask] | None:
        """Return a task that a worker believes to hold, or that any does, in both worlds."""
        held = sorted({task for each in self.workers for task in each.held} if wrong else worker.held)
        if not held:
            return None
        task_id = data.draw(st.sampled_from(held))
        return next(each.held[task_id] for each in self.workers if task_id in each.held)

    @rule(data=st.data())
    def worker_beats(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(self.workers))
        self.alike(lambda place: worker.stores[place].heartbeat(list(worker.held), {}))

    @precondition(lambda self: len(self.workers) > 1)
    @rule(data=st.data())
    def worker_leaves(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(self.workers))
        self.workers.remove(worker)
        self.both(lambda place: worker.stores[place].deregister())

    # ── What is left ──

    @invariant()
    def the_same_tasks_are_out(self) -> None:
        if hasattr(self, "clients"):
            self.alike(lambda place: self.worlds[place].queued())
            self.alike(self.statuses)

    async def statuses(self, place: int) -> list[tuple[str, str]]:
        return [
            (task.task_id, task.status) for task in await self.readers[place].tasks(TaskFilter(), limit=1000)
        ]

    def look_at_everything(self) -> None:
        for job_id in self.jobs:
            self.look_at(job_id)

    def look_at(self, job_id: str) -> None:
        first, second = self.both(lambda place: self.worlds[place].job(job_id))
        assert first._replace(owner=None) == second._replace(owner=None)
        assert (first.owner is None) == (second.owner is None)
        one, other = self.both(lambda place: self.worlds[place].events(job_id))
        assert [_event(each) for each in one] == [_event(each) for each in other]
        one_by_one = self.both(lambda place: self.worlds[place].attempts(job_id))
        before, after = ([_attempt(each) for each in result] for result in one_by_one)
        assert before == after
        self.alike(lambda place: self.readers[place].attempt_count(job_id))


def _event(event: StoredEvent) -> tuple[Any, ...]:
    # Previous owners have another id in each store, and the memory store has no host names.
    return event.seq, event.type, {name: value for name, value in event.data.items() if name not in _PLACES}


def _attempt(attempt: SeenAttempt) -> SeenAttempt:
    # Of one that was lost, the place where it was.
    return attempt._replace(error=None) if attempt.status == "LOST" else attempt


def _said(claimed: ClaimedJob) -> tuple[Any, ...]:
    return (
        claimed.row.id,
        claimed.row.status,
        claimed.epoch,
        claimed.event_seq,
        claimed.new.priority,
        dict(claimed.tasks),
    )


def _task(task: ClaimedTask) -> tuple[Any, ...]:
    return task.task_id, task.job_id, task.node_id, task.attempt, task.params, task.checkpoint


def _result(result: Any) -> tuple[Any, ...]:
    return result.job_id, result.node_id, result.attempt, result.status, result.permanent


def test_both_stores_answer_alike(postgres: str) -> None:
    Alike.server = postgres
    # To shrink takes minutes with a database. Without it, too, the steps that were taken are printed.
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    run_state_machine_as_test(
        Alike,
        settings=settings(
            max_examples=40, stateful_step_count=40, deadline=None, phases=phases, suppress_health_check=slow
        ),
    )


pytestmark = pytest.mark.filterwarnings("ignore:.*never awaited")
