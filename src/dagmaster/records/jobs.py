"""Jobs. A job has the same keys in a list, alone, in an explanation and after a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dagmaster.engine.status import TERMINAL_JOB, JobStatus
from dagmaster.json_types import JsonObject
from dagmaster.records.record import (
    INTERNAL,
    SECRET_INPUTS,
    SECRETS,
    Record,
    Timestamp,
    derived,
    shown,
)
from dagmaster.records.redacted import SecretRecord
from dagmaster.text_format import seconds_between


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecord(Record):
    """The orchestrator that owns a job. `silent_seconds`: how long ago its last heartbeat was."""

    orchestrator_id: str
    host: str
    pid: int
    silent_seconds: float
    is_over: bool = field(default=False, metadata=INTERNAL)
    """It stopped or was expired."""


def _time_of_reading(values: Mapping[str, Any], read_at: float) -> float:
    """Return when a job was read: a run that is not over has taken `duration_seconds` until then."""
    began = values["resumed_at"] or values["started_at"]
    is_open = began is not None and values["finished_at"] is None
    return began + values["duration_seconds"] if is_open else read_at


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatusRecord(SecretRecord):
    """A job, and how far it is."""

    job_id: str
    status: JobStatus
    is_cancelling: bool
    event_seq: int
    nodes_total: int
    nodes_finished: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord(
    JobStatusRecord,
    order={
        "status": "content_hash",
        "is_cancelling": "status",
        "nodes_total": "deadline_at",
        "nodes_finished": "nodes_total",
        "event_seq": "nodes_finished",
    },
):
    """A job. `status` is WAITING while only a person, a signal, a timer or a child job can move it."""

    name: str
    workflow_id: str
    version: int
    content_hash: str
    run: int
    priority: int
    submitted_by: str
    submitter_label: str | None
    """Who asked for the job, as its submitter says. It decides nothing."""
    tenant: str
    correlation_id: str | None
    idempotency_key: str | None
    queue: str | None
    parent_job_id: str | None
    parent_node_id: str | None
    resumed_from: str | None
    created_at: Timestamp
    updated_at: Timestamp
    started_at: Timestamp | None
    resumed_at: Timestamp | None
    finished_at: Timestamp | None
    deadline_at: Timestamp | None
    error: JsonObject | None = field(metadata=SECRETS)
    owner: OwnerRecord | None = None
    read_at: Timestamp = field(metadata=derived(_time_of_reading))
    """When the job was read, by the clock of the store: ages are measured from here."""
    is_ending: bool = field(default=False, metadata=INTERNAL)
    inputs: Mapping[str, Any] = field(default_factory=dict, metadata=INTERNAL | SECRET_INPUTS)
    """As `result` and `result_ref`, loaded for a single job only."""
    result: Any = field(default=None, metadata=INTERNAL | SECRETS)
    result_ref: str | None = field(default=None, metadata=INTERNAL)

    @property
    @shown(after="deadline_at")
    def duration_seconds(self) -> float | None:
        """Return how long the last run takes or took; None before it starts."""
        began = self.started_at if self.resumed_at is None else self.resumed_at
        return None if began is None else seconds_between(began, self.finished_at or self.read_at)

    @property
    def is_finished(self) -> bool:
        return self.status in TERMINAL_JOB

    @property
    def is_cancelled(self) -> bool:
        return self.status is JobStatus.CANCELLED
