"""Requests of sandbox keys: they are checked as all others, nothing runs, and their outcome is played.

What is played follows from the stored row and the clock alone: `sql/fragments.sql` derives the status, and
the database stores the callbacks to be sent when their time has come.
"""

from __future__ import annotations

import asyncio
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from dagmaster.engine.expressions.secret_parts import REDACTED, secret_names
from dagmaster.errors import (
    DatabaseUnavailable,
    Problem,
    RequestInvalid,
    RequestQuotaExceeded,
    SubmissionRejected,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.application.context import Application
    from dagmaster.json_types import JsonObject
    from dagmaster.ports.job_records import NewJob
    from dagmaster.records.requests import RequestBody

STARTS_AFTER_SECONDS: Final = 1.0
ENDS_AFTER_SECONDS: Final = 3.0
MAX_HANDLERS: Final = 1_000


class SandboxOutcome(StrEnum):
    """What a partner wants to see: the outcome of a request, or the error of its submit."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    REJECTED = "rejected"
    """422: the request is stored, and no job can start."""
    QUOTA_EXCEEDED = "quota_exceeded"
    """429: nothing is stored."""
    UNAVAILABLE = "unavailable"
    """503: nothing is stored."""


_REASONS: Final[Mapping[SandboxOutcome, str]] = {
    SandboxOutcome.FAILED: "failed",
    SandboxOutcome.CANCELLED: "cancelled",
    SandboxOutcome.DEADLINE: "failed",
}
_CODES: Final = {SandboxOutcome.CANCELLED: "cancelled", SandboxOutcome.DEADLINE: "deadline"}


def is_sandbox(app: Application) -> bool:
    """Return whether the caller's requests are played."""
    return app.caller is not None and app.caller.is_sandbox


def check_sandbox(app: Application, body: RequestBody) -> SandboxOutcome | None:
    """Return the outcome to play; None: it is a real request. Raise the error that is asked for."""
    if not is_sandbox(app):
        if body.sandbox is not None:
            raise _invalid("sandbox", "this key starts real jobs: only a sandbox key plays outcomes")
        return None
    unknown = sorted(set(body.sandbox or {}) - {"outcome"})
    if unknown:
        raise _invalid(f"sandbox.{unknown[0][:80]}", "unknown field: there is `outcome`")
    try:
        outcome = SandboxOutcome((body.sandbox or {}).get("outcome", SandboxOutcome.COMPLETED))
    except ValueError:
        names = ", ".join(SandboxOutcome)
        raise _invalid("sandbox.outcome", f"not an outcome; they are: {names}") from None
    if outcome is SandboxOutcome.QUOTA_EXCEEDED:
        raise RequestQuotaExceeded("the sandbox plays a used up quota", retry_after_seconds=60)
    if outcome is SandboxOutcome.UNAVAILABLE:
        raise DatabaseUnavailable("the sandbox plays an outage")
    return outcome


async def played(app: Application, job: NewJob, outcome: SandboxOutcome) -> JsonObject:
    """Return what is stored of a request whose outcome is played; raise `SubmissionRejected` for that one."""
    if outcome is SandboxOutcome.REJECTED:
        raise SubmissionRejected("the sandbox plays a rejection")
    times: JsonObject = {"starts_after": STARTS_AFTER_SECONDS, "ends_after": ENDS_AFTER_SECONDS}
    if outcome is SandboxOutcome.COMPLETED:
        return {**times, "outcome": "completed", "result": await _sample(app, job)}
    return {
        **times,
        "outcome": "failed",
        "reason": _REASONS[outcome],
        "error_code": _CODES.get(outcome),
    }


async def _sample(app: Application, job: NewJob) -> JsonObject:
    """Return a result of the declared types. It has no secret, and nothing that a handler made."""
    if app.sample_result is None:
        return {}
    graph = await app.graphs.get(job.content_hash)
    names = secret_names(graph.inputs)
    inputs = {name: REDACTED if name in names else value for name, value in json.loads(job.inputs).items()}
    handlers = await app.read.handlers(limit=MAX_HANDLERS)
    schemas = {one.name: one.output for one in handlers if one.output is not None and one.is_usable}
    result: JsonObject = await asyncio.to_thread(app.sample_result, graph, inputs, schemas)
    return result


def _invalid(path: str, message: str) -> RequestInvalid:
    return RequestInvalid([Problem(message=message, path=path)])
