"""Feature tables: GeoParquet files and PostGIS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagmaster.ports.tables import Tables


def open_tables(location: str) -> Tables:
    """Open the tables in a directory or, with a URL, on a PostGIS server."""
    if "://" in location:
        from dagmaster.geo.tables.postgis_tables import PostgisTables

        return PostgisTables(location)
    from dagmaster.geo.tables.parquet_tables import ParquetTables

    return ParquetTables(Path(location))
