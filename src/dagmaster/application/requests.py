"""Requests of partners: what was asked, stored with the job that it leads to, once for each idempotency key.

A request exists even when no job can start: then it is stored with the reason. What fails on our side stores
nothing, and the same request sent again is processed as a new one.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.application.batching import KeyedBatcher
from dagmaster.application.platforms import needs_platform, translate
from dagmaster.application.request_identity import (
    check_body,
    fingerprint,
    hide_all,
    hide_secrets,
    is_same,
    payload_of,
)
from dagmaster.application.sandbox import SandboxOutcome, check_sandbox, played
from dagmaster.application.submission import MAX_BATCH, JobRequest, PreparedJob, in_trace, prepare_all
from dagmaster.application.views.results import RequestOutcome, RequestResult
from dagmaster.engine.expressions.secret_parts import secret_names
from dagmaster.errors import (
    Category,
    DagmasterError,
    IdempotencyConflict,
    InputsInvalid,
    PlatformRefsInvalid,
    Problem,
    RateLimitExceeded,
    RequestRejected,
    StatementFailed,
    SubmissionRejected,
    WorkflowNotFound,
)
from dagmaster.ports.requests import NewRequest
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.telemetry import traces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.application.context import Application
    from dagmaster.json_types import JsonObject
    from dagmaster.ports.requests import StoredRequest
    from dagmaster.records.requests import RequestBody

_REJECTIONS: Final = (InputsInvalid, PlatformRefsInvalid, SubmissionRejected, WorkflowNotFound)
"""What the request is to blame for: it is stored with the reason. Everything else stores nothing."""
_FATAL: Final = frozenset({Category.UNAVAILABLE, Category.INTERNAL})


async def submit_request(app: Application, body: RequestBody) -> RequestResult:
    """Store a request and its job; return the same answer for the same idempotency key and body.

    Raise `RequestRejected` if it is stored and no job can start, `IdempotencyConflict` for another body.
    """
    (answer,) = await _submit(app, [body])
    return raise_rejection(answer)


async def submit_requests(app: Application, bodies: Sequence[RequestBody]) -> list[RequestResult]:
    """Store up to 100 requests; return an outcome for each: an invalid one stops no other.

    An unavailable database raises: then a caller that sent idempotency keys sends the batch again.
    """
    if len(bodies) > MAX_BATCH:
        raise SubmissionRejected(f"a batch has at most {MAX_BATCH} requests, not {len(bodies)}")
    answers = await _submit(app, bodies)
    for answer in answers:
        if isinstance(answer, Exception) and (
            not isinstance(answer, DagmasterError)
            or (answer.category in _FATAL and not isinstance(answer, RateLimitExceeded))
        ):
            raise answer
    return [_outcome(body, answer) for body, answer in zip(bodies, answers, strict=True)]


def raise_rejection(answer: RequestResult | Exception) -> RequestResult:
    """Return the answer to a request that led to a job; raise the error of another one."""
    if isinstance(answer, Exception):
        raise answer
    if answer.outcome is RequestOutcome.REJECTED:
        error: Any = answer.error
        problems = [Problem(message=one["message"], path=one["path"]) for one in error.get("problems", ())]
        raise RequestRejected(
            str(error["message"]),
            request_id=answer.request_id or "",
            reason=str(error["code"]),
            problems=problems,
        )
    return answer


class RequestQueue:
    """Stores the requests of many callers: requests of one tenant that arrive together share a statement."""

    def __init__(self) -> None:
        self._batcher = KeyedBatcher(_submit_all, max_size=MAX_BATCH)

    async def submit(self, app: Application, body: RequestBody) -> RequestResult:
        """Store one request on behalf of the caller of `app`, as `submit_request` does."""
        with traces.span("submit", jobs=1):
            # A transaction sees the rows of one tenant.
            tenant = "" if app.caller is None else app.caller.sees
            order = app, body, traces.current_trace_parent()
            return raise_rejection(await self._batcher.run(tenant, order))


async def _submit_all(
    orders: Sequence[tuple[Application, RequestBody, str | None]],
) -> list[RequestResult | Exception]:
    return await _answer_all(orders[0][0], [_draft(*order) for order in orders])


# ── From bodies to answers ──────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True, kw_only=True)
class _Draft:
    """A request on its way: what was sent, what it means, and what it leads to."""

    app: Application
    sent: RequestBody
    request_id: str
    trace_parent: str | None
    body: RequestBody
    sources: Mapping[str, str]
    """Which field of the platform's format an input came from."""
    problem: DagmasterError | None = None
    outcome: SandboxOutcome | None = None
    """What a sandbox plays."""

    @property
    def actor(self) -> str:
        return "" if self.app.origin is None else self.app.origin.actor

    @property
    def tenant(self) -> str:
        return DEFAULT_TENANT if self.app.caller is None else self.app.caller.tenant


class _Ready(NamedTuple):
    """A request to store, with its job."""

    draft: _Draft
    request: NewRequest
    prepared: PreparedJob | None


def _draft(app: Application, body: RequestBody, trace_parent: str | None) -> _Draft:
    request_id = (body.request_id or str(uuid.uuid4())).lower()
    return _Draft(app=app, sent=body, request_id=request_id, trace_parent=trace_parent, body=body, sources={})


async def _submit(app: Application, bodies: Sequence[RequestBody]) -> list[RequestResult | Exception]:
    with traces.span("submit", jobs=len(bodies)):
        trace_parent = traces.current_trace_parent()
        return await _answer_all(app, [_draft(app, body, trace_parent) for body in bodies])


async def _answer_all(app: Application, drafts: Sequence[_Draft]) -> list[RequestResult | Exception]:
    """Answer requests of one tenant. What is stored of them is stored together."""
    made = await _make_all(app, drafts)
    ready = [one for one in made if isinstance(one, _Ready)]
    answers = iter(await _store_all(app, ready))
    return [next(answers) if isinstance(one, _Ready) else one for one in made]


async def _make_all(app: Application, drafts: Sequence[_Draft]) -> list[_Ready | Exception]:
    """Check requests and make their jobs. An error that is not the request's fault is its answer."""
    invalid: dict[int, Exception] = {}
    for position, draft in enumerate(drafts):
        try:
            check_body(draft.sent, allows_loopback=app.callback_loopback)
            draft.outcome = check_sandbox(draft.app, draft.sent)
        except DagmasterError as error:
            invalid[position] = error
    if any(needs_platform(draft.sent) for draft in drafts):
        await _translate_all(app, drafts)
    startable = [
        (position, draft)
        for position, draft in enumerate(drafts)
        if position not in invalid and draft.problem is None
    ]
    orders = [(_job_request(draft), draft.app.origin, draft.app.caller) for _, draft in startable]
    jobs = await prepare_all(app, orders) if orders else []
    prepared = {position: job for (position, _), job in zip(startable, jobs, strict=True)}
    return [
        invalid[position]
        if position in invalid
        else await _make(draft, draft.problem or prepared.get(position))
        for position, draft in enumerate(drafts)
    ]


async def _translate_all(app: Application, drafts: Sequence[_Draft]) -> None:
    platforms = await app.client.requests.platforms()
    for draft in drafts:
        if needs_platform(draft.sent):
            try:
                draft.body, draft.sources = translate(draft.sent, platforms)
                check_body(draft.body, allows_loopback=app.callback_loopback)
            except DagmasterError as error:
                draft.problem = error


def _job_request(draft: _Draft) -> JobRequest:
    # Without a key: that of the request is the only one, and the same job may be that of several requests.
    return in_trace(
        JobRequest(
            workflow_id=draft.body.workflow_id,
            inputs=draft.body.input_params,
            priority=draft.body.priority,
            correlation_id=draft.request_id,
            submitted_by=draft.actor,
            tenant=draft.tenant,
            trace_parent=draft.trace_parent,
        )
    )


async def _make(draft: _Draft, prepared: PreparedJob | Exception | None) -> _Ready | Exception:
    """Return what is stored of a request: with its job, or with why there is no job."""
    sandbox: JsonObject | None = None
    if isinstance(prepared, PreparedJob) and draft.outcome is not None:
        try:
            sandbox = await played(draft.app, prepared.job, draft.outcome)
        except SubmissionRejected as error:
            prepared = error
    if isinstance(prepared, PreparedJob):
        graph = await draft.app.graphs.get(prepared.job.content_hash)
        hidden = await hide_secrets(draft.app.vault, draft.sent, secret_names(graph.inputs), draft.sources)
        request = _new_request(draft, hidden.names, hidden.to_json())
        if sandbox is not None:
            return _Ready(draft, replace(request, sandbox=sandbox), None)
        return _Ready(draft, replace(request, job_id=prepared.job.id), prepared)
    if isinstance(prepared, _REJECTIONS):
        hidden = await hide_all(draft.sent, draft.request_id)
        request = _new_request(draft, None, hidden.to_json())
        return _Ready(draft, replace(request, error=_stored_error(prepared)), None)
    return prepared or StatementFailed("the request was not prepared")


def _new_request(draft: _Draft, hidden: frozenset[str] | None, hidden_hash: str | None) -> NewRequest:
    return NewRequest(
        request_id=draft.request_id,
        tenant=draft.tenant,
        actor=draft.actor,
        body=replace(draft.body, platform_refs=None) if draft.problem is not None else draft.body,
        payload=payload_of(draft.sent, hidden),
        body_hash=fingerprint(draft.sent, hidden),
        hidden_hash=hidden_hash,
    )


def _stored_error(error: DagmasterError) -> JsonObject:
    """Return why no job could start, as it is stored and answered."""
    document = error.to_dict()
    problems = [
        {"path": problem["path"], "message": problem["message"]} for problem in document.get("problems", ())
    ]
    return {
        "code": error.code,
        "message": document["message"],
        **({"problems": problems} if problems else {}),
    }


# ── Storing ─────────────────────────────────────────────────────────────────────────────────────────────────


async def _store_all(app: Application, ready: Sequence[_Ready]) -> list[RequestResult | Exception]:
    try:
        return await _store(app, ready)
    except (StatementFailed, RateLimitExceeded) as error:
        if len(ready) == 1:
            return [error]
    # Nothing of it was stored. Only the requests that the database rejects shall fail.
    return [(await _store_all(app, [one]))[0] for one in ready]


async def _store(app: Application, ready: Sequence[_Ready]) -> list[RequestResult | Exception]:
    """Store requests; answer those whose key or id is in use as they were answered before."""
    if not ready:
        return []
    jobs = [one.prepared for one in ready if one.prepared is not None]
    stored = await app.client.requests.submit(
        [one.request for one in ready],
        [one.job for one in jobs],
        audit=[entry for one in jobs for entry in one.entries],
    )
    known = await app.client.requests.find(
        [one.request for one in ready if one.request.request_id not in stored]
    )
    return [
        _new_result(one.request, stored[one.request.request_id])
        if one.request.request_id in stored
        else await _replay(app, one, known.get(one.request.request_id))
        for one in ready
    ]


async def _replay(app: Application, one: _Ready, stored: StoredRequest | None) -> RequestResult | Exception:
    """Answer a request that was sent before as it was answered then, unless it is another one.

    None: its id is in use, and the tenant does not see by whom.
    """
    if stored is None or not stored.is_own or not await is_same(app.vault, one.draft.sent, stored):
        return _conflict()
    return RequestResult(
        outcome=RequestOutcome.EXISTING if stored.error is None else RequestOutcome.REJECTED,
        request_id=stored.request_id,
        workflow_id=stored.workflow_id,
        submitted_at=stored.created_at,
        job_id=stored.job_id,
        is_new=False,
        error=stored.error,
    )


def _new_result(request: NewRequest, created_at: float) -> RequestResult:
    return RequestResult(
        outcome=RequestOutcome.ACCEPTED if request.error is None else RequestOutcome.REJECTED,
        request_id=request.request_id,
        workflow_id=request.body.workflow_id,
        submitted_at=created_at,
        job_id=request.job_id,
        is_new=True,
        error=request.error,
    )


def _conflict() -> IdempotencyConflict:
    return IdempotencyConflict(
        "this idempotency key or request_id was used for another request, with other fields: use a new one"
    )


def _outcome(body: RequestBody, answer: RequestResult | Exception) -> RequestResult:
    if isinstance(answer, RequestResult):
        return answer
    error = answer.to_dict() if isinstance(answer, DagmasterError) else {}
    return RequestResult(
        outcome=RequestOutcome.ERROR,
        request_id=None,
        workflow_id=body.workflow_id,
        submitted_at=None,
        job_id=None,
        is_new=False,
        error=error,
    )
