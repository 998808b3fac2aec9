"""The errors of a gateway: a closed set of codes, each with one sentence.

Whatever goes wrong behind a gateway, its callers get one of these. What they see in addition is about
their own request: the field that is wrong, its id, how long to wait.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from starlette.responses import JSONResponse

from dagmaster.errors import OUTCOMES, Category, DagmasterError, QueryInvalid, RateLimitExceeded
from dagmaster.http.problems import MEDIA_TYPE, RETRY_SECONDS
from dagmaster.records.gateway import FieldProblem, ProblemResponse

MAX_FIELDS: Final = 50
MAX_TEXT: Final = 300


class Fixed(NamedTuple):
    """The document of an error, whatever its cause."""

    status: int
    sentence: str


CODES: Final[Mapping[str, Fixed]] = {
    "request_malformed": Fixed(400, "The request cannot be read: see `errors`."),
    "path_rejected": Fixed(400, "The path of the target is not allowed."),
    "api_key_rejected": Fixed(401, "The request has no key or token, or one that is not valid."),
    "scope_missing": Fixed(403, "The key or token may not do this."),
    "route_not_found": Fixed(404, "There is no such route."),
    "request_not_found": Fixed(404, "No request has this id, or it is not yours."),
    "job_not_found": Fixed(404, "There is no such job."),
    "target_not_found": Fixed(404, "The proxy has no such target."),
    "method_not_allowed": Fixed(405, "The route does not have this method; see the header Allow."),
    "request_timed_out": Fixed(408, "The body of the request arrived too slowly."),
    "idempotency_conflict": Fixed(409, "The idempotency key was used before, for another request."),
    "result_link_expired": Fixed(410, "The link has expired: ask `/platform/status/{request_id}` instead."),
    "request_too_large": Fixed(413, "The body of the request is too large."),
    "media_type_unsupported": Fixed(415, "A body is uncompressed JSON: Content-Type application/json."),
    "host_rejected": Fixed(421, "The request names a host that is not this gateway."),
    "request_invalid": Fixed(422, "The request is not valid: see `errors`."),
    "request_rejected": Fixed(422, "The request is recorded, and cannot be carried out: see `errors`."),
    "rate_limit_exceeded": Fixed(429, "Too many requests: send the next one after `Retry-After` seconds."),
    "request_quota_exceeded": Fixed(429, "The quota is used up: it is renewed after `Retry-After` seconds."),
    "headers_too_large": Fixed(431, "The headers of the request are too large."),
    "internal": Fixed(500, "The gateway failed. Its log has the reason, under the id of the request."),
    "target_unreachable": Fixed(502, "The target of the proxy cannot be reached."),
    "target_redirects": Fixed(502, "The target of the proxy redirects, which is not followed."),
    "not_ready": Fixed(503, "The gateway is not ready: `failed_check` has failed. Try again later."),
    "service_unavailable": Fixed(503, "A service that is needed cannot be reached. Try again later."),
    "target_timed_out": Fixed(504, "The target of the proxy did not answer in time."),
}  # fmt: skip
"""The whole table. Programs match on the code."""

_BY_STATUS: Final = {
    400: "request_malformed",
    404: "route_not_found",
    409: "idempotency_conflict",
    422: "request_invalid",
    429: "rate_limit_exceeded",
    **{
        fixed.status: code
        for code, fixed in CODES.items()
        if fixed.status in (401, 403, 405, 408, 413, 415, 421, 431)
    },
    503: "service_unavailable",
}
_ANY_FIELD: Final = "The value is not valid."
_PATH: Final = re.compile(r"[\w\-$]{1,128}([.\[][\w\-$]{1,128}\]?){0,15}")
_LEAK: Final = re.compile(
    # Ids of rows, tables, addresses of databases, files of code, stack traces, statements.
    r"\d{12}|\bdag_|\bdagapp\b|dagmaster[._]|[a-z]+://|\.py\b|Traceback|, line \d|<[a-z]+\.|0x[0-9a-f]{6}"
    r"|\b(SELECT|INSERT|UPDATE|DELETE|FROM|WHERE)\b|\d+\.\d+\.\d+\.\d+|\w+@\w+"
)


def problem(
    code: str,
    *,
    errors: Sequence[FieldProblem] = (),
    request_id: str | None = None,
    failed_check: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return the answer of an error."""
    document = describe(code, errors=errors, request_id=request_id, failed_check=failed_check)
    sent = dict(headers or {})
    if document.status == HTTPStatus.SERVICE_UNAVAILABLE:
        sent.setdefault("Retry-After", str(RETRY_SECONDS))
    if document.status == HTTPStatus.UNAUTHORIZED:
        sent["WWW-Authenticate"] = 'Bearer realm="dagmaster"'
    return JSONResponse(document.to_dict(), document.status, sent, MEDIA_TYPE)


def describe(
    code: str,
    *,
    errors: Sequence[FieldProblem] = (),
    request_id: str | None = None,
    failed_check: str | None = None,
) -> ProblemResponse:
    """Return the document of an error."""
    fixed = CODES[code]
    return ProblemResponse(
        type=f"urn:dagmaster:error:{code}",
        title=HTTPStatus(fixed.status).phrase,
        status=fixed.status,
        detail=fixed.sentence,
        code=code,
        request_id=request_id,
        failed_check=failed_check,
        errors=tuple(errors[:MAX_FIELDS]) or None,
    )


def of_status(status: int) -> JSONResponse:
    """Return the answer for an HTTP status, when nothing else may be shown."""
    return problem(_BY_STATUS.get(status, "internal"))


def of_error(error: DagmasterError) -> JSONResponse:
    """Return the answer of an error, without its message."""
    status = error.http_status or OUTCOMES[error.category].http_status
    known = CODES.get(error.code)
    code = error.code if known and known.status == status else _BY_STATUS.get(status, "internal")
    if error.category is Category.UNAUTHENTICATED:
        code = "api_key_rejected"
    headers = {}
    if isinstance(error, RateLimitExceeded):
        headers["Retry-After"] = str(math.ceil(error.retry_after_seconds))
    problems = error.to_dict().get("problems", ())
    errors = [field_problem(one["path"], one["message"]) for one in problems]
    if isinstance(error, QueryInvalid) and error.field:
        errors = [field_problem(f"query.{error.field}", str(error))]
    return problem(code, errors=errors, headers=headers)


def field_problem(path: Any, message: Any) -> FieldProblem:
    """Return what is wrong with a field, as far as it is about the request and nothing else."""
    is_path = isinstance(path, str) and _PATH.fullmatch(path) and not _LEAK.search(path)
    return FieldProblem(path=str(path) if is_path else "body", message=_sentence(message))


def _sentence(message: Any) -> str:
    if not isinstance(message, str) or not message.isprintable() or _LEAK.search(message):
        return _ANY_FIELD
    return message[:MAX_TEXT]
