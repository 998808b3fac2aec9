"""Rasters that are placed by ground control points or RPCs are warped as GDAL warps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio
from affine import Affine
from rasterio.control import GroundControlPoint
from rasterio.crs import CRS
from rasterio.warp import Resampling, calculate_default_transform
from rasterio.warp import reproject as gdal_reproject

from dagmaster.errors import PermanentError
from dagmaster.geo.gdal import ignore_missing_georeference
from tests.unit.geo.raster.raster_context import UTM, HandlerHarness, numbers, write
from tests.unit.geo.raster.sidecar_files import simple_rpcs

if TYPE_CHECKING:
    from pathlib import Path

HEIGHT, WIDTH = 80, 100


def place_by_points(path: Path, pixels: Any, *, bend: float = 0.0, **profile: Any) -> Path:
    """Write a raster with a grid of ground control points around 10 E, 50 N; `bend` makes the grid uneven."""
    rows, columns = np.linspace(0, HEIGHT, 4), np.linspace(0, WIDTH, 5)
    points = [
        GroundControlPoint(row, column, 10 + column / 1000 + bend * (row / 1000) ** 2, 50 - row / 1000)
        for row in rows
        for column in columns
    ]
    write(path, pixels, crs=None, transform=None, **profile)
    with ignore_missing_georeference(), rasterio.open(path, "r+") as raster:
        raster.gcps = (points, CRS.from_epsg(4326))
    return path


def place_by_rpcs(path: Path, pixels: Any, *, tilt: float = 0.0, **profile: Any) -> Path:
    write(path, pixels, crs=None, transform=None, **profile)
    with ignore_missing_georeference(), rasterio.open(path, "r+") as raster:
        raster.rpcs = simple_rpcs(WIDTH, HEIGHT, tilt=tilt)
    return path


def warped_by_gdal(path: Path, cog: Any, how: str, **options: Any) -> Any:
    """Return what GDAL's own warp of the source to the grid of the COG gives."""
    with ignore_missing_georeference(), rasterio.open(path) as source:
        points, crs = source.gcps
        place = {"gcps": points, "src_crs": crs} if points else {"rpcs": source.rpcs, "src_crs": "EPSG:4326"}
        suggested = calculate_default_transform(
            place.pop("src_crs"), cog.crs, source.width, source.height, **place, **options
        )
        assert cog.transform.almost_equals(suggested[0])
        assert (cog.width, cog.height) == suggested[1:]
        out = np.zeros((source.count, cog.height, cog.width), source.dtypes[0])
        gdal_reproject(
            source.read(),
            out,
            src_crs=crs or "EPSG:4326",
            dst_crs=cog.crs,
            dst_transform=cog.transform,
            resampling=Resampling[how],
            **place,
            **options,
        )
        return out


@pytest.mark.parametrize("crs", ["EPSG:4326", "EPSG:32632", "EPSG:3857"])
@pytest.mark.parametrize("how", ["nearest", "bilinear"])
@pytest.mark.parametrize("bend", [0.0, 3.0])
def test_control_points_are_warped_as_gdal_warps_them(
    harness: HandlerHarness, crs: str, how: str, bend: float
):
    pixels = numbers(HEIGHT, WIDTH, bands=2, dtype="uint8")
    path = place_by_points(harness.folder / "bronze" / "a.tif", pixels, bend=bend)
    result = harness.run("raster.reproject", href="a.tif", target_crs=crs, resampling=how)
    with rasterio.open(harness.path(result.cog_url)) as cog:
        assert np.mean(np.abs(cog.read().astype(int) - warped_by_gdal(path, cog, how)) > 1) < 0.01
        assert cog.gcps[0] == []
    assert "ground control points" in result.not_carried
    assert result.bbox == pytest.approx([10, 49.92, 10.1, 50], abs=0.03)


@pytest.mark.parametrize("crs", ["EPSG:4326", "EPSG:32632"])
@pytest.mark.parametrize("ground", ["sea level", "height", "dem"])
def test_rpcs_are_warped_as_gdal_warps_them_at_the_height_of_the_ground(
    harness: HandlerHarness, crs: str, ground: str
):
    path = place_by_rpcs(harness.folder / "bronze" / "a.tif", numbers(HEIGHT, WIDTH, dtype="uint8"), tilt=5)
    params: dict[str, Any] = {}
    options: dict[str, Any] = {}
    if ground == "height":
        params, options = {"ground_height": 100.0}, {"RPC_HEIGHT": 100.0}
    if ground == "dem":
        slope = np.tile(np.linspace(0, 400, 60, dtype="float32"), (60, 1))
        dem = write(
            harness.folder / "bronze" / "dem.tif",
            slope,
            crs="EPSG:4326",
            transform=Affine(0.01, 0, 9.7, 0, -0.01, 50.3),
        )
        params, options = {"dem": "dem.tif"}, {"RPC_DEM": str(dem)}
    result = harness.run("raster.reproject", href="a.tif", target_crs=crs, **params)
    with rasterio.open(harness.path(result.cog_url)) as cog:
        matches, expected = cog.read(), warped_by_gdal(path, cog, "nearest", **options)
    assert np.mean(matches != expected) < 0.01
    assert result.not_carried == ["RPCs"]
    flat = harness.run("raster.reproject", href="a.tif", target_crs=crs)
    # Higher ground is seen elsewhere: ignoring it gives another image.
    assert (flat.cog_url == result.cog_url) == (ground == "sea level")


def test_a_dem_and_its_height_are_part_of_the_name_and_of_the_provenance(harness: HandlerHarness):
    place_by_rpcs(harness.folder / "bronze" / "a.tif", numbers(HEIGHT, WIDTH, dtype="uint8"))
    results = []
    for height in (0, 50):
        plane = np.full((60, 60), height, "float32")
        write(
            harness.folder / "bronze" / "dem.tif",
            plane,
            crs="EPSG:4326",
            transform=Affine(0.01, 0, 9.7, 0, -0.01, 50.3),
        )
        results.append(harness.run("raster.reproject", href="a.tif", target_crs="EPSG:32632", dem="dem.tif"))
    assert results[0].cog_url != results[1].cog_url
    sources = [
        entry["href"].rpartition("/")[2] for entry in results[0].item["properties"]["dagmaster:sources"]
    ]
    assert sources == ["a.tif", "dem.tif"]


def test_create_cog_and_the_complete_chain_also_warp_them(harness: HandlerHarness):
    place_by_points(harness.folder / "bronze" / "a.tif", numbers(HEIGHT, WIDTH, dtype="uint8"))
    for handler in ("raster.create_cog", "raster.process_complete"):
        result = harness.run(handler, href="a.tif", target_crs="EPSG:32632")
        assert result.crs == "EPSG:32632"


def test_a_raster_without_a_grid_is_validated_and_what_needs_a_grid_says_how_to_get_one(
    harness: HandlerHarness,
):
    place_by_points(harness.folder / "bronze" / "points.tif", numbers(HEIGHT, WIDTH, dtype="uint8"))
    place_by_rpcs(harness.folder / "bronze" / "rpcs.tif", numbers(HEIGHT, WIDTH, dtype="uint8"))
    for href, kind in (("points.tif", "gcps"), ("rpcs.tif", "rpcs")):
        seen = harness.run("raster.validate", href=href)
        assert (seen.crs, seen.metadata["georeference"], seen.metadata["transform"]) == (
            "EPSG:4326",
            kind,
            None,
        )
        assert seen.bbox == pytest.approx([10, 49.92, 10.1, 50], abs=0.06)
        for handler in ("raster.create_cog", "raster_plan_tiles", "raster.thumbnail"):
            with pytest.raises(
                PermanentError,
                match=r"not by a grid: warp it first, with raster\.reproject or with target_crs",
            ):
                harness.run(handler, href=href)


def test_of_two_georeferences_the_grid_is_used_unless_another_is_chosen(harness: HandlerHarness):
    path = harness.folder / "bronze" / "a.tif"
    write(path, numbers(HEIGHT, WIDTH, dtype="uint8"), transform=UTM)
    with rasterio.open(path, "r+") as raster:
        raster.rpcs = simple_rpcs(WIDTH, HEIGHT)
    boxes = {
        choice: harness.run(
            "raster.reproject", href="a.tif", target_crs="EPSG:4326", georeference=choice
        ).bbox
        for choice in ("auto", "grid", "rpcs")
    }
    assert boxes["auto"] == boxes["grid"]
    assert boxes["grid"][0] == pytest.approx(-34.8, abs=0.1)
    assert boxes["rpcs"] == pytest.approx([9.95, 49.95, 10.05, 50.05], abs=0.01)
    with pytest.raises(
        PermanentError, match="has no ground control points, which georeference=gcps asks for: it has geotr"
    ):
        harness.run("raster.reproject", href="a.tif", target_crs="EPSG:4326", georeference="gcps")


def test_a_dem_for_a_raster_without_rpcs_is_refused(harness: HandlerHarness):
    harness.bronze("a.tif", numbers(20, 20))
    harness.bronze("dem.tif", numbers(20, 20))
    with pytest.raises(PermanentError, match="has no RPCs, which dem asks for"):
        harness.run("raster.reproject", href="a.tif", target_crs="EPSG:4326", dem="dem.tif")
    (harness.folder / "bronze" / "dem.tif").write_bytes(b"no raster")
    with pytest.raises(PermanentError, match=r"not the GTiff .*dem\.tif"):
        harness.run("raster.reproject", href="a.tif", target_crs="EPSG:4326", dem="dem.tif")


@pytest.mark.parametrize("dem", ["elsewhere", "nodata", "small"])
def test_a_dem_without_heights_where_the_raster_lies_is_refused(harness: HandlerHarness, dem: str):
    place_by_rpcs(harness.folder / "bronze" / "a.tif", numbers(HEIGHT, WIDTH, dtype="uint8"), tilt=5)
    heights = np.full((60, 60), -9999 if dem == "nodata" else 300, "float32")
    corner = {"elsewhere": (-35.0, -8.0), "nodata": (9.7, 50.3), "small": (9.9, 50.1)}[dem]
    pixel = 0.0005 if dem == "small" else 0.01
    place: dict[str, Any] = {
        "crs": "EPSG:4326",
        "transform": Affine(pixel, 0, corner[0], 0, -pixel, corner[1]),
        "nodata": -9999,
    }
    write(harness.folder / "bronze" / "dem.tif", heights, **place)
    with pytest.raises(
        PermanentError, match=r"(the dem has no height|a dem that covers it).* with some margin"
    ):
        harness.run("raster.reproject", href="a.tif", target_crs="EPSG:4326", dem="dem.tif")


def test_control_points_that_lead_nowhere_are_invalid_input(harness: HandlerHarness):
    path = harness.folder / "bronze" / "a.tif"
    write(path, numbers(20, 20), crs=None, transform=None)
    with ignore_missing_georeference(), rasterio.open(path, "r+") as raster:
        raster.gcps = ([GroundControlPoint(0, 0, 10, 50)], CRS.from_epsg(4326))
    with pytest.raises(PermanentError, match="the ground control points of the raster lead to no place"):
        harness.run("raster.reproject", href="a.tif", target_crs="EPSG:3857")
