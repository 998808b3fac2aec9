"""Errors of handlers: unknown, wrongly registered, or raised by one."""

from __future__ import annotations

from typing import Any

from dagmaster.errors.base import Category, DagmasterError


class HandlerNotFound(DagmasterError):
    """No handler has this name."""

    code = "handler_not_found"
    category = Category.NOT_FOUND


class HandlerTrustRejected(DagmasterError):
    """It is not clear whose contract of a handler is to be trusted, or nobody published one."""

    code = "handler_trust_rejected"
    category = Category.CONFLICT


class HandlerInvalid(DagmasterError):
    """The handler cannot be registered."""

    code = "handler_invalid"
    category = Category.INVALID


class EntrypointInvalid(HandlerInvalid, ValueError):
    """The text or object names no function of a module: `module.function`."""

    code = "entrypoint_invalid"


class PermanentError(DagmasterError):
    """Raised by a handler: another attempt would fail the same way."""

    code = "permanent_error"
    category = Category.INVALID

    def __init__(self, message: str = "", *, kind: str = "permanent", **details: Any) -> None:
        super().__init__(message)
        self.kind = kind
        self.details = details


def invalid_input(message: str, **details: Any) -> PermanentError:
    """Build the error for input that no retry can fix: kind `invalid_input`."""
    return PermanentError(message, kind="invalid_input", **details)


class ServicesNotFound(PermanentError):
    """The handler was called without the services that it asks for."""

    code = "services_not_found"
    category = Category.INTERNAL
