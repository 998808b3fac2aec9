"""Which errors an operation can answer with, for the OpenAPI document: derived from what it takes and names.

The one declaration is `ERRORS_OF_PARTS`, by the parts of paths: what a path names may not exist, and what its
verb does may not be possible now. What every caller, body and list has follows from the operation itself. The
tests of the API compare every problem that they meet with the document.
"""

from __future__ import annotations

from collections import defaultdict
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.errors import (
    OUTCOMES,
    ApiKeyInvalid,
    ApiKeyNotFound,
    ApiKeyRejected,
    ApprovalNotPending,
    ApproverNotAllowed,
    BlobNotFound,
    BrowserSessionNotFound,
    CallbackNotFound,
    CallbackUrlInvalid,
    CheckLimitExceeded,
    ChecksBusy,
    CommandInvalid,
    CommandRejected,
    CursorInvalid,
    DagmasterError,
    DatabaseUnavailable,
    DrainRejected,
    EndpointNotFound,
    EvaluationFailed,
    GraphNotFound,
    HandlerInvalid,
    HandlerNotFound,
    HandlerTrustRejected,
    IdempotencyConflict,
    InputsInvalid,
    IssuerUnavailable,
    JobAlreadyCancelled,
    JobFinished,
    JobNotFinished,
    JobNotFound,
    JobQuotaExceeded,
    KeyNarrowed,
    LeaseLost,
    MediaTypeUnsupported,
    NodeNotCancellable,
    NodeNotFound,
    NodeNotRetriable,
    NodesRejected,
    NothingToResume,
    PlatformInvalid,
    PlatformNotFound,
    QueryInvalid,
    QuotaExceeded,
    RateLimitExceeded,
    RequestInvalid,
    RequestNotFound,
    RequestQuotaExceeded,
    RequestRejected,
    RequestTimedOut,
    RequestTooLarge,
    SchemaVersionMismatch,
    ScopeMissing,
    SecretInputsMissing,
    SecretsKeyMissing,
    SecretsKeyWrong,
    SecretUnreadable,
    ServiceNotFound,
    SignalNotExpected,
    SigningSecretNotFound,
    SigningSecretsInUse,
    StreamLimitExceeded,
    SubmissionRejected,
    TenantExists,
    TenantInvalid,
    TenantNotFound,
    TokenRejected,
    TooManyFailures,
    WorkerExpired,
    WorkflowChanged,
    WorkflowInvalid,
    WorkflowNotFound,
    WorkflowVersionConflict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Errors = tuple[type[DagmasterError], ...]

_OF_CALLERS: Final[Errors] = (
    ApiKeyRejected,
    TokenRejected,
    ScopeMissing,
    KeyNarrowed,
    RateLimitExceeded,
    TooManyFailures,
    DatabaseUnavailable,
    SchemaVersionMismatch,
    IssuerUnavailable,
)
_OF_BODIES: Final[Errors] = (RequestInvalid, RequestTooLarge, MediaTypeUnsupported, RequestTimedOut)
_OF_SECRETS: Final[Errors] = (SecretsKeyMissing, SecretsKeyWrong, SecretUnreadable)
_OF_SUBMITS: Final[Errors] = (
    JobQuotaExceeded,
    SubmissionRejected,
    CallbackUrlInvalid,
    InputsInvalid,
    WorkflowNotFound,
    IdempotencyConflict,
    CheckLimitExceeded,
    ChecksBusy,
    *_OF_SECRETS,
)
_OF_TEXTS: Final[Errors] = (WorkflowInvalid, CheckLimitExceeded, ChecksBusy)
_OF_COMMANDS: Final[Errors] = (CommandInvalid, JobFinished)
_OF_ANSWERS: Final[Errors] = (NodeNotFound, ApprovalNotPending, ApproverNotAllowed)
_OF_SIGNING: Final[Errors] = (SigningSecretsInUse, SigningSecretNotFound, SecretsKeyMissing, SecretsKeyWrong)
_OF_REPORTS: Final[Errors] = (WorkerExpired, LeaseLost)
_OF_RETRIES: Final[Errors] = (NodeNotFound, NodeNotRetriable, CommandRejected)

ERRORS_OF_PARTS: Final[Mapping[str, Errors]] = {
    # What a path names.
    "{job_id}": (JobNotFound, GraphNotFound),
    "{node_id}": (NodeNotFound,),
    "{workflow_id}": (WorkflowNotFound, GraphNotFound),
    "{task_id}": (NodeNotFound,),
    "{key_id}": (ApiKeyNotFound,),
    "{session_id}": (BrowserSessionNotFound,),
    "{service_id}": (ServiceNotFound, QueryInvalid),
    "{worker_id}": (WorkerExpired,),
    "{callback_id}": (CallbackNotFound,),
    "{secret_id}": (SigningSecretNotFound,),
    "handlers/{name}": (HandlerNotFound,),
    "tenants/{name}": (TenantNotFound,),
    "{request_id}": (RequestNotFound,),
    "{platform_id}": (PlatformNotFound,),
    # What is done. A job or a task that is not named in the path has not been looked up yet.
    "POST jobs": _OF_SUBMITS,
    "POST submit": (*_OF_SUBMITS, RequestRejected, RequestQuotaExceeded),
    "POST platforms": (PlatformInvalid,),
    "POST jobs/batch": _OF_SUBMITS,
    "POST jobs/definition": (*_OF_SUBMITS, *_OF_TEXTS),
    "POST graph": (NodesRejected, *_OF_SUBMITS),
    "POST lines": (NodesRejected, JobFinished, CommandRejected, *_OF_SUBMITS),
    "POST jobs/{job_id}/tasks": (NodesRejected, JobFinished, CommandRejected),
    "POST release": (NodeNotFound, JobFinished, SignalNotExpected, *_OF_COMMANDS),
    "plan": _OF_SUBMITS,
    "cancel": (NodeNotFound, JobAlreadyCancelled, NodeNotCancellable, *_OF_COMMANDS),
    "retry": (*_OF_RETRIES, *_OF_COMMANDS),
    "resume": (
        JobNotFinished,
        NothingToResume,
        SecretInputsMissing,
        *_OF_RETRIES,
        *_OF_COMMANDS,
        *_OF_SUBMITS,
    ),
    "approve": (*_OF_ANSWERS, *_OF_COMMANDS),
    "reject": (*_OF_ANSWERS, *_OF_COMMANDS),
    "signals/{name}": (SignalNotExpected, *_OF_COMMANDS),
    "POST workflows": (WorkflowVersionConflict, WorkflowChanged, *_OF_TEXTS),
    "POST workflows/batch": (WorkflowVersionConflict, WorkflowChanged, *_OF_TEXTS),
    "activate": (WorkflowChanged,),
    "workflows/validate": (CheckLimitExceeded, ChecksBusy),
    "drain": (DrainRejected, CommandInvalid),
    "undrain": (DrainRejected, CommandInvalid),
    "POST workers": (QuotaExceeded, HandlerInvalid, CommandInvalid),
    "claim": (WorkerExpired, *_OF_SECRETS),
    "task-heartbeat": (WorkerExpired,),
    "task-progress": _OF_REPORTS,
    "task-result": _OF_REPORTS,
    "handlers/test": (HandlerNotFound, WorkflowInvalid, *_OF_SUBMITS),
    "{name}/test": (WorkflowInvalid, *_OF_SUBMITS),
    "trust": (HandlerTrustRejected,),
    "distrust": (HandlerTrustRejected,),
    "POST callbacks/endpoints/pause": (EndpointNotFound,),
    "POST callbacks/endpoints/resume": (EndpointNotFound,),
    "POST callbacks/replay": (QueryInvalid,),
    "POST callbacks/secrets": _OF_SIGNING,
    "POST keys": (ApiKeyInvalid, TenantNotFound),
    "POST tenants": (TenantInvalid, TenantExists),
    "POST tenants/{name}": (TenantInvalid,),
    "rotate": (ApiKeyInvalid,),
    # What is read.
    "result": (BlobNotFound, QueryInvalid),
    "output": (BlobNotFound, QueryInvalid),
    "children": (NodeNotFound, QueryInvalid),
    "logs": (NodeNotFound,),
    "events": (NodeNotFound,),
    "diff": (EvaluationFailed,),
    "metrics": (WorkflowNotFound,),
    "invariants": (JobNotFound,),
    "stream": (NodeNotFound, StreamLimitExceeded),
}
"""Errors by a part of a path, at its end or between slashes; with a method, only at its end."""


class Operation(NamedTuple):
    """What is known of an operation."""

    method: str
    path: str
    """Without the prefix of the API."""
    has_caller: bool
    has_body: bool
    parameters: frozenset[str]
    streams: bool


def errors_of(operation: Operation) -> Mapping[int, tuple[str, ...]]:
    """Return the codes of the errors of an operation, by their status."""
    # A parameter that the route does not know, or that has another form.
    codes: dict[int, set[str]] = defaultdict(set, {HTTPStatus.UNPROCESSABLE_ENTITY: {RequestInvalid.code}})
    for error in _errors(operation):
        codes[error.http_status or OUTCOMES[error.category].http_status].add(error.code)
    return {status: tuple(sorted(codes[status])) for status in sorted(codes)}


def _errors(operation: Operation) -> Iterator[type[DagmasterError]]:
    # A text in the URL that the database cannot store.
    yield RequestInvalid
    if operation.has_caller:
        yield from _OF_CALLERS
    if operation.has_body:
        yield from _OF_BODIES
    if "cursor" in operation.parameters:
        yield CursorInvalid
    if operation.parameters - {"cursor", "limit"}:
        yield QueryInvalid
    if operation.streams or (operation.method, operation.path) == ("GET", "/jobs/{job_id}"):
        yield StreamLimitExceeded
    path = f"{operation.path}/"
    for part, errors in ERRORS_OF_PARTS.items():
        method, _, words = part.rpartition(" ")
        is_meant = f"/{words}/" in path if not method else path.endswith(f"/{words}/")
        if is_meant and method in ("", operation.method):
            yield from errors


def add_error_responses(operation: dict[str, Any], facts: Operation) -> None:
    """Describe the errors of an operation in its entry of the document."""
    for status, codes in errors_of(facts).items():
        answer = operation["responses"].setdefault(
            str(status), {"description": HTTPStatus(status).phrase, "content": PROBLEM}
        )
        answer["description"] = f"{answer['description'].rstrip('.')}: {', '.join(codes)}"
        answer["x-codes"] = list(codes)


PROBLEM: Final[Mapping[str, Any]] = {
    "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
}
