"""The orchestrator's door in memory, with the meaning of the one to PostgreSQL: both pass `tests/conformance`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dagmaster.engine.status import NodeStatus
from dagmaster.errors import OwnershipLost
from dagmaster.ports.node_values import ValueKey, ValueKind
from dagmaster.store.memory.database import Registration, add_event
from dagmaster.store.memory.reusable_results import MemoryReusableResults, claimed_job
from dagmaster.store.memory.turn_writer import write_turn
from dagmaster.store.result_notifications import NotificationInbox

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dagmaster.ports.clock import Clock
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.turn_records import Command, TaskResult, TurnCommit
    from dagmaster.snowflakes import Snowflakes
    from dagmaster.store.memory.database import MemoryDatabase, StoredJob


class MemoryOrchestratorStore(NotificationInbox, MemoryReusableResults):
    """The orchestrator's door."""

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
        self._heard: list[Callable[[str], None]] = []

    async def register(self) -> None:
        """Be known, as alive."""
        database = self._database
        self.owner_id = self._ids.new()
        self.name = f"orchestrator {self.owner_id}"
        database.orchestrators[self.owner_id] = Registration(database.clock.now())
        database.deafen(self._heard)
        self._heard = [self.hear_of_jobs, self.hear]
        database.listen("jobs", self._heard[0])
        database.listen(f"owner {self.owner_id}", self._heard[1])

    async def heartbeat(self, counters: Mapping[str, Any]) -> None:
        """Stay alive."""
        me = self._database.orchestrators.get(self.owner_id)
        if me is None or me.stopped_at is not None or self._database.has_expired(me, self._lease_seconds):
            raise OwnershipLost("others may have taken over: the heartbeat came too late")
        me.heartbeat_at = self._database.clock.now()
        me.counters = dict(counters)

    @property
    def clock(self) -> Clock:
        """Return the database's time."""
        return self._database.clock

    @property
    def ids(self) -> Snowflakes:
        """New ids."""
        return self._ids

    # ── Owning ──

    async def claim(self, limit: int, queue: str | None = None) -> list[ClaimedJob]:
        """Own jobs that nobody owns, and finished ones that somebody asked something of."""
        database = self._database
        me = database.orchestrators.get(self.owner_id)
        if me is None or me.stopped_at is not None:
            return []
        asked = {command.job_id for command in database.inbox.values()}
        free = [
            job
            for job_id, job in database.jobs.items()
            if job.owner_id is None and (job.is_open or job_id in asked) and queue in (None, job.new.queue)
        ]
        claimed = sorted(free, key=lambda job: job.rank)[:limit]
        now = database.clock.now()
        for job in claimed:
            job.owner_id = self.owner_id
            job.epoch += 1
            add_event(job, now, "JobClaimed", self.name, data=json.dumps({"epoch": job.epoch, **self._after(job)}))
        return [claimed_job(job) for job in claimed]

    def _after(self, job: StoredJob) -> dict[str, str]:
        """Return whether the owner before let go of the job, or died."""
        before = self._database.orchestrators.get(job.previous_owner_id or "")
        if before is None or not job.is_open:
            return {}
        died = before.heartbeat_at <= (before.stopped_at or 0.0) - self._lease_seconds
        return {"before": job.previous_owner_id or "", "after": "died" if died else "released"}

    async def load_owned(self, job_ids: Collection[str] | None = None) -> list[ClaimedJob]:
        """Load the jobs that are owned."""
        jobs = [job for job in self._owned() if job_ids is None or job.new.id in job_ids]
        for job in jobs:
            job.epoch += 1
        return [claimed_job(job) for job in sorted(jobs, key=lambda job: job.rank)]

    def _owned(self) -> list[StoredJob]:
        return [job for job in self._database.jobs.values() if job.owner_id == self.owner_id]

    def _may_bury(self) -> bool:
        me = self._database.orchestrators.get(self.owner_id)
        return self._database.is_fresh(me, self._lease_seconds)

    async def owned_job_ids(self) -> set[str]:
        """Return the jobs that are owned."""
        return {job.new.id for job in self._owned()}

    async def reclaim(self) -> int:
        """Let go of the jobs of dead orchestrators."""
        database = self._database
        if not self._may_bury():
            return 0
        for owner_id, who in database.orchestrators.items():
            if who.stopped_at is None and database.has_expired(who, self._lease_seconds):
                who.stopped_at = database.clock.now()
                who.counters["left"] = sum(job.owner_id == owner_id for job in database.jobs.values())
        stopped = {owner_id for owner_id, who in database.orchestrators.items() if who.stopped_at is not None}
        freed = [job for job in database.jobs.values() if job.owner_id in stopped]
        for job in freed:
            job.owner_id, job.previous_owner_id = None, job.owner_id
        return len(freed)

    async def mark_lost_tasks(self) -> int:
        """Report the tasks of dead workers as lost."""
        database = self._database
        if not self._may_bury():
            return 0
        for worker_id, who in database.workers.items():
            if who.stopped_at is None and database.has_expired(who, self._worker_lease_seconds):
                who.stopped_at = database.clock.now()
                left = [[task.job_id, task.node_id] for task in database.queue.values() if task.worker_id == worker_id]
                who.counters |= {"left": len(left), "left_tasks": left}
        dead = {worker_id for worker_id, who in database.workers.items() if who.stopped_at is not None}
        return database.give_all_back("LOST", lambda worker_id: worker_id in dead)

    async def release_stopped(self) -> int:
        """Hand back the tasks that are to stop and that no worker holds."""
        return self._database.give_all_back("RELEASED", lambda worker_id: worker_id is None, only_stopped=True)

    async def deregister(self) -> None:
        """Release every job."""
        database = self._database
        freed = self._owned()
        for job in freed:
            job.owner_id, job.previous_owner_id = None, job.owner_id
        me = database.orchestrators.get(self.owner_id)
        if me is not None:
            me.stopped_at = database.clock.now()
            me.counters["left"] = len(freed)
        database.deafen(self._heard)
        if freed:
            database.tell("jobs")

    # ── Turns ──

    async def read_results(self, limit: int, resting: Collection[str] = (), *, after: int = 0) -> list[TaskResult]:
        """Read what was reported of this orchestrator's jobs."""
        mine = {job.new.id for job in self._owned()} - set(resting)
        found = [each.said for _, each in sorted(self._database.results.items()) if each.said.job_id in mine]
        return [each for each in found if each.id > after][:limit]

    async def read_commands(self, limit: int, resting: Collection[str] = ()) -> list[Command]:
        """Read what was asked of this orchestrator's jobs."""
        mine = {job.new.id for job in self._owned()} - set(resting)
        return [each for _, each in sorted(self._database.inbox.items()) if each.job_id in mine][:limit]

    async def commit_turns(self, turns: Sequence[TurnCommit], now: float) -> set[str]:
        """Write turns."""
        return {turn.job.id for turn in turns if write_turn(self._database, turn, self.owner_id, self.name, now)}

    # ── Values ──

    async def load(self, job_id: str, keys: Collection[ValueKey]) -> Mapping[ValueKey, Any]:
        """Load values."""
        job = self._database.jobs[job_id]
        found: dict[ValueKey, Any] = {}
        for key in keys:
            node = job.nodes.get(key.node)
            if key.kind is ValueKind.OUTPUTS:
                found[key] = await self._outputs(job, key.node)
            elif node is None:
                continue
            elif key.kind is ValueKind.ITEMS and node.source is not None:
                found[key] = json.loads(node.source)
            elif key.kind is ValueKind.OUTPUT and node.row.status is NodeStatus.COMPLETED:
                found[key] = None if node.output is None else await self.resolve_value(node.output)
        return found

    async def _outputs(self, job: StoredJob, fan_id: str) -> list[Any]:
        children = [node for node in job.nodes.values() if node.row.parent == fan_id]
        values: list[Any] = []
        for child in sorted(children, key=lambda node: node.row.fan_out_index):
            # An inner fan-out first: it may end in this very turn, and its row does not say so yet.
            if child.row.total is not None:
                values.append(await self._outputs(job, child.row.id))
            elif child.row.status is not NodeStatus.COMPLETED:
                values.append(None)
            else:
                values.append(None if child.output is None else await self.resolve_value(child.output))
        return values
