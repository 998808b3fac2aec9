"""Nodes, groups and dependencies that are added to the graph of one job, as rows.

A batch is written by the worker or client that adds it, and never changes. It becomes part of the job when
the owner of the job accepts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from dagmaster.json_types import JsonObject

ADDED_AT_ONCE: Final = 0
"""Stands among the batches of a task for one that it added at once: a command was sent before the task's
result."""


class MemberKind(StrEnum):
    """What a dependency connects."""

    TASK = "task"
    GROUP = "group"


class NodeRecord(NamedTuple):
    """A node. `definition` is JSON: see `authoring.added_nodes`."""

    id: int
    node_id: str
    group: str | None
    definition: str


class PlacedNode(NamedTuple):
    """A node, the job that it was added to, and the id of its group."""

    job_id: str
    node: NodeRecord
    group_id: int | None


class GroupRecord(NamedTuple):
    """A group, and the group that it is in."""

    id: int
    name: str
    parent: str | None


class DependencyRecord(NamedTuple):
    """`next` waits for `previous`. Both are node ids, or names of groups."""

    previous_type: MemberKind
    previous_id: str
    next_type: MemberKind
    next_id: str


@dataclass(slots=True)
class BatchRows:
    """The rows of a batch."""

    nodes: Sequence[NodeRecord] = ()
    groups: Sequence[GroupRecord] = ()
    dependencies: Sequence[DependencyRecord] = ()


@dataclass(slots=True)
class StoredBatch(BatchRows):
    """The rows of a batch of a job. Batches that were accepted as a whole have the same `accepted_order`.

    `added_by`: the node whose task added it; None: it came from outside, or from a service of an earlier
    version.
    """

    number: int = 0
    accepted_order: int | None = None
    added_by: str | None = None


class UnstoredNodes(Protocol):
    """Nodes without the number of a batch: see `authoring.graph_parts`."""

    def check(self) -> None:
        """Raise `NodesRejected` if no job could have them."""

    def extend(self, more: Any) -> None:
        """Add nodes of the same kind to these."""

    def to_json(self) -> JsonObject:
        """Return them as JSON."""

    def map_json(self, change: Callable[[JsonObject], JsonObject]) -> UnstoredNodes:
        """Return them with changed values."""

    def to_rows(self, number: int) -> BatchRows:
        """Return the rows of the batch of this number."""


class BatchKey(NamedTuple):
    """Identifies one call that adds nodes at once: a repetition by a later attempt adds nothing.

    `call_number` counts the calls of an attempt with the same content: others may come in another order next
    time.
    """

    node_id: str
    call_number: int
    digest: str


class Reservation(NamedTuple):
    """The number of a new batch.

    `is_written`: an earlier attempt made this call, and its batch has the rows.
    """

    number: int
    is_written: bool = False


class BatchDecision(NamedTuple):
    """What the owner of a job decided about a batch.

    `rejection`: why; None of an owner of an earlier version.
    """

    is_accepted: bool
    rejection: str | None = None


class TaskNodes(Protocol):
    """Batches that running tasks add to their own job at once.

    Every call is fenced by the task's lease token.
    """

    async def reserve_batch(
        self, task_id: str, token: int, key: BatchKey | None = None
    ) -> Reservation | None:
        """Return the number of a new batch; None if the task is not held any more."""

    async def add_batch(self, task_id: str, token: int, number: int, rows: BatchRows) -> bool:
        """Store a batch and ask the job's owner to accept it now; return False if the task is not held."""

    async def decision_about(self, task_id: str, token: int, number: int) -> BatchDecision | None:
        """Return the owner's decision about a batch of a task; None if undecided, or the task is not held."""

    async def batch_rows(self, task_id: str, token: int, number: int) -> BatchRows:
        """Return the rows of a batch that this or an earlier attempt wrote; none if the task is not held."""


class AddedNodeReader(Protocol):
    """Reads what was added to the graphs of jobs."""

    async def accepted_batches(self, job_id: str) -> tuple[int, ...]:
        """Return the numbers of the batches that are part of a job, in order."""

    async def load_batches(self, job_id: str, numbers: Collection[int] | None = None) -> list[StoredBatch]:
        """Return batches in order: with these numbers, or all that were accepted."""

    async def pending_batches(self, job_id: str) -> tuple[int, ...]:
        """Return the numbers of the batches that the owner of a job has not decided about, in order."""

    async def find_node(self, number: int) -> PlacedNode | None:
        """Return a task that was made in Python, with its job and its group, by its own id.

        None also if its batch was rejected, or was added by an attempt that failed.
        """


class JobNodes(Protocol):
    """Reads the batches of jobs."""

    async def load_batches(self, job_id: str, numbers: Collection[int] | None = None) -> list[StoredBatch]:
        """Return batches in order: with these numbers, or all that were accepted."""
