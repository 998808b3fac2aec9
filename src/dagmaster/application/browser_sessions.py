"""Sessions of browsers: an opaque random id in a cookie, its digest in the store; and links that start one.

A session ends when it expires, when it is revoked, when its browser logs out, and with the key that it was
started with.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Final

from dagmaster.application.api_keys import digest_of
from dagmaster.application.views.api_keys import BrowserSessionView
from dagmaster.errors import ApiKeyRejected, BrowserSessionNotFound
from dagmaster.ports.api_keys import BrowserSession

if TYPE_CHECKING:
    from dagmaster.ports.api_keys import ApiKeyStore, Caller
    from dagmaster.ports.audit_trail import ChangeOrigin

SESSION_PREFIX: Final = "ds_"
LINK_PREFIX: Final = "dl_"
SESSION_SECONDS: Final = 30 * 86_400
LINK_SECONDS: Final = 15 * 60
"""How long a link that logs in may be used, once."""


async def start_session(keys: ApiKeyStore, caller: Caller, *, seconds: float = SESSION_SECONDS) -> str:
    """Start a session of a caller; return its id, which only the browser has."""
    return await _store(keys, caller, SESSION_PREFIX, seconds, is_link=False)


async def create_login_link(keys: ApiKeyStore, caller: Caller) -> str:
    """Return a code that starts one session of a caller within `LINK_SECONDS`."""
    return await _store(keys, caller, LINK_PREFIX, LINK_SECONDS, is_link=True)


async def take_login_link(keys: ApiKeyStore, code: str) -> Caller:
    """Return whose session a code starts, which it does once; raise `ApiKeyRejected`."""
    link = await keys.take_link(digest_of(code))
    if link is None or (link.key is not None and not link.key.is_valid(time.time())):
        raise ApiKeyRejected(
            "the link was used, or has expired: `dagmaster keys login-link` prints another one"
        )
    return link.key or link.caller


async def find_session(keys: ApiKeyStore, session_id: str) -> BrowserSession:
    """Return a session that may be used; raise `ApiKeyRejected` otherwise."""
    match = await keys.find_session(digest_of(session_id))
    if match is None or not match[0].is_valid(match[1]):
        raise session_rejected()
    return match[0]


async def list_sessions(keys: ApiKeyStore) -> list[BrowserSessionView]:
    """List the sessions that have not ended, newest first; at most 1,000."""
    return [_view(session) for session in await keys.sessions()]


async def revoke_session(keys: ApiKeyStore, session_id: str, *, origin: ChangeOrigin) -> BrowserSessionView:
    """End a session: requests with it are rejected within seconds. Raise `BrowserSessionNotFound`."""
    entry = origin.entry("session.revoke", "session", session_id)
    session = await keys.end_session(session_id, audit=[entry])
    if session is None:
        raise BrowserSessionNotFound(
            f"there is no session {session_id[:40]!r}; `dagmaster keys sessions` lists them"
        )
    return _view(session)


def session_rejected() -> ApiKeyRejected:
    """Return the error about a session that may not be used, without the reason."""
    return ApiKeyRejected("the session has expired or was ended: log in again")


async def _store(keys: ApiKeyStore, caller: Caller, prefix: str, seconds: float, *, is_link: bool) -> str:
    secret, now = f"{prefix}{secrets.token_urlsafe(32)}", time.time()
    until = now + seconds
    session = BrowserSession(
        session_id=secrets.token_hex(6),
        caller=caller,
        created_at=now,
        expires_at=until if caller.expires_at is None else min(until, caller.expires_at),
        is_link=is_link,
    )
    await keys.start_session(session, digest_of(secret))
    return secret


def _view(session: BrowserSession) -> BrowserSessionView:
    caller = session.key or session.caller
    return BrowserSessionView(
        session_id=session.session_id,
        caller=caller.actor,
        key_id=caller.key_id,
        created_at=session.created_at,
        expires_at=session.expires_at,
        ended_at=session.ended_at,
    )
