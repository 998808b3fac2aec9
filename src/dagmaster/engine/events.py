"""What can happen to a job. Plain slotted values: they are made on the hot path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.engine.graph import Spec


@dataclass(slots=True)
class JobStarted:
    """The job was claimed for the first time."""


@dataclass(slots=True)
class TaskSucceeded:
    """A worker reported an output. The output itself stays with the shell. `version`: of the handler that gave it."""

    node: str
    attempt: int
    version: str | None = None


@dataclass(slots=True)
class ResultReused:
    """The job that this one was resumed from has the result. The output is in the shell's form, and not looked into."""

    node: str
    output: Any
    source: ReusedFrom


class ReusedFrom(NamedTuple):
    """Whose result is used again."""

    job_id: str
    node: str
    attempt: int
    handler_version: str | None = None


@dataclass(slots=True)
class TaskFailed:
    """A worker reported a failure. `permanent`: trying again would not help."""

    node: str
    attempt: int
    error: dict[str, Any]
    permanent: bool = False


@dataclass(slots=True)
class TaskLost:
    """The worker that held the attempt died, or its lease ran out."""

    node: str
    attempt: int
    worker: str | None = None


@dataclass(slots=True)
class TaskReleased:
    """The attempt came back unfinished through nobody's fault: a worker drained, or the work was withdrawn."""

    node: str
    attempt: int


@dataclass(slots=True)
class DispatchRejected:
    """No worker can ever run this: an unknown handler, an unreadable message, too deep a child job."""

    node: str
    attempt: int
    error: dict[str, Any]


@dataclass(slots=True)
class TimerFired:
    """A node's `wake_at` has come; without a node, the job's deadline."""

    node: str | None = None


@dataclass(slots=True)
class ValuesLoaded:
    """The values that a `Need` asked for, as the scope of its expressions. Without a node: for the job's outputs."""

    node: str | None
    scope: Mapping[str, Any]


@dataclass(slots=True)
class ResolutionFailed:
    """What a decision carried could not be resolved, or what it needed could not be loaded. No retry is wasted."""

    node: str | None
    path: str
    message: str


@dataclass(slots=True)
class Approved:
    """A person said yes. `at` is RFC 3339."""

    node: str
    by: str
    at: str
    comment: str = ""


@dataclass(slots=True)
class Rejected:
    """A person said no."""

    node: str
    by: str
    at: str
    comment: str = ""


@dataclass(slots=True)
class SignalReceived:
    """A program sent a signal to the job."""

    name: str
    payload: Any = None


@dataclass(slots=True)
class ChildJobFinished:
    """The job that a `workflow` node started is over. `attempt` tells it from the child of an earlier run."""

    node: str
    attempt: int
    status: str
    result: Any = None
    error: dict[str, Any] | None = None


@dataclass(slots=True)
class NodesAdded:
    """A running task added nodes to its own job. A node that is already there is not added twice."""

    specs: tuple[Spec, ...]


@dataclass(slots=True)
class ItemsReinjected:
    """Repaired items of a fan-out were put back. Opens a new run."""

    node: str
    indexes: tuple[int, ...]


@dataclass(slots=True)
class CancelRequested:
    """Somebody asked for the job to stop."""


@dataclass(slots=True)
class ResumeRequested:
    """Run again what failed, was cancelled or was skipped because of it; and what is named, with all that follows."""

    nodes: tuple[str, ...] = ()


@dataclass(slots=True)
class RetryRequested:
    """Run one node again, now."""

    node: str


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
    | ItemsReinjected
    | CancelRequested
    | ResumeRequested
    | RetryRequested
)
