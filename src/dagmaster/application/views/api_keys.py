"""Views of API keys, and of sessions of browsers."""

from __future__ import annotations

from dataclasses import dataclass

from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.records.record import Record, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyView(Record):
    """A key, without its secret. `actor`: the submitter and sender of what is done with it, for `tenant`.

    Its workers may have `queues` and `handlers`, and it submits `workflows`; empty: all of them.
    `is_own`: it reaches only jobs that it submitted. `is_sandbox`: nothing that it asks for is run.
    """

    key_id: str
    name: str
    scopes: tuple[str, ...]
    actor: str = ""
    tenant: str = DEFAULT_TENANT
    queues: tuple[str, ...] = ()
    handlers: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    is_own: bool = False
    is_sandbox: bool = False
    created_at: Timestamp
    created_by: str
    expires_at: Timestamp | None
    revoked_at: Timestamp | None
    last_used_at: Timestamp | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApiKeyView(ApiKeyView):
    """A new key with its secret, which is shown only here."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSessionView(Record):
    """A session of a browser. Its id names it, and is not what the browser sends."""

    session_id: str
    caller: str
    key_id: str
    created_at: Timestamp
    expires_at: Timestamp
    ended_at: Timestamp | None
