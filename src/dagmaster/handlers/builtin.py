"""The built-in handlers: every name a workflow may use, with version, aliases and module.

One table, so that running one handler does not import all of them. A test compares it with the modules.
"""

from __future__ import annotations

from typing import Final

from dagmaster.authoring.handler_registry import LazyHandler

_RASTER: Final = "dagmaster.handlers.raster.handlers"
_STAC: Final = "dagmaster.handlers.stac.handlers"
_VECTOR: Final = "dagmaster.handlers.vector.handlers"
_FATHOM: Final = "dagmaster.handlers.fathom.handlers"
_MAINTENANCE: Final = "dagmaster.handlers.maintenance.handlers"

__handlers__: Final = {
    "raster.blob_to_mount": LazyHandler(_RASTER, aliases=("raster_blob_to_mount",)),
    "raster.clip": LazyHandler(_RASTER, "4", ("raster_clip",)),
    "raster.create_cog": LazyHandler(
        _RASTER,
        "5",
        ("create_cog", "raster_create_cog", "raster_cog_docker", "raster_cog_functionapp", "raster_cog_translate"),
    ),
    "raster.generate_tiling_scheme": LazyHandler(
        _RASTER, "3", ("raster_plan_tiles", "raster.plan_tiles", "raster_generate_tiling_scheme")
    ),
    "raster.list_files": LazyHandler(_RASTER, "2", ("list_raster_files", "raster_list_files")),
    "raster.ml_predict": LazyHandler(_RASTER, "4", ("ml_predict", "raster_ml_predict")),
    "raster.mosaic": LazyHandler(_RASTER, "4", ("raster_mosaic",)),
    "raster.process_complete": LazyHandler(_RASTER, "5", ("raster_process_complete",)),
    "raster.process_tile_batch": LazyHandler(_RASTER, "4", ("raster_process_tile_batch",)),
    "raster.reproject": LazyHandler(_RASTER, "4", ("raster_reproject",)),
    "raster.stats_zonal": LazyHandler(_RASTER, "3", ("stats_zonal", "raster_stats_zonal")),
    "raster.thumbnail": LazyHandler(_RASTER, "3", ("raster_thumbnail",)),
    "raster.validate": LazyHandler(_RASTER, "3", ("raster_validate",)),
    "stac.catalog_container": LazyHandler(_STAC, "3", ("stac_catalog_container",)),
    "stac.ensure_collection": LazyHandler(_STAC, aliases=("raster.stac_ensure_collection", "stac_ensure_collection")),
    "stac.extract_metadata": LazyHandler(_STAC, "4", ("extract_stac_metadata",)),
    "stac.rebuild": LazyHandler(_STAC, "3", ("rebuild_stac",)),
    "stac.register_collection": LazyHandler(_STAC, "4", ("stac_register_collection",)),
    "stac.register_item": LazyHandler(_STAC, "4", ("stac_register", "stac_register_item", "raster.stac_register_item")),
    "stac.register_items": LazyHandler(_STAC, "4", ("raster.stac_register_items",)),
    "stac.repair_items": LazyHandler(_STAC, aliases=("repair_stac_items",)),
    "vector.create_stac": LazyHandler(_VECTOR, "3", ("vector_create_stac",)),
    "vector.dissolve": LazyHandler(_VECTOR, "3", ("vector_dissolve",)),
    "vector.prepare": LazyHandler(_VECTOR, "3", ("vector_prepare",)),
    "vector.process_complete": LazyHandler(_VECTOR, "3", ("vector_docker_complete", "vector_process_complete")),
    "vector.simplify": LazyHandler(_VECTOR, "3", ("vector_simplify",)),
    "vector.upload_chunk": LazyHandler(_VECTOR, aliases=("vector_upload_chunk",)),
    "fathom.band_stack": LazyHandler(_FATHOM, aliases=("fathom_band_stack",)),
    "fathom.grid_inventory": LazyHandler(_FATHOM, aliases=("fathom_grid_inventory",)),
    "fathom.spatial_merge": LazyHandler(_FATHOM, "2", ("fathom_spatial_merge",)),
    "fathom.stac_register": LazyHandler(_FATHOM, aliases=("fathom_stac_register",)),
    "fathom.tile_inventory": LazyHandler(_FATHOM, aliases=("fathom_tile_inventory",)),
    "maintenance.detect_orphan_blobs": LazyHandler(_MAINTENANCE, aliases=("detect_orphan_blobs",)),
    "maintenance.register_silver_blobs": LazyHandler(_MAINTENANCE, "2", ("register_silver_blobs",)),
}
