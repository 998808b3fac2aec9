"""How to reach the database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseConfig:
    """The address of the database.

    `direct` bypasses a pooler, for LISTEN; without it, polling is the fallback.
    """

    dsn: str
    is_pooled: bool = False
    direct: str | None = None
    restart_embedded: Callable[[], object] | None = None
    """Starts an embedded server that died; called on a thread when it cannot be reached. None on other
    servers."""

    data_dir: Path | None = None
    """The data directory of an embedded server."""

    role: str | None = None
    """The role that connections take on. One whose rows depend on a tenant sees none without: see
    `ports.tenants`."""

    @property
    def is_embedded(self) -> bool:
        return self.restart_embedded is not None
