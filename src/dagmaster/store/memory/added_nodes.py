"""Batches of nodes that are added to the graph of one job, in memory."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dagmaster.errors import NodesRejected, StatementFailed
from dagmaster.ports.added_nodes import (
    ADDED_AT_ONCE,
    BatchDecision,
    BatchRows,
    PlacedNode,
    Reservation,
    StoredBatch,
)
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.store.task_ids import id_in_use

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dagmaster.ports.added_nodes import BatchKey
    from dagmaster.store.memory.database import MemoryDatabase, StoredJob, StoredTask


@dataclass(slots=True)
class JobBatch:
    """A batch of a job. `rows` is None while it is only reserved."""

    number: int
    key: BatchKey | None = None
    added_by: str | None = None
    rows: StoredBatch | None = None
    accepted_order: int | None = None
    rejection: str | None = None
    is_superseded: bool = False

    @property
    def is_rejected(self) -> bool:
        return self.rejection is not None


def reserve(job: StoredJob, key: BatchKey | None = None, added_by: str | None = None) -> Reservation:
    for batch in job.batches.values():
        if key is not None and batch.key == key and not batch.is_rejected:
            return Reservation(batch.number, batch.rows is not None)
    number = 1 + max(job.batches, default=0)
    job.batches[number] = JobBatch(number, key, added_by)
    return Reservation(number)


def write(job: StoredJob, number: int, rows: BatchRows, *, accepted_order: int | None = None) -> bool:
    """Store the rows of a reserved batch; return False if it has rows already."""
    batch = job.batches[number]
    if batch.rows is not None:
        return False
    batch.rows = StoredBatch(tuple(rows.nodes), tuple(rows.groups), tuple(rows.dependencies), number)
    batch.accepted_order = accepted_order
    return True


def decide_batches(job: StoredJob, orders: Mapping[int, int | str]) -> None:
    """Accept batches, or reject those with a reason: the same call of a later attempt adds its nodes."""
    for number, order in orders.items():
        batch = job.batches[number]
        if batch.accepted_order is not None:
            continue
        if isinstance(order, int):
            batch.accepted_order = order
        else:
            batch.rejection = order
            # Their ids can be used again.
            batch.rows = StoredBatch([], [], [], number)


def supersede_batches(job: StoredJob, adders: Collection[str]) -> None:
    """Let these nodes add their nodes again, by the same calls: they are run again from the beginning."""
    for batch in job.batches.values() if adders else ():
        if batch.added_by in adders and batch.accepted_order is not None:
            batch.key, batch.is_superseded = None, True


def stored_batches(job: StoredJob, numbers: Collection[int] | None = None) -> list[StoredBatch]:
    """Return batches in order: with these numbers, or all that were accepted."""
    batches = sorted(
        job.batches.values(), key=lambda batch: (batch.accepted_order or len(job.batches) + 1, batch.number)
    )
    return [
        replace(batch.rows, accepted_order=batch.accepted_order, added_by=batch.added_by)
        for batch in batches
        if batch.rows is not None
        and (batch.accepted_order is not None if numbers is None else batch.number in numbers)
    ]


class MemoryAddedNodeReader:
    """Reads what was added to the graphs of jobs."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def accepted_batches(self, job_id: str) -> tuple[int, ...]:
        return tuple(batch.number for batch in await self.load_batches(job_id))

    async def load_batches(self, job_id: str, numbers: Collection[int] | None = None) -> list[StoredBatch]:
        job = self._database.jobs.get(job_id)
        return [] if job is None else stored_batches(job, numbers)

    async def pending_batches(self, job_id: str) -> tuple[int, ...]:
        commands = self._database.inbox.values()
        bodies = [one.body for one in commands if one.job_id == job_id and one.kind == CommandKind.ADD_NODES]
        return tuple(body["batch"] for body in bodies)

    async def find_node(self, number: int) -> PlacedNode | None:
        for job_id, job in self._database.jobs.items():
            pending = await self.pending_batches(job_id)
            batches = stored_batches(job, job.batches)
            for batch in batches:
                if batch.accepted_order is None and batch.number not in pending:
                    continue
                for node in batch.nodes:
                    if node.id == number:
                        return PlacedNode(job_id, node, _group_id(batches, batch, node.group))
        return None


def _group_id(batches: Sequence[StoredBatch], own: StoredBatch, name: str | None) -> int | None:
    """Return the id of the group of this name in a batch, else in an accepted one."""
    accepted = (batch for batch in batches if batch.accepted_order is not None)
    groups = (group for batch in (own, *accepted) for group in batch.groups)
    return next((group.id for group in groups if group.name == name), None)


def check_ids(database: MemoryDatabase, rows: BatchRows) -> None:
    """Raise `NodesRejected` if a node has the id of another one."""
    batches = (batch.rows for job in database.jobs.values() for batch in job.batches.values())
    known = {node.id for batch in batches if batch is not None for node in batch.nodes}
    for node in rows.nodes:
        if node.id in known:
            raise id_in_use(node)
        known.add(node.id)


def stage(database: MemoryDatabase, task: StoredTask, rows_of: Callable[[int], BatchRows]) -> None:
    """Store a batch that is accepted with the success of a task."""
    job = database.jobs[task.job_id]
    rows = rows_of(1 + max(job.batches, default=0))
    try:
        check_ids(database, rows)
    except NodesRejected as error:
        raise StatementFailed(str(error)) from error
    number = reserve(job, added_by=task.node_id).number
    write(job, number, rows)
    task.batches = (*task.batches, number)


class MemoryTaskNodes:
    """Batches that running tasks add to their own job."""

    _database: MemoryDatabase

    async def reserve_batch(
        self, task_id: str, token: int, key: BatchKey | None = None
    ) -> Reservation | None:
        task = self._database.claimed_task(task_id, token)
        return None if task is None else reserve(self._database.jobs[task.job_id], key, task.node_id)

    async def add_batch(self, task_id: str, token: int, number: int, rows: BatchRows) -> bool:
        database = self._database
        task = database.claimed_task(task_id, token)
        if task is None:
            return False
        if database.jobs[task.job_id].batches[number].rows is None:
            check_ids(database, rows)
        if not write(database.jobs[task.job_id], number, rows):
            return False
        task.batches = (*task.batches, ADDED_AT_ONCE)
        body = json.dumps({"batch": number, "node": task.node_id})
        database.add_command(
            task.job_id, CommandKind.ADD_NODES, body, f"task {task.node_id}", database.clock.now()
        )
        return True

    async def decision_about(self, task_id: str, token: int, number: int) -> BatchDecision | None:
        task = self._database.claimed_task(task_id, token)
        if task is None:
            return None
        batch = self._database.jobs[task.job_id].batches[number]
        is_accepted = batch.accepted_order is not None
        return BatchDecision(is_accepted, batch.rejection) if is_accepted or batch.is_rejected else None

    async def batch_rows(self, task_id: str, token: int, number: int) -> BatchRows:
        task = self._database.claimed_task(task_id, token)
        batches = [] if task is None else stored_batches(self._database.jobs[task.job_id], [number])
        return batches[0] if batches else BatchRows()
