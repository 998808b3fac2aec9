"""Everything geospatial: handlers for rasters, vector data and STAC; catalog, tables, and their rules."""

from __future__ import annotations

from typing import Final

from dagmaster.sdk.products import Product, ProductCommand

PRODUCT: Final = Product(
    handlers=("dagmaster.geo.handler_table",),
    services={"catalog": "dagmaster.geo.catalog:open_catalog", "tables": "dagmaster.geo.tables:open_tables"},
    commands={
        "stac": ProductCommand(
            target="dagmaster.geo.stac_commands:stac",
            sentence="Find data by place and time in the STAC catalog.",
            local_reason="It asks the catalog itself, which the settings of this machine name",
        )
    },
    blob_users="dagmaster.geo.stac.asset_references:blob_users",
)
