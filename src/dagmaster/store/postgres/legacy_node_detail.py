"""All that is stored of one node: its attempts, its place in a fan-out, what it was given and what it gave."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from asyncpg import Record

    from dagmaster.store.postgres.legacy_read_store import LegacyReadStore

_SQL = queries("legacy_node_detail")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at a node. One that is out has not completed; `where` is host and process of its worker."""

    number: int
    status: str
    queue: str
    worker_id: str | None
    where: str | None
    dispatched_at: float
    claimed_at: float | None
    completed_at: float | None = None
    error: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None


@dataclass(slots=True, kw_only=True)
class OneNode:
    """What a node has beside its row. `has_item`: its item is known. Params are stored while its task is out."""

    attempts: list[Attempt] = field(default_factory=list)
    fan_out: str | None = None
    number: int | None = None
    has_item: bool = False
    item: Any = None
    output: Any = None
    output_ref: str | None = None
    params: Any = None
    handler_version: str | None = None


async def read_node(
    store: LegacyReadStore,
    job_id: str,
    node_id: str,
    *,
    child_of: tuple[str, int] | None,
    secrets: Collection[str],
    hide: Callable[[Any, Collection[str]], Any],
) -> OneNode:
    """Read a node. `child_of` is its fan-out and its number there; `hide` takes secrets out of a value."""
    about = {"job_id": int(job_id), "node_id": node_id}
    row = await store.session.row(_SQL["node"], about)
    attempts = [_over(each) for each in await store.session.fetch(_SQL["attempts"], about)]
    found = OneNode(attempts=attempts)
    if row is not None:
        found.output, found.output_ref = hide(_value(row["output"]), secrets), row["output_ref"]
        found.handler_version = row["handler_version"]
        if row["params"] is not None:
            more = _value(row["secrets"]) or {}
            found.params = hide(_value(row["params"]), [*secrets, *more.get("hide", ())])
            attempts.append(_out(row))
    if child_of is not None:
        found.fan_out, found.number = child_of
        given = {"job_id": int(job_id), "fan": found.fan_out, "number": found.number}
        item = await store.session.row(_SQL["item"], given)
        found.has_item = item is not None and item["item"] is not None
        found.item = hide(_value(item["item"]), secrets) if item is not None else None
    return found


def _over(row: Record) -> Attempt:
    return Attempt(
        number=row["attempt"],
        status=row["status"],
        queue=row["queue"],
        worker_id=None if row["worker_id"] is None else str(row["worker_id"]),
        where=row["where"],
        dispatched_at=row["dispatched_at"],
        claimed_at=row["claimed_at"],
        completed_at=row["completed_at"],
        error=_value(row["error"]),
        metrics=_value(row["metrics"]),
    )


def _out(row: Record) -> Attempt:
    held = row["out_worker_id"] is not None
    return Attempt(
        number=row["out_attempt"],
        status="RUNNING" if held else "DISPATCHED",
        queue=row["out_queue"],
        worker_id=str(row["out_worker_id"]) if held else None,
        where=row["out_where"],
        dispatched_at=row["out_dispatched_at"],
        claimed_at=row["out_claimed_at"],
    )


def _value(text: str | None) -> Any:
    return None if text is None else json.loads(text)
