"""The signing secrets of tenants in a relay, read again every few seconds: one may be revoked at any time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from dagmaster.errors import SecretsKeyMissing
from dagmaster.ports.signing_secrets import open_secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dagmaster.ports.callbacks import CallbackOutbox
    from dagmaster.ports.secret_vault import SecretVault

REFRESH_SECONDS: Final = 2.0


class SigningKeys:
    """Secrets to sign with, by tenant. One that has none gets a key pair: nothing is sent unsigned."""

    def __init__(
        self,
        outbox: CallbackOutbox,
        vault: SecretVault,
        make_key_pair: Callable[[str], Awaitable[None]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outbox, self._vault, self._make_key_pair, self._clock = outbox, vault, make_key_pair, clock
        self._known: dict[str, tuple[float, Sequence[str]]] = {}

    async def of(self, tenant: str) -> Sequence[str]:
        """Return the secrets of a tenant, newest first; raise if this process cannot read or make one."""
        read_at, secrets = self._known.get(tenant, (0.0, ()))
        now = self._clock()
        if secrets and now < read_at + REFRESH_SECONDS:
            return secrets
        rows = await self._outbox.active_secrets(tenant)
        if not rows:
            await self._make_key_pair(tenant)
            rows = await self._outbox.active_secrets(tenant)
        if not rows:
            raise SecretsKeyMissing
        secrets = [open_secret(self._vault, row.secret_id, row.sealed) for row in rows]
        self._known[tenant] = now, secrets
        return secrets
