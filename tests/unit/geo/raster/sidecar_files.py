"""Files next to rasters, as other programs write them: masks, metadata, world files, RPCs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import rasterio
from rasterio.crs import CRS
from rasterio.rpc import RPC

from dagmaster.geo.gdal import ignore_missing_georeference

if TYPE_CHECKING:
    from pathlib import Path

    from affine import Affine

METRES_PER_DEGREE = 111_320.0


def simple_rpcs(width: int, height: int, *, tilt: float = 0.0) -> RPC:
    """RPCs of an image of a tenth of a degree around 10 E, 50 N. `tilt`: columns that 100 m of height shift a pixel."""
    zeros = [0.0] * 16
    return RPC(
        height_off=0.0,
        height_scale=100.0,
        lat_off=50.0,
        lat_scale=0.05,
        long_off=10.0,
        long_scale=0.05,
        line_off=height / 2,
        line_scale=height / 2,
        samp_off=width / 2,
        samp_scale=width / 2,
        line_num_coeff=[0.0, 0.0, -1.0, 0.0, *zeros],
        line_den_coeff=[1.0, 0.0, 0.0, 0.0, *zeros],
        samp_num_coeff=[0.0, 1.0, 0.0, tilt / (width / 2), *zeros],
        samp_den_coeff=[1.0, 0.0, 0.0, 0.0, *zeros],
    )


def write_rpc_text(path: Path, rpcs: RPC) -> None:
    """Write `a_RPC.TXT`."""
    lines = [f"{name.upper()}: {getattr(rpcs, name)}" for name in _SCALARS]
    for name in _VECTORS:
        lines += [f"{name.upper()}_{index}: {value}" for index, value in enumerate(getattr(rpcs, name), 1)]
    path.write_text("\n".join(lines) + "\n")


def write_rpb(path: Path, rpcs: RPC) -> None:
    """Write `a.RPB`, as DigitalGlobe does."""
    names = {"off": "Offset", "scale": "Scale", "num_coeff": "NumCoef", "den_coeff": "DenCoef"}
    lines = []
    for name in (*_SCALARS, *_VECTORS):
        axis, _, kind = name.partition("_")
        value: Any = getattr(rpcs, name)
        text = f"({', '.join(map(str, value))})" if isinstance(value, list) else str(value)
        lines.append(f"\t{axis}{names[kind]} = {text};")
    group = "\n".join(["\terrBias = 0;", "\terrRand = 0;", *lines])
    path.write_text(
        f'satId = "QB02";\nbandId = "P";\nSpecId = "RPC00B";\nBEGIN_GROUP = IMAGE\n{group}\nEND_GROUP = IMAGE\nEND;\n'
    )


def write_imd(path: Path) -> None:
    """Write `a.IMD`."""
    path.write_text(
        'version = "R";\nBEGIN_GROUP = IMAGE_1\n\tsatId = "QB02";\n\tcloudCover = 0.1;\nEND_GROUP = IMAGE_1\nEND;\n'
    )


def write_world_file(path: Path, transform: Affine) -> None:
    """Write a world file: it states the centre of the upper left pixel."""
    a, b, c, d, e, f = tuple(transform)[:6]
    centre = (c + a / 2 + b / 2, f + d / 2 + e / 2)
    path.write_text("".join(f"{number!r}\n" for number in (a, d, b, e, *centre)))


def write_prj(path: Path, crs: str) -> None:
    """Write a .prj file, as ArcGIS does."""
    path.write_text(CRS.from_string(crs).to_wkt(version="WKT1_ESRI"))


def write_pam(path: Path, xml: str) -> None:
    """Write `a.tif.aux.xml`."""
    path.write_text(f"<PAMDataset>{xml}</PAMDataset>")


def write_external_mask(path: Path, mask: Any) -> None:
    """Let GDAL write `a.tif.msk`."""
    with (
        ignore_missing_georeference(),
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK="NO", GDAL_PAM_ENABLED="NO"),
        rasterio.open(path, "r+") as raster,
    ):
        raster.write_mask(np.asarray(mask))


def write_external_overviews(path: Path, factors: list[int], **options: str) -> None:
    """Let GDAL write `a.tif.ovr`, or `a.aux` with USE_RRD."""
    with (
        ignore_missing_georeference(),
        rasterio.Env(TIFF_USE_OVR="YES", GDAL_PAM_ENABLED="NO", **options),
        rasterio.open(path, "r+") as raster,
    ):
        raster.build_overviews(factors, rasterio.enums.Resampling.nearest)


_SCALARS = (
    *("line_off", "samp_off", "lat_off", "long_off", "height_off"),
    *("line_scale", "samp_scale", "lat_scale", "long_scale", "height_scale"),
)
_VECTORS = ("line_num_coeff", "line_den_coeff", "samp_num_coeff", "samp_den_coeff")
