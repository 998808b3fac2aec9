"""Tenants: teams and partners on one installation that do not see each other.

Jobs, keys, workflows and requests belong to one; without any, everything belongs to `default`. What a caller
sees is decided by the database, in the transaction that has its tenant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.records.tenants import TenantRecord

DEFAULT_TENANT: Final = "default"
"""The tenant of the installation itself."""
ALL_TENANTS: Final = "*"
"""What a transaction has instead of a tenant on behalf of the installation: it sees all."""
API_ROLE: Final = "dagmaster_api"
GATEWAY_ROLE: Final = "dagmaster_gateway"
MAX_TENANT: Final = 32
_NAME: Final = re.compile(rf"[a-z][a-z0-9-]{{0,{MAX_TENANT - 1}}}")


def is_tenant(name: str) -> bool:
    """Return whether a tenant may have this name."""
    return _NAME.fullmatch(name) is not None


def may_use_secret(tenant: str, name: str) -> bool:
    """Return whether jobs of a tenant may use a secret: `ACME__NAME` of `acme`, or any of the installation.

    Everything before the first `__` is the tenant: no name belongs to two.
    """
    owner, separator, _ = name.partition("__")
    return tenant == DEFAULT_TENANT or (separator != "" and owner.lower().replace("_", "-") == tenant)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfTenant:
    """What belongs to a tenant."""

    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """Whether the database keeps tenants apart on connections that serve requests, and if not, why not."""

    tenants: int = 1
    """How many there are, `default` included."""
    user: str = ""
    is_superuser: bool = False
    bypasses: bool = False
    """Whether the role has BYPASSRLS."""
    is_owner: bool = False
    """Whether it owns tables: policies are not for the owner."""
    is_exempt: bool = False
    """Whether it is a member of a role that serves all tenants: of an orchestrator, or of a worker."""
    open_tables: tuple[str, ...] = ()
    """Tables whose policies do not apply to it."""

    @property
    def is_enforced(self) -> bool:
        return not (self.is_superuser or self.bypasses or self.is_owner or self.is_exempt or self.open_tables)

    @property
    def is_safe(self) -> bool:
        """Return whether no tenant can see another: there are no others, or the database keeps them apart."""
        return self.is_enforced or self.tenants <= 1

    @property
    def problem(self) -> str:
        """Return why tenants are not kept apart, and what to do; empty if they are."""
        if self.is_enforced:
            return ""
        reasons = {
            "is a superuser": self.is_superuser,
            "has BYPASSRLS": self.bypasses,
            "owns the tables": self.is_owner,
            "serves all tenants as an orchestrator or a worker": self.is_exempt,
        }
        why = next((text for text, holds in reasons.items() if holds), "")
        why = why or f"sees all rows of {', '.join(self.open_tables[:3])}"
        return (
            f"the database role {self.user} {why}, and {API_ROLE} cannot be taken on: run `dagmaster migrate"
            f" --roles` as the owner of the schema, and GRANT {API_ROLE} TO the user of the server"
        )


class TenantField(NamedTuple):
    """What may be set of a tenant. A number is between `low` and `high`; None is no limit."""

    type: type
    help: str
    option: str
    metavar: str = "TEXT"
    low: float = 0
    high: float = 2**31 - 1
    max_length: int = 0
    """Of a text, or of each name of a list."""


TENANT_FIELDS: Final[Mapping[str, TenantField]] = {
    "title": TenantField(str, "A text for people.", "--title", max_length=128),
    "platforms": TenantField(
        list, "A platform whose identifiers it may send; * for all.", "--platform", "ID", max_length=64
    ),
    "workflows": TenantField(
        list,
        "A workflow of the installation that it may use, besides its own; * for all.",
        "--workflow",
        "ID",
        max_length=64,
    ),
    "max_open_jobs": TenantField(int, "How many jobs it may have open at once.", "--max-open-jobs", "NUMBER"),
    "requests_per_day": TenantField(
        int, "How many requests of partners it may send a day.", "--requests-per-day", "NUMBER"
    ),
    "rate_per_second": TenantField(
        float, "How many HTTP requests its keys may send a second.", "--rate", "NUMBER", 0.001, 100_000
    ),
    "rate_burst": TenantField(int, "How many of them at once.", "--burst", "NUMBER", 1, 1_000_000),
    "callback_url": TenantField(
        str, "Where its requests are reported that name no address.", "--callback-url", "URL", max_length=512
    ),
}
"""The fields that HTTP bodies, the command line and the page set."""
MAX_NAMES: Final = 1_000


class TenantStore(Protocol):
    """Stores tenants. `audit` is stored in the transaction of the change."""

    async def missing(
        self, platforms: Sequence[str], workflows: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[str]]:
        """Return which of these platforms are not declared, and which workflows the installation lacks."""

    async def all(self) -> Sequence[TenantRecord]:
        """Return all tenants by name; there are few."""

    async def create(
        self, name: str, changes: Mapping[str, Any], *, created_by: str, audit: Sequence[AuditEntry] = ()
    ) -> TenantRecord | None:
        """Store a tenant; return None, and store nothing, if there is one of this name."""

    async def change(
        self,
        name: str,
        changes: Mapping[str, Any],
        *,
        is_disabled: bool | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> TenantRecord | None:
        """Change the fields of a tenant that are named; return it, None if there is no such tenant."""
