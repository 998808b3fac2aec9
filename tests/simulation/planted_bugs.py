"""Fifteen bugs to plant in the memory store: each is a store that does one thing wrong.

They are the mistakes that a protocol like this one invites. A simulation that does not find them proves nothing.
"""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dagmaster.engine.status import AttemptStatus, NodeStatus
from dagmaster.simulation.network import Yield
from dagmaster.simulation.world import StoreFactories
from dagmaster.store.memory import turn_writer
from dagmaster.store.memory.orchestrator_store import MemoryOrchestratorStore
from dagmaster.store.memory.worker_store import MemoryWorkerStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dagmaster.ports.added_nodes import BatchKey, Reservation
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.ports.task_ledger import TaskReport
    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.ports.turn_records import TurnCommit


class NoEpochCheck(MemoryOrchestratorStore):
    """A turn is committed whatever epoch the job has by now."""

    async def commit_turns(self, turns: Sequence[TurnCommit], now: float) -> set[str]:
        jobs = self._database.jobs
        return await super().commit_turns(
            [replace(turn, epoch=jobs[turn.job.id].epoch) for turn in turns], now
        )


class NoTokenCheck(MemoryWorkerStore):
    """A report is accepted with any lease token."""

    async def report(self, reports: Sequence[TaskReport]) -> set[str]:
        accepted: set[str] = set()
        for each in reports:
            task = self._database.queue.get(each.task_id)
            if task is not None and task.token is not None:
                holder = copy(self)
                holder.worker_id = task.worker_id or ""
                accepted |= await MemoryWorkerStore.report(holder, [replace(each, token=task.token)])
        return accepted


class PublishBeforeCommit(MemoryOrchestratorStore):
    """Tasks enter the queue before the state that caused them is committed."""

    async def commit_turns(self, turns: Sequence[TurnCommit], now: float) -> set[str]:
        for turn in turns:
            turn_writer._dispatch(self._database, self._database.jobs[turn.job.id], turn, now)
        await Yield(0.01)
        return await super().commit_turns([replace(turn, tasks=[]) for turn in turns], now)


class ClaimWithoutLock(MemoryWorkerStore):
    """Tasks are selected, and claimed a moment later."""

    async def claim(
        self, limit: int, process_bound: Collection[str] = (), process_slots: int | None = None
    ) -> list[ClaimedTask]:
        database = self._database
        ready = {task_id: task for task_id, task in database.queue.items() if task.worker_id is None}
        await Yield(0.005)
        for task_id, task in ready.items():
            if task_id in database.queue:
                task.worker_id = None
        return await super().claim(limit, process_bound, process_slots)


class LeaseByHostClock(MemoryOrchestratorStore):
    """A heartbeat is stored with the time of the host, which may be wrong by an hour."""

    async def heartbeat(self, counters: Mapping[str, int]) -> bool:
        is_draining = await super().heartbeat(counters)
        me = self._database.orchestrators[self.owner_id]
        me.heartbeat_at += (-3600.0, -300.0, 0.0, 300.0, 3600.0)[int(self.owner_id) // 4096 % 5]
        return is_draining


class LostWakeUp(MemoryWorkerStore):
    """A report sends no notification."""

    async def report(self, reports: Sequence[TaskReport]) -> set[str]:
        database = self._database
        database.notify = lambda _channel, _payload="": None  # type: ignore[method-assign, assignment]
        try:
            return await super().report(reports)
        finally:
            del database.notify


class RetryThatDoubles(MemoryOrchestratorStore):
    """A second attempt enters the queue twice."""

    async def commit_turns(self, turns: Sequence[TurnCommit], now: float) -> set[str]:
        written = await super().commit_turns(turns, now)
        queue = self._database.queue
        for turn in turns:
            for task in turn.tasks if turn.job.id in written else ():
                if task.attempt > 1:
                    twin = self._ids.new()
                    queue[twin] = replace(queue[task.task_id], task_id=twin)
        return written


class ReclaimWithTheSameEpoch(MemoryOrchestratorStore):
    """A job that is claimed again keeps its epoch."""

    async def claim(self, limit: int, queue: str | None = None) -> list[ClaimedJob]:
        claimed = await super().claim(limit, queue)
        for each in claimed:
            if each.epoch > 1:
                self._database.jobs[each.row.id].epoch -= 1
                each.epoch -= 1
        return claimed


class ReportWithoutDeleting(MemoryWorkerStore):
    """A reported task stays in its queue."""

    async def report(self, reports: Sequence[TaskReport]) -> set[str]:
        before = {task_id: replace(task) for task_id, task in self._database.queue.items()}
        accepted = await super().report(reports)
        self._database.queue.update({task_id: before[task_id] for task_id in accepted})
        return accepted


class DoubleExpansion(MemoryOrchestratorStore):
    """A reloaded fan-out has lost its expansion count, and creates its children again."""

    async def load_owned(self, job_ids: Collection[str] | None = None) -> list[ClaimedJob]:
        return [_unexpanded(each) for each in await super().load_owned(job_ids)]

    async def claim(self, limit: int, queue: str | None = None) -> list[ClaimedJob]:
        return [_unexpanded(each) for each in await super().claim(limit, queue)]

    async def commit_turns(self, turns: Sequence[TurnCommit], now: float) -> set[str]:
        for turn in turns:
            nodes = self._database.jobs[turn.job.id].nodes
            for node in turn.added:
                nodes.pop(node.id, None)
        return await super().commit_turns(turns, now)


def _unexpanded(claimed: ClaimedJob) -> ClaimedJob:
    open_fans = {
        row.id
        for row in claimed.nodes
        if row.total is not None and row.status is NodeStatus.RUNNING and row.expanded
    }
    nodes = [
        row._replace(expanded=0) if row.id in open_fans else row
        for row in claimed.nodes
        if row.parent not in open_fans
    ]
    return replace(claimed, nodes=nodes)


class TimerLostOnReload(MemoryOrchestratorStore):
    """A reloaded job has lost its timers."""

    async def load_owned(self, job_ids: Collection[str] | None = None) -> list[ClaimedJob]:
        return [_timeless(each) for each in await super().load_owned(job_ids)]

    async def claim(self, limit: int, queue: str | None = None) -> list[ClaimedJob]:
        return [_timeless(each) for each in await super().claim(limit, queue)]


def _timeless(claimed: ClaimedJob) -> ClaimedJob:
    return replace(claimed, nodes=[row._replace(wake_at=None) for row in claimed.nodes])


class EventNumberReused(MemoryOrchestratorStore):
    """The event of a claim reuses the number of the event before."""

    async def claim(self, limit: int, queue: str | None = None) -> list[ClaimedJob]:
        claimed = await super().claim(limit, queue)
        for each in claimed:
            events = self._database.jobs[each.row.id].events
            events[-1] = replace(events[-1], seq=events[-1].seq - 1)
        return claimed


class EveryLossIsCharged(MemoryOrchestratorStore):
    """All tasks of a dead worker count towards `max_lost`."""

    async def mark_lost_tasks(self) -> list[str]:
        lost = await super().mark_lost_tasks()
        for stored in self._database.results.values():
            if stored.result.status is AttemptStatus.LOST:
                stored.result.error = json.dumps({"alone": True})
        return lost


class NodesAddedByEachAttempt(MemoryWorkerStore):
    """Nodes that are added at once are added again by a later attempt."""

    async def reserve_batch(
        self, task_id: str, token: int, key: BatchKey | None = None
    ) -> Reservation | None:
        reserved = await super().reserve_batch(task_id, token)
        task = self._database.claimed_task(task_id, token)
        if reserved is not None and task is not None:
            self._database.jobs[task.job_id].batches[reserved.number].key = key
        return reserved


class CancelLostOnReload(MemoryOrchestratorStore):
    """A reloaded job has lost which of its nodes are being cancelled."""

    async def load_owned(self, job_ids: Collection[str] | None = None) -> list[ClaimedJob]:
        return [_unstopped(each) for each in await super().load_owned(job_ids)]

    async def claim(self, limit: int, queue: str | None = None) -> list[ClaimedJob]:
        return [_unstopped(each) for each in await super().claim(limit, queue)]


def _unstopped(claimed: ClaimedJob) -> ClaimedJob:
    return replace(claimed, nodes=[row._replace(stopped=False) for row in claimed.nodes])


PLANTED: Final[Mapping[str, Callable[[], StoreFactories]]] = {
    "no epoch check": lambda: StoreFactories(orchestrator=NoEpochCheck),
    "no token check": lambda: StoreFactories(worker=NoTokenCheck),
    "publish before commit": lambda: StoreFactories(orchestrator=PublishBeforeCommit),
    "claim without SKIP LOCKED": lambda: StoreFactories(worker=ClaimWithoutLock),
    "lease by host clock": lambda: StoreFactories(orchestrator=LeaseByHostClock),
    "lost wake-up": lambda: StoreFactories(worker=LostWakeUp),
    "retry that doubles": lambda: StoreFactories(orchestrator=RetryThatDoubles),
    "reclaim without raising the epoch": lambda: StoreFactories(orchestrator=ReclaimWithTheSameEpoch),
    "report without deleting": lambda: StoreFactories(worker=ReportWithoutDeleting),
    "double expansion": lambda: StoreFactories(orchestrator=DoubleExpansion),
    "timer lost on reload": lambda: StoreFactories(orchestrator=TimerLostOnReload),
    "cancel lost on reload": lambda: StoreFactories(orchestrator=CancelLostOnReload),
    "every loss is charged": lambda: StoreFactories(orchestrator=EveryLossIsCharged),
    "nodes added by each attempt": lambda: StoreFactories(worker=NodesAddedByEachAttempt),
    "event number reused": lambda: StoreFactories(orchestrator=EventNumberReused),
}
"""The planted bugs by name."""
