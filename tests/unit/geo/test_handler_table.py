"""The table of shipped handlers says what their modules say, and knows every name of the sources."""

import subprocess
import sys

import pytest

from dagmaster.geo.handler_table import __handlers__ as announced
from dagmaster.handlers import SHIPPED_HANDLERS
from dagmaster.sdk.handler_registry import HandlerStyle, discover

MODULES = sorted({one.module for one in announced.values()})

# Of the source documents: their handler lists, and the handlers of their workflows.
OF_THE_SOURCES = [
    "raster.validate",
    "raster.create_cog",
    "raster.blob_to_mount",
    "raster.generate_tiling_scheme",
    "raster.process_tile_batch",
    "raster.stac_ensure_collection",
    "raster.stac_register_item",
    "raster.stac_register_items",
    "echo",
    "hello_world",
    "sleep",
    "fail",
    "multi_phase",
    "size_check",
    "chunk_processor",
    "raster_validate",
    "raster_process_complete",
    "create_cog",
    "extract_stac_metadata",
    "raster_cog_functionapp",
    "raster_cog_docker",
    "raster_cog_translate",
    "raster_plan_tiles",
    "raster_reproject",
    "raster_thumbnail",
    "raster_clip",
    "raster_mosaic",
    "stats_zonal",
    "ml_predict",
    "stac_register",
    "stac_register_item",
    "stac_register_collection",
    "vector_prepare",
    "vector_upload_chunk",
    "vector_create_stac",
    "vector_docker_complete",
    "vector_simplify",
    "vector_dissolve",
    "fathom_tile_inventory",
    "fathom_band_stack",
    "fathom_grid_inventory",
    "fathom_spatial_merge",
    "fathom_stac_register",
    "list_raster_files",
    "stac_catalog_container",
    "rebuild_stac",
    "repair_stac_items",
    "detect_orphan_blobs",
    "register_silver_blobs",
]

# Every handler, and its other names. Workflow files use them: a name may be added, and none may change or go.
NAMES = """
    chunk_processor
    echo
    fail
    fathom.band_stack fathom_band_stack
    fathom.grid_inventory fathom_grid_inventory
    fathom.spatial_merge fathom_spatial_merge
    fathom.stac_register fathom_stac_register
    fathom.tile_inventory fathom_tile_inventory
    flaky
    hello_world
    maintenance.detect_orphan_blobs detect_orphan_blobs
    maintenance.register_silver_blobs register_silver_blobs
    make_chunks
    multi_phase
    raster.blob_to_mount raster_blob_to_mount
    raster.clip raster_clip
    raster.create_cog create_cog raster_create_cog raster_cog_docker raster_cog_functionapp raster_cog_translate
    raster.generate_tiling_scheme raster_plan_tiles raster.plan_tiles raster_generate_tiling_scheme
    raster.list_files list_raster_files raster_list_files
    raster.ml_predict ml_predict raster_ml_predict
    raster.mosaic raster_mosaic
    raster.process_complete raster_process_complete
    raster.process_tile_batch raster_process_tile_batch
    raster.reproject raster_reproject
    raster.stats_zonal stats_zonal raster_stats_zonal
    raster.thumbnail raster_thumbnail
    raster.validate raster_validate
    size_check
    sleep
    stac.catalog_container stac_catalog_container
    stac.ensure_collection raster.stac_ensure_collection stac_ensure_collection
    stac.extract_metadata extract_stac_metadata
    stac.rebuild rebuild_stac
    stac.register_collection stac_register_collection
    stac.register_item stac_register stac_register_item raster.stac_register_item
    stac.register_items raster.stac_register_items
    stac.repair_items repair_stac_items
    vector.create_stac vector_create_stac
    vector.dissolve vector_dissolve
    vector.prepare vector_prepare
    vector.process_complete vector_docker_complete vector_process_complete
    vector.simplify vector_simplify
    vector.upload_chunk vector_upload_chunk
"""


def test_the_names_of_handlers_do_not_change():
    registry = discover(SHIPPED_HANDLERS, entry_points=False)
    assert {spec.name: set(spec.aliases) for spec in registry} == {
        name: set(aliases) for name, *aliases in map(str.split, NAMES.strip().splitlines())
    }


@pytest.mark.parametrize("module", MODULES)
def test_the_table_says_what_the_module_says(module):
    details = {name: (one.version, one.aliases) for name, one in announced.items() if one.module == module}
    specs = list(discover([module], entry_points=False))
    assert {spec.name: (spec.version, spec.aliases) for spec in specs} == details
    # Who has not imported them yet takes them for plain functions that run in a process.
    assert {(spec.style, spec.isolation) for spec in specs} <= {
        (HandlerStyle.PLAIN, None),
        (HandlerStyle.PLAIN, "process"),
    }


@pytest.mark.parametrize("name", OF_THE_SOURCES)
def test_a_name_of_the_sources_is_a_handler(name):
    assert name in discover(SHIPPED_HANDLERS, entry_points=False)


def test_handlers_are_typed_and_say_what_they_do():
    for spec in discover(SHIPPED_HANDLERS, entry_points=False):
        assert spec.description, spec.name
        if spec.name in announced:
            assert spec.params_model is not None, spec.name
            assert spec.output_model is not None, spec.name
            assert spec.queue, spec.name


@pytest.mark.process
def test_looking_at_all_handlers_imports_nothing_heavy():
    code = (
        "import sys; from dagmaster.bootstrap import find_handlers; list(find_handlers());"
        "print([m for m in ('numpy', 'rasterio', 'pyarrow', 'shapely', 'duckdb', 'pystac', 'obstore') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
