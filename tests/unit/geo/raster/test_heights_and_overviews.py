"""A CRS with heights stays, and overviews are made as asked for, whatever the source and its own overviews."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyproj
import pytest
import rasterio
import rasterio.shutil
from affine import Affine
from rasterio.enums import Resampling

from dagmaster.errors import PermanentError
from tests.unit.geo.raster.raster_context import UTM, HandlerHarness, numbers, write

DEGREES = Affine(0.001, 0, 10, 0, -0.001, 50)


def wkt_of(path: Any) -> pyproj.CRS:
    with rasterio.open(path) as raster:
        return pyproj.CRS.from_wkt(raster.crs.to_wkt(version="WKT2_2019"))


@pytest.mark.parametrize(
    ("crs", "transform"),
    [("EPSG:4979", DEGREES), ("EPSG:4326+5773", DEGREES), ("EPSG:7415", UTM), ("EPSG:32632+5773", UTM)],
)
def test_a_crs_with_heights_stays_in_every_cog_and_its_item(
    harness: HandlerHarness, crs: str, transform: Affine
):
    harness.bronze("x.tif", numbers(600, 600, dtype="float32"), crs=crs, transform=transform)
    expected = wkt_of(harness.folder / "bronze" / "x.tif")
    assert len(expected.axis_info) == 3
    created = harness.run("create_cog", href="x.tif", collection_id="c")
    results = [
        created.cog_url,
        harness.run("create_cog", href="x.tif", tile_spec={"window": [10, 10, 200, 200]}).cog_url,
        harness.run("raster_mosaic", sources=["x.tif"]).mosaic_path,
        harness.run("raster_reproject", href="x.tif", target_crs=crs).reprojected_path,
    ]
    for uri in results:
        written = wkt_of(harness.path(uri))
        assert (written.name, len(written.axis_info)) == (expected.name, 3)
    properties = created.item["properties"]
    code = properties.get("proj:code")
    named = pyproj.CRS(code) if code else pyproj.CRS.from_wkt(properties["proj:wkt2"])
    assert len(named.axis_info) == 3


def test_a_warp_to_a_crs_with_heights_has_it(harness: HandlerHarness):
    harness.bronze("x.tif", numbers(100, 100), crs="EPSG:4326", transform=DEGREES)
    for crs in ("EPSG:4979", "EPSG:4326+5773"):
        result = harness.run("raster_reproject", href="x.tif", target_crs=crs)
        assert len(wkt_of(harness.path(result.reprojected_path)).axis_info) == 3


def with_overviews(harness: HandlerHarness, driver: str, name: str) -> None:
    """Write a raster whose own overviews are of nearest neighbours."""
    base = write(
        harness.folder / "base.tif",
        numbers(512, 512, dtype="uint8"),
        tiled=True,
        blockxsize=256,
        blockysize=256,
    )
    path = harness.folder / "bronze" / name
    path.parent.mkdir(exist_ok=True)
    options = {"JP2OpenJPEG": {"QUALITY": "100", "REVERSIBLE": "YES"}, "COG": {"OVERVIEW_RESAMPLING": "NEAREST", "BLOCKSIZE": "128"}}  # fmt: skip
    rasterio.shutil.copy(str(base), str(path), driver=driver, **options.get(driver, {}))
    if driver not in options:
        with rasterio.open(path, "r+") as raster:
            raster.build_overviews([2, 4], Resampling.nearest)
    with rasterio.open(path) as raster:
        assert raster.overviews(1)


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("COG", "x.tif"), ("HFA", "x.img"), ("NITF", "x.ntf"), ("ENVI", "x.dat"), ("GPKG", "x.gpkg"),
        ("JP2OpenJPEG", "x.jp2"), ("SAGA", "x.sdat"), ("netCDF", "x.nc"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", ["average", "nearest"])
def test_overviews_are_made_as_asked_for_from_a_source_with_others(
    harness: HandlerHarness, driver: str, name: str, how: str
):
    with_overviews(harness, driver, name)
    result = harness.run("create_cog", href=name, overview_resampling=how, tile_size=128)
    with rasterio.open(harness.path(result.cog_url)) as cog:
        pixels = cog.read(1)[:512, :512].astype(float).reshape(256, 2, 256, 2)
    with rasterio.open(harness.path(result.cog_url), overview_level=0) as overview:
        made = overview.read(1)[:256, :256]
    expected = pixels.mean(axis=(1, 3)) if how == "average" else pixels[:, 0, :, 0]
    assert np.abs(made - expected).max() <= 0.5


def test_a_resampling_that_complex_numbers_do_not_have_is_refused_by_name(harness: HandlerHarness):
    harness.bronze("x.tif", numbers(600, 600, dtype="complex64"))
    with pytest.raises(PermanentError, match="complex numbers cannot be resampled by bilinear: use nearest"):
        harness.run("create_cog", href="x.tif", overview_resampling="bilinear")
