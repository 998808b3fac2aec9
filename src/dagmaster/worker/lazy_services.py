"""Services for the handlers of a process, opened on first use from a JSON configuration."""

from __future__ import annotations

import importlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagmaster.ports.catalog import Catalog
    from dagmaster.ports.handler_services import ConnectionPool, Share, WorkerServices
    from dagmaster.ports.storage import Storage
    from dagmaster.ports.tables import Tables


@dataclass(frozen=True, slots=True)
class ServicesConfig:
    """The factory of the services, `module:function`, and its argument.

    It is JSON: it is sent to handler processes.
    """

    factory: str
    config: dict[str, Any] = field(repr=False)

    def open(self) -> WorkerServices:
        module, _, function = self.factory.partition(":")
        services: WorkerServices = getattr(importlib.import_module(module), function)(self.config)
        return services


class LazyServices:
    """Services that are opened on first use, once per process."""

    def __init__(self, config: ServicesConfig) -> None:
        self._config = config
        self._services: WorkerServices | None = None
        self._lock = threading.Lock()

    @property
    def blobs(self) -> Storage:
        return self._open().blobs

    @property
    def catalog(self) -> Catalog:
        return self._open().catalog

    @property
    def tables(self) -> Tables:
        return self._open().tables

    @property
    def pool(self) -> ConnectionPool:
        return self._open().pool

    @property
    def share(self) -> Share:
        return self._open().share

    async def close_on_loop(self) -> None:
        """Close what was opened on the running event loop, if anything was."""
        if self._services is not None:
            await self._services.close_on_loop()

    def close(self) -> None:
        """Close everything else that was opened, if anything was."""
        if self._services is not None:
            self._services.close()

    def _open(self) -> WorkerServices:
        with self._lock:
            if self._services is None:
                self._services = self._config.open()
            return self._services
