"""Views of the handlers that workers have published."""

from __future__ import annotations

from dataclasses import dataclass

from dagmaster.engine.status import JobStatus
from dagmaster.json_types import JsonObject
from dagmaster.records.record import Record, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerView(Record):
    """A handler in the version that live workers have, else in the last published one.

    `params` and `output` are JSON Schemas; null: not declared. `workers`: how many live workers have this version.
    """

    name: str
    version: str
    aliases: tuple[str, ...]
    description: str
    module: str
    queue: str | None
    timeout_seconds: float | None
    retry: JsonObject | None
    params: JsonObject | None
    output: JsonObject | None
    workers: int
    other_versions: tuple[str, ...]
    published_at: Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerTestView(Record):
    """The test of a handler. `is_finished`: the handler ended within the wait; else follow the job."""

    job_id: str
    handler: str
    status: JobStatus
    is_finished: bool
    output: JsonObject | None
    error: JsonObject | None
