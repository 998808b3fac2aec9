"""The handlers that ship with dagmaster: every name that a workflow may use, those of the sources among them.

One table, so that nobody imports forty handlers to run one. A test compares it with what the modules say.
"""

from __future__ import annotations

from typing import Final

from dagmaster.authoring.handlers import Announced

_RASTER: Final = "dagmaster.handlers.raster.handlers"
_FATHOM: Final = "dagmaster.handlers.fathom.handlers"
_VECTOR: Final = "dagmaster.handlers.vector.handlers"

__handlers__: Final = {
    "raster.create_cog": Announced(
        _RASTER,
        aliases=(
            "create_cog",
            "raster_create_cog",
            "raster_cog_docker",
            "raster_cog_functionapp",
            "raster_cog_translate",
        ),
    ),
    "raster.generate_tiling_scheme": Announced(
        _RASTER, aliases=("raster_plan_tiles", "raster.plan_tiles", "raster_generate_tiling_scheme")
    ),
    "raster.mosaic": Announced(_RASTER, aliases=("raster_mosaic",)),
    "raster.process_tile_batch": Announced(_RASTER, aliases=("raster_process_tile_batch",)),
    "raster.reproject": Announced(_RASTER, aliases=("raster_reproject",)),
    "raster.validate": Announced(_RASTER, aliases=("raster_validate",)),
    "fathom.band_stack": Announced(_FATHOM, aliases=("fathom_band_stack",)),
    "fathom.grid_inventory": Announced(_FATHOM, aliases=("fathom_grid_inventory",)),
    "fathom.spatial_merge": Announced(_FATHOM, aliases=("fathom_spatial_merge",)),
    "fathom.stac_register": Announced(_FATHOM, aliases=("fathom_stac_register",)),
    "fathom.tile_inventory": Announced(_FATHOM, aliases=("fathom_tile_inventory",)),
    "vector.create_stac": Announced(_VECTOR, aliases=("vector_create_stac",)),
    "vector.dissolve": Announced(_VECTOR, aliases=("vector_dissolve",)),
    "vector.prepare": Announced(_VECTOR, aliases=("vector_prepare",)),
    "vector.process_complete": Announced(_VECTOR, aliases=("vector_docker_complete", "vector_process_complete")),
    "vector.simplify": Announced(_VECTOR, aliases=("vector_simplify",)),
    "vector.upload_chunk": Announced(_VECTOR, aliases=("vector_upload_chunk",)),
}
