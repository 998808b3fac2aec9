"""A valid COG is never rejected, whatever its shape; a GeoTIFF that is not laid out as one is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio
import rasterio.shutil
from rasterio.transform import from_origin

from dagmaster.geo.gdal import gdal_env, ignore_missing_georeference
from dagmaster.geo.raster.cog_validation import check_layout
from dagmaster.geo.raster.cog_writer import CogOptions, write_cog
from dagmaster.ports.handler_services import Share

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.geo.raster.raster_context import HandlerHarness


def write_tiff(path: Path, width: int, height: int, **options: Any) -> Path:
    pixels = np.random.default_rng(0).integers(1, 255, (1, height, width), dtype="uint8")
    profile = {"driver": "GTiff", "count": 1, "dtype": "uint8", "crs": "EPSG:32631", **options}
    with rasterio.open(
        path, "w", width=width, height=height, transform=from_origin(5, 7, 2, 2), **profile
    ) as raster:
        raster.write(pixels)
    return path


@pytest.mark.parametrize("bigtiff", ["NO", "YES"])
@pytest.mark.parametrize(
    ("width", "height"),
    [
        (1024, 2048),
        (512, 2000),
        (2000, 512),
        (1, 30_000),
        (30_000, 1),
        (513, 1025),
        (1025, 513),
        (3, 3),
        (1500, 1500),
    ],
)
def test_a_file_of_the_cog_driver_is_valid_in_every_shape(tmp_path, width, height, bigtiff):
    source, target = write_tiff(tmp_path / "source.tif", width, height), tmp_path / "cog.tif"
    rasterio.shutil.copy(str(source), str(target), driver="COG", BLOCKSIZE=512, BIGTIFF=bigtiff)
    assert check_layout(target) == []


@pytest.mark.parametrize("compression", ["DEFLATE", "ZSTD", "LZW"])
def test_the_level_of_temporary_overviews_does_not_change_the_file(tmp_path, compression):
    source = write_tiff(tmp_path / "source.tif", 600, 600)
    targets, options, share = (
        [tmp_path / "ours.tif", tmp_path / "gdal.tif"],
        CogOptions(compression=compression),
        Share(),
    )
    with gdal_env(share), rasterio.open(source) as raster:
        write_cog(raster, targets[0], options, share)
        rasterio.shutil.copy(raster, str(targets[1]), driver="COG", **options.creation_options(raster, share))
    assert targets[0].read_bytes() == targets[1].read_bytes()


@pytest.mark.parametrize("blocksize", [64, 256, 1024])
def test_every_block_size_is_valid(tmp_path, blocksize):
    source, target = write_tiff(tmp_path / "source.tif", 1024, 1500), tmp_path / "cog.tif"
    rasterio.shutil.copy(str(source), str(target), driver="COG", BLOCKSIZE=blocksize)
    assert check_layout(target) == []


@pytest.mark.parametrize(("width", "height"), [(3000, 3000), (600, 3000)])
def test_strips_are_not_tiles(tmp_path, width, height):
    assert check_layout(write_tiff(tmp_path / "strips.tif", width, height)) == ["the image is not tiled"]


def test_overviews_that_were_added_later_come_after_the_pixels(tmp_path):
    path = write_tiff(tmp_path / "late.tif", 2000, 2000, tiled=True, blockxsize=512, blockysize=512)
    with rasterio.open(path, "r+") as raster:
        raster.build_overviews([2, 4])
    assert check_layout(path) == [
        "the pixels of the image come before the pixels of overview 1",
        "the pixels of overview 1 come before the pixels of overview 2",
    ]


def test_a_cog_that_was_changed_is_no_longer_a_cog(tmp_path):
    source, path = write_tiff(tmp_path / "source.tif", 2000, 2000), tmp_path / "cog.tif"
    rasterio.shutil.copy(str(source), str(path), driver="COG", COMPRESS="DEFLATE")
    with rasterio.open(path, "r+", IGNORE_COG_LAYOUT_BREAK="YES") as raster:
        raster.write(np.random.default_rng(1).integers(1, 255, (1, 2000, 2000), dtype="uint8"))
    assert check_layout(path) == ["the file was optimized, and later changes have invalidated that"]


def test_a_directory_at_the_end_of_the_file_is_named(tmp_path):
    path = tmp_path / "streamed.tif"
    with ignore_missing_georeference():
        write_tiff(path, 600, 600, tiled=True, compress="deflate")
        with rasterio.open(path, "r+") as raster:
            raster.update_tags(note="x" * 5_000)
    assert any("first directory is at byte" in problem for problem in check_layout(path))


def test_edge_tiles_that_are_as_wide_as_a_block_are_made(harness: HandlerHarness):
    harness.bronze("a.tif", np.ones((1300, 664), "uint8"))
    plan = harness.run("raster_plan_tiles", href="a.tif", tile_size=600)
    sizes = {tuple(tile["window"][2:]) for tile in plan.tiles}
    assert (64, 600) in sizes
    for tile in plan.tiles:
        result = harness.run("raster.create_cog", tile_spec=tile, tile_size=64)
        assert result.item["assets"]["data"]["type"].endswith("profile=cloud-optimized")


@pytest.mark.parametrize(("height", "width"), [(2048, 1024), (2000, 512)])
def test_portrait_rasters_are_made(harness: HandlerHarness, height: int, width: int):
    harness.bronze("a.tif", np.ones((height, width), "uint8"))
    assert harness.run("raster.create_cog", href="a.tif").metadata["height"] == height
