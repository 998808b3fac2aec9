"""Handler services in a folder of a test: storage, a catalog and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.adapters.handler_services import OpenServices
from dagmaster.ports.storage import ZONES

if TYPE_CHECKING:
    from pathlib import Path


def local_services(folder: Path, **changes: Any) -> OpenServices:
    """Return services whose zones, catalog, tables and scratch are below a folder.

    Handlers may read files below it.
    """
    folder = folder.absolute()
    for zone in ZONES:
        (folder / zone).mkdir(parents=True, exist_ok=True)
    return OpenServices(
        {
            "zones": {zone: f"file://{folder / zone}" for zone in ZONES},
            "roots": [str(folder)],
            "catalog": str(folder / "catalog"),
            "tables": str(folder / "tables"),
            "scratch": str(folder / "scratch"),
            "threads": 1,
            "cache_mb": 64,
            "max_pixels": 5_000_000_000,
            "max_file_mb": 10_000,
            **changes,
        }
    )
