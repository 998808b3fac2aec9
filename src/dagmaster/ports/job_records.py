"""Jobs and workflows as plain values: what is submitted, what a claim returns."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from dagmaster.ports.job_options import JobOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.engine.stored_rows import JobRow, NodeRow
    from dagmaster.ports.added_nodes import StoredBatch


@dataclass(slots=True, kw_only=True)
class NewJob(JobOptions):
    """A job to store. Its graph is stored already."""

    id: str
    workflow_id: str
    version: int
    content_hash: str
    inputs: str
    env: str = "{}"
    body_hash: str | None = None
    earlier_hashes: tuple[str, ...] = ()
    """What `body_hash` would be with earlier keys of secret inputs."""
    workflows: str = "{}"
    parent: ParentNode | None = None
    depth: int = 0

    def is_same(self, body_hash: str | None) -> bool:
        """Return whether a stored job with the same idempotency key was submitted by the same request."""
        return body_hash == self.body_hash or body_hash in self.earlier_hashes


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


@dataclass(slots=True)
class JobState:
    """A job as it was submitted, its state for the engine, and how often it was claimed."""

    new: NewJob
    row: JobRow
    epoch: int = field(default=0, kw_only=True)


@dataclass(slots=True, kw_only=True)
class ClaimedJob(JobState):
    """A job that this orchestrator owns, with all its stored state but the values.

    What only readers need of `new` is not loaded.
    """

    event_seq: int
    nodes: Sequence[NodeRow] = ()
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Ids of the tasks in flight, by node."""
    batches: Sequence[StoredBatch] = ()
    """The nodes that were added to its graph, in order."""

    @property
    def inputs(self) -> dict[str, Any]:
        return _read(self.new.inputs)

    @property
    def env(self) -> dict[str, str]:
        return _read(self.new.env)

    @property
    def workflows(self) -> dict[str, str]:
        return _read(self.new.workflows)


def _read(text: str) -> dict[str, Any]:
    # Most of these are empty, and the decoder takes a microsecond for nothing.
    values: dict[str, Any] = {} if text == "{}" else json.loads(text)
    return values
