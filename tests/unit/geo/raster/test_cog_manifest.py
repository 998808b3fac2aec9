"""A COG is what GDAL's COG driver makes: over a manifest of rasters by GDAL, and files of writers other than GDAL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.geo.raster.cog_comparison import check_case, compare_with_gdal
from tests.unit.geo.raster.raster_manifest import (
    ODD_TIFFS,
    PICTURES,
    make_odd_tiff,
    make_picture,
    read_manifest,
    uncovered_pairs,
)

if TYPE_CHECKING:
    from tests.unit.geo.raster.raster_context import HandlerHarness
    from tests.unit.geo.raster.raster_manifest import RasterCase

pytestmark = pytest.mark.slow


def test_every_two_properties_of_a_raster_meet_in_the_manifest():
    assert uncovered_pairs(read_manifest()) == []


@pytest.mark.parametrize("case", read_manifest(), ids=str)
def test_a_raster_of_the_manifest_becomes_the_cog_that_gdal_makes(harness: HandlerHarness, case: RasterCase):
    check_case(harness, case)


@pytest.mark.parametrize("name", ODD_TIFFS)
def test_a_tiff_of_another_writer_becomes_the_cog_that_gdal_makes(harness: HandlerHarness, name: str):
    make_odd_tiff(name, harness.folder / "bronze" / "a.tif")
    plain = make_odd_tiff(name, harness.folder / "plain" / "a.tif", with_overviews=False)
    compare_with_gdal(harness, "a.tif", plain)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_with_sidecars_becomes_the_cog_that_gdal_makes(harness: HandlerHarness, name: str):
    path = make_picture(name, harness.folder / "bronze")
    result = compare_with_gdal(harness, path.name, path)
    assert len(result.sidecars) == 2
