"""STAC catalogs: Parquet files and pgstac."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagmaster.ports.catalog import Catalog


def open_catalog(location: str) -> Catalog:
    """Open the catalog in a directory, or with a URL the one of a server with pgstac."""
    if "://" in location:
        from dagmaster.geo.catalog.pgstac_catalog import PgstacCatalog

        return PgstacCatalog(location)
    from dagmaster.geo.catalog.parquet_catalog import ParquetCatalog

    return ParquetCatalog(Path(location))
