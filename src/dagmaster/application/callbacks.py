"""Callbacks as operators see them: list, show, send again; pause and resume endpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dagmaster.application.cursors import CursorKind, next_cursor, start_page
from dagmaster.application.views.callbacks import CallbackChangeResult, PublicKeysView, PublicKeyView
from dagmaster.errors import CallbackNotFound, EndpointNotFound, QueryInvalid
from dagmaster.ports.callbacks import CallbackFilter
from dagmaster.records.callbacks import DeliveryStatus
from dagmaster.records.page import Page
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.audit_trail import ChangeOrigin
    from dagmaster.ports.callbacks import CallbackStore, PublicKey
    from dagmaster.ports.secret_vault import SecretVault
    from dagmaster.records.callbacks import CallbackRecord, EndpointRecord

KEYS_PATH: Final = "/.well-known/webhook-keys"
"""Where anybody reads the public keys of the installation; below it, the keys of a tenant by their set."""
MAX_ENDPOINT: Final = 300


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The callbacks of an installation, or of a tenant, and the vault of their signing secrets."""

    store: CallbackStore
    vault: SecretVault

    def for_tenant(self, tenant: str) -> Callbacks:
        """Return the callbacks that a tenant sees."""
        return replace(self, store=self.store.for_tenant(tenant))


async def list_callbacks(
    callbacks: Callbacks, callback_filter: CallbackFilter, *, cursor: str | None = None, limit: int = 100
) -> Page[CallbackRecord]:
    """List callbacks that match, newest first."""
    after = start_page(CursorKind.CALLBACKS, cursor, limit)
    rows = await callbacks.store.callbacks(callback_filter, after=after, limit=limit)
    return Page(
        items=tuple(record for _, record in rows),
        next_cursor=next_cursor(CursorKind.CALLBACKS, rows, limit, lambda row: (row[0],)),
    )


async def show_callback(callbacks: Callbacks, callback_id: str) -> CallbackRecord:
    """Return a callback."""
    record = await callbacks.store.find(callback_id)
    if record is None:
        raise _not_found(callback_id)
    return record


async def list_endpoints(callbacks: Callbacks, *, is_paused: bool | None = None) -> list[EndpointRecord]:
    """List where callbacks go, paused endpoints first."""
    return list(await callbacks.store.endpoints(is_paused=is_paused))


async def replay_callback(
    callbacks: Callbacks, callback_id: str, *, origin: ChangeOrigin
) -> CallbackChangeResult:
    """Send a callback again, with the same id. One that waits still is sent anyway."""
    record = await show_callback(callbacks, callback_id)
    entry = origin.entry("callback.replay", "callback", record.callback_id)
    count = await callbacks.store.replay(CallbackFilter(), record.callback_id, audit=[entry])
    sentence = await _replayed(callbacks, count)
    return CallbackChangeResult(count=count, sentence=sentence if count else "It waits already.")


async def replay_callbacks(
    callbacks: Callbacks, callback_filter: CallbackFilter, *, origin: ChangeOrigin
) -> CallbackChangeResult:
    """Send callbacks again that match: dead ones, unless the filter names another status.

    Raise `QueryInvalid` if it names nothing else: that would be all callbacks.
    """
    status = callback_filter.status or DeliveryStatus.DEAD
    if status is DeliveryStatus.WAITING:
        raise QueryInvalid("what waits is sent anyway: replay dead or delivered callbacks", field="status")
    narrowed = replace(callback_filter, status=status)
    if narrowed == CallbackFilter(status=status) and status is DeliveryStatus.DELIVERED:
        raise QueryInvalid("name an endpoint, a job or request, or a time: not all callbacks at once")
    details = {
        name: str(value)
        for name in ("status", "endpoint", "tenant", "subject", "since", "until")
        if (value := getattr(narrowed, name)) is not None
    }
    entry = origin.entry("callback.replay", "callback", "*", dict(details))
    count = await callbacks.store.replay(narrowed, None, audit=[entry])
    return CallbackChangeResult(count=count, sentence=await _replayed(callbacks, count))


async def pause_endpoint(
    callbacks: Callbacks, endpoint: str, *, origin: ChangeOrigin, tenant: str | None = None
) -> CallbackChangeResult:
    """Send nothing more to an endpoint. Its callbacks wait."""
    entry = origin.entry("callback_endpoint.pause", "callback_endpoint", endpoint, {"reason": "operator"})
    count = await callbacks.store.pause(_known(endpoint), tenant, origin.actor, audit=[entry])
    if not count:
        raise EndpointNotFound(
            f"{endpoint[:MAX_ENDPOINT]!r} is no endpoint of callbacks, or is paused already"
        )
    return CallbackChangeResult(count=count, sentence=f"{endpoint} is paused; its callbacks wait.")


async def resume_endpoint(
    callbacks: Callbacks, endpoint: str, *, origin: ChangeOrigin, tenant: str | None = None
) -> CallbackChangeResult:
    """Send to a paused endpoint again: what waits, and what died since it began to fail, in order."""
    entry = origin.entry("callback_endpoint.resume", "callback_endpoint", endpoint)
    count = await callbacks.store.resume(_known(endpoint), tenant, audit=[entry])
    if not count:
        raise EndpointNotFound(f"{endpoint[:MAX_ENDPOINT]!r} is no endpoint of callbacks, or is not paused")
    return CallbackChangeResult(
        count=count, sentence=f"{endpoint} is resumed: everything since it began to fail is sent."
    )


async def public_keys(callbacks: Callbacks, key_set: str | None = None) -> PublicKeysView:
    """Return the public keys of a set; none of one that does not exist."""
    return public_keys_view(await callbacks.store.public_keys(key_set))


def public_keys_view(keys: Sequence[PublicKey]) -> PublicKeysView:
    return PublicKeysView(
        keys=tuple(
            PublicKeyView(key_id=key.secret_id, public_key=key.public_key, expires_at=key.expires_at)
            for key in keys
        )
    )


async def _replayed(callbacks: Callbacks, count: int) -> str:
    sentence = f"{format_count(count, 'callback')} will be sent again."
    if count and await callbacks.store.endpoints(is_paused=True):
        sentence += " Those to paused endpoints wait until these are resumed."
    return sentence


def _known(endpoint: str) -> str:
    """Return an endpoint as it is stored: without a slash at the end, in small letters."""
    return endpoint.rstrip("/").lower()


def _not_found(callback_id: str) -> CallbackNotFound:
    return CallbackNotFound(
        f"there is no callback {callback_id[:60]!r}; `dagmaster callbacks list` shows all"
    )
