"""Reads timelines of jobs from PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.ports.timelines import TimelineRecord
from dagmaster.store.postgres.job_list import bigint, clamp_integer, is_storable
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.records.page import Position
    from dagmaster.store.postgres.tenant_session import Reader

_SQL = queries("timeline")


class PostgresTimelineReader:
    """Timelines of jobs. An id that no row can have, and a text that cannot be stored, match nothing."""

    def __init__(self, pool: Reader) -> None:
        self._pool = pool

    async def rows(
        self, job_id: str, *, after: Position | None = None, limit: int = 1000
    ) -> list[TimelineRecord]:
        number = bigint(job_id)
        node_id, attempt = ("", -1) if after is None else (str(after[0]), clamp_integer(after[1]))
        if number is None or not is_storable(node_id):
            return []
        params = {"job_id": number, "after_node": node_id, "after_attempt": attempt, "limit": limit}
        return [TimelineRecord(*row) for row in await self._pool.fetch(_SQL["rows"], params)]

    async def last_children(self, job_id: str, fan_outs: Sequence[str]) -> dict[str, str]:
        number, storable = bigint(job_id), [fan_out for fan_out in fan_outs if is_storable(fan_out)]
        if number is None or not storable:
            return {}
        rows = await self._pool.fetch(_SQL["last_children"], {"job_id": number, "fan_outs": storable})
        return {row["parent_node_id"]: row["node_id"] for row in rows}
