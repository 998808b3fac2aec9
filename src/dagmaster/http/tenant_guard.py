"""Whether callers of a tenant may be served: it exists, is not disabled, and the database keeps it apart.

What is known of tenants is read again every few seconds: a tenant that is disabled is served this long.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from dagmaster.application.api_keys import key_rejected
from dagmaster.application.shared_calls import SharedCalls
from dagmaster.errors import DatabaseUnavailable, RateLimitExceeded, TenantsNotIsolated
from dagmaster.http.rate_limits import RateLimiter
from dagmaster.ports.tenants import DEFAULT_TENANT, Isolation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.ports.api_keys import Caller
    from dagmaster.ports.schema_admin import SchemaAdmin
    from dagmaster.ports.tenants import TenantStore
    from dagmaster.records.tenants import TenantRecord

KNOWN_SECONDS: Final = 5.0
STALE_SECONDS: Final = 60.0
"""How long what is known serves while the database does not answer."""
ANSWER_SECONDS: Final = 0.8
"""How long to wait for the database, if it has answered before."""


class _Known(NamedTuple):
    tenants: Mapping[str, TenantRecord]
    isolation: Isolation
    at: float


class TenantGuard:
    """Admits callers by what is known of their tenant, and counts the requests of each."""

    def __init__(self, tenants: TenantStore, schema: SchemaAdmin) -> None:
        self._tenants, self._schema = tenants, schema
        self._known: _Known | None = None
        self._reads: SharedCalls[_Known] = SharedCalls()
        self._limiters: dict[tuple[str, float, int], RateLimiter] = {}

    async def check(self, caller: Caller) -> None:
        """Raise `ApiKeyRejected`, `TenantsNotIsolated` or `DatabaseUnavailable`: why it cannot be served.

        An administrator of the installation always is: it sees all tenants, and repairs what is wrong.
        """
        if caller.is_installation_admin:
            return
        known = await self._read(is_tenant=caller.tenant != DEFAULT_TENANT)
        if caller.tenant != DEFAULT_TENANT:
            tenant = known.tenants.get(caller.tenant)
            if tenant is None or tenant.disabled_at is not None:
                raise key_rejected()
        if len(known.tenants) > 1 and not known.isolation.is_enforced:
            raise TenantsNotIsolated("this server cannot keep tenants apart: see its /readyz, and its log")

    def take(self, caller: Caller) -> None:
        """Count a request of a tenant; raise `RateLimitExceeded` if it has sent too many."""
        tenant = None if self._known is None else self._known.tenants.get(caller.tenant)
        if tenant is None or tenant.rate_per_second is None:
            return
        burst = tenant.rate_burst or max(1, round(tenant.rate_per_second))
        key = (tenant.name, tenant.rate_per_second, burst)
        limiter = self._limiters.get(key)
        if limiter is None:
            self._limiters = {known: one for known, one in self._limiters.items() if known[0] != tenant.name}
            limiter = self._limiters[key] = RateLimiter(tenant.rate_per_second, burst)
        allowance = limiter.take(tenant.name)
        if allowance.wait_seconds > 0:
            raise RateLimitExceeded(
                f"the tenant {tenant.name} sends too many requests: send the next one in"
                f" {allowance.wait_seconds:.3g} s",
                retry_after_seconds=allowance.wait_seconds,
            )

    async def _read(self, *, is_tenant: bool) -> _Known:
        """Return what is known, to a tenant only if it is not too old; without it, wait for the database."""
        known = self._known
        if known is not None and time.monotonic() - known.at <= KNOWN_SECONDS:
            return known
        try:
            async with asyncio.timeout(None if known is None else ANSWER_SECONDS):
                return await self._reads.run("tenants", self._load)
        except (DatabaseUnavailable, TimeoutError) as error:
            if known is None or (is_tenant and time.monotonic() - known.at > STALE_SECONDS):
                raise DatabaseUnavailable(
                    "the database did not answer while the tenant was looked up"
                ) from error
            return known

    async def _load(self) -> _Known:
        tenants = {tenant.name: tenant for tenant in await self._tenants.all()}
        isolation = Isolation(tenants=1) if len(tenants) <= 1 else await self._schema.isolation()
        self._known = _Known(tenants, isolation, time.monotonic())
        return self._known
