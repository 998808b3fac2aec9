"""Compare a warp of ours with GDAL's own to the same grid: kinds of pixels and masks, and places in every kind of CRS.

Expected pixels are those of GDAL's own warp to the same grid. Both compute positions to an eighth of a pixel, chunk by
chunk, so that a few pixels at the borders of chunks may differ.
"""

from __future__ import annotations

import random
import tempfile
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import rasterio
from affine import Affine
from rasterio.crs import CRS
from rasterio.errors import NodataShadowWarning
from rasterio.warp import Resampling, calculate_default_transform
from rasterio.warp import reproject as gdal_reproject

from tests.unit.geo.raster.raster_manifest import PALETTE, RGB, make_mask
from tests.unit.geo.raster.sidecar_files import write_external_mask
from tests.unit.geo.raster.tiff_writer import TiffOptions, write_tiff

if TYPE_CHECKING:
    from tests.unit.geo.raster.raster_context import HandlerHarness

HEIGHT, WIDTH = 90, 130


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a raster lies, and a CRS to warp it to. `fits`: GDAL suggests a grid for all of it."""

    crs: str
    transform: Affine
    target: str
    fits: bool = True


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What the pixels of a raster are, and how they are resampled."""

    dtype: str = "uint8"
    bands: int = 1
    nodata: float | None = None
    mask: str = ""
    profile: dict[str, Any] = field(default_factory=dict)
    resampling: str = "nearest"
    tiff: TiffOptions | None = None
    """For a file of a writer other than GDAL."""


ROTATED = Affine.translation(500_000, 5_000_000) @ Affine.rotation(25) @ Affine.scale(30, -30)
PLACES = {
    "UTM to degrees": Place(crs="EPSG:32631", transform=Affine(30, 0, 5e5, 0, -30, 5e6), target="EPSG:4326"),
    "UTM to its neighbour": Place(
        crs="EPSG:32631", transform=Affine(30, 0, 5e5, 0, -30, 5e6), target="EPSG:32632"
    ),
    "degrees to Mercator": Place(
        crs="EPSG:4326", transform=Affine(0.01, 0, 10, 0, -0.01, 50), target="EPSG:3857"
    ),
    "degrees to equal areas": Place(
        crs="EPSG:4326", transform=Affine(0.02, 0, 10, 0, -0.01, 50), target="EPSG:3035"
    ),
    "feet to metres": Place(
        crs="EPSG:2263", transform=Affine(10, 0, 9.8e5, 0, -10, 2e5), target="EPSG:32618"
    ),
    "south-up": Place(crs="EPSG:32631", transform=Affine(30, 0, 5e5, 0, 30, 5e6), target="EPSG:4326"),
    "rotated": Place(crs="EPSG:32631", transform=ROTATED, target="EPSG:3857"),
    "polar to degrees": Place(
        crs="EPSG:3031", transform=Affine(1000, 0, 1e6, 0, -1000, 1e6), target="EPSG:4326"
    ),
    "geostationary": Place(
        crs="+proj=geos +h=35785831 +lon_0=0 +sweep=y +ellps=WGS84",
        transform=Affine(84_000, 0, -5.46e6, 0, -122_000, 5.49e6),
        target="EPSG:4326",
        fits=False,
    ),
    "moon": Place(crs="IAU_2015:30110", transform=Affine(100, 0, 1e5, 0, -100, 2e5), target="IAU_2015:30100"),
    "mars": Place(crs="IAU_2015:49900", transform=Affine(0.01, 0, 10, 0, -0.01, 50), target="IAU_2015:49910"),
}
KINDS = {
    "bytes": Kind(),
    "bytes, bilinear": Kind(bands=3, resampling="bilinear"),
    "signed bytes": Kind(dtype="int8", nodata=-1),
    "nodata": Kind(dtype="int16", bands=2, nodata=-1, resampling="cubic"),
    "nan": Kind(dtype="float32", nodata=float("nan"), resampling="average"),
    "floats": Kind(dtype="float64", bands=2, resampling="lanczos"),
    "complex numbers": Kind(dtype="complex64"),
    "mode": Kind(dtype="uint16", resampling="mode"),
    "internal mask": Kind(bands=2, mask="internal"),
    "external mask": Kind(bands=3, mask="external"),
    "alpha": Kind(bands=4, mask="alpha", profile={"photometric": "rgb", "alpha": "yes"}),
    "grey and alpha": Kind(
        dtype="uint16", bands=2, mask="alpha", profile={"alpha": "yes"}, resampling="bilinear"
    ),
    "palette": Kind(profile={"photometric": "palette"}),
    "palette without a table": Kind(tiff=TiffOptions(photometric=PALETTE)),
    "alpha before the data": Kind(bands=3, tiff=TiffOptions(extra_samples=(2, 0))),
    "RGB, alpha and more": Kind(bands=5, tiff=TiffOptions(photometric=RGB, extra_samples=(2, 0))),
    "two alphas": Kind(bands=5, mask="alpha", tiff=TiffOptions(photometric=RGB, extra_samples=(2, 2))),
    "three bands, the last alpha": Kind(bands=3, mask="alpha", tiff=TiffOptions(extra_samples=(0, 2))),
}


def make_source(path: Path, kind: Kind, place: Place) -> Path:
    """Write a raster of smooth hills, with areas without data."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    hills = 50 + 40 * np.sin(rows / 9) * np.cos(columns / 13)
    pixels = np.stack([hills + 3 * band for band in range(kind.bands)]).astype(kind.dtype)
    mask = make_mask(pixels)
    if kind.nodata is not None:
        pixels[:, mask == 0] = kind.nodata
    if kind.mask == "alpha":
        pixels[-1] = np.where(mask > 0, np.iinfo(kind.dtype).max, 0)
    if kind.tiff is not None:
        write_tiff(path, pixels, kind.tiff)
        return path
    profile = {"driver": "GTiff", "count": kind.bands, "height": HEIGHT, "width": WIDTH, "dtype": kind.dtype}
    georeference = {"crs": place.crs, "transform": place.transform, "nodata": kind.nodata}
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK="YES", GDAL_PAM_ENABLED="NO"),
        rasterio.open(path, "w", **profile, **georeference, **kind.profile) as raster,
    ):
        raster.write(pixels)
        if "palette" in kind.profile.values():
            raster.write_colormap(1, {value: (value, 255 - value, 7, 255) for value in range(256)})
        if kind.mask == "internal":
            raster.write_mask(mask)
    if kind.mask == "external":
        write_external_mask(path, mask)
    return path


def first_broken_warp(seed: int, count: int) -> str | None:
    """Check random warps of every kind and place with any resampling; return the first one that fails, and why."""
    from tests.unit.geo.raster.raster_context import HandlerHarness

    chance = random.Random(seed)
    for _ in range(count):
        name = chance.choice(list(KINDS))
        kind = replace(KINDS[name], resampling=chance.choice(_resamplings(KINDS[name])))
        # Odd TIFFs lie in UTM.
        place = PLACES["UTM to degrees"] if kind.tiff is not None else chance.choice(list(PLACES.values()))
        with tempfile.TemporaryDirectory() as folder:
            try:
                check_warp(HandlerHarness(Path(folder)), kind, place)
            except Exception as error:  # noqa: BLE001 - whatever it is, the warp is broken
                return f"{name}: {kind!r} {place!r}\n{type(error).__name__}: {error}"
    return None


def _resamplings(kind: Kind) -> list[str]:
    if "complex" in kind.dtype:
        return ["nearest"]
    is_palette = "palette" in kind.profile.values() or (
        kind.tiff is not None and kind.tiff.photometric == PALETTE
    )
    return (
        ["nearest", "mode"]
        if is_palette
        else [one.name for one in Resampling if one.name not in ("gauss", "rms")]
    )


def check_warp(harness: HandlerHarness, kind: Kind, place: Place) -> None:
    """Warp a raster, and compare it with GDAL's warp; raise if they differ."""
    path = make_source(harness.folder / "bronze" / "a.tif", kind, place)
    result = harness.run(
        "raster.reproject", href="a.tif", target_crs=place.target, resampling=kind.resampling
    )
    with (
        warnings.catch_warnings(action="ignore", category=NodataShadowWarning),
        rasterio.open(path) as source,
        rasterio.open(harness.path(result.cog_url)) as cog,
    ):
        check_grid(source, cog, place)
        expected = warped_by_gdal(source, cog, kind, place)
        matches, is_valid = cog.read(), cog.dataset_mask() > 0
        assert is_valid.mean() > 0.3
        differs = np.abs(matches.astype(complex) - expected) > 1
        assert (differs & is_valid).mean() < 0.01
        check_mask(source, is_valid, cog, kind, place)
        assert matches.dtype == source.read().dtype
        assert cog.colorinterp == source.colorinterp
        if "palette" in kind.profile.values():
            assert cog.colormap(1) == source.colormap(1)


def check_grid(source: Any, cog: Any, place: Place) -> None:
    assert cog.crs == CRS.from_string(place.target)
    if place.fits and source.transform.e < 0 and source.transform.b == 0:
        affine, width, height = calculate_default_transform(
            source.crs, cog.crs, source.width, source.height, *source.bounds
        )
        assert (cog.width, cog.height) == (width, height)
        assert cog.transform.almost_equals(affine, precision=abs(affine.a) * 1e-6)


def warped_by_gdal(source: Any, cog: Any, kind: Kind, place: Place) -> Any:
    bands = list(source.indexes)[: -1 if kind.mask == "alpha" else None]
    out = np.zeros((source.count, cog.height, cog.width), source.dtypes[0])
    gdal_reproject(
        rasterio.band(source, bands),
        out[: len(bands)],
        dst_transform=cog.transform,
        dst_crs=cog.crs,
        resampling=Resampling[kind.resampling],
        src_nodata=source.nodata,
        dst_nodata=cog.nodata,
        **({"src_alpha": source.count} if kind.mask == "alpha" else {}),
    )
    if kind.mask == "alpha":
        out[-1] = cog.read(cog.count)
    return out


def check_mask(source: Any, is_valid: Any, cog: Any, kind: Kind, place: Place) -> None:
    """Compare what is valid with the validity of the source, warped."""
    if kind.resampling != "nearest":
        return
    mask = source.dataset_mask()
    if kind.mask == "alpha":
        mask = (source.read(source.count) > 0).astype("uint8") * 255
        is_valid = is_valid & (cog.read(cog.count) > 0)
    expected = np.zeros((cog.height, cog.width), "uint8")
    gdal_reproject(
        mask, expected, src_transform=source.transform, src_crs=source.crs, dst_transform=cog.transform,
        dst_crs=cog.crs, resampling=Resampling.nearest,
    )  # fmt: skip
    assert ((expected > 0) != is_valid).mean() < 0.01
