"""How a route of a gateway answers: with a record, whose class says which fields may be sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dagmaster.records.record import Record

ANSWER: Final = "gateway_answer"
"""The class of the record that a partner is answered with, in the state of the request."""
INTERNAL: Final = "gateway_internal"
"""Whether an administrator is answered: then the answer is sent as it is."""


def answer(
    request: Request, record: Record, status: int = 200, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return the answer to a partner."""
    setattr(request.state, ANSWER, type(record))
    return JSONResponse(record.to_dict(), status, dict(headers or {}))


def answer_admin(request: Request, record: Record, status: int = 200) -> Response:
    """Return the answer to an administrator."""
    return passed_on(request, JSONResponse(record.to_dict(), status))


def passed_on(request: Request, response: Response) -> Response:
    """Return a response to an administrator."""
    setattr(request.state, INTERNAL, True)
    return response
