"""The errors of requests to the API: their callers, their rate, their form."""

from __future__ import annotations

from dagmaster.errors.base import Category, DagmasterError, ProblemsError


class ApiKeyInvalid(DagmasterError):
    """The key to create is not valid."""

    code = "api_key_invalid"
    category = Category.INVALID


class ApiKeyNotFound(DagmasterError):
    """There is no such key."""

    code = "api_key_not_found"
    category = Category.NOT_FOUND


class ApiKeyRejected(DagmasterError):
    """The request has no key, or one that is unknown, revoked or expired."""

    code = "api_key_rejected"
    category = Category.UNAUTHENTICATED


class TokenRejected(DagmasterError):
    """The token is expired, of another issuer or for another audience, or its signature is wrong."""

    code = "token_rejected"
    category = Category.UNAUTHENTICATED


class LoginRejected(DagmasterError):
    """The login of the web page was not completed."""

    code = "login_rejected"
    category = Category.UNAUTHENTICATED


class IssuerUnavailable(DagmasterError):
    """The issuer of tokens cannot be reached, or its documents cannot be used."""

    code = "issuer_unavailable"
    category = Category.UNAVAILABLE


class RateLimitExceeded(DagmasterError):
    """The caller sends requests faster than it may."""

    code = "rate_limit_exceeded"
    category = Category.UNAVAILABLE
    http_status = 429

    def __init__(self, message: str = "", *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class JobQuotaExceeded(RateLimitExceeded):
    """The tenant has as many open jobs as it may have."""

    code = "job_quota_exceeded"


class StreamLimitExceeded(RateLimitExceeded):
    """The caller has as many live streams and waiting requests on this server as it may have."""

    code = "stream_limit_exceeded"


class ScopeMissing(DagmasterError):
    """The key or token does not have the scope that the request needs."""

    code = "scope_missing"
    category = Category.FORBIDDEN


class WorkerExpired(DagmasterError):
    """The worker is not registered, or its lease has expired."""

    code = "worker_expired"
    category = Category.CONFLICT


class LeaseLost(DagmasterError):
    """The task is not held under this lease token."""

    code = "lease_lost"
    category = Category.CONFLICT


class ServiceNotFound(DagmasterError):
    """There is no such orchestrator or worker."""

    code = "service_not_found"
    category = Category.NOT_FOUND


class DrainRejected(DagmasterError):
    """The service cannot be drained: it has stopped or died, or it belongs to a `dagmaster run`."""

    code = "drain_rejected"
    category = Category.CONFLICT


class KeyNarrowed(DagmasterError):
    """The key has the scope, and is narrowed to other jobs, workflows, queues or handlers."""

    code = "key_narrowed"
    category = Category.FORBIDDEN


class QuotaExceeded(DagmasterError):
    """The caller has as many workers, queues or handlers as it may have."""

    code = "quota_exceeded"
    category = Category.FORBIDDEN


class HostRejected(DagmasterError):
    """The request names a host that is not this server."""

    code = "host_rejected"
    category = Category.INVALID
    http_status = 421


class TooManyFailures(RateLimitExceeded):
    """The address has sent too many keys or tokens that are not valid."""

    code = "too_many_failures"


class RequestInvalid(ProblemsError):
    """The request is not valid."""

    code = "request_invalid"
    category = Category.INVALID


class RequestTimedOut(DagmasterError):
    """The body of the request arrives too slowly."""

    code = "request_timed_out"
    category = Category.INVALID
    http_status = 408


class MediaTypeUnsupported(DagmasterError):
    """The body of the request is not JSON, or is compressed."""

    code = "media_type_unsupported"
    category = Category.INVALID
    http_status = 415


class HeadersTooLarge(DagmasterError):
    """The headers of the request are too large."""

    code = "headers_too_large"
    category = Category.INVALID
    http_status = 431


class RequestTooLarge(DagmasterError):
    """The body of the request is too large."""

    code = "request_too_large"
    category = Category.INVALID
    http_status = 413


class ServerUnavailable(DagmasterError):
    """The server cannot be reached."""

    code = "server_unavailable"
    category = Category.UNAVAILABLE


class ServerAnswerInvalid(DagmasterError):
    """The answer is not one of a dagmaster server of this version."""

    code = "server_answer_invalid"
    category = Category.UNAVAILABLE


class OriginRejected(DagmasterError):
    """The form was sent by a page of another site, or it is not of the session of its sender."""

    code = "origin_rejected"
    category = Category.FORBIDDEN


class PageNotFound(DagmasterError):
    """The web page has no such address."""

    code = "page_not_found"
    category = Category.NOT_FOUND


class CheckLimitExceeded(DagmasterError):
    """The check of what was sent took more time or memory than the server allows."""

    code = "check_limit_exceeded"
    category = Category.INVALID
    http_status = 422


class ChecksBusy(DagmasterError):
    """As many checks run and wait as the server allows: the same request may succeed later."""

    code = "checks_busy"
    category = Category.UNAVAILABLE


class CursorInvalid(DagmasterError):
    """The cursor was not made by this list."""

    code = "cursor_invalid"
    category = Category.INVALID


class QueryInvalid(DagmasterError):
    """A filter or limit of the query is not valid."""

    code = "query_invalid"
    category = Category.INVALID

    def __init__(self, message: str = "", *, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


class BrowserSessionNotFound(DagmasterError):
    """No session of a browser has this id."""

    code = "browser_session_not_found"
    category = Category.NOT_FOUND
