"""What an answer of the server means for a partner: accepted, or a problem of the closed set."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final
from uuid import UUID

from dagmaster.http.gateway.closed_problems import CODES, describe, field_problem
from dagmaster.http.gateway.upstream import Forwarded
from dagmaster.records.gateway import BatchOutcome, FieldProblem, PlatformSubmitResponse, ProblemResponse

_LOGGER = logging.getLogger("dagmaster.gateway")
_PASSED_ON: Final = frozenset(
    (
        *("request_rejected", "idempotency_conflict", "request_quota_exceeded", "rate_limit_exceeded"),
        *("request_invalid", "scope_missing", "api_key_rejected"),
    )
)
"""Codes of a server that are about the partner's request."""
_BY_STATUS: Final = {
    400: "request_invalid",
    401: "api_key_rejected",
    403: "scope_missing",
    409: "idempotency_conflict",
    413: "request_too_large",
    422: "request_invalid",
    429: "rate_limit_exceeded",
}
_INPUTS: Final = "input_params."
_REASONS: Final[Mapping[Any, FieldProblem]] = {
    "workflow_not_found": FieldProblem(path="workflow_id", message="No workflow has this id."),
    "submission_rejected": FieldProblem(path="body", message="The request does not fit the workflow."),
    "idempotency_conflict": FieldProblem(path="idempotency_key", message="It was used before."),
}
"""The text of a rejection that is about no single field."""
ACCEPTED: Final = frozenset(("accepted", "existing"))
_REJECTED: Final = "rejected"


def accepted(document: Any, workflow_id: str) -> PlatformSubmitResponse | None:
    """Return the answer to a partner whose request was accepted; None if the document does not say so."""
    if not isinstance(document, dict) or document.get("outcome") not in ACCEPTED:
        return None
    request_id = parse_request_id(document.get("request_id"))
    try:
        submitted_at = datetime.fromisoformat(document["submitted_at"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return None
    if request_id is None:
        return None
    # The workflow that the partner has named, and not what the server says.
    return PlatformSubmitResponse(request_id=request_id, workflow_id=workflow_id, submitted_at=submitted_at)


def rejection(forwarded: Forwarded) -> ProblemResponse:
    """Return the problem that an answer of the server means for the partner."""
    document = forwarded.document if isinstance(forwarded.document, dict) else {}
    code = document.get("code")
    if code not in _PASSED_ON or CODES[code].status != forwarded.status:
        code = _BY_STATUS.get(forwarded.status)
    if code is None:
        _LOGGER.error("the server answered a submit with %d: %s", forwarded.status, document.get("code"))
        return describe("service_unavailable")
    return _described(code, document, document.get("reason"), document.get("errors"))


def outcome(index: int, document: Any, workflow_id: str) -> BatchOutcome:
    """Return what became of a submit of a batch."""
    view = accepted(document, workflow_id)
    if view is not None:
        return BatchOutcome.of(view, index=index)
    document = document if isinstance(document, dict) else {}
    error = document.get("error")
    error = error if isinstance(error, dict) else {}
    if document.get("outcome") == _REJECTED:
        code = "request_rejected"
    elif error.get("code") in _PASSED_ON:
        code = str(error["code"])
    else:
        code = "request_invalid"
    described = _described(code, document, error.get("code"), error.get("problems"))
    is_limit = described.status == HTTPStatus.TOO_MANY_REQUESTS
    return BatchOutcome(
        index=index,
        status="failed" if is_limit else _REJECTED,
        request_id=described.request_id,
        workflow_id=workflow_id,
        problem=described,
    )


def parse_request_id(text: Any) -> str | None:
    """Return the id of a request; None for anything else."""
    try:
        return str(UUID(text))
    except (ValueError, TypeError, AttributeError):
        return None


def retry_headers(forwarded: Forwarded) -> dict[str, str]:
    """Return when the partner may send its request again, as far as the server says so."""
    text = forwarded.retry_after or ""
    return {"Retry-After": text} if text.isascii() and text.isdecimal() else {}


def _described(code: str, document: Mapping[str, Any], reason: Any, errors: Any) -> ProblemResponse:
    prefix = _INPUTS if reason == "inputs_invalid" else ""
    fields = [
        field_problem(f"{prefix}{one.get('path')}", one.get("message"))
        for one in (errors if isinstance(errors, list) else ())
        if isinstance(one, dict)
    ]
    if not fields and reason in _REASONS:
        fields = [_REASONS[reason]]
    return describe(code, errors=fields, request_id=parse_request_id(document.get("request_id")))
