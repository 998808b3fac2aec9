"""Callbacks as operators see them: list, show, send again; pause and resume endpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dagmaster.application.cursors import CursorKind, decode_cursor, encode_cursor, next_cursor, start_page
from dagmaster.application.views.callbacks import CallbackChangeResult, PublicKeysView, PublicKeyView
from dagmaster.errors import CallbackNotFound, EndpointNotFound, QueryInvalid
from dagmaster.ports.callbacks import MAX_LEFT, CallbackFilter
from dagmaster.records.callbacks import DeliveryStatus
from dagmaster.records.page import Page
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.audit_trail import ChangeOrigin
    from dagmaster.ports.callbacks import CallbackStore, PublicKey, ReplayBatch
    from dagmaster.ports.secret_vault import SecretVault
    from dagmaster.records.callbacks import CallbackRecord, EndpointRecord

KEYS_PATH: Final = "/.well-known/webhook-keys"
"""Where anybody reads the public keys of the installation; below it, the keys of a tenant by their set."""
MAX_ENDPOINT: Final = 300
MAX_CHANGED: Final = 5_000
"""How many callbacks one change concerns: it holds locks, and who asks waits for it."""


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
    batch = await callbacks.store.replay(CallbackFilter(), record.callback_id, audit=[entry])
    sentence = await _replayed(callbacks, batch) if batch.changed else "It waits already."
    return CallbackChangeResult(count=batch.changed, sentence=sentence)


async def replay_callbacks(
    callbacks: Callbacks, callback_filter: CallbackFilter, *, origin: ChangeOrigin, cursor: str | None = None
) -> CallbackChangeResult:
    """Send up to 5,000 callbacks again that match: dead ones, unless the filter names another status.

    With the cursor of the result, the next ones. Raise `QueryInvalid` if the filter names nothing else: that
    would be all callbacks.
    """
    after = decode_cursor(CursorKind.REPLAYED_CALLBACKS, cursor)
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
    batch = await callbacks.store.replay(narrowed, after=after, limit=MAX_CHANGED, audit=[entry])
    following = None
    if batch.left and batch.position is not None:
        following = encode_cursor(CursorKind.REPLAYED_CALLBACKS, (batch.position,))
    return CallbackChangeResult(
        count=batch.changed,
        sentence=await _replayed(callbacks, batch),
        left=batch.left,
        next_cursor=following,
    )


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
    """Send to a paused endpoint again: what waits, and what died since it began to fail, in order.

    Up to 5,000 callbacks are recovered at once. If more are left, it stays paused: resume it again.
    """
    entry = origin.entry("callback_endpoint.resume", "callback_endpoint", endpoint)
    batch = await callbacks.store.resume(_known(endpoint), tenant, limit=MAX_CHANGED, audit=[entry])
    if batch is None:
        raise EndpointNotFound(f"{endpoint[:MAX_ENDPOINT]!r} is no endpoint of callbacks, or is not paused")
    if batch.left:
        sentence = (
            f"{format_count(batch.recovered, 'callback')} will be sent, {_left(batch.left)} are left:"
            f" {endpoint} stays paused until these are recovered. Resume it again."
        )
    else:
        sentence = f"{endpoint} is resumed: everything since it began to fail is sent."
    return CallbackChangeResult(count=batch.changed, sentence=sentence, left=batch.left)


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


async def _replayed(callbacks: Callbacks, batch: ReplayBatch) -> str:
    sentence = f"{format_count(batch.changed, 'callback')} will be sent again."
    if batch.left:
        return f"{sentence} {_left(batch.left)} more match."
    if batch.changed and await callbacks.store.endpoints(is_paused=True):
        sentence += " Callbacks to paused endpoints wait until these are resumed."
    return sentence


def _left(count: int) -> str:
    return f"{count:,}" + (" or more" if count >= MAX_LEFT else "")


def _known(endpoint: str) -> str:
    """Return an endpoint as it is stored: without a slash at the end, in small letters."""
    return endpoint.rstrip("/").lower()


def _not_found(callback_id: str) -> CallbackNotFound:
    return CallbackNotFound(
        f"there is no callback {callback_id[:60]!r}; `dagmaster callbacks list` shows all"
    )
