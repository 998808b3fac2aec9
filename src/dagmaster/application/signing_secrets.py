"""What callbacks of a tenant are signed with: create, list, revoke."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from dagmaster.application.views.callbacks import NewSigningSecretView
from dagmaster.errors import QueryInvalid, SigningSecretNotFound, SigningSecretsInUse
from dagmaster.ports.callbacks import NewSecret
from dagmaster.ports.signing_secrets import seal_secret
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.records.callbacks import SecretKind, SigningSecretRecord
from dagmaster.webhook_signatures import HMAC_BYTES, KEY_BYTES, new_hmac_secret, new_key_pair

if TYPE_CHECKING:
    from dagmaster.application.callbacks import Callbacks
    from dagmaster.ports.audit_trail import ChangeOrigin

DEFAULT_OVERLAP_HOURS: Final = 24.0
MAX_OVERLAP_HOURS: Final = 720.0
RELAY: Final = "relay"


async def create_signing_secret(
    callbacks: Callbacks,
    kind: SecretKind,
    *,
    origin: ChangeOrigin,
    tenant: str = DEFAULT_TENANT,
    overlap_hours: float = DEFAULT_OVERLAP_HOURS,
) -> NewSigningSecretView:
    """Create a secret, and show it once. The one that it replaces signs as well for some more hours."""
    new, secret = await _make(callbacks, kind, tenant, origin.actor)
    entry = origin.entry(
        "signing_secret.create", "signing_secret", new.secret_id, {"tenant": tenant, "kind": kind.value}
    )
    record = await callbacks.store.add_secret(new, overlap_seconds=overlap_hours * 3_600, audit=[entry])
    if record is None:
        if any(one.kind is kind for one in await callbacks.store.secrets(tenant)):
            raise SigningSecretsInUse
        raise QueryInvalid(f"there is no tenant {tenant[:60]!r}", field="tenant")
    return NewSigningSecretView.of(record, secret=secret if kind is SecretKind.HMAC else None)


async def list_signing_secrets(
    callbacks: Callbacks, *, tenant: str | None = None
) -> list[SigningSecretRecord]:
    """List signing secrets by tenant, newest first, without the secrets."""
    return list(await callbacks.store.secrets(tenant))


async def revoke_signing_secret(
    callbacks: Callbacks, secret_id: str, *, origin: ChangeOrigin
) -> SigningSecretRecord:
    """Revoke a secret: within seconds nothing is signed with it. A tenant without any gets a new key pair."""
    entry = origin.entry("signing_secret.revoke", "signing_secret", secret_id)
    record = await callbacks.store.revoke_secret(secret_id, audit=[entry])
    if record is None:
        raise SigningSecretNotFound(
            f"there is no signing secret {secret_id[:40]!r}; `dagmaster callbacks secrets list` shows all"
        )
    return record


async def ensure_key_pair(callbacks: Callbacks, tenant: str) -> None:
    """Make a key pair for a tenant without an active secret: receivers find the public key by themselves."""
    new, _ = await _make(callbacks, SecretKind.ED25519, tenant, RELAY)
    await callbacks.store.ensure_key_pair(new)


async def _make(callbacks: Callbacks, kind: SecretKind, tenant: str, by: str) -> tuple[NewSecret, str]:
    secret_id, public_key = secrets.token_hex(6), None
    if kind is SecretKind.HMAC:
        secret = new_hmac_secret(secrets.token_bytes(HMAC_BYTES))
    else:
        secret, public_key = new_key_pair(secrets.token_bytes(KEY_BYTES))
    sealed = await seal_secret(callbacks.vault, secret_id, secret)
    new = NewSecret(
        secret_id=secret_id, tenant=tenant, kind=kind, sealed=sealed, public_key=public_key, created_by=by
    )
    return new, secret
