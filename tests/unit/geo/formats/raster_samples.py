"""A small file of every raster format that handlers read, made on the spot."""

from __future__ import annotations

import json
import struct
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import rasterio
import rasterio.shutil
from affine import Affine
from rasterio.crs import CRS

from tests.unit.geo.formats import handwritten_rasters as handwritten
from tests.unit.geo.formats.zipped_samples import zipped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

NORTH_UP: Final = Affine(0.01, 0, 10, 0, -0.01, 50)
"""Of most samples: longitudes from 10 degrees, latitudes to 50."""
DEM: Final = Affine(1 / 120, 0, 10 - 1 / 240, 0, -1 / 120, 50 + 1 / 240)
"""Pixels on whole parts of degrees, as elevation formats have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A file of one driver. `pixels` are what it contains; None if the format changes them or their places."""

    driver: str
    name: str
    make: Callable[[Path], None]
    pixels: NDArray[Any] | None = None
    has_crs: bool = True
    subdatasets: tuple[str, ...] = field(default_factory=tuple)


def pixels(dtype: str = "uint8", count: int = 1, side: int = 32) -> NDArray[Any]:
    """Return bands with different numbers in every row and column."""
    rows, columns = np.mgrid[0:side, 0:side]
    return np.stack([(rows * 3 + columns + 10 * band) % 120 + 1 for band in range(count)]).astype(dtype)


def gdal(
    driver: str,
    name: str,
    data: NDArray[Any] | None = None,
    *,
    crs: str | None = "EPSG:4326",
    transform: Affine = NORTH_UP,
    exact: bool = True,
    has_crs: bool = True,
    subdatasets: tuple[str, ...] = (),
    **options: Any,
) -> Sample:
    """Return a sample that GDAL writes."""
    data = pixels() if data is None else data

    def make(path: Path) -> None:
        with warnings.catch_warnings(), rasterio.Env(GDAL_PAM_ENABLED="NO"):
            warnings.simplefilter("ignore")
            write_raster(path, driver, data, crs=crs, transform=transform, **options)

    return Sample(
        driver=driver,
        name=name,
        make=make,
        pixels=data if exact else None,
        has_crs=has_crs,
        subdatasets=subdatasets,
    )


def write_raster(
    path: Path, driver: str, data: NDArray[Any], *, crs: str | None, transform: Affine, **options: Any
) -> None:
    """Write pixels with a driver that may only copy from another dataset."""
    count, height, width = data.shape
    profile = {
        "count": count,
        "height": height,
        "width": width,
        "dtype": data.dtype,
        "crs": crs,
        "transform": transform,
    }
    with rasterio.MemoryFile() as memory:
        with memory.open(driver="GTiff", **profile) as raster:
            raster.write(data)
        with memory.open() as raster:
            rasterio.shutil.copy(raster, str(path), driver=driver, **options)


def written(
    driver: str, name: str, write: Callable[[Path, NDArray[Any]], None], data: NDArray[Any], **more: Any
) -> Sample:
    """Return a sample that is written byte for byte."""
    return Sample(driver=driver, name=name, make=lambda path: write(path, data), **{"pixels": data, **more})


def text(driver: str, name: str, content: str, **more: Any) -> Sample:
    """Return a sample with this content."""

    def make(path: Path) -> None:
        path.write_text(content)

    return Sample(driver=driver, name=name, make=make, **more)


VARIABLES: Final = ("t2m", "tp")


def write_hdf5(path: Path, *, names: tuple[str, ...] = VARIABLES) -> None:
    """Write HDF5 as netCDF-4 has it: variables on dimensions with coordinates, as the CF conventions say."""
    with h5py.File(path, "w") as file:
        file.attrs["Conventions"] = "CF-1.8"
        for name, values, unit in (
            ("lat", 50 - 0.01 * (np.arange(32) + 0.5), "degrees_north"),
            ("lon", 10 + 0.01 * (np.arange(32) + 0.5), "degrees_east"),
        ):
            file[name] = values
            file[name].attrs["units"] = unit
            file[name].make_scale(name)
        file["crs"] = 0
        file["crs"].attrs["grid_mapping_name"] = "latitude_longitude"
        file["crs"].attrs["spatial_ref"] = CRS.from_epsg(4326).to_wkt()
        for number, name in enumerate(names):
            dataset = file.create_dataset(
                name, data=pixels("float32", len(names))[number], compression="gzip"
            )
            dataset.attrs["grid_mapping"] = "crs"
            dataset.dims[0].attach_scale(file["lat"])
            dataset.dims[1].attach_scale(file["lon"])


def write_depths(path: Path) -> None:
    """Write bathymetry as S-102 has it: a grid from the south-west corner, with a record for each point."""
    feature = "BathymetryCoverage"
    with h5py.File(path, "w") as file:
        file.attrs.update(
            productSpecification="INT.IHO.S-102.2.2", horizontalCRS=np.int32(4326), issueDate="20260101"
        )
        file.create_group("Group_F")
        instance = file.create_group(f"{feature}/{feature}.01")
        instance.attrs.update(
            gridOriginLongitude=10.005, gridOriginLatitude=49.685, gridSpacingLongitudinal=0.01,
            gridSpacingLatitudinal=0.01, numPointsLongitudinal=np.uint32(32), numPointsLatitudinal=np.uint32(32),
        )  # fmt: skip
        records = np.zeros((32, 32), dtype=[("depth", "<f4"), ("uncertainty", "<f4")])
        records["depth"], records["uncertainty"] = pixels("float32", 2)[:, ::-1]
        instance["Group_001/values"] = records


def write_byn(path: Path) -> None:
    """Write a geoid of Canada. Its driver does not copy."""
    profile = {
        "width": 32,
        "height": 32,
        "count": 1,
        "dtype": "int16",
        "crs": "EPSG:4617",
        "transform": NORTH_UP,
    }
    with rasterio.Env(GDAL_PAM_ENABLED="NO"), rasterio.open(path, "w", driver="BYN", **profile) as raster:
        raster.write(SHORTS)


def write_geoid(path: Path) -> None:
    """Write a geoid of the United States: a header, and rows from the south."""
    header = struct.pack("<4d3i", 49.685, 10.005, 0.01, 0.01, 32, 32, 1)
    path.write_bytes(header + FLOATS[0, ::-1].astype("<f4").tobytes())


def write_noaa_b(path: Path) -> None:
    """Write a grid of datum shifts: records of Fortran, rows from the south."""
    records = [struct.pack("<4d3i", 49.685, 10.005, 0.01, 0.01, 32, 32, 1)]
    records += [row.astype("<f4").tobytes() for row in FLOATS[0, ::-1]]
    path.write_bytes(
        b"".join(struct.pack("<i", len(one)) + one + struct.pack("<i", len(one)) for one in records)
    )


def write_cals(path: Path) -> None:
    """Write a scan of one bit a pixel."""
    with rasterio.MemoryFile() as memory, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with memory.open(driver="GTiff", width=32, height=32, count=1, dtype="uint8", nbits=1) as raster:
            raster.write(pixels() % 2)
        with memory.open() as raster:
            rasterio.shutil.copy(raster, str(path), driver="CALS")


def write_tga(path: Path) -> None:
    """Write an uncompressed grey picture with its first row on top."""
    header = struct.pack("<BBBHHBHHHHBB", 0, 0, 3, 0, 0, 0, 0, 0, 32, 32, 8, 0x20)
    path.write_bytes(header + pixels().tobytes() + bytes(8) + b"TRUEVISION-XFILE.\0")


def write_plain_hdf5(path: Path) -> None:
    """Write HDF5 with datasets, and without coordinates."""
    with h5py.File(path, "w") as file:
        for number, name in enumerate(VARIABLES):
            file[name] = pixels("float32", len(VARIABLES))[number]


def write_zarr(path: Path) -> None:
    """Write a Zarr group of two arrays."""
    path.mkdir()
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    for number, name in enumerate(VARIABLES):
        array = path / name
        array.mkdir()
        metadata = {
            "zarr_format": 2, "shape": [32, 32], "chunks": [16, 32], "dtype": "<f4", "compressor": None,
            "fill_value": None, "filters": None, "order": "C",
        }  # fmt: skip
        (array / ".zarray").write_text(json.dumps(metadata))
        rows = pixels("<f4", 2)[number]
        for part in range(2):
            (array / f"{part}.0").write_bytes(rows[16 * part : 16 * (part + 1)].tobytes())


GRASS: Final = "north: 50\nsouth: 49.98\neast: 10.03\nwest: 10\nrows: 2\ncols: 3\n1 2 3\n4 5 6\n"
ISG: Final = """begin_of_head ================================================
model name     : X
model year     : 2020
model type     : gravimetric
units          : meters
ref_ellipsoid  : GRS80
lat min        =    39.50
lat max        =    40.50
lon min        =    19.50
lon max        =    21.50
delta lat      =     1.00
delta lon      =     1.00
nrows          =     1
ncols          =     2
nodata         = -9999.0
ISG format     = 1.0
end_of_head ==================================================
  1.0  2.0
"""
GXF: Final = "#TITLE\nx\n#POINTS\n3\n#ROWS\n2\n#PTSEPARATION\n0.01\n#RWSEPARATION\n0.01\n#XORIGIN\n10\n#YORIGIN\n49\n#SENSE\n1\n#GRID\n1 2 3\n4 5 6\n"
FLOATS: Final = pixels("float32")
SHORTS: Final = pixels("int16")

SAMPLES: Final = [
    gdal("GTiff", "x.tif"),
    gdal("JP2OpenJPEG", "x.jp2", REVERSIBLE="YES", QUALITY="100"),
    gdal("PNG", "x.png", has_crs=False),
    gdal("JPEG", "x.jpg", exact=False, has_crs=False),
    gdal("GIF", "x.gif", has_crs=False),
    gdal("WEBP", "x.webp", pixels(count=3), exact=False, has_crs=False),
    gdal("BMP", "x.bmp", has_crs=False),
    gdal("XPM", "x.xpm", exact=False, has_crs=False),
    gdal("SGI", "x.sgi", has_crs=False),
    gdal("netCDF", "x.nc", FLOATS),
    Sample(driver="netCDF", name="two.nc", make=write_hdf5, subdatasets=VARIABLES),
    Sample(driver="netCDF", name="cf.h5", make=write_hdf5, subdatasets=VARIABLES),
    Sample(driver="HDF5", name="x.h5", make=write_plain_hdf5, subdatasets=VARIABLES, has_crs=False),
    Sample(driver="S102", name="s102.h5", make=write_depths, pixels=pixels("float32", 2)),
    gdal("BAG", "x.bag", FLOATS, exact=False, crs="EPSG:32632", transform=Affine(10, 0, 500_000, 0, -10, 5_500_000)),
    gdal("GRIB", "x.grib2", exact=False),
    gdal("Zarr", "x.zarr"),
    gdal("Zarr", "v3.zarr", FORMAT="ZARR_V3"),
    zipped(gdal("Zarr", "x.zarr")),
    Sample(driver="Zarr", name="two.zarr", make=write_zarr, subdatasets=VARIABLES, has_crs=False),
    gdal("HFA", "x.img"),
    gdal("NITF", "x.ntf"),
    gdal("AAIGrid", "x.asc"),
    text("GRASSASCIIGrid", "grass.asc", GRASS, pixels=np.array([[[1, 2, 3], [4, 5, 6]]]), has_crs=False),
    text("ISG", "x.isg", ISG, pixels=np.array([[[1.0, 2.0]]])),
    gdal("DTED", "x.dt0", pixels("int16", side=121), transform=DEM),
    gdal("GPKG", "x.gpkg", TILE_FORMAT="PNG", exact=False),
    gdal("MBTiles", "x.mbtiles", exact=False),
    gdal("PCRaster", "x.map", FLOATS, has_crs=False),
    gdal("VICAR", "x.vic", exact=False),
    gdal("RMF", "x.rsw", pixels(count=3)),
    gdal("GSAG", "ascii.grd", FLOATS, has_crs=False),
    gdal("GSBG", "x.grd", FLOATS, has_crs=False),
    gdal("GS7BG", "seven.grd", FLOATS, has_crs=False),
    gdal("BT", "x.bt", SHORTS),
    gdal("LAN", "x.lan"),
    gdal("KRO", "x.kro", has_crs=False),
    gdal("HF2", "x.hf2", SHORTS, exact=False),
    gdal("SIGDEM", "x.sigdem", SHORTS),
    gdal("CTable2", "x.ct2", pixels("float32", 2)),
    gdal("NTv2", "x.gsb", pixels("float32", 4)),
    Sample(driver="CALS", name="x.cal", make=write_cals, has_crs=False),
    gdal("BLX", "x.blx", pixels("int16", side=128)),
    gdal("R", "x.rda", exact=False, has_crs=False),
    gdal("SRTMHGT", "N50E010.hgt", pixels("int16", side=1201), transform=Affine(1 / 1200, 0, 10 - 1 / 2400, 0, -1 / 1200, 51 + 1 / 2400)),
    gdal("XYZ", "x.xyz", has_crs=False),
    gdal("USGSDEM", "x.dem", SHORTS, exact=False),
    gdal("ZMap", "x.zmap", exact=False, has_crs=False),
    text("GXF", "x.gxf", GXF, pixels=np.array([[[4, 5, 6], [1, 2, 3]]]), has_crs=False),
    gdal("GTX", "x.gtx", FLOATS),
    gdal("LCP", "x.lcp", pixels("int16", 8), exact=False, LINEAR_UNIT="METER", CALCULATE_STATS="NO"),
    gdal("ELAS", "x.elas", has_crs=False),
    Sample(driver="BYN", name="x.byn", make=write_byn, pixels=SHORTS),
    Sample(driver="NGSGEOID", name="x.bin", make=write_geoid, pixels=FLOATS),
    Sample(driver="NOAA_B", name="x.b", make=write_noaa_b, pixels=FLOATS),
    Sample(driver="TGA", name="x.tga", make=write_tga, pixels=pixels(), has_crs=False),
    gdal("ENVI", "x.dat"),
    gdal("EHdr", "x.bil"),
    gdal("RST", "x.rst"),
    gdal("RRASTER", "r.grd"),
    gdal("SAGA", "x.sdat"),
    gdal("ROI_PAC", "x.slc", pixels("complex64")),
    gdal("ISCE", "x.int", pixels("complex64")),
    gdal("PAux", "x.raw", has_crs=False),
    written("ACE2", "45N010E_5M.ACE2", handwritten.write_ace2, pixels("float32", side=180)),
    written("BSB", "x.kap", handwritten.write_bsb, pixels()),
    written("CEOS", "x.ceos", handwritten.write_ceos, pixels(), has_crs=False),
    written("COSAR", "x.cos", handwritten.write_cosar, pixels("complex64") * np.complex64(1 + 2j), has_crs=False),
    written("CTG", "x.ctg", handwritten.write_ctg, pixels("int32", 6)),
    written("DIPEx", "x.dip", handwritten.write_dipex, pixels()),
    written("DOQ1", "old.doq", handwritten.write_doq1, pixels(side=500)),
    written("DOQ2", "new.doq", handwritten.write_doq2, pixels(side=500)),
    written("ESAT", "x.n1", handwritten.write_envisat, pixels("uint16"), has_crs=False),
    written("GFF", "x.gff", handwritten.write_gff, pixels(), has_crs=False),
    written("GSC", "x.gsc", handwritten.write_gsc, FLOATS, has_crs=False),
    written("GenBin", "generic.bil", handwritten.write_genbin, pixels()),
    written("IRIS", "x.ppi", handwritten.write_iris, FLOATS / 2 - 20),
    written("JDEM", "x.mem", handwritten.write_jdem, SHORTS, pixels=SHORTS * np.float32(0.1)),
    written("L1B", "x.l1b", handwritten.write_l1b, np.resize(pixels("uint16"), (1, 8, 2_048)), has_crs=False),
    written("LOSLAS", "x.las", handwritten.write_loslas, FLOATS),
    written("NSIDCbin", "ice.bin", handwritten.write_nsidc, pixels()),
    written("NWT_GRC", "x.grc", handwritten.write_classes, pixels()),
]  # fmt: skip
