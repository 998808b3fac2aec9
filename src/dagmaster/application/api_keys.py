"""API keys: create, list, revoke, rotate, and find who sent one.

A key is `dm_` + its id + `_` + 32 random bytes. It is shown once; only its digest is stored.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.cursors import CursorKind, next_cursor, start_page
from dagmaster.application.views.api_keys import ApiKeyView, NewApiKeyView
from dagmaster.errors import ApiKeyInvalid, ApiKeyNotFound, ApiKeyRejected
from dagmaster.ports.api_keys import ApiKeyRecord, KeyLimits, Namespace, Scope
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.records.page import Page
from dagmaster.text_format import format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Collection

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.api_keys import ApiKeyStore
    from dagmaster.ports.audit_trail import ChangeOrigin

PREFIX: Final = "dm_"
MAX_NAME: Final = 64
MAX_NARROWED: Final = 100
MAX_NARROWED_NAME: Final = 300
NO_LIMITS: Final = KeyLimits()
MAX_DAYS: Final = 36_500
MAX_OVERLAP_HOURS: Final = 720.0
_KEY: Final = re.compile(r"dm_[0-9a-f]{12}_[A-Za-z0-9_-]{43}")


async def create_key(  # noqa: PLR0913 - what a key may have
    keys: ApiKeyStore,
    name: str,
    scopes: Collection[Scope],
    *,
    origin: ChangeOrigin,
    now: float,
    days: float | None = None,
    limits: KeyLimits = NO_LIMITS,
    is_sandbox: bool = False,
    tenant: str = DEFAULT_TENANT,
) -> NewApiKeyView:
    """Create a key for a caller; `days`: how long it is valid; `limits`: what it is narrowed to.

    `is_sandbox`: its requests are played, and start nothing. `tenant`: whose jobs it submits and sees. Raise
    `TenantNotFound`.
    """
    _check_limits(limits, scopes)
    if is_sandbox and not {Scope.SUBMIT, Scope.READ}.issuperset(scopes):
        raise ApiKeyInvalid("a sandbox key has no other scopes than submit and read")
    record, key = _make_key(name, scopes, created_by=origin.actor, now=now, days=days)
    namespace = Namespace.SANDBOX if is_sandbox else Namespace.KEY
    record = replace(record, limits=limits, namespace=namespace, tenant=tenant)
    await _store(keys, record, key, origin)
    return _new_view(record, key)


async def create_local_key(
    keys: ApiKeyStore, user: str, *, origin: ChangeOrigin, now: float
) -> NewApiKeyView:
    """Create the key of the user of this machine, which acts for that user and has all scopes."""
    record, key = _make_key(user, list(Scope), created_by=origin.actor, now=now, days=None)
    record = replace(record, namespace=Namespace.USER)
    await _store(keys, record, key, origin)
    return _new_view(record, key)


async def _store(keys: ApiKeyStore, record: ApiKeyRecord, key: str, origin: ChangeOrigin) -> None:
    entry = origin.entry("key.create", "key", record.key_id, _audited(record))
    await keys.add(record, digest_of(key), audit=[entry])


def _make_key(
    name: str, scopes: Collection[Scope], *, created_by: str, now: float, days: float | None
) -> tuple[ApiKeyRecord, str]:
    if not (1 <= len(name) <= MAX_NAME and name.isprintable()):
        raise ApiKeyInvalid(f"the name of a key has 1 to {MAX_NAME} printable characters")
    if not scopes:
        raise ApiKeyInvalid(f"a key needs at least one scope: {', '.join(Scope)}")
    if days is not None and not 0 < days <= MAX_DAYS:
        raise ApiKeyInvalid(f"a key is valid for more than 0 and at most {MAX_DAYS:,} days")
    key_id = secrets.token_hex(6)
    key = f"{PREFIX}{key_id}_{secrets.token_urlsafe(32)}"
    record = ApiKeyRecord(
        key_id=key_id,
        name=name,
        scopes=frozenset(scopes),
        created_at=now,
        created_by=created_by,
        expires_at=None if days is None else now + days * 86_400,
    )
    return record, key


def _check_limits(limits: KeyLimits, scopes: Collection[Scope]) -> None:
    """Raise `ApiKeyInvalid` about a limit that would not limit anything."""
    needs = {
        "queues": (limits.queues, Scope.WORK),
        "handlers": (limits.handlers, Scope.WORK),
        "workflows": (limits.workflows, Scope.SUBMIT),
    }
    for noun, (names, scope) in needs.items():
        if names and scope not in scopes:
            raise ApiKeyInvalid(f"a key is narrowed to {noun} for its scope {scope}, which it does not have")
        if len(names) > MAX_NARROWED or any(not (1 <= len(one) <= MAX_NARROWED_NAME) for one in names):
            raise ApiKeyInvalid(
                f"a key is narrowed to at most {MAX_NARROWED} {noun}, each with 1 to"
                f" {MAX_NARROWED_NAME} characters"
            )
    if limits and Scope.ADMIN in scopes:
        raise ApiKeyInvalid("a key with the scope admin cannot be narrowed: it could create another key")


async def list_keys(keys: ApiKeyStore, *, cursor: str | None = None, limit: int = 100) -> Page[ApiKeyView]:
    """List keys, newest first. They are read as a whole: callers are few."""
    after = start_page(CursorKind.API_KEYS, cursor, limit)
    records = [
        record
        for record in await keys.all()
        if after is None or _position(record) > (-float(after[0]), after[1])
    ]
    page = records[:limit]
    return Page(
        items=tuple(map(_view, page)),
        next_cursor=next_cursor(
            CursorKind.API_KEYS, page, limit, lambda record: (record.created_at, record.key_id)
        ),
    )


def _position(record: ApiKeyRecord) -> tuple[float, str]:
    return -record.created_at, record.key_id


async def revoke_key(keys: ApiKeyStore, key_id: str, *, origin: ChangeOrigin) -> ApiKeyView:
    """Revoke a key: requests with it are rejected within seconds."""
    record = await keys.revoke(id_of(key_id), audit=[origin.entry("key.revoke", "key", id_of(key_id))])
    if record is None:
        raise ApiKeyNotFound(f"there is no key {id_of(key_id)[:40]!r}; `dagmaster keys list` shows all")
    return _view(record)


async def rotate_key(
    keys: ApiKeyStore, key_id: str, *, origin: ChangeOrigin, now: float, overlap_hours: float = 24.0
) -> NewApiKeyView:
    """Create a key with the name, scopes and life of another, which is valid for some more hours."""
    old = next((record for record in await keys.all() if record.key_id == id_of(key_id)), None)
    if old is None or not old.is_valid(now):
        raise ApiKeyNotFound(f"there is no valid key {key_id[:40]!r}; `dagmaster keys list` shows all")
    days = None if old.expires_at is None else (old.expires_at - old.created_at) / 86_400
    record, key = _make_key(old.name, old.scopes, created_by=origin.actor, now=now, days=days)
    record = replace(record, limits=old.limits, namespace=old.namespace, tenant=old.tenant)
    change = {**_audited(record), "replaces": old.key_id, "overlap_hours": overlap_hours}
    entry = origin.entry("key.rotate", "key", record.key_id, change)
    await keys.rotate(old.key_id, now + overlap_hours * 3_600, record, digest_of(key), audit=[entry])
    return _new_view(record, key)


def parse_scopes(names: Collection[str]) -> list[Scope]:
    """Return scopes by their names; raise `ApiKeyInvalid` for another word."""
    try:
        return [Scope(name) for name in names]
    except ValueError:
        raise ApiKeyInvalid(f"unknown scope; the scopes are: {', '.join(Scope)}") from None


async def find_caller(keys: ApiKeyStore, key: str) -> ApiKeyRecord:
    """Return the record of a key that may be used; raise `ApiKeyRejected` otherwise, without the reason."""
    match = await keys.find(digest_of(key)) if _KEY.fullmatch(key) else None
    if match is not None:
        record, now = match
        if record.is_valid(now):
            return record
    raise key_rejected()


def key_rejected() -> ApiKeyRejected:
    """Return the error about a key that may not be used, without the reason."""
    return ApiKeyRejected("the key is unknown, revoked or expired")


def digest_of(key: str) -> str:
    """Return what is stored of a key. It is random, so that a plain digest cannot be reversed."""
    return hashlib.sha256(key.encode()).hexdigest()


def allows(scopes: Collection[Scope], needed: Scope) -> bool:
    """Return whether a caller with these scopes may do something. `admin` includes all but `work`."""
    return needed in scopes or (Scope.ADMIN in scopes and needed is not Scope.WORK)


def id_of(text: str) -> str:
    """Return the id of a key from itself, or from the beginning of its text."""
    return text.removeprefix(PREFIX).split("_", 1)[0]


def _audited(record: ApiKeyRecord) -> dict[str, JsonValue]:
    expires_at = None if record.expires_at is None else format_rfc3339(record.expires_at)
    document: dict[str, JsonValue] = {
        "name": record.name,
        "scopes": [*sorted(record.scopes)],
        "expires_at": expires_at,
    }
    if record.tenant != DEFAULT_TENANT:
        document["tenant"] = record.tenant
    return document | ({"narrowed_to": _shown_limits(record)} if record.limits else {})


def _shown_limits(record: ApiKeyRecord) -> dict[str, JsonValue]:
    """Return what a key is narrowed to, as its view and its audit entry show it."""
    limits = record.limits
    return {
        "queues": [*limits.queues],
        "handlers": [*limits.handlers],
        "workflows": [*limits.workflows],
        "is_own": limits.is_own,
    }


def _new_view(record: ApiKeyRecord, key: str) -> NewApiKeyView:
    return NewApiKeyView.of(record, **_shown(record), key=key)


def _view(record: ApiKeyRecord) -> ApiKeyView:
    return ApiKeyView.of(record, **_shown(record))


def _shown(record: ApiKeyRecord) -> dict[str, Any]:
    limits = record.limits
    return {
        "actor": record.actor,
        "is_sandbox": record.is_sandbox,
        "scopes": tuple(sorted(record.scopes)),
        "queues": limits.queues,
        "handlers": limits.handlers,
        "workflows": limits.workflows,
        "is_own": limits.is_own,
    }
