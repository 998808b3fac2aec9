"""What is stored of a node and of a job: `Job.rebuild` makes the job of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from dagmaster.engine.status import JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.engine.status import NodeStatus, SkipReason
    from dagmaster.json_types import JsonValue


class NodeRow(NamedTuple):
    """The stored state of a node. Outputs are stored separately, by the orchestrator."""

    id: str
    status: NodeStatus
    parent: str | None = None
    fan_out_index: int = -1
    skip_reason: SkipReason | None = None
    attempt: int = 0
    failed_attempts: int = 0
    lost_attempts: int = 0
    shared_losses: int = 0
    upstream: str | None = None
    branch: str | None = None
    wake_at: float | None = None
    finished_seq: int | None = None
    error: dict[str, Any] | None = None
    total: int | None = None
    expanded: int = 0
    stopped: bool = False
    fingerprint: bytes | None = None
    handler_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """The stored state of a job, as far as the engine is concerned."""

    id: str
    status: JobStatus = JobStatus.PENDING
    run: int = 1
    cancel_requested: bool = False
    deadline_at: float | None = None
    deadline_passed: bool = False
    ending: bool = False
    stopping: bool = False
    signals: Mapping[str, JsonValue] = field(default_factory=dict)
