"""Jobs and workflows as plain values: what is submitted, what a claim returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dagmaster.ports.job_options import JobOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.engine.model import JobRow, NodeRow
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.added_nodes import StoredBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob(JobOptions):
    """A job to store. Its graph is stored already."""

    id: str
    workflow_id: str
    version: int
    content_hash: str
    inputs: str
    env: str = "{}"
    body_hash: str | None = None
    workflows: str = "{}"
    parent: ParentNode | None = None
    depth: int = 0
    # The job whose results are reused where they match; but not those of the nodes in `redo`, nor of their
    # dependents.
    resumed_from: str | None = None
    redo: tuple[str, ...] = ()


class ParentNode(NamedTuple):
    """The node of the parent job for which a child job was started."""

    job_id: str
    node_id: str
    attempt: int


class Accepted(NamedTuple):
    """The result of a submission. `same`: an earlier job with this key has the same body."""

    job_id: str
    is_new: bool
    same: bool = True


class StoredWorkflow(NamedTuple):
    """A published version of a workflow."""

    workflow_id: str
    version: int
    content_hash: str


@dataclass(slots=True, kw_only=True)
class ClaimedJob:
    """A job that this orchestrator owns, with all its stored state but the values."""

    row: JobRow
    workflow_id: str
    version: int
    content_hash: str
    inputs: Mapping[str, JsonValue]
    env: Mapping[str, str]
    priority: int
    epoch: int
    event_seq: int
    depth: int
    queue: str | None
    workflows: Mapping[str, str]
    parent: ParentNode | None
    nodes: Sequence[NodeRow] = ()
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Ids of the tasks in flight, by node."""
    resumed_from: str | None = None
    redo: tuple[str, ...] = ()
    trace_parent: str | None = None
    batches: Sequence[StoredBatch] = ()
    """The nodes that were added to its graph, in order."""
