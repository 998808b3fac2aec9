"""Where the points of a CRS lie on the Earth, and whether they do.

Projections end: the corners of a full disk seen from a geostationary satellite show space, and the corners
of a world map in an ellipse are outside of it. PROJ answers with infinity there, or with the position of
another point.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyproj
from pyproj.exceptions import ProjError
from rasterio.crs import CRS

from dagmaster.errors import invalid_input

WGS84: Final = CRS.from_string("OGC:CRS84")
_EARTH_RADIUS_METRES: Final = 6_371_008.8
_EARTH_METRES: Final = (6_340_000.0, 6_420_000.0)
"""The range of semi-major axes of terrestrial ellipsoids and spheres."""
_BODY_METRES: Final = {
    "Mercury": 2_440_530.0,
    "Venus": 6_051_800.0,
    "Moon": 1_737_400.0,
    "Mars": 3_396_190.0,
    "Ceres": 470_000.0,
    "Io": 1_829_400.0,
    "Europa": 1_562_600.0,
    "Ganymede": 2_631_200.0,
    "Callisto": 2_410_300.0,
    "Titan": 2_575_150.0,
    "Enceladus": 256_600.0,
    "Pluto": 1_188_300.0,
}
"""Equatorial radii of the IAU report of 2015."""
_RADIUS_TOLERANCE: Final = 0.005
_ROUND_TRIP_METRES: Final = 1_000.0
"""A point that comes back farther away than this is outside of the projection: PROJ answered for another
point."""
_PERIODIC: Final = ("longlat", "merc", "webmerc", "eqc", "cea", "mill")
"""Projections that continue beyond 180 degrees: a point there is valid, and comes back one period away."""
_VERTICAL_CRS: Final = re.compile(r'VERTCRS\["([^"]*)"')
_GEOGRAPHIC_3D: Final = "CS[ellipsoidal,3]"

Positions = tuple[Any, Any, Any]
"""Arrays of longitude, latitude, and whether the position is valid."""


@dataclass(frozen=True, slots=True)
class EarthTransform:
    """Transforms points of a CRS to longitude and latitude, and back."""

    transformer: pyproj.Transformer
    tolerance: float
    """How far from itself a point may come back, in units of the CRS."""

    def locate(self, xs: Any, ys: Any) -> Positions:
        """Return longitudes, latitudes and which of them are valid."""
        longitudes, latitudes = self.transformer.transform(xs, ys)
        is_valid = np.isfinite(longitudes) & np.isfinite(latitudes)
        if np.isfinite(self.tolerance) and is_valid.any():
            back_xs, back_ys = self.invert(
                np.where(is_valid, longitudes, 0), np.where(is_valid, latitudes, 0)
            )
            is_valid &= np.hypot(back_xs - xs, back_ys - ys) <= self.tolerance
        return longitudes, latitudes, is_valid

    def invert(self, longitudes: Any, latitudes: Any) -> tuple[Any, Any]:
        """Return the points of the CRS at these positions; infinity where no such point exists."""
        xs, ys = self.transformer.transform(longitudes, latitudes, direction="INVERSE")
        return xs, ys


def earth_transform(crs: CRS) -> EarthTransform:
    """Return the transformation of a CRS to longitude and latitude; `invalid_input` if it has none."""
    try:
        return _cached_transform(crs.to_wkt(version="WKT2_2019"))
    except ProjError as error:
        raise unlocatable(crs) from error


def is_on_earth(crs: CRS) -> bool:
    """Return False for a CRS of another celestial body."""
    metres = _semi_major_metres(crs)
    return metres is None or _EARTH_METRES[0] <= metres <= _EARTH_METRES[1]


def celestial_body(crs: CRS) -> str | None:
    """Return the name of the body that a CRS describes, by its radius; None if it is not known."""
    metres = _semi_major_metres(crs)
    if metres is None or is_on_earth(crs):
        return None
    bodies = (name for name, radius in _BODY_METRES.items() if abs(metres / radius - 1) <= _RADIUS_TOLERANCE)
    return next(bodies, None)


def mean_radius_metres(crs: CRS) -> float:
    """Return the mean radius of the body that a CRS describes; that of the Earth if it states none."""
    ellipsoid = _cached_ellipsoid(crs.to_wkt(version="WKT2_2019"))
    if ellipsoid is None:
        return _EARTH_RADIUS_METRES
    return float(2 * ellipsoid.semi_major_metre + ellipsoid.semi_minor_metre) / 3


def unlocatable(crs: CRS) -> Exception:
    """Build the error for a CRS without a relation to the Earth, such as a local engineering CRS."""
    return invalid_input(
        f"the CRS {crs_name(crs)} cannot be transformed to longitude and latitude, so the place of the"
        " raster is unknown. Expected a CRS with an EPSG code or a full WKT; set it with gdal_edit.py -a_srs"
        " EPSG:… first"
    )


def crs_name(crs: CRS) -> str:
    """Return `EPSG:32625` if the CRS has a code, else the name in its WKT."""
    code = crs_code(crs)
    if code is not None:
        return code
    text = crs.to_wkt()
    return repr(text[text.find('"') + 1 :].partition('"')[0] or text[:60])


def height_reference(crs: CRS | None) -> str | None:
    """Return above what the heights of a CRS with three dimensions are, such as `NAP height`."""
    text = "" if crs is None else crs.to_wkt(version="WKT2_2019")
    vertical = _VERTICAL_CRS.search(text)
    if vertical is not None:
        return vertical[1]
    return "ellipsoidal height" if _GEOGRAPHIC_3D in text else None


# PROJ searches its database for a CRS without a code: 60 ms, several times a raster (2026-11).
@lru_cache(maxsize=64)
def crs_code(crs: CRS) -> str | None:
    """Return the code of a CRS, such as `EPSG:32625` or `IAU_2015:30110`, if it has one."""
    code = crs.to_epsg()
    if code is not None:
        return f"EPSG:{code}"
    authority = crs.to_authority()
    return None if authority is None else ":".join(authority)


def storable_crs(crs: CRS) -> CRS:
    """Return a CRS that GeoTIFF can store: a projected one without its height, which no pixel has."""
    own = pyproj.CRS.from_wkt(crs.to_wkt(version="WKT2_2019"))
    is_solid = own.is_projected and not own.is_compound and len(own.axis_info) > 2  # noqa: PLR2004 - a plane
    return CRS.from_wkt(own.to_2d().to_wkt()) if is_solid else crs


@lru_cache(maxsize=64)
def _cached_transform(wkt: str) -> EarthTransform:
    crs = pyproj.CRS.from_wkt(wkt)
    transformer = pyproj.Transformer.from_crs(crs, "OGC:CRS84", always_xy=True)
    is_periodic = crs.is_geographic or CRS.from_wkt(wkt).to_dict().get("proj") in _PERIODIC
    metres_per_unit = crs.axis_info[0].unit_conversion_factor if crs.axis_info else 1.0
    return EarthTransform(
        transformer, np.inf if is_periodic else _ROUND_TRIP_METRES / (metres_per_unit or 1.0)
    )


def _semi_major_metres(crs: CRS) -> float | None:
    ellipsoid = _cached_ellipsoid(crs.to_wkt(version="WKT2_2019"))
    return None if ellipsoid is None else float(ellipsoid.semi_major_metre)


@lru_cache(maxsize=64)
def _cached_ellipsoid(wkt: str) -> Any:
    return pyproj.CRS.from_wkt(wkt).ellipsoid
