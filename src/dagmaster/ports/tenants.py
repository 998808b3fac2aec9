"""Tenants: teams and partners on one installation that do not see each other.

Jobs, keys, workflows and requests belong to one; without any, everything belongs to `default`. What a caller
sees is decided by the database, in the transaction that has its tenant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A team or a partner, and its limits; None: no limit."""

    name: str
    title: str = ""
    platforms: tuple[str, ...] = ()
    """The platforms whose identifiers it may send; `*`: all."""
    workflows: tuple[str, ...] = ()
    """The workflows of the installation that it may use, besides its own; `*`: all."""
    max_open_jobs: int | None = None
    requests_per_day: int | None = None
    rate_per_second: float | None = None
    rate_burst: int | None = None
    callback_url: str | None = None
    """Where its requests are reported that name no address."""
    disabled_at: float | None = None
    """Since when its keys are rejected."""
    created_at: float = 0.0
    created_by: str = ""
    updated_at: float = 0.0
