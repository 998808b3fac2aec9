"""The input of a turn (results, commands) and its commit, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dagmaster.ports.json_text import JsonText

if TYPE_CHECKING:
    from dagmaster.engine.decisions import FinishJob
    from dagmaster.engine.model import Job, Node
    from dagmaster.engine.status import AttemptStatus
    from dagmaster.json_types import JsonObject
    from dagmaster.ports.audit_events import AuditEvent
    from dagmaster.ports.job_records import NewJob, ParentNode
    from dagmaster.ports.tasks import NewTask

CONTENT: Final = (
    "id", "job_id", "node_id", "attempt", "status", "permanent", "output", "output_ref", "error",
    "started_at", "reported_at", "handler_version",
)  # fmt: skip
"""The names of `TaskResult.content`."""


@dataclass(slots=True)
class TaskResult:
    """The reported result of an attempt; LOST is reported by an orchestrator for a dead worker.

    `started_at`: when its handler started; None if it did not, or if a worker of an older version reported
    it.
    """

    id: int
    job_id: str
    node_id: str
    attempt: int
    status: AttemptStatus
    permanent: bool
    output: JsonText | None
    error: str | None
    started_at: float | None
    reported_at: float
    handler_version: str | None = None
    checkpoints: str | None = None
    """The progress of an attempt that saved checkpoints, as JSON: the last `checkpoints`, the
    `checkpoint_count`."""
    batches: str | None = None
    """The numbers of the batches of nodes that the attempt added, with commas; `ADDED_AT_ONCE` for each at
    once."""

    @property
    def content(self) -> tuple[Any, ...]:
        """Return the columns of its row, in the order of `CONTENT`."""
        output = self.output or JsonText()
        key = (self.id, int(self.job_id), self.node_id, self.attempt)
        outcome = (self.status, self.permanent, output.text, output.ref, self.error)
        return (*key, *outcome, self.started_at, self.reported_at, self.handler_version)


@dataclass(slots=True)
class Command:
    """A command to a job."""

    id: int
    job_id: str
    kind: str
    body: dict[str, Any]
    sent_by: str
    at: float


@dataclass(slots=True)
class Withdrawal:
    """A task to withdraw if it is unclaimed. Then `status` and `error` are its result."""

    task_id: str
    status: AttemptStatus
    error: str | None = None


@dataclass(slots=True)
class TurnCommit:
    """The commit of one job's turn. It is atomic, and rejected if the owner or the epoch does not match."""

    job: Job
    epoch: int
    event_seq: int
    priority: int
    results: list[int] = field(default_factory=list)
    # Those of them that came in notifications: the turn is rejected unless the same results are stored.
    notified_results: list[TaskResult] = field(default_factory=list)
    # Those that become failed attempts although they are reported as completed, by id, with the error.
    rejections: dict[int, JsonObject] = field(default_factory=dict)
    commands: list[int] = field(default_factory=list)
    added: list[Node] = field(default_factory=list)
    changed: list[Node] = field(default_factory=list)
    outputs: dict[str, JsonText] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    # The batches of added nodes, each with its place among the accepted ones of the job, or why it is
    # rejected.
    batches: dict[int, int | str] = field(default_factory=dict)
    reopened: list[str] = field(default_factory=list)
    # What earlier runs created and this one creates again, and the nodes whose tasks add it again.
    superseded: list[str] = field(default_factory=list)
    adders: list[str] = field(default_factory=list)
    started: dict[str, float] = field(default_factory=dict)
    task_ids: dict[str, str] = field(default_factory=dict)
    tasks: list[NewTask] = field(default_factory=list)
    withdrawals: list[Withdrawal] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    stopped_at_dispatch: set[str] = field(default_factory=set)
    children: list[NewJob] = field(default_factory=list)
    cancelled_children: list[tuple[str, int]] = field(default_factory=list)
    events: list[AuditEvent] = field(default_factory=list)
    parent: ParentNode | None = None
    finished: FinishJob | None = None
    result: JsonText | None = None
    release: bool = False

    @property
    def has_read_results(self) -> bool:
        """Return whether results were read from the table, not notified: a server crash may lose them."""
        return len(self.results) > len(self.notified_results)
