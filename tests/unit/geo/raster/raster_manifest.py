"""The manifest of rasters that COGs are made of: every kind of pixel, layout, mask, nodata value, CRS, overview, shape.

`FACTORS` lists the values of each property. `manifest.csv` is a selection in which every two values occur together,
which `make test` runs; `make soak` draws from the whole product. After a change of the factors, write it again:

    python -m tests.unit.geo.raster.raster_manifest > tests/unit/geo/raster/manifest.csv

`make_raster` writes a case with GDAL, `make_odd_tiff` one with a writer that shares no code with it.
"""

from __future__ import annotations

import csv
import itertools
import random
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import rasterio
from affine import Affine
from PIL import Image
from rasterio.enums import Resampling

from dagmaster.geo.gdal import ignore_missing_georeference
from tests.unit.geo.raster.sidecar_files import (
    write_external_mask,
    write_external_overviews,
    write_pam,
    write_world_file,
)
from tests.unit.geo.raster.tiff_writer import TiffOptions, write_tiff

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Pair = tuple[tuple[str, str], tuple[str, str]]

MANIFEST: Final = Path(__file__).with_name("manifest.csv")
BLOCK: Final = 64
"""The tile size of the COGs: small rasters then have overviews."""
DTYPES: Final = (
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"),
    *("complex_int16", "complex64", "complex128", "1 bit", "4 bits", "12 bits"),
)
CRSS: Final[Mapping[str, tuple[str, Affine]]] = {
    "utm": ("EPSG:32631", Affine(30, 0, 500_000, 0, -30, 5_000_000)),
    "degrees": ("EPSG:4326", Affine(0.01, 0, 10, 0, -0.02, 50)),
    "beyond 180": ("EPSG:4326", Affine(0.5, 0, 170, 0, -0.25, 60)),
    "compound": ("EPSG:32631+5773", Affine(30, 0, 500_000, 0, -30, 5_000_000)),
    "feet": ("EPSG:2263", Affine(10, 0, 980_000, 0, -10, 200_000)),
    "custom": ("+proj=laea +lat_0=52 +lon_0=7 +x_0=1000 +ellps=intl", Affine(30, 0, 0, 0, -30, 0)),
    "polar": ("EPSG:3031", Affine(1000, 0, -60_000, 0, -1000, 60_000)),
    "geostationary": (
        "+proj=geos +h=35785831 +lon_0=0 +sweep=y +ellps=WGS84",
        Affine(60_000, 0, -3_000_000, 0, -60_000, 3_000_000),
    ),
    "moon": ("IAU_2015:30110", Affine(100, 0, 100_000, 0, -100, 200_000)),
    "mars": ("IAU_2015:49900", Affine(0.01, 0, 10, 0, -0.01, 50)),
    "beside": ("EPSG:32725", Affine(30, 0, 300_000, 0, -30, 9_100_000)),
}
"""`beside`: the CRS is in a.tif.aux.xml and the geotransform in a world file."""
SHAPES: Final[Mapping[str, tuple[int, int]]] = {
    "one pixel": (1, 1),
    "tiny": (3, 5),
    "row": (1, 140),
    "column": (140, 1),
    "one block": (64, 64),
    "portrait": (600, 64),
    "landscape": (64, 600),
    "odd": (131, 97),
}
"""Rows and columns. A portrait raster has levels as wide as a block."""
FACTORS: Final[Mapping[str, Sequence[str]]] = {
    "dtype": DTYPES,
    "layout": ("pixel strips", "band strips", "pixel tiles", "band tiles", "one strip"),
    "bands": ("1", "2", "3", "4", "5"),
    "mask": ("none", "internal", "external", "alpha"),
    "nodata": ("none", "value", "nan", "outside", "beside"),
    "crs": tuple(CRSS),
    "overviews": ("none", "sorted", "unsorted", "external"),
    "shape": tuple(SHAPES),
    "color": ("plain", "rgb", "palette"),
    "metadata": ("none", "names", "tags"),
    "resampling": ("nearest", "average", "mode", "cubic"),
}
_LIKELY: Final[Mapping[tuple[str, str], Mapping[str, Sequence[str]]]] = {
    ("color", "palette"): {"dtype": ("uint8", "4 bits"), "bands": ("1",), "resampling": ("nearest", "mode")},
    ("color", "rgb"): {"dtype": ("uint8", "uint16", "12 bits"), "bands": ("3", "4", "5")},
    ("mask", "alpha"): {"dtype": ("uint8", "uint16"), "bands": ("2", "4")},
    ("nodata", "nan"): {"dtype": ("float32", "float64")},
    ("nodata", "outside"): {"dtype": ("uint8", "uint16", "int16")},
    **{
        ("dtype", dtype): {"resampling": ("nearest",), "nodata": ("none", "value"), "color": ("plain",)}
        for dtype in DTYPES
        if "complex" in dtype
    },
    **{("shape", shape): {"overviews": ("none",)} for shape, sides in SHAPES.items() if min(sides) == 1},
}
XMP: Final = '<x:xmpmeta xmlns:x="adobe:ns:meta/">\n<rdf>kept as it is: é &amp; "q"</rdf></x:xmpmeta>'
_BITS: Final = {"1 bit": 1, "4 bits": 4, "12 bits": 12}
_COLUMN_LIMIT: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RasterCase:
    """One raster, and how the overviews of its COG are resampled."""

    dtype: str = "uint8"
    layout: str = "pixel strips"
    bands: str = "1"
    mask: str = "none"
    nodata: str = "none"
    crs: str = "utm"
    overviews: str = "none"
    shape: str = "odd"
    color: str = "plain"
    metadata: str = "none"
    resampling: str = "nearest"

    def __str__(self) -> str:
        return ", ".join(asdict(self).values())

    @property
    def numpy_type(self) -> str:
        """Return the type of its pixels in numpy."""
        if self.dtype in _BITS:
            return "uint16" if self.dtype == "12 bits" else "uint8"
        return "complex64" if self.dtype == "complex_int16" else self.dtype


def is_possible(case: RasterCase) -> bool:
    """Return whether TIFF has such a raster."""
    is_complex, is_float = "complex" in case.dtype, case.dtype.startswith("float")
    rules = (
        case.mask != "alpha" or (case.bands in ("2", "4") and case.numpy_type in ("uint8", "uint16")),
        case.mask != "alpha" or case.dtype not in _BITS,
        case.nodata != "nan" or is_float,
        case.nodata not in ("outside", "beside") or not is_complex,
        case.nodata != "outside" or case.dtype in ("uint8", "uint16", "int16"),
        case.color != "palette" or (case.dtype in ("uint8", "4 bits") and case.bands == "1"),
        case.color != "rgb"
        or (case.bands in ("3", "4", "5") and case.dtype in ("uint8", "uint16", "12 bits")),
        # GDAL has one way to average complex numbers, and none for their masks.
        not is_complex or case.resampling == "nearest",
        case.overviews == "none" or min(SHAPES[case.shape]) > _COLUMN_LIMIT,
        case.color != "palette" or case.resampling in ("nearest", "mode"),
    )
    return all(rules)


def read_manifest() -> list[RasterCase]:
    """Return the cases of `manifest.csv`."""
    with MANIFEST.open(newline="", encoding="utf-8") as file:
        return [RasterCase(**row) for row in csv.DictReader(file)]


def uncovered_pairs(cases: Sequence[RasterCase]) -> list[Pair]:
    """Return the possible pairs of values that no case has."""
    covered = set(itertools.chain.from_iterable(map(_pairs_of, cases)))
    pairs = {
        ((one, first), (other, second))
        for one, other in itertools.combinations(FACTORS, 2)
        for first in FACTORS[one]
        for second in FACTORS[other]
    }
    chance = random.Random(1)
    return [pair for pair in sorted(pairs - covered) if _complete(dict(pair), chance, 300) is not None]


def covering_cases(seed: int = 1) -> list[RasterCase]:
    """Return cases in which every possible pair of values of two properties occurs."""
    chance = random.Random(seed)
    missing = set(uncovered_pairs([]))
    cases: list[RasterCase] = []
    while missing:
        start = dict(min(missing))
        candidates = [case for _ in range(50) if (case := _complete(start, chance, 300)) is not None]
        best = max(candidates, key=lambda case: len(_pairs_of(case) & missing))
        missing -= _pairs_of(best)
        cases.append(best)
    return cases


def random_cases(chance: random.Random) -> Iterator[RasterCase]:
    """Yield cases of the whole product without an end."""
    while True:
        case = _complete({}, chance, 1_000)
        if case is not None:
            yield case


def _complete(start: Mapping[str, str], chance: random.Random, tries: int) -> RasterCase | None:
    allowed = dict(FACTORS)
    for value in start.items():
        # Only to find a case sooner: `is_possible` decides.
        allowed |= {
            name: [one for one in allowed[name] if one in only]
            for name, only in _LIKELY.get(value, {}).items()
        }
    if not all(allowed.values()):
        return None
    for _ in range(tries):
        case = RasterCase(
            **{name: start.get(name) or chance.choice(values) for name, values in allowed.items()}
        )
        if is_possible(case):
            return case
    return None


def _pairs_of(case: RasterCase) -> set[Pair]:
    return set(itertools.combinations(asdict(case).items(), 2))


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def make_raster(case: RasterCase, path: Path) -> Path:
    """Write a case with GDAL, and the files next to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = make_pixels(case)
    crs, transform = CRSS[case.crs]
    is_beside = case.crs == "beside"
    profile: dict[str, Any] = {
        "driver": "GTiff",
        "count": len(pixels),
        "height": pixels.shape[1],
        "width": pixels.shape[2],
        "dtype": "complex_int16" if case.dtype == "complex_int16" else case.numpy_type,
        "crs": None if is_beside else crs,
        "transform": None if is_beside else transform,
        "nodata": _nodata(case) if case.nodata in ("value", "nan") else None,
        **_layout(case),
        **_color(case),
    }
    with (
        ignore_missing_georeference(),
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK="YES", GDAL_PAM_ENABLED="NO"),
        rasterio.open(path, "w", **profile) as raster,
    ):
        raster.write(pixels)
        if case.color == "palette":
            size = 16 if case.dtype == "4 bits" else 256
            raster.write_colormap(1, {value: (value, 255 - value, 7, 255) for value in range(size)})
        if case.mask == "internal":
            raster.write_mask(make_mask(pixels))
        _write_metadata(raster, case)
    if case.mask == "external":
        write_external_mask(path, make_mask(pixels))
    _write_sidecars(case, path)
    _write_overviews(case, path)
    return path


def make_pixels(case: RasterCase) -> Any:
    """Return pixels that are random, with areas that are equal, and some nodata."""
    chance = np.random.default_rng(1)
    height, width = SHAPES[case.shape]
    shape = (int(case.bands), height, width)
    limit = 2 ** _BITS[case.dtype] if case.dtype in _BITS else 100
    pixels = chance.integers(0, limit, shape).astype(case.numpy_type)
    if "complex" in case.dtype:
        pixels = pixels + 1j * chance.integers(0, 100, shape)
    pixels = pixels.astype(case.numpy_type)
    if case.dtype in ("uint64", "int64"):
        # Beyond what a double represents.
        pixels[:, 0, 0] = 2**60 + 1
    nodata = _nodata(case)
    if nodata is not None and case.nodata != "outside":
        pixels[:, : height // 3, : width // 2] = nodata
    if case.mask == "alpha":
        pixels[-1] = np.where(make_mask(pixels) > 0, np.iinfo(case.numpy_type).max, 0)
    return pixels


def make_mask(pixels: Any) -> Any:
    """Return a mask that hides a corner."""
    mask = np.full(pixels.shape[1:], 255, "uint8")
    mask[pixels.shape[1] // 2 :, : max(1, pixels.shape[2] // 4)] = 0
    return mask


def without_overviews(case: RasterCase) -> RasterCase:
    """Return the case as GDAL's COG driver makes its overviews from pixels."""
    return replace(case, overviews="none")


def _nodata(case: RasterCase) -> float | None:
    values = {"none": None, "value": 1, "nan": np.nan, "outside": -99_999, "beside": 1}
    return values[case.nodata]


def _layout(case: RasterCase) -> dict[str, Any]:
    tiles = {"tiled": True, "blockxsize": 16, "blockysize": 32, "compress": "lzw"}
    options: dict[str, dict[str, Any]] = {
        "pixel strips": {"interleave": "pixel", "compress": "deflate"},
        "band strips": {"interleave": "band", "compress": "packbits"},
        "pixel tiles": {"interleave": "pixel", **tiles},
        "band tiles": {"interleave": "band", **tiles},
        "one strip": {"blockysize": SHAPES[case.shape][0]},
    }
    return {**options[case.layout], **({"nbits": _BITS[case.dtype]} if case.dtype in _BITS else {})}


def _color(case: RasterCase) -> dict[str, Any]:
    options: dict[str, Any] = {} if case.color == "palette" else {"photometric": "minisblack"}
    if case.color == "rgb":
        options = {"photometric": "rgb"}
    if case.mask == "alpha":
        options["alpha"] = "unspecified" if case.color == "palette" else "yes"
    return options


def _write_metadata(raster: Any, case: RasterCase) -> None:
    count = int(case.bands)
    if case.metadata == "names":
        raster.descriptions = [f"band {number}" for number in range(1, count + 1)]
        raster.units = ["m"] * count
        raster.scales, raster.offsets = [0.1] * count, [-5.0] * count
    if case.metadata == "tags":
        raster.update_tags(
            SENSOR="ETM+", NOTE="a\nb <&>", TIFFTAG_SOFTWARE="a program", AREA_OR_POINT="Point"
        )
        raster.update_tags(1, WAVELENGTH="560", STATISTICS_MEAN="5")
        raster.update_tags(1, ns="IMAGERY", CENTRAL_WAVELENGTH_UM="0.56")
        raster.update_tags(ns="xml:XMP", **{"xml:XMP": XMP})


def _write_sidecars(case: RasterCase, path: Path) -> None:
    xml = ""
    if case.crs == "beside":
        crs, transform = CRSS[case.crs]
        write_world_file(path.with_suffix(".tfw"), transform)
        xml += f"<SRS>{crs}</SRS>"
    if case.nodata in ("outside", "beside"):
        value = _nodata(case)
        xml += "".join(
            f"<PAMRasterBand band='{band}'><NoDataValue>{value}</NoDataValue></PAMRasterBand>"
            for band in range(1, int(case.bands) + 1)
        )
    if xml:
        write_pam(path.with_name(f"{path.name}.aux.xml"), xml)


def _write_overviews(case: RasterCase, path: Path) -> None:
    """Write overviews by another method than the one that is asked for."""
    if case.overviews == "external":
        write_external_overviews(path, [2, 4])
    elif case.overviews != "none":
        for factor in (2, 4) if case.overviews == "sorted" else (4, 2):
            with (
                ignore_missing_georeference(),
                rasterio.Env(GDAL_PAM_ENABLED="NO"),
                rasterio.open(path, "r+") as raster,
            ):
                raster.build_overviews(
                    [factor], Resampling.gauss if "complex" not in case.dtype else Resampling.nearest
                )


# ── files of other writers ──────────────────────────────────────────────────────────────────────────────────────────


RGB: Final = 2
PALETTE: Final = 3
_RAMP: Final = [value * 257 for _ in range(3) for value in range(256)]
ODD_TIFFS: Final[Mapping[str, tuple[str, int, TiffOptions]]] = {
    **{
        f"{dtype}, {'big' if big else 'classic'}, {order}": (dtype, 1, TiffOptions(byte_order=order, big=big))
        for dtype in ("uint8", "int8", "uint16", "int32", "uint64", "float32", "float64", "complex64")
        for big in (False, True)
        for order in "<>"
    },
    **{
        f"{'tiles' if tile else 'strips'} {'by band' if by_band else 'by pixel'}{' compressed' if compress else ''}": (
            "uint16",
            3,
            TiffOptions(tile=tile, by_band=by_band, compress=compress, nodata="5"),
        )
        for tile in (None, 32)
        for by_band in (False, True)
        for compress in (False, True)
    },
    "overviews in SubIFDs": ("uint8", 1, TiffOptions(overviews=(2, 4), sub_ifds=True)),
    "overviews in SubIFDs, unsorted": (
        "uint8",
        3,
        TiffOptions(overviews=(4, 2), sub_ifds=True, by_band=True),
    ),
    "overviews from small to large": ("uint8", 1, TiffOptions(overviews=(8, 4, 2))),
    "overviews of one pixel": ("uint8", 1, TiffOptions(overviews=(128,))),
    "one huge strip": ("uint8", 1, TiffOptions(rows_per_strip=1 << 30)),
    "strips of one row": ("uint8", 2, TiffOptions(rows_per_strip=1)),
    "minimum is white": ("uint8", 1, TiffOptions(photometric=0)),
    "palette": ("uint8", 1, TiffOptions(photometric=PALETTE, color_map=_RAMP)),
    "palette without a table": ("uint8", 1, TiffOptions(photometric=PALETTE)),
    "palette of 16 bits without a table": ("uint16", 1, TiffOptions(photometric=PALETTE)),
    "RGB and alpha": ("uint8", 4, TiffOptions(photometric=RGB, extra_samples=(2,))),
    "RGB and premultiplied alpha": ("uint8", 4, TiffOptions(photometric=RGB, extra_samples=(1,))),
    "RGB, alpha and more": ("uint8", 5, TiffOptions(photometric=RGB, extra_samples=(2, 0))),
    "RGB, more and alpha": ("uint8", 5, TiffOptions(photometric=RGB, extra_samples=(0, 2))),
    "two alphas": ("uint8", 5, TiffOptions(photometric=RGB, extra_samples=(2, 2))),
    "grey and two alphas": ("uint16", 3, TiffOptions(extra_samples=(1, 2))),
    "alpha before the data": ("uint8", 3, TiffOptions(extra_samples=(2, 0))),
    "extra samples that are not declared": ("uint8", 5, TiffOptions(photometric=RGB)),
    "too few extra samples": ("uint8", 4, TiffOptions(extra_samples=(2,))),
    "grey and alpha of floats": ("float32", 2, TiffOptions(extra_samples=(2,))),
    "nodata with spaces": ("int16", 1, TiffOptions(nodata="-9999 ")),
    "nodata that is no number": ("int16", 1, TiffOptions(nodata="none")),
    "nodata of nan in whole numbers": ("int16", 1, TiffOptions(nodata="nan")),
    "nodata out of range": ("uint8", 1, TiffOptions(nodata="-9999")),
    "nodata of a float with many digits": ("float32", 1, TiffOptions(nodata="-3.4028234663852886e+38")),
}
"""Data type, number of bands and options of TIFFs that GDAL did not write."""


def make_odd_tiff(name: str, path: Path, *, with_overviews: bool = True) -> Path:
    """Write one of `ODD_TIFFS`."""
    dtype, bands, options = ODD_TIFFS[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(len(name)).integers(0, 100, (bands, 90, 130)).astype(dtype)
    write_tiff(path, pixels, options if with_overviews else replace(options, overviews=(), sub_ifds=False))
    return path


PICTURES: Final[Mapping[str, tuple[str, str, dict[str, Any]]]] = {
    **{f"PNG {mode}": (".png", mode, {}) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")},
    "PNG P with a transparent color": (".png", "P", {"transparency": 3}),
    "PNG RGB with a transparent color": (".png", "RGB", {"transparency": (1, 2, 3)}),
    "JPEG L": (".jpg", "L", {"quality": 90}),
    "JPEG RGB": (".jpg", "RGB", {"quality": 90}),
    **{
        f"TIFF {mode} {compression}": (".tif", mode, {"compression": compression})
        for mode, compressions in {
            "1": ("group4", "packbits"),
            "L": ("tiff_lzw", "tiff_adobe_deflate"),
            "P": ("tiff_lzw",),
            "RGB": ("raw", "tiff_deflate", "jpeg"),
            "RGBA": ("tiff_lzw",),
            "LA": ("tiff_lzw",),
            "I;16": ("tiff_adobe_deflate",),
            "I": ("tiff_lzw",),
            "F": ("tiff_adobe_deflate",),
            "CMYK": ("tiff_lzw",),
        }.items()
        for compression in compressions
    },
}
"""Suffix, mode and options of pictures that Pillow writes. Their place is in a world file and a.….aux.xml."""


def make_picture(name: str, folder: Path) -> Path:
    """Write one of `PICTURES`."""
    suffix, mode, options = PICTURES[name]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"a{suffix}"
    channels = np.random.default_rng(1).integers(0, 200, (90, 130, 4)).astype("uint8")
    picture = Image.fromarray(channels, "RGBA")
    if mode in ("I;16", "I", "F"):
        picture = Image.fromarray(
            channels[..., 0].astype({"I;16": "uint16", "I": "int32", "F": "float32"}[mode]) * 3
        )
    elif mode == "P":
        picture = picture.convert("RGB").convert("P", palette=Image.Palette.ADAPTIVE)
    else:
        picture = picture.convert("RGB").convert(mode) if mode in ("1", "CMYK") else picture.convert(mode)
    picture.save(path, **options)
    crs, transform = CRSS["utm"]
    write_world_file(path.with_suffix(f".{suffix[1]}{suffix[-1]}w"), transform)
    write_pam(path.with_name(f"{path.name}.aux.xml"), f"<SRS>{crs}</SRS>")
    return path


if __name__ == "__main__":
    writer = csv.DictWriter(sys.stdout, list(FACTORS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(case) for case in covering_cases())
