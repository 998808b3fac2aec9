"""Across 180 degrees: tiles, areas and footprints that go on there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import shapely
from affine import Affine
from hypothesis import given
from hypothesis import strategies as st
from rasterio.crs import CRS

from dagmaster.errors import PermanentError
from dagmaster.geo.raster.areas_of_interest import Area, project_area
from dagmaster.geo.raster.footprints import bounds_footprint
from tests.unit.geo.raster.raster_context import HandlerHarness, numbers

if TYPE_CHECKING:
    from pathlib import Path

FIJI = Affine(1_000, 0, 750_000, 0, -1_000, 8_100_000)


def test_tiles_that_are_warped_across_180_make_up_the_warped_whole(harness: HandlerHarness):
    harness.bronze("fiji.tif", numbers(100, 200), crs="EPSG:32760", transform=FIJI, nodata=0)
    one = {"window": [0, 0, 200, 100]}
    whole = harness.run("raster.create_cog", href="fiji.tif", tile_spec=one, target_crs="EPSG:4326")
    plan = harness.run("raster_plan_tiles", href="fiji.tif", tile_size=64)
    tiles = [
        harness.run("raster.create_cog", tile_spec=tile, target_crs="EPSG:4326").cog_url
        for tile in plan.tiles
    ]
    assert all((harness.read(tile) > 0).any() for tile in tiles)
    pixels, expected = (
        harness.read(harness.run("raster.mosaic", sources=tiles).cog_url),
        harness.read(whole.cog_url),
    )
    assert whole.bbox == harness.run("raster.reproject", href="fiji.tif", target_crs="EPSG:4326").bbox
    assert (expected > 0).mean() > 0.8
    assert np.array_equal(pixels, expected)


def test_one_tile_is_warped_of_a_raster_that_is_too_large_as_a_whole(tmp_path: Path):
    harness = HandlerHarness(tmp_path, max_pixels=3_000)
    harness.bronze("a.tif", numbers(200, 200))
    plan = harness.run("raster_plan_tiles", href="a.tif", tile_size=40)
    assert harness.run("raster.create_cog", tile_spec=plan.tiles[7], target_crs="EPSG:4326").cog_url
    with pytest.raises(PermanentError, match="at most 3,000 are processed"):
        harness.run("raster.create_cog", href="a.tif", target_crs="EPSG:4326")


def test_a_projected_area_across_180_is_as_large_in_degrees():
    shape = shapely.box(780_000, 8_000_000, 880_000, 8_100_000).difference(
        shapely.box(8.2e5, 8.04e6, 8.4e5, 8.06e6)
    )
    area = Area(name="fiji", geometry=shape, crs=CRS.from_epsg(32760))
    there = project_area(area, CRS.from_epsg(4326), (170, -25, 190, -10))
    assert there.is_valid
    assert there.area * 111.2**2 * np.cos(np.radians(17.6)) == pytest.approx(9_600, rel=0.02)
    # A raster that ends at 180 has the part on its side.
    west = project_area(area, CRS.from_epsg(4326), (-180, -25, -170, -10))
    assert west.bounds[0] < -180 < west.bounds[2] < -179


def test_an_area_around_a_pole_is_reported():
    area = Area(name="ice", geometry=shapely.box(-1e6, -1e6, 1e6, 1e6), crs=CRS.from_epsg(3031))
    with pytest.raises(PermanentError, match="the area ice goes around a pole"):
        project_area(area, CRS.from_epsg(4326), (-180, -90, 180, -60))


@given(beyond=st.floats(-9e-7, 9e-7), side=st.sampled_from([-180.0, 180.0]))
def test_an_edge_that_is_180_but_for_rounding_crosses_nothing(beyond: float, side: float):
    inner = side - 10 if side > 0 else side + 10
    place = bounds_footprint(
        CRS.from_epsg(4326), [min(inner, side + beyond), 9, max(inner, side + beyond), 10]
    )
    assert place is not None
    assert place.bbox == [min(inner, side), 9, max(inner, side), 10]
    assert place.geometry["type"] == "Polygon"
    assert shapely.geometry.shape(place.geometry).area == pytest.approx(10)
