"""Why a node or a job stands where it stands: a code for programs, a sentence for people. One catalogue for all.

The catalogue is in the order in which somebody who was woken at night wants to hear it: first what moves only if a
person does something, last what follows from the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final


class ReasonCode(StrEnum):
    """What can be the reason."""

    # A job that nobody moves.
    NO_ORCHESTRATOR = "no_orchestrator"
    ADVANCE_FAILED = "advance_failed"
    OWNER_DIED = "owner_died"
    NO_OWNER = "no_owner"
    OWNER_SILENT = "owner_silent"
    # How a job ends, or ended.
    JOB_CANCELLED = "job_cancelled"
    JOB_DEADLINE = "job_deadline"
    JOB_FAILED = "job_failed"
    # An open node that moves only if somebody does something.
    NO_WORKER = "no_worker"
    APPROVAL = "approval"
    SIGNAL = "signal"
    # A node that failed.
    FAILED = "failed"
    LOST = "lost"
    DISPATCH_TIMEOUT = "dispatch_timeout"
    REJECTED = "rejected"
    NO_ANSWER = "no_answer"
    NO_SIGNAL = "no_signal"
    UNRESOLVED = "unresolved"
    CHILD_JOB_FAILED = "child_job_failed"
    CHILDREN_FAILED = "children_failed"
    # An open node that will move.
    WORKER_DIED = "worker_died"
    WORKER_SILENT = "worker_silent"
    RETRY = "retry"
    STOPPING = "stopping"
    CHILD_JOB = "child_job"
    RUNNING = "running"
    PREFETCHED = "prefetched"
    CLAIMED = "claimed"
    QUEUED = "queued"
    REPORTED = "reported"
    DECIDING = "deciding"
    WAIT_UNTIL = "wait_until"
    # An open node that waits for others of its job.
    CHILDREN = "children"
    MAX_PARALLEL = "max_parallel"
    NODES = "nodes"
    NOT_STARTED = "not_started"
    # A node that was not to run.
    CANCELLED = "cancelled"
    FAN_OUT_STOPPED = "fan_out_stopped"
    ENDED_EARLY = "ended_early"
    UPSTREAM_FAILED = "upstream_failed"
    BRANCH_NOT_TAKEN = "branch_not_taken"
    UPSTREAM_SKIPPED = "upstream_skipped"
    SUPERSEDED = "superseded"
    # What worked out.
    COMPLETED = "completed"
    JOB_COMPLETED = "job_completed"


MEANING: Final[dict[ReasonCode, str]] = {
    ReasonCode.NO_ORCHESTRATOR: "The job waits for an owner, and no orchestrator is alive.",
    ReasonCode.ADVANCE_FAILED: "The job's owner failed to advance it: a bug, logged by the owner. It retries.",
    ReasonCode.OWNER_DIED: "The job's owner died. Another orchestrator takes the job over.",
    ReasonCode.NO_OWNER: "The job waits to be claimed by an orchestrator.",
    ReasonCode.OWNER_SILENT: "The job's owner was not heard for half of its lease. If it died, another takes over.",
    ReasonCode.JOB_CANCELLED: "Somebody asked for the job to stop: `by`, `at`.",
    ReasonCode.JOB_DEADLINE: "The job was not done in time.",
    ReasonCode.JOB_FAILED: "A node failed, and the job with it: `node`.",
    ReasonCode.NO_WORKER: "The task waits in a queue that no live worker serves: `queue`.",
    ReasonCode.APPROVAL: "A person has to say yes or no: `approvers`, or anybody.",
    ReasonCode.SIGNAL: "The node waits for a signal: `signal`.",
    ReasonCode.FAILED: "The last attempt failed: `error`. The tries are used up, or another would not help.",
    ReasonCode.LOST: "More workers died under the node than its `max_lost` allows.",
    ReasonCode.DISPATCH_TIMEOUT: "No worker took the task from its queue in time.",
    ReasonCode.REJECTED: "A person said no.",
    ReasonCode.NO_ANSWER: "Nobody answered an approval in time.",
    ReasonCode.NO_SIGNAL: "The signal did not come in time.",
    ReasonCode.UNRESOLVED: "An expression of the node could not be worked out, or no branch held.",
    ReasonCode.CHILD_JOB_FAILED: "The job that was started for the node did not complete: `job_id`.",
    ReasonCode.CHILDREN_FAILED: "More children of the fan-out failed than it tolerates.",
    ReasonCode.WORKER_DIED: "The worker that held the task died. The task is tried again as soon as it is taken back.",
    ReasonCode.WORKER_SILENT: "The worker that holds the task has not been heard for half of its lease.",
    ReasonCode.RETRY: "The last attempt failed; the next may start at `at`.",
    ReasonCode.STOPPING: "The attempt was asked to stop, and has not said that it has.",
    ReasonCode.CHILD_JOB: "The node waits for a job that was started for it: `job_id`, `status`.",
    ReasonCode.RUNNING: "A worker runs the task: `worker`, `seconds`, `progress`.",
    ReasonCode.PREFETCHED: "A worker holds the task and has not begun it: it has others to run first.",
    ReasonCode.CLAIMED: "A worker took the task a moment ago, and has not said yet whether it has begun.",
    ReasonCode.QUEUED: "The task waits for a worker of its queue: `ahead` others come first.",
    ReasonCode.REPORTED: "The attempt is over. The job's owner takes that up next.",
    ReasonCode.DECIDING: "The job's owner decides on the node within a moment.",
    ReasonCode.WAIT_UNTIL: "The node waits until `at`.",
    ReasonCode.CHILDREN: "The fan-out waits for its children.",
    ReasonCode.MAX_PARALLEL: "As many children of the fan-out are out as `max_parallel` allows.",
    ReasonCode.NODES: "The node waits for nodes before it: `because`.",
    ReasonCode.NOT_STARTED: "The job has not started.",
    ReasonCode.CANCELLED: "The node was stopped with its job.",
    ReasonCode.FAN_OUT_STOPPED: "Too many of the fan-out's children had failed: it stopped the others.",
    ReasonCode.ENDED_EARLY: "The node did not start any more: the job was ending.",
    ReasonCode.UPSTREAM_FAILED: "A node before it did not work out: `because`.",
    ReasonCode.BRANCH_NOT_TAKEN: "`conditional` took the branch `taken`, not this `branch`: `value`, `condition`.",
    ReasonCode.UPSTREAM_SKIPPED: "A node before it was skipped: `because`.",
    ReasonCode.SUPERSEDED: "An earlier run made it from a list that is longer than today's.",
    ReasonCode.COMPLETED: "The node has its output.",
    ReasonCode.JOB_COMPLETED: "The job has its result.",
}

_RANK: Final = {code: place for place, code in enumerate(ReasonCode)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why something stands where it stands.

    `sentence` has no subject: that is the node, or "the job". `together` says the same of several, without what is
    each one's own, so that those of which the same is said are equal. `because`: the nodes to ask next.
    """

    code: ReasonCode
    sentence: str
    together: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    because: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        """Its place in the catalogue: the lower, the sooner a person wants to hear it."""
        return _RANK[self.code]

    def document(self) -> dict[str, Any]:
        """The reason for programs."""
        data = {name: value for name, value in self.data.items() if value is not None}
        found: dict[str, Any] = {"code": self.code.value, "sentence": self.sentence, "data": data}
        return found | ({"because": list(self.because)} if self.because else {})
