"""Who calls, and whether they may: API keys, an issuer's tokens, the rate limit, the scope of each route."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.application.access import admit
from dagmaster.application.api_keys import PREFIX, digest_of, find_caller, key_rejected
from dagmaster.application.browser_sessions import (
    LINK_PREFIX,
    find_session,
    session_rejected,
    start_session,
    take_login_link,
)
from dagmaster.application.job_lookup import LAST, find_job
from dagmaster.application.shared_calls import SharedCalls
from dagmaster.errors import ApiKeyRejected, Category, DagmasterError, DatabaseUnavailable, TokenRejected
from dagmaster.http.origins import is_own_fetch
from dagmaster.ports.api_keys import Caller, Namespace, Reach, Scope
from dagmaster.ports.audit_trail import ChangeOrigin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import HTTPConnection, Request

    from dagmaster.application.context import Application
    from dagmaster.http.failed_logins import FailedLogins
    from dagmaster.http.rate_limits import RateLimiter
    from dagmaster.http.services import HttpServices
    from dagmaster.http.tenant_guard import TenantGuard
    from dagmaster.ports.api_keys import ApiKeyStore, TokenVerifier

CACHE_SECONDS: Final = 5.0
"""How long a key is used or rejected without asking the store: a revoked one works this long."""
USED_SECONDS: Final = 60.0
"""How often the use of keys is stored: all that were used since, in one statement."""
KNOWN_SECONDS: Final = 0.8
"""How long the look-up of a caller may take that was found before: then it is used as it was."""
PROMPT_PATHS: Final = frozenset(
    {
        *("/metrics", "/api/v1/fleet", "/api/v1/orchestrators", "/api/v1/orchestrator/status"),
        *("/api/v1/workers", "/api/v1/queues", "/ui/fleet", "/ui/queues"),
    }
)
"""What answers GET within seconds whatever the database does. An unknown caller waits no longer there."""
MAX_CACHED: Final = 10_000
MAX_REJECTED: Final = 1_000
SESSION_COOKIE: Final = "dagmaster_session"
"""The cookie of a browser that has logged in: its value is the id of a session."""
_SETTINGS_KEY: Final = "settings:"
"""What the id of the caller with the key of the settings begins with; a part of the digest follows."""


class Credential(NamedTuple):
    """What a request proves its caller with: a key or token, or the id of a browser's session."""

    text: str
    is_session: bool = False


@dataclass(frozen=True, slots=True)
class _Cached:
    caller: Caller
    checked_at: float
    ends_at: float
    session_id: str | None = None


class KeyChecker:
    """Finds the caller of a request by its key, token or session.

    Keys and sessions are cached for some seconds, by their digest.
    """

    def __init__(
        self,
        keys: ApiKeyStore,
        tokens: TokenVerifier | None = None,
        *,
        admin_key: str | None = None,
        guard: TenantGuard | None = None,
    ) -> None:
        self._keys = keys
        self._guard = guard
        self._tokens = tokens
        self._admin_digest = None if admin_key is None else digest_of(admin_key)
        self._admin = Caller(
            key_id=f"{_SETTINGS_KEY}{(self._admin_digest or '')[:16]}",
            name="admin",
            scopes=frozenset({Scope.ADMIN}),
            namespace=Namespace.SETTINGS,
        )
        self._cache: dict[str, _Cached] = {}
        self._rejected: dict[str, float] = {}
        self._verified: dict[str, None] = {}
        self._lookups: SharedCalls[_Cached] = SharedCalls()
        self._used: set[str] = set()
        self._marked_at = float("-inf")
        self._marking: asyncio.Task[None] | None = None

    async def find(self, credential: Credential) -> Caller:
        """Return who has a credential; raise `ApiKeyRejected` or `TokenRejected` if it is not valid."""
        of_kind = self.session_caller if credential.is_session else self.caller
        caller = await of_kind(credential.text)
        if self._guard is not None:
            await self._guard.check(caller)
        return caller

    def count_request(self, caller: Caller) -> None:
        """Count a request of the caller's tenant; raise `RateLimitExceeded` if it has sent too many."""
        if self._guard is not None:
            self._guard.take(caller)

    async def caller(self, key: str) -> Caller:
        """Return who has a key or a token; raise `ApiKeyRejected` or `TokenRejected` if it is not valid."""
        digest = digest_of(key)
        if self._is_admin(digest):
            return self._admin
        if self._tokens is not None and not key.startswith(PREFIX):
            return await self._verify(self._tokens, key, digest)

        async def find(now: float) -> _Cached:
            record = await find_caller(self._keys, key)
            return _Cached(record, now, inf if record.expires_at is None else record.expires_at)

        return await self._look_up(digest, find, key_rejected)

    async def session_caller(self, session_id: str) -> Caller:
        """Return who has a session; raise `ApiKeyRejected` if it is not valid."""

        async def find(now: float) -> _Cached:
            session = await find_session(self._keys, session_id)
            caller = session.key or session.caller
            is_admin, is_token = (
                caller.key_id == self._admin.key_id,
                caller.namespace is Namespace.OIDC and self._tokens is not None,
            )
            # The key of the settings may have changed since, and the issuer may not be accepted any more.
            if session.key is None and not (is_token or (is_admin and self._admin_digest is not None)):
                raise session_rejected()
            return _Cached(caller, now, session.expires_at, session.session_id)

        return await self._look_up(digest_of(session_id), find, session_rejected)

    async def start_session(self, caller: Caller, seconds: float) -> str:
        """Start a session of a caller; return what its browser keeps."""
        return await start_session(self._keys, caller, seconds=seconds)

    async def take_link(self, code: str) -> Caller:
        """Return whose session the code of a link starts, once; raise `ApiKeyRejected`."""
        return await take_login_link(self._keys, code)

    async def end_session(self, session_id: str) -> None:
        """End a session: its browser logs out. One that is not valid has ended."""
        digest = digest_of(session_id)
        with contextlib.suppress(ApiKeyRejected):
            session = await find_session(self._keys, session_id)
            await self._keys.end_session(session.session_id)
        self._reject(digest, time.monotonic())

    def knows(self, credential: Credential) -> bool:
        """Return whether a credential was found valid here: it is no guess."""
        digest = digest_of(credential.text)
        if credential.is_session:
            return digest in self._cache
        return self._is_admin(digest) or digest in self._cache or digest in self._verified

    def was_rejected(self, credential: Credential) -> bool:
        """Return whether a credential was rejected a moment ago: it is sent again, and is no new guess."""
        return digest_of(credential.text) in self._rejected

    async def mark_used(self) -> None:
        """Store which keys were used since the last time."""
        self._marked_at = time.monotonic()
        used, self._used = self._used, set()
        # No request waits for this, and an outage of the database does not concern the callers.
        with contextlib.suppress(DagmasterError):
            if used:
                await self._keys.mark_used(sorted(used))

    def _is_admin(self, digest: str) -> bool:
        return self._admin_digest is not None and hmac.compare_digest(digest, self._admin_digest)

    async def _verify(self, tokens: TokenVerifier, token: str, digest: str) -> Caller:
        """Return the caller of a token. Each request checks it; that it was valid is remembered."""
        try:
            caller = await tokens.find_caller(token)
        except TokenRejected:
            self._verified.pop(digest, None)
            raise
        if len(self._verified) >= MAX_CACHED:
            self._verified.clear()
        self._verified[digest] = None
        return caller

    async def _look_up(
        self,
        digest: str,
        find: Callable[[float], Awaitable[_Cached]],
        rejected: Callable[[], ApiKeyRejected],
    ) -> Caller:
        """Return a caller from the cache, or find it; many requests at once share the look-up."""
        now = time.monotonic()
        cached = self._cache.get(digest)
        if cached is None or now - cached.checked_at > CACHE_SECONDS:
            if now - self._rejected.get(digest, float("-inf")) <= CACHE_SECONDS:
                raise rejected()
            cached = await self._lookups.run(digest, lambda: self._find(digest, now, find))
        self._note_use(cached.caller.key_id, now)
        return cached.caller

    async def _find(self, digest: str, now: float, find: Callable[[float], Awaitable[_Cached]]) -> _Cached:
        known = self._cache.get(digest)
        if known is not None and known.ends_at <= time.time():
            known = None
        try:
            async with asyncio.timeout(None if known is None else KNOWN_SECONDS):
                cached = await find(now)
        except ApiKeyRejected:
            self._reject(digest, now)
            raise
        except (DatabaseUnavailable, TimeoutError):
            if known is None:
                raise
            # A known caller can still ask for the health of the system.
            return known
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        self._cache[digest] = cached
        return cached

    def _reject(self, digest: str, now: float) -> None:
        """Remember a key that is not valid: one client that repeats it does not load the database."""
        self._cache.pop(digest, None)
        self._rejected.pop(digest, None)
        if len(self._rejected) >= MAX_REJECTED:
            # The oldest: they are in the order of their look-ups.
            del self._rejected[next(iter(self._rejected))]
        self._rejected[digest] = now

    def _note_use(self, key_id: str, now: float) -> None:
        self._used.add(key_id)
        if self._marking is None:
            self._marking = asyncio.create_task(self._mark_later(self._marked_at + USED_SECONDS - now))

    async def _mark_later(self, delay_seconds: float) -> None:
        await asyncio.sleep(max(0.0, delay_seconds))
        await self.mark_used()
        self._marking = None


def credential_of(request: Request) -> Credential:
    """Return the key, token or session of a request; raise `ApiKeyRejected` if it has none."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key:
        return Credential(key.strip())
    if key := request.headers.get("x-api-key", ""):
        return Credential(key)
    if session_id := _session_of(request):
        return Credential(session_id, is_session=True)
    raise ApiKeyRejected("the request has no key: send `Authorization: Bearer dm_…`")


def _session_of(request: Request) -> str:
    """Return the id of a browser's session; empty if the request could be the work of another site.

    A browser sends cookies by itself. They count only for what changes nothing, and only from our own pages:
    changes are forms of the web page, which also have a token.
    """
    if request.method not in ("GET", "HEAD") or not is_own_fetch(request.headers):
        return ""
    return request.cookies.get(SESSION_COOKIE, "")


class Need(NamedTuple):
    """What a route needs of its caller, and what it is about."""

    scope: Scope
    reach: Reach


def need_of(declaration: Mapping[str, Any] | None) -> Need | None:
    """Return what a route needs, as it is declared; None: nothing."""
    words = declaration or {}
    return Need(Scope(words["x-scope"]), Reach(words["x-reach"])) if "x-scope" in words else None


async def authorize(request: Request, need: Need, credential: Credential | None = None) -> None:
    """Find the caller of a request, for the route; raise why it may not use the route.

    Every route with a scope passes here. Of a caller that reaches only its own jobs, the job that the path
    names must be one of these. `last` is the newest one that the caller submitted, and stays so.
    """
    caller = await find_allowed(request, credential or credential_of(request), need)
    if need.reach is Reach.JOB and (caller.limits.is_own or request.path_params["job_id"] == LAST):
        job_id = await find_reached_job(request, caller, request.path_params["job_id"])
        request.scope["path_params"] = {**request.path_params, "job_id": job_id}
    request.state.caller, request.state.need = caller, need


def application_of(connection: HTTPConnection, caller: Caller) -> Application:
    """Return the application layer on behalf of a caller."""
    services: HttpServices = connection.app.state.services
    return services.application.on_behalf_of(ChangeOrigin(actor=caller.actor), caller)


async def find_reached_job(connection: HTTPConnection, caller: Caller, job_id: str) -> str:
    """Return the id of a job that a caller reaches; raise `JobNotFound`."""
    return (await find_job(application_of(connection, caller), job_id)).job_id


async def find_allowed(connection: HTTPConnection, credential: Credential, need: Need) -> Caller:
    """Return who has a credential that may be used now, as it may use the route; raise why it may not."""
    checker: KeyChecker = connection.app.state.keys
    try:
        is_prompt = connection.url.path in PROMPT_PATHS and connection.scope.get("method") == "GET"
        async with asyncio.timeout(2 * KNOWN_SECONDS if is_prompt else None):
            caller = await _authenticate(connection, credential, lambda: checker.find(credential))
    except TimeoutError as error:
        raise DatabaseUnavailable("the database did not answer while the key was looked up") from error
    limiter: RateLimiter | None = connection.app.state.rate_limiter
    if limiter is not None:
        allowance = limiter.take(caller.key_id)
        connection.state.response_headers = allowance.headers()
        allowance.check()
    checker.count_request(caller)
    return admit(caller, *need)


async def check_login(connection: HTTPConnection, text: str) -> Caller:
    """Return who logs in with a key, a token or the code of a link; raise why not."""
    checker: KeyChecker = connection.app.state.keys
    find = checker.take_link if text.startswith(LINK_PREFIX) else checker.caller
    return await _authenticate(connection, Credential(text), lambda: find(text))


async def _authenticate(
    connection: HTTPConnection, credential: Credential, find: Callable[[], Awaitable[Caller]]
) -> Caller:
    """Return who has a credential; count those that are not valid, by the address that sends them."""
    checker: KeyChecker = connection.app.state.keys
    failures: FailedLogins = connection.app.state.failed_logins
    address = "" if connection.client is None else connection.client.host
    if not checker.knows(credential):
        failures.check(address)
    # A page that is left open sends the session that has expired again and again.
    is_repeated = credential.is_session and checker.was_rejected(credential)
    try:
        return await find()
    except DagmasterError as error:
        if error.category is Category.UNAUTHENTICATED and not is_repeated:
            failures.add(address)
        raise


async def check_again(connection: HTTPConnection, credential: Credential, need: Need) -> None:
    """Raise why a credential may not be used any more.

    It is not a separate request: the rate limit does not count it.
    """
    checker: KeyChecker = connection.app.state.keys
    admit(await checker.find(credential), *need)
