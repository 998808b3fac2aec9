"""The catalogue of reasons for the status of a node or a job: a code for programs, a sentence for people.

The catalogue is in order of urgency for an operator: first what advances only if a person acts, last what
follows from the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from dagmaster.text_format import format_rfc3339

if TYPE_CHECKING:
    from dagmaster.json_types import JsonObject


class ReasonCode(StrEnum):
    """The code of a reason."""

    # A job that no orchestrator advances.
    NO_ORCHESTRATOR = "no_orchestrator"
    ADVANCE_FAILED = "advance_failed"
    OWNER_DIED = "owner_died"
    NO_OWNER = "no_owner"
    OWNER_SILENT = "owner_silent"
    # A job that is ending or failed.
    JOB_CANCELLED = "job_cancelled"
    JOB_DEADLINE = "job_deadline"
    JOB_FAILED = "job_failed"
    # An open node that advances only if a person or a program acts.
    NO_WORKER = "no_worker"
    HANDLER_UNTRUSTED = "handler_untrusted"
    APPROVAL = "approval"
    SIGNAL = "signal"
    # A node that failed.
    FAILED = "failed"
    NODE_CANCELLED = "node_cancelled"
    LOST = "lost"
    DISPATCH_TIMEOUT = "dispatch_timeout"
    REJECTED = "rejected"
    NO_ANSWER = "no_answer"
    NO_SIGNAL = "no_signal"
    UNRESOLVED = "unresolved"
    CHILD_JOB_FAILED = "child_job_failed"
    CHILDREN_FAILED = "children_failed"
    # An open node that will advance.
    WORKER_DIED = "worker_died"
    WORKER_SILENT = "worker_silent"
    RETRY = "retry"
    STOPPING = "stopping"
    CHILD_JOB = "child_job"
    RUNNING = "running"
    CLAIMED = "claimed"
    QUEUED = "queued"
    EXCLUSIVE = "exclusive"
    REPORTED = "reported"
    DECIDING = "deciding"
    WAIT_UNTIL = "wait_until"
    OPEN_CONTEXT = "open_context"
    # An open node that waits for other nodes of its job.
    CHILDREN = "children"
    MAX_PARALLEL = "max_parallel"
    NODES = "nodes"
    NOT_STARTED = "not_started"
    # A node that did not run.
    CANCELLED = "cancelled"
    FAN_OUT_STOPPED = "fan_out_stopped"
    ENDED_EARLY = "ended_early"
    UPSTREAM_FAILED = "upstream_failed"
    BRANCH_NOT_TAKEN = "branch_not_taken"
    UPSTREAM_SKIPPED = "upstream_skipped"
    SUPERSEDED = "superseded"
    # Success.
    COMPLETED = "completed"
    JOB_COMPLETED = "job_completed"


MEANING: Final[dict[ReasonCode, str]] = {
    ReasonCode.NO_ORCHESTRATOR: "The job waits for an orchestrator, and none is alive, or all of them drain.",
    ReasonCode.ADVANCE_FAILED: "The job's owner failed to advance it: a bug. The owner logs it and retries.",
    ReasonCode.OWNER_DIED: "The job's owner died. Another orchestrator takes over.",
    ReasonCode.NO_OWNER: "The job waits to be claimed by an orchestrator.",
    ReasonCode.OWNER_SILENT: "The last heartbeat of the job's owner is older than half of its lease.",
    ReasonCode.JOB_CANCELLED: "A cancel of the job was requested: `by`, `at`.",
    ReasonCode.JOB_DEADLINE: "The job exceeded its deadline.",
    ReasonCode.JOB_FAILED: "A node failed, and with it the job: `node`.",
    ReasonCode.NO_WORKER: "No live worker serves the task's queue, or all of them drain: `queue`.",
    ReasonCode.HANDLER_UNTRUSTED: "Only workers of `caller` offer `handler`, whose contract is another's.",
    ReasonCode.APPROVAL: "The node waits for an approval: by one of `approvers`, or by anyone.",
    ReasonCode.SIGNAL: "The node waits for a signal: `signal`.",
    ReasonCode.FAILED: "The last attempt failed: `error`. No retries are left, or the failure is permanent.",
    ReasonCode.NODE_CANCELLED: "The node was cancelled alone, which is a failure: `by`.",
    ReasonCode.LOST: "Workers that ran only this task died more often than `max_lost` allows: `lost`.",
    ReasonCode.DISPATCH_TIMEOUT: "No worker claimed the task within its dispatch timeout.",
    ReasonCode.REJECTED: "A person rejected the approval.",
    ReasonCode.NO_ANSWER: "The approval timed out.",
    ReasonCode.NO_SIGNAL: "The wait for a signal timed out.",
    ReasonCode.UNRESOLVED: "An expression of the node could not be evaluated, or no branch matched.",
    ReasonCode.CHILD_JOB_FAILED: "The child job did not complete: `job_id`.",
    ReasonCode.CHILDREN_FAILED: "More children of the fan-out failed than it tolerates.",
    ReasonCode.WORKER_DIED: "The worker that held the task died. The task is retried once it is reclaimed.",
    ReasonCode.WORKER_SILENT: "The last heartbeat of the task's worker is older than half of its lease.",
    ReasonCode.RETRY: "The last attempt failed; the next may start at `at`.",
    ReasonCode.STOPPING: "The attempt was asked to stop and has not reported yet. `by`: who cancelled it.",
    ReasonCode.CHILD_JOB: "The node waits for its child job: `job_id`, `status`.",
    ReasonCode.RUNNING: "A worker runs the handler: `worker`, `seconds`, `progress`.",
    ReasonCode.CLAIMED: "A worker claimed the task and has not started its handler: `worker`, `seconds`.",
    ReasonCode.QUEUED: "The task waits in its queue for a worker: `position`, `slots`, `busy`.",
    ReasonCode.EXCLUSIVE: "Workers died that also ran other tasks: the task waits for a worker without any.",
    ReasonCode.REPORTED: "The attempt was reported. The job's owner processes the report next.",
    ReasonCode.DECIDING: "The job's owner advances the node within a moment.",
    ReasonCode.WAIT_UNTIL: "The node waits until `at`.",
    ReasonCode.OPEN_CONTEXT: "The code that makes the job can still add tasks to it: `place`.",
    ReasonCode.CHILDREN: "The fan-out waits for its children.",
    ReasonCode.MAX_PARALLEL: "As many children of the fan-out are active as `max_parallel` allows.",
    ReasonCode.NODES: "The node waits for upstream nodes: `because`.",
    ReasonCode.NOT_STARTED: "The job has not started.",
    ReasonCode.CANCELLED: "The node was cancelled with its job.",
    ReasonCode.FAN_OUT_STOPPED: "The fan-out cancelled it: too many children failed, or it was cancelled.",
    ReasonCode.ENDED_EARLY: "The node did not start because the job was ending.",
    ReasonCode.UPSTREAM_FAILED: "An upstream node did not succeed: `because`.",
    ReasonCode.BRANCH_NOT_TAKEN: "`conditional` took branch `taken`, not `branch`: `value`, `condition`.",
    ReasonCode.UPSTREAM_SKIPPED: "An upstream node was skipped: `because`.",
    ReasonCode.SUPERSEDED: "An earlier run created it from a list or by a task that has been redone since.",
    ReasonCode.COMPLETED: "The node completed.",
    ReasonCode.JOB_COMPLETED: "The job completed.",
}

_RANK: Final = {code: rank for rank, code in enumerate(ReasonCode)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The reason for the status of a node or a job.

    `sentence` has no subject: that is the node, or "the job". `group_sentence` is its plural, without details
    that differ between nodes: nodes with equal group sentences form a group. `because`: the nodes that caused
    it.
    """

    code: ReasonCode
    sentence: str
    group_sentence: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    because: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        """Return the position in the catalogue: lower is more urgent."""
        return _RANK[self.code]

    def to_dict(self) -> JsonObject:
        data = {name: value for name, value in self.data.items() if value is not None}
        reason: JsonObject = {"code": self.code.value, "sentence": self.sentence, "data": data}
        return reason | ({"because": list(self.because)} if self.because else {})


def format_time(at: float | None) -> str | None:
    return None if at is None else format_rfc3339(at)
