"""What a gateway answers: to partners, and to administrators.

The first part is all that a partner ever sees: each field of it is named here, and no other one is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagmaster.records.record import Record, Timestamp
from dagmaster.records.requests import RequestStatusRecord

# ── For partners ──


@dataclass(frozen=True, slots=True, kw_only=True)
class AliveResponse(Record):
    """The process lives."""

    alive: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyResponse(Record):
    """Whether requests are served. `failed_check`: what prevents it."""

    ready: bool
    failed_check: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"ready": True} if self.ready else {"ready": False, "failed_check": self.failed_check}

    @classmethod
    def complete_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        return schema | {"required": ["ready"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayHealthResponse(Record):
    """The state of the gateway: `healthy` or `unhealthy`, and of each of its checks: `ok` or `failed`."""

    status: str
    checks: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformSubmitResponse(Record):
    """A request that was accepted. Its id is all that is needed to ask for its status."""

    request_id: str
    workflow_id: str
    submitted_at: Timestamp
    status: str = "accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformStatusResponse(RequestStatusRecord):
    """How far a request is: `pending`, `running`, `completed` or `failed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldProblem(Record):
    """What is wrong with one field of a request."""

    path: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemResponse(Record):
    """An error (RFC 9457). Programs match on `code`. Fields without a value are left out.

    `request_id`: of a submit that was recorded and rejected. `failed_check`: what prevents a gateway from
    serving requests.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str | None = None
    failed_check: str | None = None
    errors: tuple[FieldProblem, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in Record.to_dict(self).items() if value is not None}

    @classmethod
    def complete_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        return schema | {"required": ["type", "title", "status", "detail", "code"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome(Record):
    """What became of one submit of a batch: `accepted`, or `rejected` or `failed` with its `problem`.

    `failed`: not for its own fault, and sent again it may be accepted. `index`: its place in the batch.
    """

    index: int
    status: str
    request_id: str | None = None
    workflow_id: str
    submitted_at: Timestamp | None = None
    problem: ProblemResponse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSubmitResponse(Record):
    """What became of each submit of a batch, in its order."""

    accepted: int
    results: tuple[BatchOutcome, ...]


# ── For administrators ──


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalNodeStatus(Record):
    """A node of a job. One that has not started is PENDING."""

    node_id: str
    status: str
    attempt: int = 0
    started_at: Timestamp | None = None
    completed_at: Timestamp | None = None
    error_message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalJobStatusResponse(Record):
    """A job as administrators see it: never sent to a partner. `nodes`: those that have started, if asked."""

    job_id: str
    workflow_id: str
    status: str
    correlation_id: str | None
    created_at: Timestamp
    started_at: Timestamp | None
    completed_at: Timestamp | None
    error_message: str | None
    owner_id: str | None
    nodes: tuple[InternalNodeStatus, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListResponse(Record):
    """Jobs, newest first. `has_more`: whether there are more after these."""

    jobs: tuple[InternalJobStatusResponse, ...]
    limit: int
    offset: int
    has_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeListResponse(Record):
    """Nodes of a job by id. `next_after`: with `after`, the nodes that follow; null: there are none."""

    job_id: str
    nodes: tuple[InternalNodeStatus, ...]
    next_after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalEvent(Record):
    """An event of a job, without the values that it is about. `source`: who caused it."""

    event_id: int
    event_type: str
    created_at: Timestamp
    source: str
    node_id: str | None
    attempt: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventListResponse(Record):
    """Events of a job, oldest first. `next_after`: with `after`, those that follow; null: there are none."""

    job_id: str
    events: tuple[InternalEvent, ...]
    next_after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsResponse(Record):
    """The number of jobs with each status."""

    total: int
    by_status: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckView(Record):
    """A check of a gateway. `detail`: why it failed."""

    name: str
    passed: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminHealthResponse(Record):
    """The checks of a gateway, and how many orchestrators and workers are alive; null: not known."""

    status: str
    version: str
    checks: tuple[CheckView, ...]
    orchestrators: int | None
    workers: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigItem(Record):
    """A setting of a gateway. Secrets are masked. `source`: its variable, or `default`."""

    name: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfigResponse(Record):
    """The settings of a gateway."""

    settings: tuple[ConfigItem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetHealth(Record):
    """Whether a target of the proxy answers, and with which status."""

    target: str
    is_reachable: bool
    status_code: int | None
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyHealthResponse(Record):
    """The targets of the proxy: `healthy` if all of them answer."""

    status: str
    targets: tuple[TargetHealth, ...]
