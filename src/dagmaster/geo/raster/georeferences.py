"""How pixels relate to a CRS: by a geotransform, ground control points, or a sensor model (RPCs).

Only a geotransform makes a grid. The other two are warped to one, as `gdalwarp` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from affine import Affine
from rasterio.crs import CRS
from rasterio.warp import calculate_default_transform, transform

from dagmaster.errors import invalid_input
from dagmaster.geo.gdal import open_container
from dagmaster.geo.raster.earth_positions import crs_name

if TYPE_CHECKING:
    from rasterio.control import GroundControlPoint
    from rasterio.io import DatasetReader
    from rasterio.rpc import RPC

GeoreferenceKind = Literal["grid", "gcps", "rpcs"]
GeoreferenceChoice = Literal["auto", "grid", "gcps", "rpcs"]

_RPC_CRS: Final = CRS.from_epsg(4326)
"""RPCs give image positions for longitude, latitude and height above this ellipsoid."""
_SAMPLES: Final = 21
"""Along each side of a raster."""
_KIND_NAMES: Final = {"grid": "geotransform and CRS", "gcps": "ground control points", "rpcs": "RPCs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Georeference:
    """What is needed to find the place of a pixel: `affine`, `gcps` or `rpcs`, and their CRS."""

    kind: GeoreferenceKind
    crs: CRS
    affine: Affine | None = None
    gcps: Sequence[GroundControlPoint] = ()
    rpcs: RPC | None = None
    dem: str | None = None
    """The heights of the ground, for RPCs: a raster."""
    ground_height: float = 0.0
    """Metres above the ellipsoid, for RPCs without a DEM."""

    @property
    def name(self) -> str:
        return _KIND_NAMES[self.kind]

    def suggest_grid(
        self, crs: CRS, width: int, height: int, resolution: float | None
    ) -> tuple[Affine, int, int]:
        """Return the grid that GDAL suggests for the raster in a CRS: about as many pixels as it has."""
        if self.kind == "gcps":
            return _suggest(self.crs, crs, width, height, resolution=resolution, gcps=list(self.gcps))
        heights = {"RPC_HEIGHT": self.ground_height} if self.dem is None else {"RPC_DEM": self.dem}
        return _suggest(self.crs, crs, width, height, resolution=resolution, rpcs=self.rpcs, **heights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """By which of its georeferences a raster is placed, and the heights of the ground for RPCs."""

    choice: GeoreferenceChoice = "auto"
    dem: str | None = None
    """The path of a raster of heights."""
    ground_height: float = 0.0


def find_georeference(raster: DatasetReader, placement: Placement | None = None) -> Georeference:
    """Return the chosen georeference of a raster, or the first of geotransform, control points and RPCs.

    A DEM asks for RPCs. A raster without a georeference is `invalid_input`.
    """
    placement = placement or Placement()
    choice = placement.choice
    known = list(_georeferences(raster, placement.dem, placement.ground_height))
    kind = "rpcs" if choice == "auto" and placement.dem is not None else choice
    if kind == "auto":
        return known[0] if known else _reject_unlocated(raster)
    chosen = next((georeference for georeference in known if georeference.kind == kind), None)
    if chosen is None:
        present = " and ".join(georeference.name for georeference in known) or "no georeference"
        asked_by = "dem" if choice == "auto" else f"georeference={choice}"
        raise invalid_input(
            f"the raster has no {_KIND_NAMES[kind]}, which {asked_by} asks for: it has {present}"
        )
    return chosen


def require_georeferenced(raster: DatasetReader) -> None:
    """Reject a raster whose pixels are not a grid in a CRS, or that has no bands."""
    georeference = find_georeference(raster)
    if georeference.kind == "gcps":
        points = f"{len(georeference.gcps)} ground control points ({crs_name(georeference.crs)})"
        raise invalid_input(f"the raster is georeferenced by {points}, not by a grid: {_WARP_ADVICE}")
    if georeference.kind == "rpcs":
        raise invalid_input(f"the raster is georeferenced by RPCs, not by a grid: {_WARP_ADVICE}")
    if raster.count == 0:
        raise invalid_input("the raster has no bands, so it contains no pixels: name another file")


_WARP_ADVICE: Final = "warp it first, with raster.reproject or with target_crs of raster.create_cog"


def _georeferences(raster: DatasetReader, dem: str | None, ground_height: float) -> Iterator[Georeference]:
    if raster.crs is not None and raster.transform != Affine.identity() and raster.transform.determinant != 0:
        yield Georeference(kind="grid", crs=raster.crs, affine=raster.transform)
    points, crs = raster.gcps
    if points and crs is not None:
        yield Georeference(kind="gcps", crs=crs, gcps=points)
    rpcs = read_rpcs(raster)
    if rpcs is not None:
        yield Georeference(kind="rpcs", crs=_RPC_CRS, rpcs=rpcs, dem=dem, ground_height=ground_height)


def read_rpcs(raster: DatasetReader) -> RPC | None:
    try:
        return raster.rpcs
    except (KeyError, ValueError, TypeError):
        # Some coefficients are missing or are not numbers.
        return None


def require_heights(dem: str, bounds: tuple[float, float, float, float]) -> None:
    """Reject a DEM without a height in these bounds, in degrees: all pixels would be nodata."""
    left, bottom, right, top = bounds
    longitudes, latitudes = np.meshgrid(
        np.linspace(left, right, _SAMPLES), np.linspace(bottom, top, _SAMPLES)
    )
    with open_container(dem) as heights:
        xs, ys = transform(_RPC_CRS, heights.crs, longitudes.ravel(), latitudes.ravel())
        points = [point for point in zip(xs, ys, strict=True) if np.isfinite(point).all()]
        is_empty = all(
            np.ma.getmaskarray(sample).all() for sample in heights.sample(points, indexes=1, masked=True)
        )
    if is_empty:
        raise invalid_input(
            f"the dem has no height where the raster lies (longitudes {left:.4f} to {right:.4f}, latitudes"
            f" {bottom:.4f} to {top:.4f}): name one that covers it with some margin"
        )


def _reject_unlocated(raster: DatasetReader) -> Georeference:
    points, _ = raster.gcps
    if raster.crs is None and points:
        raise invalid_input(
            f"the raster has {len(points)} ground control points, but they have no CRS, so its place is"
            " unknown. Set it with gdal_edit.py -a_srs EPSG:… first"
        )
    if raster.crs is None:
        raise invalid_input(
            "the raster has no CRS, so its place is unknown: put a .prj file with its WKT next to it, or set"
            " it with gdal_edit.py -a_srs EPSG:…"
        )
    if raster.transform == Affine.identity():
        raise invalid_input(
            f"the raster has a CRS ({crs_name(raster.crs)}) but no geotransform, so the place of its pixels"
            " is unknown. Set it with gdal_edit.py -a_ullr … first"
        )
    raise invalid_input(
        "the geotransform of the raster gives its pixels no area: set it with gdal_edit.py -a_ullr … first"
    )


def _suggest(source: CRS, target: CRS, width: int, height: int, **options: Any) -> tuple[Affine, int, int]:
    affine, columns, rows = calculate_default_transform(source, target, width, height, **options)
    return affine, int(columns or 0), int(rows or 0)
