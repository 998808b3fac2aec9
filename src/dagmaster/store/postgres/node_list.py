"""Queries about nodes, put together from the conditions that a filter sets. See `sql/node_list.sql`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from dagmaster.engine.status import NodeStatus
from dagmaster.store.postgres.job_list import bigint, clamp_integer, is_storable, literals
from dagmaster.store.postgres.named_queries import Query, compile_query, parts

if TYPE_CHECKING:
    from dagmaster.json_types import JsonObject
    from dagmaster.ports.read_store import NodeFilter
    from dagmaster.records.page import Position

# A task in flight is stored as DISPATCHED, whether it is claimed and running or not.
_STORED: Final = {
    NodeStatus.CLAIMED: (NodeStatus.DISPATCHED,),
    NodeStatus.RUNNING: (NodeStatus.DISPATCHED, NodeStatus.RUNNING),
}
_ACTIVE: Final = frozenset({NodeStatus.READY, NodeStatus.DISPATCHED, *_STORED, NodeStatus.WAITING})
_OF_JOB_ORDER: Final = "coalesce(n.parent_node_id, ''), n.fan_out_index, n.node_id"
_ACROSS_ORDER: Final = "j.id DESC, n.node_id"


class NodeQuery:
    """A filter as conditions of SQL and their parameters. One that no node can match has no query."""

    def __init__(self, node_filter: NodeFilter, after: Position | None) -> None:
        self.params: JsonObject = {}
        self.is_empty = False
        self._conditions = ["not_superseded"]
        self._job_conditions: list[str] = []
        self._is_of_job = node_filter.job_id is not None
        self._statuses = tuple(status for status in NodeStatus if status in node_filter.statuses)
        if node_filter.job_id is not None:
            self._conditions.append("job_id")
            self.params["job_id"] = bigint(node_filter.job_id)
            self.is_empty |= self.params["job_id"] is None
        if node_filter.workflow_id is not None:
            self._add_text("workflow_id", node_filter.workflow_id, is_of_job=True)
        if node_filter.parent_node_id is not None:
            self._add_text("children", node_filter.parent_node_id, param="parent_node_id")
        if node_filter.top_level:
            self._conditions.append("top_level")
        if after is not None:
            self._add_position(after)

    def page(self, limit: int) -> tuple[Query, JsonObject]:
        query = _page_query(
            tuple(self._conditions), tuple(self._job_conditions), self._statuses, is_of_job=self._is_of_job
        )
        return query, {**self.params, "limit": limit}

    def _add_text(self, condition: str, value: str, *, param: str = "", is_of_job: bool = False) -> None:
        across = is_of_job and not self._is_of_job
        (self._job_conditions if across else self._conditions).append(condition)
        self.params[param or condition] = value
        self.is_empty |= not is_storable(value)

    def _add_position(self, after: Position) -> None:
        if self._is_of_job:
            parent, index, node_id = after
            self._conditions.append("after_node")
            position = clamp_integer(index)
            self.params |= {"after_parent": str(parent), "after_index": position, "after_id": str(node_id)}
            self.is_empty |= not is_storable(str(parent))
        else:
            job_id, node_id = after
            self._job_conditions.append("after_job")
            self._conditions.append("after_node_of_job")
            self.params |= {"after_job_id": bigint(str(job_id)), "after_id": str(node_id)}
            self.is_empty |= self.params["after_job_id"] is None
        self.is_empty |= not is_storable(str(node_id))


@cache
def nodes_query() -> Query:
    texts = parts("node_list")
    conditions = f"{texts['job_id']} AND {texts['ids']}"
    return compile_query(
        "node_list.nodes",
        f"{texts['columns']}\n{texts['of_job']}\n{texts['task']}\nWHERE {conditions} ORDER BY n.node_id",
    )


@cache
def keyed_nodes_query() -> Query:
    texts = parts("node_list")
    return compile_query("node_list.keyed_nodes", f"{texts['columns']}\n{texts['of_keys']}\n{texts['task']}")


@cache
def _page_query(
    conditions: tuple[str, ...],
    job_conditions: tuple[str, ...],
    statuses: tuple[NodeStatus, ...],
    *,
    is_of_job: bool,
) -> Query:
    texts = parts("node_list")
    if is_of_job:
        source, order = texts["of_job"], _OF_JOB_ORDER
    else:
        is_active = bool(statuses) and _ACTIVE.issuperset(statuses)
        jobs = " AND ".join(texts[name] for name in ("visible", *job_conditions))
        source = texts["across_open_jobs" if is_active else "across_jobs"].replace("{jobs}", jobs)
        order = _ACROSS_ORDER
    where = " AND ".join(texts[name] for name in conditions)
    if statuses:
        where += f" AND n.status IN ({literals(_stored(statuses))})"
        where += (
            f" AND dag_displayed_node_status(n.status, q.worker_id, q.started_at) IN ({literals(statuses)})"
        )
    return compile_query(
        "node_list.page",
        f"{texts['columns']}\n{source}\n{texts['task']}\nWHERE {where} ORDER BY {order} LIMIT :limit",
    )


def _stored(statuses: tuple[NodeStatus, ...]) -> tuple[NodeStatus, ...]:
    """Return the stored statuses that may be displayed as these."""
    return tuple(dict.fromkeys(stored for status in statuses for stored in _STORED.get(status, (status,))))
