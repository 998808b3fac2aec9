"""The orchestrator's door in memory, with the meaning of the one to PostgreSQL: both pass `tests/conformance`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagmaster.engine.status import NodeStatus
from dagmaster.errors import OwnershipLost
from dagmaster.ports.job_records import ClaimedJob
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.node_values import ValueKey, ValueKind
from dagmaster.ports.reusable_results import KnownHandlers, SourceJob, SourceNode
from dagmaster.store.memory.database import Registration, add_event
from dagmaster.store.memory.turn_writer import write_turn
from dagmaster.store.result_notifications import NotificationInbox

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dagmaster.engine.model import NodeRow
    from dagmaster.ports.clock import Clock
    from dagmaster.ports.job_records import StoredWorkflow
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.turn_records import Command, TaskResult, TurnCommit
    from dagmaster.snowflakes import Snowflakes
    from dagmaster.store.memory.database import MemoryDatabase, StoredJob


class MemoryOrchestratorStore(NotificationInbox):
    """The orchestrator's door."""

    def __init__(
        self,
        database: MemoryDatabase,
        *,
        blobs: OutputBlobs | None = None,
        lease_seconds: float = 15.0,
        worker_lease_seconds: float = 6.0,
    ) -> None:
        super().__init__()
        self.owner_id = ""
        self.name = ""
        self._database = database
        self._blobs = blobs or database.blobs
        self._lease_seconds = lease_seconds
        self._worker_lease_seconds = worker_lease_seconds
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
        """The database's time."""
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
        return [_claimed(job) for job in claimed]

    def _after(self, job: StoredJob) -> dict[str, str]:
        """Whether the owner before let go of the job, or died."""
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
        return [_claimed(job) for job in sorted(jobs, key=lambda job: job.rank)]

    def _owned(self) -> list[StoredJob]:
        return [job for job in self._database.jobs.values() if job.owner_id == self.owner_id]

    def _may_bury(self) -> bool:
        me = self._database.orchestrators.get(self.owner_id)
        return self._database.is_fresh(me, self._lease_seconds)

    async def owned_job_ids(self) -> set[str]:
        """The jobs that are owned."""
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

    async def resolve_value(self, value: JsonText) -> Any:
        """Read a value: from its text, or from its blob."""
        return json.loads(await self._blobs.read(value.ref)) if value.ref is not None else value.value()

    # ── Jobs that others were resumed from ──

    async def load_source_job(self, job_id: str) -> SourceJob:
        """The completed nodes of a job."""
        rows = [node.row for node in self._database.jobs[job_id].nodes.values()]
        return SourceJob(job_id, [node for row in rows if (node := _past_of(row)) is not None])

    async def known_handlers(self) -> KnownHandlers:
        """What handlers are now."""
        versions: dict[str, frozenset[str]] = {}
        served: set[str] = set()
        for _, who in sorted(self._database.workers.items(), key=lambda item: -int(item[0])):
            alive = who.stopped_at is None and self._database.is_fresh(who, self._worker_lease_seconds)
            for handler, version in who.handlers.items():
                if alive:
                    versions[handler] = frozenset({version}) | (versions[handler] if handler in served else frozenset())
                    served.add(handler)
                else:
                    versions.setdefault(handler, frozenset({version}))
        return KnownHandlers(versions, frozenset(served))

    async def unfinished_children(self, nodes: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
        """The last child job of each of these nodes, where it did not work out."""
        last: dict[tuple[str, str], StoredJob] = {}
        for child in self._database.jobs.values():
            parent = child.new.parent
            if parent is not None and (place := (parent.job_id, parent.node_id)) in nodes:
                last[place] = max(child, last.get(place, child), key=lambda each: int(each.new.id))
        return {
            place: child.new.id for place, child in last.items() if child.row.status.value in ("FAILED", "CANCELLED")
        }

    async def load_source_outputs(self, job_id: str, nodes: Collection[SourceNode]) -> Mapping[str, JsonText]:
        """The outputs of those of these nodes that are still what they were."""
        stored = self._database.jobs[job_id].nodes
        found: dict[str, JsonText] = {}
        for node in nodes:
            record = stored[node.node_id]
            if _past_of(record.row) == node:
                found[node.node_id] = JsonText() if record.output is None else replace(record.output)
        return found

    async def definition(self, content_hash: str) -> Mapping[str, Any] | None:
        """A stored graph."""
        text = self._database.graphs.get(content_hash)
        return None if text is None else json.loads(text)

    async def find_workflow(self, workflow_id: str, version: int | None) -> StoredWorkflow | None:
        """A published workflow."""
        wanted = self._database.active.get(workflow_id) if version is None else version
        return None if wanted is None else self._database.workflows.get((workflow_id, wanted))


def _past_of(row: NodeRow) -> SourceNode | None:
    if row.status is not NodeStatus.COMPLETED or row.fingerprint is None:
        return None
    return SourceNode(row.id, row.fingerprint, row.handler_version, row.attempt)


def _claimed(job: StoredJob) -> ClaimedJob:
    new = job.new
    return ClaimedJob(
        row=job.row,
        workflow_id=new.workflow_id,
        version=new.version,
        content_hash=new.content_hash,
        inputs=json.loads(new.inputs),
        env=json.loads(new.env),
        priority=new.priority,
        epoch=job.epoch,
        event_seq=len(job.events),
        depth=new.depth,
        queue=new.queue,
        workflows=json.loads(new.workflows),
        parent=new.parent,
        nodes=tuple(node.row for node in job.nodes.values()),
        tasks={node_id: node.task_id for node_id, node in job.nodes.items() if node.task_id is not None},
        resumed_from=new.resumed_from,
        redo=new.redo,
    )
