"""What the platform lends to a handler: storage, catalog, tables, and its share of the machine."""

from __future__ import annotations

import importlib
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dagmaster.ports.catalog import Catalog
    from dagmaster.ports.storage import Storage
    from dagmaster.ports.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one task may use."""

    threads: int = 1
    cache_mb: int = 128
    """Of GDAL's cache of blocks."""
    max_pixels: int = 5_000_000_000
    """Of a raster that is read, all its bands together. A tile of a larger one may be read."""
    max_file_mb: int = 1_000_000
    scratch: Path = field(default_factory=lambda: Path("/tmp"))  # noqa: S108 - the worker names a folder of its own
    """Where a task makes its own folder."""


class Services(Protocol):
    """Opened when first asked for: a handler that needs none waits for none."""

    @property
    def blobs(self) -> Storage:
        """Data by URI."""

    @property
    def catalog(self) -> Catalog:
        """STAC."""

    @property
    def tables(self) -> Tables:
        """Features."""

    @property
    def share(self) -> Share:
        """What one task may use."""


@dataclass(frozen=True, slots=True)
class Lending:
    """How a process gets its services: what makes them, `module:function`, and what that is told. It is JSON."""

    factory: str
    config: dict[str, Any] = field(repr=False)

    def open(self) -> Services:
        """Make them."""
        module, _, function = self.factory.partition(":")
        made: Services = getattr(importlib.import_module(module), function)(self.config)
        return made


class LentLater:
    """Services that are made when first asked for, once a process."""

    def __init__(self, lending: Lending) -> None:
        self._lending = lending
        self._opened: Services | None = None
        self._opening = threading.Lock()

    @property
    def blobs(self) -> Storage:
        """Data by URI."""
        return self._open().blobs

    @property
    def catalog(self) -> Catalog:
        """STAC."""
        return self._open().catalog

    @property
    def tables(self) -> Tables:
        """Features."""
        return self._open().tables

    @property
    def share(self) -> Share:
        """What one task may use."""
        return self._open().share

    def _open(self) -> Services:
        with self._opening:
            if self._opened is None:
                self._opened = self._lending.open()
            return self._opened
