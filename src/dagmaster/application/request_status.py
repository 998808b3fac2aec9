"""How far a request is, as its partner may know it: fixed sentences, and nothing of the installation.

It needs a reader of requests and the large outputs alone: a gateway has no more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import DagmasterError, RequestNotFound
from dagmaster.records.requests import RequestStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.application.context import Application
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.requests import RequestFacts, RequestReader
    from dagmaster.records.requests import RequestStatusRecord

MAX_RESULT_BYTES: Final = 1_048_576
"""The largest result that is part of a status."""
NOT_FOUND: Final = "there is no such request"
_FAILED: Final = "processing_failed"
_SENTENCES: Final[Mapping[str, str]] = {
    "cancelled": "The request was cancelled.",
    "deadline": "The request took longer than it may.",
    _FAILED: "The request could not be processed.",
    "inputs_invalid": "The inputs do not match the workflow.",
    "platform_refs_invalid": "The identifiers do not fit the platform.",
    "submission_rejected": "The request was not accepted.",
    "workflow_not_found": "No workflow has this id.",
}
"""What a partner sees: every code that may leave, with its sentence. Any other code is the general one."""
_TOO_LARGE: Final = "The result is too large to be part of the status."
_UNREADABLE: Final = "The result cannot be read at the moment."


async def request_status(app: Application, request_id: str) -> RequestStatusRecord:
    """Return how far a request is; raise `RequestNotFound`, which is the same for one of another tenant."""
    caller = app.caller
    actor = caller.actor if caller is not None and caller.limits.is_own else None
    return await read_status(app.read.requests, app.blobs, request_id, actor=actor)


async def read_status(
    requests: RequestReader, blobs: OutputBlobs | None, request_id: str, *, actor: str | None = None
) -> RequestStatusRecord:
    """Return how far a request is. `blobs`: where large results are; without them these are left out."""
    facts = await requests.status(request_id, actor=actor)
    if facts is None:
        raise RequestNotFound(NOT_FOUND)
    status = facts.record.status
    result, omitted = await _result(facts, blobs) if status is RequestStatus.COMPLETED else (None, None)
    code = error_code(facts) if status is RequestStatus.FAILED else None
    error = None if code is None else _SENTENCES[code]
    return replace(facts.record, result=result, result_omitted=omitted, error=error, error_code=code)


def error_code(facts: RequestFacts) -> str:
    """Return the code of a failure that a partner sees."""
    if facts.is_cancelled:
        return "cancelled"
    code = facts.record.error_code or _FAILED
    return code if code in _SENTENCES else _FAILED


async def _result(facts: RequestFacts, blobs: OutputBlobs | None) -> tuple[Any, str | None]:
    if facts.result_ref is None:
        return facts.record.result, None
    from dagmaster.json_types import read_json

    if blobs is None:
        return None, _TOO_LARGE
    try:
        if await blobs.size(facts.result_ref) > MAX_RESULT_BYTES:
            return None, _TOO_LARGE
        return read_json((await blobs.read(facts.result_ref)).decode()), None
    except (DagmasterError, ValueError):
        return None, _UNREADABLE
