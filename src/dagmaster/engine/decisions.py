"""The engine's decisions. The orchestrator executes them in order, and decides nothing itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dagmaster.engine.events import ReusedFrom, TaskFailed, TaskReleased
    from dagmaster.engine.graph import ApprovalSpec, TaskSpec, WorkflowSpec
    from dagmaster.engine.status import JobStatus, SkipReason
    from dagmaster.json_types import JsonValue


class _Reported:
    """The type of REPORTED."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "REPORTED"


# The output is the one that the worker reported: the orchestrator has it, the engine never sees it.
REPORTED: Final = _Reported()


@dataclass(slots=True)
class Need:
    """Load these values and answer with `ValuesLoaded`. Without a node: for the job's outputs.

    `max_bytes`: answer with `ResolutionFailed` if they are larger together, and load none.
    """

    node: str | None
    refs: tuple[tuple[str | int, ...], ...]
    max_bytes: int | None = field(default=None, compare=False)


@dataclass(slots=True)
class Dispatch:
    """Dispatch the task to a worker as this attempt. Params are unresolved."""

    node: str
    attempt: int
    task: TaskSpec


@dataclass(slots=True)
class Complete:
    """The node is COMPLETED with this output. `reused`: the output comes from another job, and nothing ran.

    `attempt` is the one that completed it: the same turn may reopen the node and dispatch the next one.
    """

    node: str
    output: Any
    reused: ReusedFrom | None = None
    attempt: int = 0


@dataclass(slots=True)
class Skip:
    """The node is SKIPPED."""

    node: str
    reason: SkipReason


@dataclass(slots=True)
class Fail:
    """The node is FAILED permanently."""

    node: str
    error: dict[str, Any]


@dataclass(slots=True)
class Cancel:
    """The node is CANCELLED."""

    node: str


@dataclass(slots=True)
class ChargeLoss:
    """The loss of the attempt counts towards `max_lost` of the node."""

    node: str


@dataclass(slots=True)
class RejectResult:
    """The attempt was reported as completed, and failed: what it adds is rejected."""

    node: str
    attempt: int
    error: dict[str, Any]


@dataclass(slots=True)
class Expand:
    """The fan-out has `count` more children from `first` on, of `total`.

    The first batch has the `source` to freeze.
    """

    node: str
    first: int
    count: int
    total: int
    source: list[JsonValue] | None = None


@dataclass(slots=True)
class AddNodes:
    """The batches of these numbers are part of the job now: `nodes` are new."""

    batches: tuple[int, ...]
    nodes: tuple[str, ...]


@dataclass(slots=True)
class StartChildJob:
    """Start another workflow for this node. Inputs are unresolved."""

    node: str
    attempt: int
    workflow: WorkflowSpec


@dataclass(slots=True)
class WaitUntil:
    """Wake the node (or the job, at its deadline) at this time."""

    node: str | None
    at: float


@dataclass(slots=True)
class RequestApproval:
    """Request an approval. The message is unresolved."""

    node: str
    approval: ApprovalSpec


@dataclass(slots=True)
class Stop:
    """Ask the worker or child job that runs this attempt to stop.

    The attempt ends when its report arrives.
    """

    node: str
    attempt: int


@dataclass(slots=True)
class AcceptCancel:
    """A cancel of these nodes is accepted: each fails, or is stopped first.

    `skipped` other ones that were named.
    """

    nodes: tuple[str, ...]
    skipped: int = 0


@dataclass(slots=True)
class Withdraw:
    """Remove the attempt from the queue, unless a worker has claimed it; then apply the event `then`."""

    node: str
    attempt: int
    then: TaskReleased | TaskFailed


@dataclass(slots=True)
class Reopen:
    """The job is in a new run, and these nodes are reopened.

    `skipped` others were named that cannot be retried.

    `superseded`: what earlier runs created and the new one creates again. `adders`: the nodes whose tasks add
    it again.
    """

    run: int
    nodes: tuple[str, ...]
    skipped: int = 0
    superseded: tuple[str, ...] = ()
    adders: tuple[str, ...] = ()


@dataclass(slots=True)
class FinishJob:
    """The job is finished."""

    status: JobStatus
    result: JsonValue = None
    error: dict[str, Any] | None = None


@dataclass(slots=True)
class Ignore:
    """The event changes nothing, for this reason."""

    reason: str
    node: str | None = None


Decision = (
    Need
    | Dispatch
    | Complete
    | Skip
    | Fail
    | Cancel
    | ChargeLoss
    | RejectResult
    | Expand
    | AddNodes
    | StartChildJob
    | WaitUntil
    | RequestApproval
    | Stop
    | AcceptCancel
    | Withdraw
    | Reopen
    | FinishJob
    | Ignore
)
