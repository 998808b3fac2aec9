"""Results of commands: what became of a request, and what a dry run says would become of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dagmaster.application.views.events_and_logs import EventView
from dagmaster.engine.graph import Graph, Kind
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import Problem
from dagmaster.json_types import JsonObject
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.records.jobs import JobRecord
from dagmaster.records.record import INTERNAL, Record, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult(Record):
    """What became of a command. Not `accepted`: its owner rejected it, and `sentence` says why.

    `is_done`: the owner has processed it, and `event` is the audit event about it, if it wrote one. A command
    that is accepted and not done is stored, and is processed later.
    """

    job_id: str
    command_id: str
    command: CommandKind
    node_id: str | None
    accepted: bool
    is_done: bool
    seq: int | None
    event: EventView | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSelectionView(Record):
    """What a cancel or a resume of the jobs that match a filter would change. Nothing was changed.

    The change takes the `token`, which stands for exactly these jobs; null: there are none. `next_cursor`:
    there may be more, which are a separate change.
    """

    action: str
    jobs: tuple[JobRecord, ...]
    token: str | None
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcomeView(Record):
    """What became of one job of a change of several."""

    job_id: str
    accepted: bool
    sentence: str
    error: JsonObject | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionResult(Record):
    """What became of each job of a change of several: how many commands were stored, and how many not."""

    action: str
    accepted_count: int
    rejected_count: int
    outcomes: tuple[JobOutcomeView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainResult(Record):
    """What became of the request to drain a service, or of its withdrawal.

    `held_count`: its tasks, or its jobs.

    `kind`: orchestrator or worker.
    """

    service_id: str
    kind: str
    is_draining: bool
    held_count: int
    sentence: str


class SubmitOutcome(StrEnum):
    """What became of one request."""

    ACCEPTED = "accepted"
    EXISTING = "existing"
    """The same request was accepted before, under the same idempotency key."""
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission(Record):
    """What was submitted, and the job that it led to. `error`: its code and message, if there is no job."""

    job_id: str | None
    workflow_id: str
    is_new: bool
    error: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitResult(Submission, order={"outcome": "", "version": "workflow_id", "resumed_from": "is_new"}):
    """The outcome of a request. `job_id` is the new or the existing job; `error` has the code and message.

    `task_ids`: of an existing job that was built in code, the ids of its tasks and groups by their nodes.
    """

    outcome: SubmitOutcome
    version: int | None
    resumed_from: str | None = None
    task_ids: Mapping[str, str] | None = None


class RequestOutcome(StrEnum):
    """What became of a request of a partner."""

    ACCEPTED = "accepted"
    EXISTING = "existing"
    """The same request was accepted before, under the same idempotency key or id."""
    REJECTED = "rejected"
    """The request is stored, and no job can start."""
    ERROR = "error"
    """Nothing is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestResult(Submission, order={"outcome": "", "request_id": "outcome", "submitted_at": "request_id"}):
    """The outcome of a request of a partner, and the job that it leads to."""

    outcome: RequestOutcome
    request_id: str | None
    submitted_at: Timestamp | None


class PublishOutcome(StrEnum):
    """What became of a workflow version."""

    PUBLISHED = "published"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    """It was published before, with the same content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishResult(Record):
    """One workflow version after `publish_workflows`."""

    file: str
    workflow_id: str
    version: int
    content_hash: str
    outcome: PublishOutcome
    is_active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivateResult(Record):
    """The version that new jobs of a workflow get, and the one that they got before."""

    workflow_id: str
    version: int
    content_hash: str
    previous_version: int | None


@dataclass(frozen=True, slots=True)
class PlannedChildrenView(Record):
    """How many children of a fan-out would be reused, and how many redone."""

    reused: int
    redone: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNodeView(Record):
    """What would become of a node, and why; of a fan-out, also of its children.

    `is_added_again`: it runs only if a node that is redone, and had added it, adds it again.
    """

    node: str
    reason: str
    children: PlannedChildrenView | None
    is_added_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePlanView(Record):
    """What a resume or a retry would do. Without `has_workers`, it is not known which handlers there are."""

    job_id: str
    workflow_id: str
    version: int
    is_new_job: bool
    run: int | None
    """The run of the same job that it would start. None: a new job, or nothing to do."""
    has_workers: bool
    reused: tuple[PlannedNodeView, ...]
    redone: tuple[PlannedNodeView, ...]
    impossible: tuple[PlannedNodeView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStepView(Record):
    """A node of a job that is not submitted. `status`: what it has before the first task ends.

    PENDING: it depends on results. DISPATCHED: its task starts at once. `branch`: what a conditional decided.
    `children`: how many a fan-out has, if that is known.
    """

    node_id: str
    kind: Kind
    action: str
    depends_on: tuple[str, ...]
    status: NodeStatus
    branch: str | None
    children: int | None
    handler: str | None
    queue: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQueueView(Record):
    """A queue that a job needs, and the live workers that serve it."""

    queue: str
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionPlanView(Record):
    """What a submit would do. Secret inputs are redacted.

    `missing_blobs`: URIs in the inputs that do not exist; null if they were not looked up, without a storage.
    """

    workflow_id: str
    version: int
    content_hash: str
    inputs: JsonObject
    nodes: tuple[PlannedStepView, ...]
    queues: tuple[PlannedQueueView, ...]
    missing_blobs: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationResult(Record):
    """The problems of one workflow file: errors, and warnings of a valid one."""

    file: str
    is_valid: bool
    problems: tuple[Problem, ...]
    graph: Graph | None = field(default=None, metadata=INTERNAL)
