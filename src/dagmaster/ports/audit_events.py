"""The audit trail: what is told of a job, in order and without gaps. One catalogue for all who read it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class EventType(StrEnum):
    """What can be told."""

    JOB_SUBMITTED = "JobSubmitted"
    JOB_CLAIMED = "JobClaimed"
    JOB_STARTED = "JobStarted"
    NODE_DISPATCHED = "NodeDispatched"
    NODE_COMPLETED = "NodeCompleted"
    ATTEMPT_FAILED = "AttemptFailed"
    ATTEMPT_LOST = "AttemptLost"
    ATTEMPT_RELEASED = "AttemptReleased"
    NODE_FAILED = "NodeFailed"
    NODE_SKIPPED = "NodeSkipped"
    NODE_CANCELLED = "NodeCancelled"
    NODE_WAITING = "NodeWaiting"
    NODE_EXPANDED = "NodeExpanded"
    NODES_ADDED = "NodesAdded"
    APPROVAL_REQUESTED = "ApprovalRequested"
    APPROVED = "Approved"
    REJECTED = "Rejected"
    SIGNAL_RECEIVED = "SignalReceived"
    CHILD_JOB_STARTED = "ChildJobStarted"
    CHILD_JOB_FINISHED = "ChildJobFinished"
    CANCEL_REQUESTED = "CancelRequested"
    JOB_RESUMED = "JobResumed"
    COMMAND_REJECTED = "CommandRejected"
    STALE_REPORT_IGNORED = "StaleReportIgnored"
    JOB_FINISHED = "JobFinished"


MEANING: Final[dict[EventType, str]] = {
    EventType.JOB_SUBMITTED: "The job was accepted. `resumed_from`: the job whose results it uses where they fit.",
    EventType.JOB_CLAIMED: "The job has an owner, at `where`. `epoch` counts them; `after`: the one `before` died, or"
    " released it.",
    EventType.JOB_STARTED: "The first nodes may start.",
    EventType.NODE_DISPATCHED: "The attempt waits in a queue for a worker.",
    EventType.NODE_COMPLETED: "The node has its output. `branch`: the way a conditional took. `reused_from`: whose it"
    " is, where no attempt made it.",
    EventType.ATTEMPT_FAILED: "The attempt failed. `retry_at`: when the next one may start, if there is one.",
    EventType.ATTEMPT_LOST: "The `worker` that held the attempt died.",
    EventType.ATTEMPT_RELEASED: "The attempt came back unfinished; no retry was used up. `cancelled`: it was to"
    " stop, and does not start again.",
    EventType.NODE_FAILED: "The node failed for good.",
    EventType.NODE_SKIPPED: "The node does not run in this run, and why.",
    EventType.NODE_CANCELLED: "The node was stopped because the job was.",
    EventType.NODE_WAITING: "The node waits until `until`, or for `signal`.",
    EventType.NODE_EXPANDED: "A fan-out has `count` more children from `first` on, of `total`.",
    EventType.NODES_ADDED: "A running task added nodes.",
    EventType.APPROVAL_REQUESTED: "The node waits for a person.",
    EventType.APPROVED: "A person said yes.",
    EventType.REJECTED: "A person said no.",
    EventType.SIGNAL_RECEIVED: "A signal came.",
    EventType.CHILD_JOB_STARTED: "Another job was started for the node.",
    EventType.CHILD_JOB_FINISHED: "The job that was started for the node is over.",
    EventType.CANCEL_REQUESTED: "Somebody asked for the job to stop.",
    EventType.JOB_RESUMED: "The job is in a new run; `nodes` are open again: `count` of the workflow, and"
    " `children` of fan-outs.",
    EventType.COMMAND_REJECTED: "Somebody asked for something that cannot be, and why.",
    EventType.STALE_REPORT_IGNORED: "A report of an attempt that does not count any more changed nothing.",
    EventType.JOB_FINISHED: "The job is over.",
}


@dataclass(slots=True)
class AuditEvent:
    """One line of the trail. `data` is JSON text."""

    type: EventType
    node: str | None = None
    attempt: int | None = None
    data: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """An event as it is read back."""

    seq: int
    type: str
    at: float
    by: str
    node: str | None
    attempt: int | None
    data: dict[str, Any]
