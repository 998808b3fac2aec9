"""The services of one process, each opened on first use."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagmaster.adapters.handler_pool import DatabasePool
from dagmaster.errors import ServicesNotFound
from dagmaster.ports.handler_services import Share
from dagmaster.sdk.products import open_service

if TYPE_CHECKING:
    from dagmaster.ports.catalog import Catalog
    from dagmaster.ports.storage import Storage
    from dagmaster.ports.tables import Tables


class OpenServices:
    """The services described by `bootstrap`, opened on first use."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config

    @cached_property
    def blobs(self) -> Storage:
        from dagmaster.adapters.storage.router import ObjectStorage

        config = self._config
        return ObjectStorage(
            config["zones"],
            roots=[Path(root) for root in config["roots"]],
            containers=config.get("containers", ()),
            closed=config.get("closed", ()),
        )

    @cached_property
    def catalog(self) -> Catalog:
        """Return the STAC catalog: a directory or a server."""
        catalog: Catalog = open_service("catalog", self._config["catalog"])
        return catalog

    @cached_property
    def tables(self) -> Tables:
        """Return the feature tables: GeoParquet in a directory, or PostGIS."""
        tables: Tables = open_service("tables", self._config["tables"])
        return tables

    @cached_property
    def pool(self) -> DatabasePool:
        url = self._config.get("pool_url")
        if url is None:
            raise ServicesNotFound(
                "this handler uses ctx.pool, and its worker allows handlers no database: set"
                " DAGMASTER_HANDLER_POOL_URL where the worker runs",
                kind="services_missing",
            )
        return DatabasePool(url, self._config["pool_size"])

    @cached_property
    def share(self) -> Share:
        """Return the resource limits of one task."""
        config = self._config
        return Share(
            threads=config["threads"],
            cache_mb=config["cache_mb"],
            max_pixels=config["max_pixels"],
            max_file_mb=config["max_file_mb"],
            param_defaults=config.get("param_defaults", {}),
            scratch=Path(config["scratch"]),
        )

    async def close_on_loop(self) -> None:
        """Close the connections of the running event loop."""
        if "pool" in self.__dict__:
            await self.pool.close_on_loop()

    def close(self) -> None:
        """Close the connections of plain functions."""
        if "pool" in self.__dict__:
            self.pool.close()
