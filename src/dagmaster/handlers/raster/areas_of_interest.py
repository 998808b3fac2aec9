"""Areas that a user names: a box, GeoJSON, or a vector file. What cuts a raster, and what it is measured in."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import shapely
from rasterio.crs import CRS
from rasterio.warp import transform
from shapely.affinity import translate
from shapely.errors import ShapelyError

from dagmaster.handlers.gdal import GDAL_ERRORS, crs_of, invalid
from dagmaster.handlers.optional_imports import extra
from dagmaster.handlers.raster.footprints import WGS84, crs_name, nowhere, unwrapped
from dagmaster.handlers.source_files import beside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dagmaster.handlers.vector.dataset_files import Fetched

_BOX: Final = 4
_TURN: Final = 360.0
_SIDES: Final = 100
"""Into how many pieces the extent of an area is cut: a side that is straight in degrees is a curve in metres."""
MAX_JSON: Final = 100_000_000
MAX_AREAS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A polygon or several, in `crs`."""

    name: str
    shape: Any
    crs: CRS = WGS84
    properties: dict[str, Any] = field(default_factory=dict)


def areas(
    told: Any, file: Callable[[str], Fetched], *, name_field: str | None = None, layer: str | None = None
) -> list[Area]:
    """The areas that are meant: a bbox or a list of them, GeoJSON of any kind, or the href of a vector file.

    `file` fetches an href; `layer` is the one that is read of it. `name_field` is the property that names an area;
    else its id or its number.
    """
    found = []
    for number, area in enumerate(_read(told, file, layer)):
        if number >= MAX_AREAS:
            raise invalid(f"more than {MAX_AREAS:,} areas are too many at once: cut them into parts")
        named = area.properties.get(name_field) if name_field else area.name
        if name_field and named is None:
            raise invalid(
                f"area {number} has no property {name_field!r}: it has {', '.join(area.properties) or 'none'}"
            )
        shape = _polygons(area.shape, number)
        found.append(Area(name=str(named or number), shape=shape, crs=area.crs, properties=area.properties))
    if not found:
        raise invalid("there is no area in what was given: expected a bbox, GeoJSON with polygons, or a vector file")
    return found


def placed(area: Area, crs: CRS, bounds: tuple[float, float, float, float]) -> Any:
    """The area in the coordinate system of a raster: also beyond 180 degrees, if the raster goes on there."""
    shape = area.shape
    left, bottom, right, top = shape.bounds
    if area.crs != crs:
        shape = shapely.segmentize(shape, max(right - left, top - bottom, 1e-9) / _SIDES)
        try:
            shape = shapely.transform(shape, lambda points: _transformed(points, area.crs, crs))
            shape = _unrolled(shape, area.name) if crs.is_geographic else shape
        except GDAL_ERRORS as error:
            if not (crs.is_geographic or crs.is_projected):
                raise nowhere(crs) from error
            raise invalid(
                f"the area {area.name} cannot be brought from {crs_name(area.crs)} to {crs_name(crs)}, the raster's"
                " coordinate system: expected an area in degrees that the raster's map can show"
            ) from error
        if not all(math.isfinite(one) for one in shape.bounds):
            raise invalid(f"the area {area.name} reaches beyond what the raster's coordinate system can hold")
        shape = shapely.make_valid(shape)
    if not crs.is_geographic:
        return shape
    there = shapely.box(*bounds)
    return shapely.union_all(
        [moved for turn in (-_TURN, 0, _TURN) if (moved := translate(shape, turn)).intersects(there)]
    )


def _read(told: Any, file: Callable[[str], Fetched], layer: str | None) -> Iterator[Area]:
    if isinstance(told, str):
        fetched = file(told)
        with beside(fetched.uri):
            yield from _read_geojson(fetched) if fetched.format == "GeoJSON" else _read_file(fetched, layer)
    elif isinstance(told, dict):
        yield from _geojson(told)
    elif isinstance(told, list | tuple):
        if len(told) == _BOX and all(isinstance(one, int | float) for one in told):
            yield Area(name="", shape=_box(*told))
        else:
            for one in told:
                yield from _read(one, file, layer)
    else:
        raise invalid(f"an area is a bbox, GeoJSON or the href of a vector file, not {type(told).__name__}")


def _geojson(told: dict[str, Any]) -> Iterator[Area]:
    kind, crs = told.get("type"), _named_crs(told)
    features = told.get("features") if kind == "FeatureCollection" else [told]
    if not isinstance(features, list):
        raise invalid("a FeatureCollection has a list of features")
    for one in features:
        is_feature = isinstance(one, dict) and one.get("type") == "Feature"
        properties = (one.get("properties") or {}) if is_feature else {}
        geometry = one.get("geometry") if is_feature else one
        try:
            shape = shapely.from_geojson(json.dumps(geometry))
        except (ShapelyError, ValueError, TypeError) as error:
            raise invalid(f"this is no GeoJSON geometry: {str(geometry)[:80]}. Expected a Polygon") from error
        known = next((one[key] for key in ("id",) if is_feature and one.get(key) is not None), None)
        known = properties.get("id", properties.get("name")) if known is None else known
        yield Area(name="" if known is None else str(known), shape=shape, crs=crs, properties=properties)


def _named_crs(told: dict[str, Any]) -> CRS:
    """GeoJSON is in degrees. Older files may name another system."""
    named = told.get("crs")
    text = (named.get("properties") or {}).get("name") if isinstance(named, dict) else None
    if not isinstance(text, str) or "CRS84" in text:
        return WGS84
    parts = [one for one in text.split(":") if one]
    return crs_of(f"{parts[-2]}:{parts[-1]}" if text.startswith("urn:") and len(parts) > 1 else text)


def _read_geojson(source: Fetched) -> Iterator[Area]:
    """Without GDAL: for one who has no other extra than this."""
    size = source.path.stat().st_size
    if size > MAX_JSON:
        raise invalid(f"{source.uri} has {size:,} bytes: at most {MAX_JSON:,} are read; use GeoPackage")
    try:
        told = json.loads(source.path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise invalid(f"{source.uri} is not JSON: {error}") from error
    yield from _geojson(told)


def _read_file(source: Fetched, layer: str | None) -> Iterator[Area]:
    with extra("vector"):
        from dagmaster.handlers.vector.models import VectorSource
        from dagmaster.handlers.vector.readers import opened
    with opened(source, VectorSource(href=str(source.uri), layer=layer)) as features:
        if features.crs is None:
            raise invalid(f"{source.uri} has no coordinate system: nobody can tell where its areas lie")
        crs = CRS.from_wkt(features.crs.to_wkt())
        for batch in features.batches:
            columns = [column.to_pylist() for column in batch.columns]
            for number, shape in enumerate(batch.shapes):
                if shape is not None:
                    row = {name: _plain(column[number]) for name, column in zip(features.names, columns, strict=True)}
                    yield Area(name="", shape=_flat(shape), crs=crs, properties=row)


def _flat(shape: bytes | str) -> Any:
    try:
        return shapely.force_2d(shapely.from_wkt(shape) if isinstance(shape, str) else shapely.from_wkb(shape))
    except ShapelyError as error:
        raise invalid(f"an area is no geometry that can be read: {error}") from error
    except NotImplementedError as error:
        raise invalid("an area has curves: straighten them first, with ogr2ogr -nlt CONVERT_TO_LINEAR") from error


def _polygons(shape: Any, number: int) -> Any:
    """The polygons of a geometry, mended where they cross themselves."""
    if shape is None or shape.is_empty:
        raise invalid(f"area {number} is empty: expected a Polygon or MultiPolygon")
    whole = shape if shape.is_valid else shapely.make_valid(shape)
    parts = [one for one in shapely.get_parts(shapely.get_parts(whole)) if one.geom_type == "Polygon" and one.area > 0]
    if not parts:
        raise invalid(f"area {number} is a {shape.geom_type} and has no extent: expected a Polygon or MultiPolygon")
    return parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts)


def _box(west: float, south: float, east: float, north: float) -> Any:
    if not (-90 <= south < north <= 90 and -_TURN <= west <= _TURN and -_TURN <= east <= _TURN and west != east):  # noqa: PLR2004 - degrees
        if max(map(abs, (west, south, east, north))) > _TURN:
            raise invalid(
                f"{[west, south, east, north]} is no bbox in degrees: these look like metres. Expected west, south,"
                " east, north in longitude and latitude, or GeoJSON with a crs"
            )
        raise invalid(
            f"{[west, south, east, north]} is no bbox: expected west, south, east, north in degrees, south below north"
        )
    return shapely.box(west, south, east + (_TURN if east < west else 0), north)


def _transformed(points: Any, source: CRS, target: CRS) -> Any:
    xs, ys = transform(source, target, points[:, 0], points[:, 1])
    return np.column_stack([xs, ys])


def _unrolled(shape: Any, name: str) -> Any:
    """The same polygons without a jump over the antimeridian: they may go beyond 180 degrees."""
    whole = []
    for polygon in shapely.get_parts(shape):
        rings = [unwrapped(list(ring.coords)) for ring in (polygon.exterior, *polygon.interiors)]
        if any(abs(ring[-1][0] - ring[0][0]) > 1 for ring in rings):
            raise invalid(f"the area {name} goes around a pole: give it in degrees, from -180 to 180")
        middle = _middle(rings[0])
        holes = [_moved(ring, _TURN * round((middle - _middle(ring)) / _TURN)) for ring in rings[1:]]
        whole.append(shapely.Polygon(rings[0], holes))
    return whole[0] if len(whole) == 1 else shapely.MultiPolygon(whole)


def _middle(ring: list[tuple[float, float]]) -> float:
    return (min(x for x, _ in ring) + max(x for x, _ in ring)) / 2


def _moved(ring: list[tuple[float, float]], by: float) -> list[tuple[float, float]]:
    return [(x + by, y) for x, y in ring]


def _plain(value: Any) -> Any:
    """A value of a column as JSON has it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
