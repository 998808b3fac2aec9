"""Views of what is done with handlers."""

from __future__ import annotations

from dataclasses import dataclass

from dagmaster.engine.status import JobStatus
from dagmaster.json_types import JsonObject
from dagmaster.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerTestView(Record):
    """The test of a handler. `is_finished`: the handler ended within the wait; else follow the job."""

    job_id: str
    handler: str
    status: JobStatus
    is_finished: bool
    output: JsonObject | None
    error: JsonObject | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerTrustView(Record):
    """A decision about a handler. `owner`: of its contract now; null: it has none any more."""

    handler: str
    caller: str
    is_trusted: bool
    owner: str | None
