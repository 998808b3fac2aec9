"""Compare a COG of ours with the one that GDAL's COG driver makes of the same raster, in everything that a file says."""

from __future__ import annotations

import itertools
import random
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import rasterio
import rasterio.shutil
from rasterio.errors import NodataShadowWarning

from dagmaster.geo.gdal import ignore_missing_georeference
from dagmaster.geo.raster.cog_validation import check_layout
from dagmaster.geo.raster.provenance_tags import TAG
from tests.unit.geo.raster.raster_manifest import BLOCK, make_raster, random_cases, without_overviews

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.geo.raster.raster_context import HandlerHarness
    from tests.unit.geo.raster.raster_manifest import RasterCase

_ROUNDING = 1e-14
"""Of the largest number: GDAL adds up doubles in another order for a VRT, through which ours are made."""
_DOMAINS = ("", "xml:XMP", "COLOR_PROFILE", "RPC")


def check_case(harness: HandlerHarness, case: RasterCase) -> None:
    """Make a COG of a case, and compare it with GDAL's; raise if they differ."""
    source = make_raster(case, harness.folder / "bronze" / "a.tif")
    # GDAL copies overviews that a source has where it makes none itself: it gets the raster without them.
    other = without_overviews(case)
    plain = source if other == case else make_raster(other, harness.folder / "plain" / "a.tif")
    compare_with_gdal(harness, source.name, plain, case.resampling)


def first_broken_case(seed: int, count: int) -> str | None:
    """Check random cases of the whole product; return the first one that fails, and why."""
    from tests.unit.geo.raster.raster_context import HandlerHarness

    for case in itertools.islice(random_cases(random.Random(seed)), count):
        with tempfile.TemporaryDirectory() as folder:
            try:
                check_case(HandlerHarness(Path(folder)), case)
            except Exception as error:  # noqa: BLE001 - whatever it is, the case is broken
                return f"{case!r}\n{type(error).__name__}: {error}"
    return None


def compare_with_gdal(harness: HandlerHarness, href: str, source: Path, resampling: str = "nearest") -> Any:
    """Make a COG of a raster in bronze, and compare it with GDAL's of `source`; return the result of the handler."""
    result = harness.run("raster.create_cog", href=href, tile_size=BLOCK, overview_resampling=resampling)
    reference = harness.folder / "reference.tif"
    with ignore_missing_georeference(), rasterio.open(source) as raster:
        options = {"COMPRESS": "DEFLATE", "BLOCKSIZE": BLOCK, "OVERVIEW_RESAMPLING": resampling.upper()}
        rasterio.shutil.copy(raster, str(reference), driver="COG", **options)
    cog = harness.path(result.cog_url)
    problems = [*check_layout(cog), *differences(reference, cog)]
    if problems:
        raise AssertionError("\n".join(problems))
    return result


def differences(reference: Path, cog: Path) -> Iterator[str]:
    """Yield what two COGs differ in, by the files alone."""
    with (
        rasterio.Env(GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR", GDAL_PAM_ENABLED="NO"),
        warnings.catch_warnings(action="ignore", category=NodataShadowWarning),
        rasterio.open(reference) as expected,
        rasterio.open(cog) as result,
    ):
        facts = _facts(result)
        for name, value in _facts(expected).items():
            other = facts[name]
            if value != other:
                yield f"{name}: GDAL has {value!r:.200}, ours has {other!r:.200}"
        yield from _pixel_differences(expected, result, "the image")
        for level in range(len(expected.overviews(1))):
            with (
                rasterio.open(reference, overview_level=level) as one,
                rasterio.open(cog, overview_level=level) as other_level,
            ):
                yield from _pixel_differences(one, other_level, f"overview {level + 1}", precision=_ROUNDING)


def _facts(raster: Any) -> dict[str, Any]:
    tags = {domain: raster.tags(ns=domain or None) for domain in _DOMAINS}
    tags[""].pop(TAG, None)
    return {
        "CRS": raster.crs,
        "geotransform": tuple(raster.transform),
        "bounds": tuple(raster.bounds),
        "size": (raster.count, raster.height, raster.width),
        "data types": raster.dtypes,
        "bits": [raster.tags(band, ns="IMAGE_STRUCTURE").get("NBITS") for band in raster.indexes],
        "nodata": list(map(repr, raster.nodatavals)),
        "masks": [[flag.name for flag in flags] for flags in raster.mask_flag_enums],
        "colors": [color.name for color in raster.colorinterp],
        "color tables": [_color_table(raster, band) for band in raster.indexes],
        "names": raster.descriptions,
        "units": raster.units,
        "scales": raster.scales,
        "offsets": raster.offsets,
        "overviews": raster.overviews(1),
        "tags": tags,
        "band tags": [(raster.tags(band), raster.tags(band, ns="IMAGERY")) for band in raster.indexes],
        "control points": [(point.row, point.col, point.x, point.y) for point in raster.gcps[0]],
        "interleave": raster.interleaving,
    }


def _pixel_differences(expected: Any, result: Any, name: str, *, precision: float = 0.0) -> Iterator[str]:
    if expected.shape != result.shape or expected.count != result.count:
        yield f"{name}: GDAL has {expected.count} x {expected.shape}, ours {result.count} x {result.shape}"
        return
    one, other = expected.read(), result.read()
    if not _are_equal(one, other, precision):
        yield f"{name}: {np.mean(one != other):.1%} of the pixels differ"
    if not np.array_equal(expected.read_masks(), result.read_masks()):
        yield f"{name}: the masks differ"


def _are_equal(one: Any, other: Any, precision: float) -> bool:
    if np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"):
        return True
    if not precision or one.dtype not in ("float64", "int64", "uint64"):
        return False
    doubles, others = one.astype("float64"), other.astype("float64")
    return bool(
        np.allclose(doubles, others, rtol=0, atol=precision * np.nanmax(np.abs(doubles)), equal_nan=True)
    )


def _color_table(raster: Any, band: int) -> Any:
    try:
        return raster.colormap(band)
    except ValueError:
        return None
