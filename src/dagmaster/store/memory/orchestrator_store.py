"""The orchestrator's store in memory.

It behaves like the one on PostgreSQL: both pass `tests/conformance`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dagmaster.engine.status import AttemptStatus, NodeStatus
from dagmaster.errors import OwnershipLost
from dagmaster.ports.node_values import ValueKey, ValueKind
from dagmaster.store.memory.database import StoredService, add_event
from dagmaster.store.memory.handler_contracts import MemoryHandlerContracts
from dagmaster.store.memory.job_rows import claimed_job
from dagmaster.store.memory.metrics import prune, roll_up
from dagmaster.store.memory.reusable_results import MemoryReusableResults
from dagmaster.store.memory.turn_writer import write_turn
from dagmaster.store.metric_rules import ROLL_UP_JOBS
from dagmaster.store.output_sizes import sum_sizes
from dagmaster.store.result_notifications import NotificationInbox

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dagmaster.host.snowflakes import Snowflakes
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.clock import Clock
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.ports.json_text import JsonText
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.turn_records import Command, TaskResult, TurnCommit
    from dagmaster.store.memory.database import MemoryDatabase, StoredJob


class MemoryOrchestratorStore(NotificationInbox, MemoryReusableResults):
    """Jobs in memory."""

    def __init__(
        self,
        database: MemoryDatabase,
        *,
        blobs: OutputBlobs | None = None,
        lease_seconds: float = 15.0,
        worker_lease_seconds: float = 6.0,
    ) -> None:
        NotificationInbox.__init__(self)
        MemoryReusableResults.__init__(self, database, blobs, worker_lease_seconds=worker_lease_seconds)
        self.owner_id = ""
        self.name = ""
        self._lease_seconds = lease_seconds
        self._ids = database.new_ids()
        self._callbacks: list[Callable[[str], None]] = []

    async def register(self) -> None:
        database = self._database
        previous = database.orchestrators.get(self.owner_id)
        self.owner_id = self._ids.new()
        self.name = f"orchestrator {self.owner_id}"
        now = database.clock.now()
        me = database.orchestrators[self.owner_id] = StoredService(started_at=now, heartbeat_at=now)
        me.keep_drain(previous)
        database.unlisten(self._callbacks)
        self._callbacks = [self.on_jobs, self.on_notification]
        database.listen("jobs", self._callbacks[0])
        database.listen(f"owner {self.owner_id}", self._callbacks[1])

    async def heartbeat(self, counters: Mapping[str, Any]) -> bool:
        me = self._database.orchestrators.get(self.owner_id)
        if me is None or me.stopped_at is not None or self._database.has_expired(me, self._lease_seconds):
            raise OwnershipLost(
                "the lease expired before this heartbeat; other orchestrators may have claimed the jobs"
            )
        me.renew(self._database.clock.now())
        me.counters = dict(counters)
        return me.drain_requested_at is not None

    @property
    def clock(self) -> Clock:
        return self._database.clock

    @property
    def ids(self) -> Snowflakes:
        return self._ids

    # ── Owning ──

    async def claim(self, limit: int, queue: str | None = None) -> list[ClaimedJob]:
        database = self._database
        me = database.orchestrators.get(self.owner_id)
        if me is None or not me.may_claim:
            return []
        commanded = {command.job_id for command in database.inbox.values()}
        claimable = [
            job
            for job_id, job in database.jobs.items()
            if job.owner_id is None
            and (job.is_open or job_id in commanded)
            and queue in (None, job.new.queue)
        ]
        return self._give(sorted(claimable, key=lambda job: job.rank)[:limit])

    async def claim_job(self, job_id: str) -> list[ClaimedJob]:
        """Claim one unowned job."""
        job = self._database.jobs.get(job_id)
        if job is None or job.owner_id is not None:
            return []
        is_commanded = any(command.job_id == job_id for command in self._database.inbox.values())
        return self._give([job] if job.is_open or is_commanded else [])

    def _give(self, claimed: Sequence[StoredJob]) -> list[ClaimedJob]:
        now = self._database.clock.now()
        for job in claimed:
            job.owner_id = self.owner_id
            job.epoch += 1
            add_event(
                job, now, "JobClaimed", self.name, data=json.dumps({"epoch": job.epoch, **self._after(job)})
            )
        return [claimed_job(job) for job in claimed]

    def _after(self, job: StoredJob) -> dict[str, str]:
        """Return the previous owner of a job, and whether it died or released the job."""
        before = self._database.orchestrators.get(job.previous_owner_id or "")
        if before is None or not job.is_open:
            return {}
        died = before.heartbeat_at <= (before.stopped_at or 0.0) - self._lease_seconds
        return {"before": job.previous_owner_id or "", "after": "died" if died else "released"}

    async def load_owned(self, job_ids: Collection[str] | None = None) -> list[ClaimedJob]:
        jobs = [job for job in self._owned() if job_ids is None or job.new.id in job_ids]
        for job in jobs:
            job.epoch += 1
        return [claimed_job(job) for job in sorted(jobs, key=lambda job: job.rank)]

    def _owned(self) -> list[StoredJob]:
        return [job for job in self._database.jobs.values() if job.owner_id == self.owner_id]

    def _may_expire_others(self) -> bool:
        me = self._database.orchestrators.get(self.owner_id)
        return self._database.is_fresh(me, self._lease_seconds)

    async def owned_job_ids(self) -> set[str]:
        return {job.new.id for job in self._owned()}

    async def reclaim(self) -> list[str]:
        database = self._database
        if not self._may_expire_others():
            return []
        for owner_id, owner in database.orchestrators.items():
            if owner.stopped_at is None and database.has_expired(owner, self._lease_seconds):
                owner.stopped_at = database.clock.now()
                owner.counters["left"] = sum(job.owner_id == owner_id for job in database.jobs.values())
        stopped = {
            owner_id for owner_id, owner in database.orchestrators.items() if owner.stopped_at is not None
        }
        released = [job for job in database.jobs.values() if job.owner_id in stopped]
        for job in released:
            job.owner_id, job.previous_owner_id = None, job.owner_id
        return [str(job_id) for job_id in sorted(int(job.row.id) for job in released)]

    async def mark_lost_tasks(self) -> list[str]:
        database = self._database
        if not self._may_expire_others():
            return []
        for worker_id, worker in database.workers.items():
            if worker.stopped_at is None and database.has_expired(worker, self._worker_lease_seconds):
                worker.stopped_at = database.clock.now()
                left = [
                    [task.job_id, task.node_id]
                    for task in database.queue.values()
                    if task.worker_id == worker_id
                ]
                worker.counters |= {"left": len(left), "left_tasks": left}
        dead = {worker_id for worker_id, worker in database.workers.items() if worker.stopped_at is not None}
        lost = database.finish_tasks(AttemptStatus.LOST, lambda worker_id: worker_id in dead)
        return sorted((task.job_id for task in lost), key=int)

    async def roll_up_metrics(self, limit: int = ROLL_UP_JOBS) -> int:
        return roll_up(self._database, limit)

    async def prune_metrics(self, retention_seconds: float) -> int:
        """Forget old samples; return how many."""
        return prune(self._database, retention_seconds)

    async def collect_handlers(self, older_than_seconds: float) -> int:
        """Remove a batch of contracts of callers whose workers are gone; return how many."""
        return await MemoryHandlerContracts(self._database).collect(older_than_seconds)

    async def release_stopped(self) -> int:
        released = self._database.finish_tasks(
            AttemptStatus.RELEASED, lambda worker_id: worker_id is None, only_stopped=True
        )
        return len(released)

    async def release_jobs(self) -> int:
        released = self._owned()
        for job in released:
            job.owner_id, job.previous_owner_id = None, job.owner_id
        if released:
            self._database.notify("jobs")
        return len(released)

    async def deregister(self) -> None:
        database = self._database
        database.unlisten(self._callbacks)
        released = await self.release_jobs()
        me = database.orchestrators.get(self.owner_id)
        if me is not None:
            me.stopped_at = database.clock.now()
            me.counters["left"] = released

    # ── Turns ──

    async def read_results(
        self, limit: int, quarantined: Collection[str] = (), *, after: int = 0
    ) -> list[TaskResult]:
        job_ids = {job.new.id for job in self._owned()} - set(quarantined)
        results = [stored.result for _, stored in sorted(self._database.results.items())]
        return [result for result in results if result.job_id in job_ids and result.id > after][:limit]

    async def read_commands(self, limit: int | None, quarantined: Collection[str] = ()) -> list[Command]:
        job_ids = {job.new.id for job in self._owned()} - set(quarantined)
        commands = [command for _, command in sorted(self._database.inbox.items())]
        return [command for command in commands if command.job_id in job_ids][:limit]

    async def commit_turns(self, turns: Sequence[TurnCommit], now: float) -> set[str]:
        return {
            turn.job.id for turn in turns if write_turn(self._database, turn, self.owner_id, self.name, now)
        }

    # ── Values ──

    async def load_outputs(self, job_id: str, node_ids: Collection[str]) -> Mapping[str, JsonValue]:
        stored = self._database.jobs[job_id].nodes
        nodes = [stored[node_id] for node_id in node_ids if node_id in stored]
        return {
            node.row.id: None if node.output is None else await self.resolve_value(node.output)
            for node in nodes
            if node.row.status is NodeStatus.COMPLETED
        }

    async def load(self, job_id: str, keys: Collection[ValueKey]) -> Mapping[ValueKey, JsonValue]:
        job = self._database.jobs[job_id]
        values: dict[ValueKey, Any] = {}
        for key in keys:
            node = job.nodes.get(key.node)
            if key.kind is ValueKind.OUTPUTS:
                values[key] = await self._outputs(job, key.node)
            elif node is not None and node.source is not None:
                values[key] = json.loads(node.source)
        return values

    async def blob_bytes(
        self, job_id: str, node_ids: Collection[str], reported: Collection[JsonText] = ()
    ) -> int:
        nodes = self._database.jobs[job_id].nodes
        stored = [nodes[node_id].output for node_id in node_ids if node_id in nodes]
        return await sum_sizes(
            self._blobs, [None if one is None else one.ref for one in (*stored, *reported)]
        )

    async def _outputs(self, job: StoredJob, fan_id: str) -> list[JsonValue]:
        children = [node for node in job.nodes.values() if node.row.parent == fan_id]
        values: list[JsonValue] = []
        for child in sorted(children, key=lambda node: node.row.fan_out_index):
            # An inner fan-out first: it may complete in this turn, and its row does not show it yet.
            if child.row.total is not None:
                values.append(await self._outputs(job, child.row.id))
            elif child.row.status is not NodeStatus.COMPLETED:
                values.append(None)
            else:
                values.append(None if child.output is None else await self.resolve_value(child.output))
        return values
