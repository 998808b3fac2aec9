"""Methods of clients about callbacks, their endpoints and their signing secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.application.signing_secrets import DEFAULT_OVERLAP_HOURS
from dagmaster.application.views import (
    CallbackChangeResult,
    CallbackRecord,
    EndpointRecord,
    NewSigningSecretView,
    SigningSecretRecord,
)
from dagmaster.client.methods import Request, get, post, returns, returns_list, returns_page
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.text_format import format_rfc3339

if TYPE_CHECKING:
    from dagmaster.ports.callbacks import CallbackFilter
    from dagmaster.records.callbacks import SecretKind


class CallbackMethods:
    """What can be asked about callbacks."""

    @returns_page(CallbackRecord)
    def list_callbacks(
        self, callback_filter: CallbackFilter, *, cursor: str | None = None, limit: int = 100
    ) -> Request:
        """List callbacks that match, newest first."""
        return get("callbacks", **_filter(callback_filter), cursor=cursor, limit=limit)

    @returns(CallbackRecord)
    def show_callback(self, callback_id: str) -> Request:
        """Return a callback."""
        return get("callbacks", callback_id)

    @returns_list(EndpointRecord)
    def list_endpoints(self, *, is_paused: bool | None = None) -> Request:
        """List where callbacks go, paused endpoints first."""
        return get("callbacks", "endpoints", is_paused=is_paused)

    @returns(CallbackChangeResult)
    def replay_callback(self, callback_id: str) -> Request:
        """Send a callback again, with the same id."""
        return post("callbacks", callback_id, "replay")

    @returns(CallbackChangeResult)
    def replay_callbacks(self, callback_filter: CallbackFilter, *, cursor: str | None = None) -> Request:
        """Send up to 5,000 callbacks again that match: dead ones, unless the filter names another status."""
        return post("callbacks", "replay", **_filter(callback_filter), cursor=cursor)

    @returns(CallbackChangeResult)
    def pause_endpoint(self, endpoint: str, *, tenant: str | None = None) -> Request:
        """Send nothing more to an endpoint. Its callbacks wait."""
        return post("callbacks", "endpoints", "pause", body={"endpoint": endpoint, "tenant": tenant})

    @returns(CallbackChangeResult)
    def resume_endpoint(self, endpoint: str, *, tenant: str | None = None) -> Request:
        """Send to a paused endpoint again: what waits, and what died since it began to fail, in order.

        While some are `left`, it stays paused: resume it again.
        """
        return post("callbacks", "endpoints", "resume", body={"endpoint": endpoint, "tenant": tenant})

    @returns_list(SigningSecretRecord)
    def list_signing_secrets(self, *, tenant: str | None = None) -> Request:
        """List signing secrets by tenant, newest first, without the secrets."""
        return get("callbacks", "secrets", tenant=tenant)

    @returns(NewSigningSecretView)
    def create_signing_secret(
        self,
        kind: SecretKind,
        *,
        tenant: str = DEFAULT_TENANT,
        overlap_hours: float = DEFAULT_OVERLAP_HOURS,
    ) -> Request:
        """Create a secret, and show it once. The one that it replaces signs as well for some more hours."""
        body = {"kind": kind.value, "tenant": tenant, "overlap_hours": overlap_hours}
        return post("callbacks", "secrets", body=body)

    @returns(SigningSecretRecord)
    def revoke_signing_secret(self, secret_id: str) -> Request:
        """Revoke a secret: within seconds nothing is signed with it."""
        return post("callbacks", "secrets", secret_id, "revoke", is_repeatable=True)


def _filter(callback_filter: CallbackFilter) -> dict[str, Any]:
    status, since, until = callback_filter.status, callback_filter.since, callback_filter.until
    return {
        "status": None if status is None else status.value,
        "endpoint": callback_filter.endpoint,
        "tenant": callback_filter.tenant,
        "subject": callback_filter.subject,
        "since": None if since is None else format_rfc3339(since),
        "until": None if until is None else format_rfc3339(until),
    }
