"""Batches of nodes that are added to the graph of one job, on PostgreSQL. Rows are written by COPY."""

from __future__ import annotations

import contextlib
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from asyncpg.exceptions import UniqueViolationError

from dagmaster.errors import DatabaseUnavailable, NodesRejected, StatementFailed
from dagmaster.ports.added_nodes import (
    ADDED_AT_ONCE,
    BatchDecision,
    BatchRows,
    DependencyRecord,
    GroupRecord,
    MemberKind,
    NodeRecord,
    PlacedNode,
    Reservation,
    StoredBatch,
)
from dagmaster.store.postgres.named_queries import queries
from dagmaster.store.task_ids import id_in_use

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import asyncpg

    from dagmaster.ports.added_nodes import BatchKey
    from dagmaster.ports.task_ledger import TaskReport
    from dagmaster.store.postgres.connection import Copy
    from dagmaster.store.postgres.named_queries import Query
    from dagmaster.store.postgres.tenant_session import Reader, Session

SQL: Final = queries("added_nodes")
MAX_ID: Final = 1 << 63
_TRIES: Final = 50
"""How often a number is tried to be reserved: others may reserve it at the same moment."""

_NODES_AT_ONCE: Final = 20_000
"""How many nodes one statement reads: an array of all could be too large."""

_KINDS: Final = {kind.value: kind for kind in MemberKind}


async def load_batches(
    connection: Reader,
    job_id: str,
    numbers: Collection[int] | None = None,
    proof: Mapping[str, int] = MappingProxyType({}),
) -> list[StoredBatch]:
    """Return batches in order: with these numbers, or all that were accepted.

    `proof`: the task that a worker holds.
    """
    params: dict[str, Any] = {"job_id": int(job_id), "numbers": None if numbers is None else sorted(numbers)}
    params |= proof
    batches = {
        row[0]: StoredBatch([], [], [], *row) for row in await connection.fetch(SQL["load_batches"], params)
    }
    if not batches:
        return []
    params["numbers"] = list(batches)
    await _load_nodes(connection, batches, params)
    for batch, *columns in await connection.fetch(SQL["load_groups"], params):
        batches[batch].groups.append(GroupRecord(*columns))  # type: ignore[attr-defined]
    for batch, source, source_id, target, target_id in await connection.fetch(
        SQL["load_dependencies"], params
    ):
        dependency = DependencyRecord(_KINDS[source], source_id, _KINDS[target], target_id)
        batches[batch].dependencies.append(dependency)  # type: ignore[attr-defined]
    return list(batches.values())


async def _load_nodes(
    connection: Reader, batches: Mapping[int, StoredBatch], params: Mapping[str, Any]
) -> None:
    last_batch, last_position = 0, -1
    while True:
        place = {"last_batch": last_batch, "last_position": last_position, "limit": _NODES_AT_ONCE}
        (row,) = await connection.fetch(SQL["load_added_nodes"], {**params, **place})
        numbers: list[int] | None = row["batches"]
        if numbers is None:
            return
        nodes = map(NodeRecord, row["ids"], row["node_ids"], row["groups"], row["definitions"])
        for batch, of_batch in groupby(zip(numbers, nodes, strict=True), key=itemgetter(0)):
            batches[batch].nodes += [node for _, node in of_batch]  # type: ignore[operator]
        if len(numbers) < _NODES_AT_ONCE:
            return
        last_batch, last_position = numbers[-1], row["last_position"]


def copies_of(job_id: int, number: int, rows: BatchRows) -> list[Copy]:
    tables: list[tuple[str, tuple[str, ...], Sequence[tuple[Any, ...]]]] = [
        ("dag_added_nodes", ("id", "node_id", "group_name", "definition"), rows.nodes),
        ("dag_groups", ("id", "name", "parent"), rows.groups),
        ("dag_dependencies", ("previous_type", "previous_id", "next_type", "next_id"), rows.dependencies),
    ]
    return [
        (
            table,
            ("job_id", "batch", "position", *columns),
            # Read once, while the driver sends the rows before.
            ((job_id, number, position, *record) for position, record in enumerate(records)),
        )
        for table, columns, records in tables
        if records
    ]


@contextlib.contextmanager
def unique_ids(rows: BatchRows) -> Iterator[None]:
    """Raise `NodesRejected` if a node has the id of another one."""
    try:
        yield
    except StatementFailed as error:
        violation = error.__cause__
        if (
            not isinstance(violation, UniqueViolationError)
            or violation.constraint_name != "dag_added_nodes_id"
        ):
            raise
        # The driver has the id as text only: "Key (id)=(123) already exists."
        node = next(
            (node for node in rows.nodes if f"({node.id})" in (violation.detail or "")), rows.nodes[0]
        )
        raise id_in_use(node) from error


async def reserve_batch(
    connection: Reader, query: Query, params: Mapping[str, Any]
) -> tuple[int, Reservation] | None:
    """Return the job and the number of a new batch; None if there is no such job, or the task is not held."""
    for _ in range(_TRIES):
        row = await connection.row(query, params)
        if row is None:
            return None
        if row["number"] is not None:
            is_written = bool(row["is_written"]) if "is_written" in row else False
            return row["job_id"], Reservation(row["number"], is_written)
    raise DatabaseUnavailable("too many tasks add nodes to this job at the same moment: try again")


async def reserve_task_batch(
    connection: Reader, task_id: str, token: int, key: BatchKey | None = None
) -> tuple[int, Reservation] | None:
    """Return the job and the number of a new batch of a task; None if the task is not held."""
    node_id, call_number, digest = key or (None, None, None)
    params: dict[str, Any] = {"task_id": int(task_id), "token": token}
    params |= {"node_id": node_id, "call_number": call_number, "digest": digest}
    return await reserve_batch(connection, SQL["reserve_task_batch"], params)


async def report_with_nodes(
    connection: Session, report: TaskReport, statement: tuple[Query, Mapping[str, Any]]
) -> Sequence[asyncpg.Record]:
    """Store the nodes that a task added, with its report, in one transaction; no rows if it is not held."""
    reserved = await reserve_task_batch(connection, report.task_id, report.token)
    if reserved is None or report.added_rows is None:
        return []
    job_id, (number, _) = reserved
    params = {"job_id": job_id, "number": number, "task_id": int(report.task_id), "token": report.token}
    rows = report.added_rows(number)
    # The row of the task is locked last: a turn that stops the task must not wait for the copy.
    after = [(SQL["stage_batch"], params), statement]
    try:
        with unique_ids(rows):
            copies = copies_of(job_id, number, rows)
            return await connection.copy_in_transaction([(SQL["mark_written"], params)], copies, after)
    except NodesRejected as error:
        raise StatementFailed(str(error)) from error


class PostgresAddedNodeReader:
    """Reads what was added to the graphs of jobs, on a pool of read-only connections."""

    def __init__(self, pool: Reader) -> None:
        self._pool = pool

    async def accepted_batches(self, job_id: str) -> tuple[int, ...]:
        rows = await self._pool.fetch(SQL["load_batches"], {"job_id": int(job_id), "numbers": None})
        return tuple(row["number"] for row in rows)

    async def load_batches(self, job_id: str, numbers: Collection[int] | None = None) -> list[StoredBatch]:
        return await load_batches(self._pool, job_id, numbers)

    async def pending_batches(self, job_id: str) -> tuple[int, ...]:
        rows = await self._pool.fetch(SQL["pending_batches"], {"job_id": int(job_id)})
        return tuple(row["number"] for row in rows)

    async def find_node(self, number: int) -> PlacedNode | None:
        if not 0 <= number < MAX_ID:
            return None
        row = await self._pool.row(SQL["find_added_node"], {"id": number})
        if row is None:
            return None
        job_id, group_id, *columns = row
        return PlacedNode(str(job_id), NodeRecord(*columns), group_id)


class PostgresTaskNodes:
    """Batches that running tasks add to their own job."""

    _journal: Session

    async def reserve_batch(
        self, task_id: str, token: int, key: BatchKey | None = None
    ) -> Reservation | None:
        reserved = await reserve_task_batch(self._journal, task_id, token, key)
        return None if reserved is None else reserved[1]

    async def add_batch(self, task_id: str, token: int, number: int, rows: BatchRows) -> bool:
        row = await self._journal.row(SQL["job_of_task"], {"task_id": int(task_id), "token": token})
        if row is None:
            return False
        job_id = row["job_id"]
        params = {"job_id": job_id, "number": number, "task_id": int(task_id), "token": token}
        # A command is durable when it is accepted.
        with unique_ids(rows):
            sent = await self._journal.copy_in_transaction(
                [(SQL["mark_written"], params)],
                copies_of(job_id, number, rows),
                # In one transaction: an owner that sees the result of the task also sees the command.
                [(SQL["send_task_batch"], params), (SQL["stage_batch"], {**params, "number": ADDED_AT_ONCE})],
                is_flushed=True,
            )
        return bool(sent)

    async def decision_about(self, task_id: str, token: int, number: int) -> BatchDecision | None:
        params = {"task_id": int(task_id), "token": token, "number": number}
        row = await self._journal.row(SQL["batch_decision"], params)
        return None if row is None else BatchDecision(*row)

    async def batch_rows(self, task_id: str, token: int, number: int) -> BatchRows:
        held = {"task_id": int(task_id), "token": token}
        row = await self._journal.row(SQL["job_of_task"], held)
        batches = [] if row is None else await load_batches(self._journal, str(row["job_id"]), [number], held)
        return batches[0] if batches else BatchRows()
