"""The audit log of a job, in order and without gaps: the catalogue of its events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from dagmaster.records.record import Record, Timestamp


class EventType(StrEnum):
    """The type of an audit event."""

    JOB_SUBMITTED = "JobSubmitted"
    JOB_CLAIMED = "JobClaimed"
    JOB_STARTED = "JobStarted"
    NODE_DISPATCHED = "NodeDispatched"
    ATTEMPT_STARTED = "AttemptStarted"
    CHECKPOINT_SAVED = "CheckpointSaved"
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
    NODE_CANCEL_REQUESTED = "NodeCancelRequested"
    JOB_RESUMED = "JobResumed"
    COMMAND_REJECTED = "CommandRejected"
    STALE_REPORT_IGNORED = "StaleReportIgnored"
    JOB_FINISHED = "JobFinished"


MEANING: Final[dict[EventType, str]] = {
    EventType.JOB_SUBMITTED: "The job was accepted. `resumed_from`: the job whose results it reuses.",
    EventType.JOB_CLAIMED: "The job has an owner, at `where`. `epoch` counts owners; `after`: the owner"
    " `before` died or released it.",
    EventType.JOB_STARTED: "The first nodes may start.",
    EventType.NODE_DISPATCHED: "The attempt is queued for a worker. `isolation`, after workers died that ran"
    " it next to other tasks: it runs in a child `process`, or as the only task of its worker (`exclusive`).",
    EventType.ATTEMPT_STARTED: "The handler of the attempt started, at `started_at`. Written with the end of"
    " the attempt, if it took at least a second or saved a checkpoint.",
    EventType.CHECKPOINT_SAVED: "The attempt saved the checkpoint `checkpoint_name`, `after_seconds`. Written"
    " with the end of the attempt, for its last 20; `omitted`: how many came before.",
    EventType.NODE_COMPLETED: "The node completed. `branch`: taken by a conditional. `reused_from`: the"
    " source of a reused result.",
    EventType.ATTEMPT_FAILED: "The attempt failed. `retry_at`: when the next attempt may start, if there"
    " is one.",
    EventType.ATTEMPT_LOST: "The `worker` that held the attempt died. `alone`: it held no other task."
    " `charged`: the loss counts towards `max_lost`, because it was alone, or lost with others ten times"
    " before.",
    EventType.ATTEMPT_RELEASED: "The attempt was released unfinished; it uses up no retry. `cancelled`: it"
    " was asked to stop and does not start again.",
    EventType.NODE_FAILED: "The node failed permanently.",
    EventType.NODE_SKIPPED: "The node is skipped in this run, for `reason`.",
    EventType.NODE_CANCELLED: "The node was cancelled with its job, or with its fan-out.",
    EventType.NODE_WAITING: "The node waits until `until`, or for `signal`.",
    EventType.NODE_EXPANDED: "A fan-out has `count` more children from `first` on, of `total`.",
    EventType.NODES_ADDED: "A running task added nodes.",
    EventType.APPROVAL_REQUESTED: "The node waits for an approval.",
    EventType.APPROVED: "A person approved, with the command `command_id`.",
    EventType.REJECTED: "A person rejected, with the command `command_id`.",
    EventType.SIGNAL_RECEIVED: "A signal arrived, with the command `command_id`.",
    EventType.CHILD_JOB_STARTED: "A child job was started for the node.",
    EventType.CHILD_JOB_FINISHED: "The child job of the node finished.",
    EventType.CANCEL_REQUESTED: "A cancel of the job was requested, with the command `command_id`. `comment`:"
    " the reason, if there is one.",
    EventType.NODE_CANCEL_REQUESTED: "A cancel of `count` nodes was requested, with the command `command_id`."
    " `nodes`: the first 100 of them. `skipped`: how many others were named that were finished or already"
    " being stopped.",
    EventType.JOB_RESUMED: "The job is in a new run; `nodes` are reopened: `count` of the workflow, and"
    " `children` of fan-outs. `command_id`: the command that asked for it. `skipped`: how many other nodes it"
    " named,"
    " which cannot be retried.",
    EventType.COMMAND_REJECTED: "The `command` with the id `command_id` was rejected, for `reason`.",
    EventType.STALE_REPORT_IGNORED: "A stale report of an earlier attempt was ignored.",
    EventType.JOB_FINISHED: "The job finished.",
}


@dataclass(slots=True)
class AuditEvent:
    """An event to append to the audit log. `data` is JSON text."""

    type: EventType
    node: str | None = None
    attempt: int | None = None
    data: str | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent(Record):
    """An event as it is read from the store."""

    seq: int
    type: EventType | str
    at: Timestamp
    by: str
    node_id: str | None
    attempt: int | None
    data: dict[str, Any]
