"""Who calls, and whether they may: API keys, an issuer's tokens, the rate limit, the scope of each route."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.application.api_keys import PREFIX, allows, digest_of, find_caller, key_rejected
from dagmaster.application.shared_calls import SharedCalls
from dagmaster.errors import ApiKeyRejected, DagmasterError, DatabaseUnavailable, ScopeMissing
from dagmaster.http.origins import is_own_fetch
from dagmaster.ports.api_keys import Caller, Scope

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection, Request

    from dagmaster.http.rate_limits import RateLimiter
    from dagmaster.ports.api_keys import ApiKeyRecord, ApiKeyStore, TokenVerifier

CACHE_SECONDS: Final = 5.0
"""How long a key is used or rejected without asking the store: a revoked one works this long."""
USED_SECONDS: Final = 60.0
"""How often the use of keys is stored: all that were used since, in one statement."""
MAX_CACHED: Final = 10_000
MAX_REJECTED: Final = 1_000
ADMIN: Final = Caller(key_id="settings", name="admin", scopes=frozenset({Scope.ADMIN}))
"""The caller with the key of the settings, which is in no database."""
SESSION_COOKIE: Final = "dagmaster_session"
"""The cookie of a browser that has logged in: its value is the key or token."""


@dataclass(frozen=True, slots=True)
class _Cached:
    record: ApiKeyRecord
    checked_at: float


class KeyChecker:
    """Finds the caller of a request by its key or token.

    Keys are cached for some seconds, by their digest.
    """

    def __init__(
        self, keys: ApiKeyStore, tokens: TokenVerifier | None = None, *, admin_key: str | None = None
    ) -> None:
        self._keys = keys
        self._tokens = tokens
        self._admin_digest = None if admin_key is None else digest_of(admin_key)
        self._cache: dict[str, _Cached] = {}
        self._rejected: dict[str, float] = {}
        self._lookups: SharedCalls[_Cached] = SharedCalls()
        self._used: set[str] = set()
        self._marked_at = float("-inf")
        self._marking: asyncio.Task[None] | None = None

    async def caller(self, key: str) -> Caller:
        """Return who has a key or a token; raise `ApiKeyRejected` or `TokenRejected` if it is not valid."""
        digest, now = digest_of(key), time.monotonic()
        if self._admin_digest is not None and hmac.compare_digest(digest, self._admin_digest):
            return ADMIN
        if self._tokens is not None and not key.startswith(PREFIX):
            return await self._tokens.find_caller(key)
        cached = self._cache.get(digest)
        if cached is None or now - cached.checked_at > CACHE_SECONDS:
            if now - self._rejected.get(digest, float("-inf")) <= CACHE_SECONDS:
                raise key_rejected()
            cached = await self._lookups.run(digest, lambda: self._find(key, digest, now))
        self._note_use(cached.record.key_id, now)
        return cached.record

    async def mark_used(self) -> None:
        """Store which keys were used since the last time."""
        self._marked_at = time.monotonic()
        used, self._used = self._used, set()
        # No request waits for this, and an outage of the database does not concern the callers.
        with contextlib.suppress(DagmasterError):
            if used:
                await self._keys.mark_used(sorted(used))

    async def _find(self, key: str, digest: str, now: float) -> _Cached:
        known = self._cache.get(digest)
        try:
            record = await find_caller(self._keys, key)
        except ApiKeyRejected:
            self._reject(digest, now)
            raise
        except DatabaseUnavailable:
            if known is None or not known.record.is_valid(time.time()):
                raise
            # A known caller can still ask for the health of the system.
            return known
        if len(self._cache) >= MAX_CACHED:
            self._cache.clear()
        cached = self._cache[digest] = _Cached(record, now)
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


def key_of(request: Request) -> str:
    """Return the key or token of a request; raise `ApiKeyRejected` if it has none."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key:
        return key.strip()
    key = request.headers.get("x-api-key", "") or _session_key(request)
    if not key:
        raise ApiKeyRejected("the request has no key: send `Authorization: Bearer dm_…`")
    return key


def _session_key(request: Request) -> str:
    """Return the key of a browser's session; empty if the request could be the work of another site.

    A browser sends cookies by itself. They count only for what changes nothing, and only from our own pages:
    changes are forms of the web page, which also have a token.
    """
    if request.method not in ("GET", "HEAD") or not is_own_fetch(request.headers):
        return ""
    return request.cookies.get(SESSION_COOKIE, "")


async def authorize(request: Request, scope: Scope) -> None:
    """Find the caller of a request, for the route; raise why it may not use the route."""
    request.state.caller = await find_allowed(request, key_of(request), scope)


async def find_allowed(connection: HTTPConnection, key: str, scope: Scope) -> Caller:
    """Return who has a key that may be used now, for this scope; raise why it may not."""
    checker: KeyChecker = connection.app.state.keys
    caller = await checker.caller(key)
    limiter: RateLimiter | None = connection.app.state.rate_limiter
    if limiter is not None:
        allowance = limiter.take(caller.key_id)
        connection.state.response_headers = allowance.headers()
        allowance.check()
    _check_scope(caller, scope)
    return caller


async def check_again(connection: HTTPConnection, key: str, scope: Scope) -> None:
    """Raise why a key may not be used any more.

    It is not a separate request: the rate limit does not count it.
    """
    checker: KeyChecker = connection.app.state.keys
    _check_scope(await checker.caller(key), scope)


def _check_scope(caller: Caller, scope: Scope) -> None:
    if not allows(caller.scopes, scope):
        granted = ", ".join(sorted(caller.scopes))
        raise ScopeMissing(f"this needs the scope `{scope}`; {caller.name} has: {granted or 'none'}")
