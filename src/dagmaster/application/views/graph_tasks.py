"""Views of tasks of graphs that were built in code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dagmaster.engine.status import NodeStatus
from dagmaster.json_types import JsonObject, JsonValue
from dagmaster.ports.added_nodes import MemberKind
from dagmaster.records.record import Record, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTaskView(Record):
    """A task that was made in Python.

    `task_id`: the id that it was given when it was made; `attempts`: so far.

    `kwargs` name the results of other tasks as a workflow file does: `{{ nodes.extract.output }}`.
    `entrypoint` is null for what runs no function: a collector of results, the hold of a context.
    `attempt_id`: the task id of its last attempt. Its log file is called after `task_id`.
    """

    task_id: str
    job_id: str
    node_id: str
    group: str | None
    group_id: str | None = None
    entrypoint: str | None
    kwargs: JsonObject
    queue: str | None
    status: NodeStatus
    attempts: int = 0
    result: JsonValue = None
    error: JsonObject | None = None
    worker_id: str | None = None
    attempt_id: str | None = None
    created_at: Timestamp
    claimed_at: Timestamp | None = None
    started_at: Timestamp | None = None
    completed_at: Timestamp | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDependencyView(Record):
    """`next` waits for `previous`: tasks and groups that were made in Python, by the ids of their makers."""

    previous_id: str
    previous_type: MemberKind
    next_id: str
    next_type: MemberKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedHoldView(Record):
    """A job that may complete. `command_id`: the signal to it, which its owner processes."""

    job_id: str
    command_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedNodesView(Record):
    """Nodes that were sent to a job. `node_ids`: by the ids of tasks and groups.

    `is_accepted`: the owner of the job has added them; else it, or the next one, will.
    """

    job_id: str
    batch: int
    node_ids: Mapping[str, str]
    is_accepted: bool
    sentence: str

    @property
    def names(self) -> dict[int, str]:
        return {int(number): name for number, name in self.node_ids.items()}
