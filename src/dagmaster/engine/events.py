"""The engine's inputs: everything that can happen to a job.

Plain slotted values: they are created on the hot path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.engine.growth import NodeBatch
    from dagmaster.engine.status import JobStatus
    from dagmaster.json_types import JsonValue


@dataclass(slots=True)
class JobStarted:
    """The job was claimed for the first time."""


@dataclass(slots=True)
class TaskSucceeded:
    """A worker reported an output, which stays with the orchestrator.

    `version`: of the handler that produced it.
    """

    node: str
    attempt: int
    version: str | None = None
    added: NodeBatch | None = None
    """Nodes that the task added to its job: they become part of it with this success."""


@dataclass(slots=True)
class ResultReused:
    """The job that this one was resumed from has the result. The output is opaque to the engine."""

    node: str
    output: Any
    source: ReusedFrom


class ReusedFrom(NamedTuple):
    """The attempt of another job whose result is reused."""

    job_id: str
    node: str
    attempt: int
    handler_version: str | None = None


@dataclass(slots=True)
class TaskFailed:
    """A worker reported a failure. `permanent`: a retry would not help."""

    node: str
    attempt: int
    error: dict[str, Any]
    permanent: bool = False


@dataclass(slots=True)
class TaskLost:
    """The worker that held the attempt died, or its lease expired. `alone`: it held no other task.

    `reason`: `memory` if it ended itself at its memory limit.
    """

    node: str
    attempt: int
    worker: str | None = None
    alone: bool = True
    reason: str | None = None


@dataclass(slots=True)
class TaskReleased:
    """The attempt was released unfinished, without a failure: a worker drained, or the task was withdrawn."""

    node: str
    attempt: int


@dataclass(slots=True)
class DispatchRejected:
    """No worker can ever run this attempt: unknown handler, unreadable message, child job nested too deep."""

    node: str
    attempt: int
    error: dict[str, Any]


@dataclass(slots=True)
class TimerFired:
    """A node's `wake_at` is due; without a node, the job's deadline."""

    node: str | None = None


@dataclass(slots=True)
class ValuesLoaded:
    """The values that a `Need` requested, as the scope of its expressions.

    Without a node: for the job's outputs.
    """

    node: str | None
    scope: Mapping[str, JsonValue]


@dataclass(slots=True)
class ResolutionFailed:
    """A template of a decision could not be resolved, or a needed value could not be loaded.

    It uses up no retry.
    """

    node: str | None
    path: str
    message: str


@dataclass(slots=True)
class Approved:
    """A person approved. `at` is RFC 3339."""

    node: str
    by: str
    at: str
    comment: str = ""


@dataclass(slots=True)
class Rejected:
    """A person rejected."""

    node: str
    by: str
    at: str
    comment: str = ""


@dataclass(slots=True)
class SignalReceived:
    """A program sent a signal to the job."""

    name: str
    payload: JsonValue = None


@dataclass(slots=True)
class ChildJobFinished:
    """The child job of a `workflow` node finished.

    `attempt` distinguishes it from the child of an earlier run.
    """

    node: str
    attempt: int
    status: JobStatus
    result: Any = None
    error: dict[str, Any] | None = None


@dataclass(slots=True)
class NodesAdded:
    """A batch of nodes was added to the job: by a running task, or from outside if `node` is None.

    A task adds it before its report, so no job that the task is part of is finished.
    """

    batch: NodeBatch
    node: str | None = None


@dataclass(slots=True)
class BacklogDue:
    """It is time to start more of the nodes that are ready: see `backlog`."""


@dataclass(slots=True)
class ItemsReinjected:
    """Repaired items of a fan-out were reinjected. Opens a new run."""

    node: str
    indexes: tuple[int, ...]


@dataclass(slots=True)
class CancelRequested:
    """A cancel of the job was requested."""

    comment: str = ""


@dataclass(slots=True)
class NodeCancelRequested:
    """A cancel of these nodes was requested, by a person or a program. Their job goes on."""

    nodes: tuple[str, ...]
    by: str = ""


@dataclass(slots=True)
class ResumeRequested:
    """Rerun what did not succeed, and the named nodes with all their descendants."""

    nodes: tuple[str, ...] = ()


@dataclass(slots=True)
class RetryRequested:
    """Rerun these nodes now, all in one new run."""

    nodes: tuple[str, ...]


EngineEvent = (
    JobStarted
    | TaskSucceeded
    | ResultReused
    | TaskFailed
    | TaskLost
    | TaskReleased
    | DispatchRejected
    | TimerFired
    | ValuesLoaded
    | ResolutionFailed
    | Approved
    | Rejected
    | SignalReceived
    | ChildJobFinished
    | NodesAdded
    | BacklogDue
    | ItemsReinjected
    | CancelRequested
    | NodeCancelRequested
    | ResumeRequested
    | RetryRequested
)
