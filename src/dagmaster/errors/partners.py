"""The errors of requests: what a partner asked for, and the platforms whose identifiers it sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.errors.base import Category, DagmasterError, Problem, ProblemsError
from dagmaster.errors.requests import RateLimitExceeded

if TYPE_CHECKING:
    from collections.abc import Sequence


class RequestRejected(DagmasterError):
    """The request is stored, and no job can start: send a corrected one with a new idempotency key."""

    code = "request_rejected"
    category = Category.INVALID
    http_status = 422

    def __init__(
        self, message: str = "", *, request_id: str = "", reason: str = "", problems: Sequence[Problem] = ()
    ) -> None:
        super().__init__(message)
        self.request_id = request_id
        self.reason = reason
        """The code of the error that no job could start for."""
        self.problems = tuple(problems)

    def to_dict(self) -> dict[str, Any]:
        problems = [problem.to_dict() for problem in self.problems]
        more = {"problems": problems} if problems else {}
        return {**super().to_dict(), "request_id": self.request_id, "reason": self.reason, **more}


class RequestNotFound(DagmasterError):
    """No request has this id, or it is not yours."""

    code = "request_not_found"
    category = Category.NOT_FOUND


class RequestQuotaExceeded(RateLimitExceeded):
    """The tenant has made as many requests today as it may; the day ends at midnight UTC."""

    code = "request_quota_exceeded"


class RequestsUnavailable(DagmasterError):
    """Requests and platforms are stored in PostgreSQL, and this process has no database."""

    code = "requests_unavailable"
    category = Category.UNAVAILABLE


class PlatformNotFound(DagmasterError):
    """No platform has this id."""

    code = "platform_not_found"
    category = Category.NOT_FOUND


class PlatformInvalid(ProblemsError):
    """The declaration of the platform is not valid."""

    code = "platform_invalid"
    category = Category.INVALID
    http_status = 422


class PlatformRefsInvalid(ProblemsError):
    """The identifiers do not fit the platform."""

    code = "platform_refs_invalid"
    category = Category.INVALID
    http_status = 422
