"""What partners use: submit a request, ask how far it is."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, NoReturn
from uuid import uuid4

from fastapi import Depends, Header, Path, Query
from fastapi.exceptions import RequestValidationError
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse

from dagmaster.application.request_status import NOT_FOUND
from dagmaster.errors import RequestNotFound, ServerAnswerInvalid
from dagmaster.http.gateway.answers import answer
from dagmaster.http.gateway.closed_problems import problem
from dagmaster.http.gateway.rejections import accepted, outcome, rejection, retry_headers
from dagmaster.http.gateway.routes import GatewayRoutes, credential_text
from dagmaster.http.gateway.services import Caller, GatewayServices, Services
from dagmaster.http.gateway.upstream import Forwarded
from dagmaster.http.request_bodies import MAX_REQUESTS, PlatformSubmitRequest
from dagmaster.http.strict_requests import Body
from dagmaster.ports.api_keys import Caller as CallerRecord
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ports.job_options import MAX_KEY
from dagmaster.ports.result_links import RESULT_PATH, is_result_link_valid
from dagmaster.records.gateway import BatchSubmitResponse, PlatformStatusResponse, PlatformSubmitResponse
from dagmaster.records.parsing import parse_record
from dagmaster.records.requests import RequestStatusRecord

routes = GatewayRoutes("platform")
_OLD: Final = {"Deprecation": "true"}

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=MAX_KEY,
        description="Instead of the field of the body.",
    ),
]
RequestId = Annotated[str, Path(max_length=200, description="The `request_id` of a submit.")]
Expires = Annotated[
    str, Query(min_length=1, max_length=12, description="When the link expires, in seconds since the epoch.")
]
Signature = Annotated[str, Query(min_length=1, max_length=64, description="What makes the link valid.")]
_NO_KEY: Final = "no request"
"""Checks the link of an unknown request: the answer takes the same time."""
_SUBMIT: Final[dict[str, Any]] = {
    "status": 202, "reach": Reach.REQUESTS, "fails": (400, 409, 413, 422)
}  # fmt: skip
_STATUS: Final[dict[str, Any]] = {"reach": Reach.REQUESTS, "fails": (404,)}
_RESULT: Final[dict[str, Any]] = {"reach": Reach.REQUESTS, "fails": (404, 410)}


@routes.post("/platform/submit", Scope.SUBMIT, PlatformSubmitResponse, name="submit_request", **_SUBMIT)
async def submit(
    request: Request,
    services: Services,
    body: PlatformSubmitRequest,
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Submit a request. The same idempotency key and body: the same request; another body: 409.

    A request that cannot be carried out is recorded: 422 with its `request_id`.
    """
    return await _submit_one(request, services, body, idempotency_key)


@routes.post(
    "/platform/submit_dag",
    Scope.SUBMIT,
    PlatformSubmitResponse,
    name="submit_dag",
    deprecated=True,
    **_SUBMIT,
)
async def submit_dag(
    request: Request,
    services: Services,
    body: PlatformSubmitRequest,
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Submit a request: the older name of `/platform/submit`."""
    response = await _submit_one(request, services, body, idempotency_key)
    response.headers.update(_OLD | {"Link": '</platform/submit>; rel="successor-version"'})
    return response


@routes.get(
    "/platform/status/{request_id}", Scope.READ, PlatformStatusResponse, name="get_request", **_STATUS
)
async def status(request: Request, services: Services, caller: Caller, request_id: RequestId) -> JSONResponse:
    """Show how far a request is. Unknown ids and other partners' ids get the same answer."""
    record = await _status_of(request, services, caller, request_id)
    return answer(request, PlatformStatusResponse.of(record))


@routes.get(
    "/platform/dag_status/{request_id}",
    Scope.READ,
    PlatformStatusResponse,
    name="get_dag_status",
    deprecated=True,
    **_STATUS,
)
async def dag_status(
    request: Request, services: Services, caller: Caller, request_id: RequestId
) -> JSONResponse:
    """Show how far a request is: the older name of `/platform/status/{request_id}`."""
    record = await _status_of(request, services, caller, request_id)
    headers = _OLD | {"Link": f'</platform/status/{record.request_id}>; rel="successor-version"'}
    return answer(request, PlatformStatusResponse.of(record), headers=headers)


@routes.get(RESULT_PATH, Scope.READ, PlatformStatusResponse, name="get_result", **_RESULT)
async def result(
    request: Request,
    services: Services,
    caller: Caller,
    request_id: RequestId,
    expires: Expires,
    signature: Signature,
) -> JSONResponse:
    """Follow the `result_url` of a callback: the same document as `/platform/status/{request_id}`.

    It needs a key of the partner as well. A link that is not as it was made gets the answer of an unknown id;
    one that has expired, 410.
    """
    key = await services.requests.result_key(caller, request_id)
    is_valid = partial(is_result_link_valid, key or _NO_KEY, request_id, expires, signature)
    if not is_valid(now=-math.inf) or key is None:
        raise RequestNotFound(NOT_FOUND)
    if not is_valid(now=time.time()):
        return problem("result_link_expired")
    return answer(request, PlatformStatusResponse.of(await _status_of(request, services, caller, request_id)))


class BatchSubmitRequest(Body):
    """Up to 100 submits, each with its own outcome."""

    jobs: list[PlatformSubmitRequest] = Field(min_length=1, max_length=MAX_REQUESTS)


async def reject_key_of_batch(request: Request) -> None:
    """Raise for a key of several submits: ignored, it would promise what does not hold."""
    if "idempotency-key" in request.headers:
        _reject(
            "header.Idempotency-Key",
            "several submits cannot share one key: each has the field idempotency_key",
        )


@routes.post(
    "/gateway/submit/batch",
    Scope.SUBMIT,
    BatchSubmitResponse,
    name="submit_requests",
    dependencies=[Depends(reject_key_of_batch)],
    **_SUBMIT,
)
async def submit_batch(request: Request, services: Services, body: BatchSubmitRequest) -> JSONResponse:
    """Submit up to 100 requests. One that is not accepted does not stop the others.

    Each has its own outcome. With an `idempotency_key` in each, a batch without an answer can be sent again.
    """
    forwarded = await services.upstream.submit_batch(
        [_forwarded(job) for job in body.jobs], _headers(request)
    )
    if forwarded.status != HTTPStatus.ACCEPTED:
        return _answer_rejection(forwarded)
    documents = forwarded.document
    if not isinstance(documents, list) or len(documents) != len(body.jobs):
        raise ServerAnswerInvalid("the server has not answered each submit of a batch")
    results = tuple(
        outcome(index, document, job.workflow_id)
        for index, (document, job) in enumerate(zip(documents, body.jobs, strict=True))
    )
    count = sum(result.status == "accepted" for result in results)
    return answer(request, BatchSubmitResponse(accepted=count, results=results), HTTPStatus.ACCEPTED)


async def _submit_one(
    request: Request, services: GatewayServices, body: PlatformSubmitRequest, header_key: str | None
) -> JSONResponse:
    if header_key is not None and body.idempotency_key not in {None, header_key}:
        _reject("header.Idempotency-Key", "the header Idempotency-Key and the field idempotency_key differ")
    forwarded = await services.submits.submit(_forwarded(body, header_key), _headers(request))
    view = accepted(forwarded.document, body.workflow_id) if forwarded.status == HTTPStatus.ACCEPTED else None
    if view is None:
        return _answer_rejection(forwarded)
    headers = {"Location": f"/platform/status/{view.request_id}"}
    return answer(request, view, HTTPStatus.ACCEPTED, headers)


async def _status_of(
    request: Request, services: GatewayServices, caller: CallerRecord, request_id: str
) -> RequestStatusRecord:
    """Return the status of a request. A result that is not in the database is read by the server."""
    record = await services.requests.status(caller, request_id)
    if record.result_omitted is None:
        return record
    forwarded = await services.upstream.status(record.request_id, _headers(request))
    if forwarded.status != HTTPStatus.OK:
        return record
    parsed = parse_record(RequestStatusRecord, forwarded.document, read_at=0.0)
    return replace(record, result=parsed.result, result_omitted=parsed.result_omitted)


def _answer_rejection(forwarded: Forwarded) -> JSONResponse:
    described = rejection(forwarded)
    return problem(
        described.code,
        errors=described.errors or (),
        request_id=described.request_id,
        headers=retry_headers(forwarded),
    )


def _forwarded(body: PlatformSubmitRequest, header_key: str | None = None) -> dict[str, Any]:
    """Return the body of a submit for the server: as it was sent, with an id that nobody can guess."""
    if "request_id" in (body.model_extra or {}):
        _reject("body.request_id", "the id of a request is made here")
    sent: dict[str, Any] = body.model_dump(exclude_unset=True) | {"request_id": str(uuid4())}
    return sent if header_key is None else sent | {"idempotency_key": header_key}


def _headers(request: Request) -> dict[str, str]:
    headers = {
        "Authorization": f"Bearer {credential_text(request)}",
        "X-Request-ID": request.state.request_id,
    }
    if trace := request.headers.get("traceparent"):
        headers["traceparent"] = trace[:200]
    return headers


def _reject(path: str, message: str) -> NoReturn:
    raise RequestValidationError([{"loc": path.split("."), "msg": message}])
