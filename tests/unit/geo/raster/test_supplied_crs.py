"""The CRS of a raster that states none: from a .prj file next to it, or WGS 84 for longitudes and latitudes in netCDF."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

from dagmaster.errors import PermanentError
from tests.unit.geo.raster.raster_context import UTM_25S, HandlerHarness, numbers, write
from tests.unit.geo.raster.sidecar_files import write_pam, write_prj

if TYPE_CHECKING:
    from pathlib import Path

LONGITUDES = np.arange(0, 360, 10.0)
LATITUDES = np.arange(90, -91, -10.0)
"""Centres of cells, as of ERA5: those around the poles reach 5 degrees beyond."""


def write_climate(path: Path, *names: str, x: Any = LONGITUDES, y: Any = LATITUDES, **attributes: Any) -> str:
    """Write netCDF-4 as weather services do: coordinates with units, and no grid mapping."""
    settings = {"x_units": "degrees_east", "y_units": "degrees_north", "x_name": "longitude", **attributes}
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file.attrs["Conventions"] = "CF-1.8"
        file["lat"], file["lon"] = y, x
        file["lat"].attrs["units"], file["lon"].attrs["units"] = settings["y_units"], settings["x_units"]
        file["lon"].attrs["standard_name"] = settings["x_name"]
        for axis in ("lat", "lon"):
            file[axis].make_scale(axis)
        for number, name in enumerate(names):
            file[name] = np.full((len(y), len(x)), number, "float32")
            file[name].dims[0].attach_scale(file["lat"])
            file[name].dims[1].attach_scale(file["lon"])
            if "grid_mapping" in settings:
                file[name].attrs["grid_mapping"] = settings["grid_mapping"]
    return path.name


@pytest.mark.parametrize("name", ["era5.nc", "era5.h5", "era5.he5"])
@pytest.mark.parametrize("names", [["t2m"], ["t2m", "tp"]])
def test_netcdf_in_degrees_without_a_grid_mapping_is_wgs_84(
    harness: HandlerHarness, name: str, names: list[str]
):
    href = write_climate(harness.folder / "bronze" / name, *names)
    subdataset = None if len(names) == 1 else names[-1]
    assert harness.run("raster.validate", href=href, subdataset=subdataset).crs == "EPSG:4326"
    made = harness.run("raster.create_cog", href=href, subdataset=subdataset)
    assert (made.crs, made.bbox) == ("EPSG:4326", [-180, -90, 180, 90])
    assert (harness.read(made.cog_url) == len(names) - 1).all()
    tile = harness.run("raster_plan_tiles", href=href, subdataset=subdataset, tile_size=64).tiles[0]
    assert harness.run("raster.create_cog", tile_spec=tile).crs == "EPSG:4326"


@pytest.mark.parametrize(
    "other",
    [
        {"x_units": "m", "y_units": "m"},
        {"x_units": "degrees", "y_units": "degrees"},
        {"x_name": "grid_longitude"},
        {"grid_mapping": "a_mapping_that_is_missing"},
        {"x": np.arange(0, 36_000, 1000.0)},
    ],
    ids=str,
)
def test_other_coordinates_are_not_taken_for_degrees(harness: HandlerHarness, other: dict[str, Any]):
    href = write_climate(harness.folder / "bronze" / "a.nc", "t2m", **other)
    with pytest.raises(PermanentError, match="the raster has no CRS"):
        harness.run("raster.create_cog", href=href)


@pytest.mark.parametrize("names", [["depth"], ["depth", "speed"]])
def test_a_projection_file_of_netcdf_places_its_rasters(harness: HandlerHarness, names: list[str]):
    x, y = np.arange(300_000, 301_000, 100.0), np.arange(9_000_000, 8_999_000, -100.0)
    href = write_climate(harness.folder / "bronze" / "a.nc", *names, x=x, y=y, x_units="m", y_units="m")
    write_prj(harness.folder / "bronze" / "a.prj", UTM_25S)
    made = harness.run("raster.create_cog", href=href, subdataset=None if len(names) == 1 else names[-1])
    assert (made.crs, made.sidecars, made.not_carried) == (UTM_25S, ["a.prj"], [])


def test_a_projection_file_of_a_raster_with_a_crs_is_not_used_and_the_output_says_so(
    harness: HandlerHarness,
):
    write(harness.folder / "bronze" / "a.tif", numbers(20, 20))
    write_prj(harness.folder / "bronze" / "a.prj", "EPSG:4326")
    made = harness.run("raster.create_cog", href="a.tif")
    assert (made.crs, made.sidecars) == (UTM_25S, [])
    assert made.not_carried == ["a.prj: the raster has a CRS itself"]


@pytest.mark.parametrize("content", ["<PAMDataset><PAMRasterBand band='1'><NoData", "<html>404</html>"])
def test_metadata_that_gdal_cannot_read_is_named(harness: HandlerHarness, content: str):
    write(harness.folder / "bronze" / "a.tif", numbers(20, 20))
    metadata = harness.folder / "bronze" / "a.tif.aux.xml"
    metadata.write_text(content)
    made = harness.run("raster.create_cog", href="a.tif")
    assert (made.sidecars, made.not_carried) == (
        [],
        ["a.tif.aux.xml: it is not metadata of GDAL, or truncated"],
    )
    write_pam(metadata, "<PAMRasterBand band='1'><NoDataValue>7</NoDataValue></PAMRasterBand>")
    assert harness.run("raster.create_cog", href="a.tif").metadata["nodata"] == 7


def test_metadata_next_to_an_hdf5_file_with_coordinates_is_used(harness: HandlerHarness):
    href = write_climate(harness.folder / "bronze" / "era5.h5", "t2m", x_units="m", y_units="m")
    with pytest.raises(PermanentError, match="has no CRS"):
        harness.run("raster.create_cog", href=href)
    write_prj(harness.folder / "bronze" / "era5.prj", UTM_25S)
    assert harness.run("raster.create_cog", href=href).crs == UTM_25S
