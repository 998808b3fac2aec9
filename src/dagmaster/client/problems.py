"""Turns problem documents (RFC 9457) into the exceptions that the same mistake raises locally."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from dagmaster.errors import (
    DagmasterError,
    Problem,
    RequestRejected,
    ServerAnswerInvalid,
    ServerUnavailable,
    error_types,
)
from dagmaster.errors.base import ProblemsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx

_MAX_QUOTE = 200


def error_of_response(response: httpx.Response) -> DagmasterError:
    """Return the exception for an answer that is not a success."""
    document = _json_object(response)
    if "code" in document:
        error = error_of_code(
            str(document["code"]), str(document.get("detail", "")), document.get("errors") or ()
        )
        if isinstance(error, RequestRejected):
            error.request_id, error.reason = str(document["request_id"]), str(document["reason"])
            error.problems = tuple(_problem(item) for item in document.get("errors") or ())
        return error
    address = response.request.url.copy_with(path="/", query=None)
    if response.is_server_error:
        return ServerUnavailable(
            f"the server at {address} answered {response.status_code} {response.reason_phrase}"
        )
    return ServerAnswerInvalid(
        f"{address} answered {response.status_code} {response.reason_phrase} and no problem document: is it"
        " the address of a dagmaster server?"
    )


def error_of_document(document: Mapping[str, Any]) -> DagmasterError:
    """Return the exception for an `error` object, as the outcome of one job of a batch has."""
    return error_of_code(str(document["code"]), str(document["message"]), document.get("problems") or ())


def error_of_code(code: str, message: str, problems: Sequence[Mapping[str, Any]]) -> DagmasterError:
    """Return the exception with a code."""
    error_type = _types_by_code().get(code)
    if error_type is None:
        return ServerAnswerInvalid(f"{message[:_MAX_QUOTE]} ({code}); is the server of another version?")
    if issubclass(error_type, ProblemsError):
        return error_type([_problem(item) for item in problems] or [Problem(message=message)])
    return error_type(message)


@cache
def _types_by_code() -> dict[str, type[DagmasterError]]:
    return {error_type.code: error_type for error_type in error_types()}


def _problem(item: Mapping[str, Any]) -> Problem:
    return Problem(**{field.name: item[field.name] for field in fields(Problem) if field.name in item})


def _json_object(response: httpx.Response) -> dict[str, Any]:
    try:
        document = response.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
