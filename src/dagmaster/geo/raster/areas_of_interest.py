"""Areas that a user names by bbox, GeoJSON or vector file: to clip a raster, or as zones of statistics."""

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

from dagmaster.errors import invalid_input
from dagmaster.geo.gdal import GDAL_ERRORS, parse_crs
from dagmaster.geo.optional_imports import require_extra
from dagmaster.geo.raster.earth_positions import WGS84, crs_name, unlocatable
from dagmaster.geo.raster.footprints import unwrap_longitudes
from dagmaster.geo.source_files import name_in_errors
from dagmaster.geo.vector.curves import linearize_unsupported
from dagmaster.text_format import library_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dagmaster.geo.vector.dataset_files import Fetched

_BBOX_LENGTH: Final = 4
_FULL_CIRCLE: Final = 360.0
_SEGMENTS: Final = 100
"""Into how many segments the extent of an area is cut: a side that is straight in degrees is a curve in
metres."""
MAX_GEOJSON_BYTES: Final = 100_000_000
MAX_AREAS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A polygon or multipolygon in `crs`."""

    name: str
    geometry: Any
    crs: CRS = WGS84
    properties: dict[str, Any] = field(default_factory=dict)


def read_areas(
    value: Any, fetch: Callable[[str], Fetched], *, name_field: str | None = None, layer: str | None = None
) -> list[Area]:
    """Read areas from a bbox or a list of them, any GeoJSON, or the href of a vector file.

    `fetch` fetches an href; `layer` is the one to read from it. `name_field` is the property that names an
    area; by default its id or its index.
    """
    areas = []
    for index, area in enumerate(_read(value, fetch, layer)):
        if index >= MAX_AREAS:
            raise invalid_input(f"there are more than {MAX_AREAS:,} areas: split them")
        name = area.properties.get(name_field) if name_field else area.name
        if name_field and name is None:
            raise invalid_input(
                f"area {index} has no property {name_field!r}: it has {', '.join(area.properties) or 'none'}"
            )
        geometry = _extract_polygons(area.geometry, index)
        areas.append(
            Area(name=str(name or index), geometry=geometry, crs=area.crs, properties=area.properties)
        )
    if not areas:
        raise invalid_input(
            "there is no area in the input: expected a bbox, GeoJSON with polygons, or a vector file"
        )
    return areas


def project_area(area: Area, crs: CRS, bounds: tuple[float, float, float, float]) -> Any:
    """Return the geometry in the CRS of a raster; also beyond 180 degrees if the raster continues there."""
    geometry = area.geometry
    left, bottom, right, top = geometry.bounds
    if area.crs != crs:
        geometry = shapely.segmentize(geometry, max(right - left, top - bottom, 1e-9) / _SEGMENTS)
        try:
            geometry = shapely.transform(geometry, lambda points: _transform_points(points, area.crs, crs))
            geometry = _unwrap_polygons(geometry, area.name) if crs.is_geographic else geometry
        except GDAL_ERRORS as error:
            if not (crs.is_geographic or crs.is_projected):
                raise unlocatable(crs) from error
            raise invalid_input(
                f"the area {area.name} cannot be transformed from {crs_name(area.crs)} to {crs_name(crs)},"
                " the CRS of the raster: expected an area in degrees that this CRS covers"
            ) from error
        if not all(math.isfinite(side) for side in geometry.bounds):
            raise invalid_input(
                f"the area {area.name} reaches beyond what {crs_name(crs)}, the CRS of the raster, covers:"
                " use a smaller area"
            )
        geometry = shapely.make_valid(geometry)
    if not crs.is_geographic:
        return geometry
    extent = shapely.box(*bounds)
    return shapely.union_all(
        [
            shifted
            for shift in (-_FULL_CIRCLE, 0, _FULL_CIRCLE)
            if (shifted := translate(geometry, shift)).intersects(extent)
        ]
    )


def _read(value: Any, fetch: Callable[[str], Fetched], layer: str | None) -> Iterator[Area]:
    if isinstance(value, str):
        file = fetch(value)
        with name_in_errors(file.uri):
            yield from (
                _read_geojson_file(file) if file.format == "GeoJSON" else _read_vector_file(file, layer)
            )
    elif isinstance(value, dict):
        yield from _read_geojson(value)
    elif isinstance(value, list | tuple):
        if len(value) == _BBOX_LENGTH and all(isinstance(side, int | float) for side in value):
            yield Area(name="", geometry=_bbox_polygon(*value))
        else:
            for element in value:
                yield from _read(element, fetch, layer)
    else:
        raise invalid_input(
            f"an area is a bbox, GeoJSON or the href of a vector file, not {type(value).__name__}"
        )


def _read_geojson(document: dict[str, Any]) -> Iterator[Area]:
    crs = _geojson_crs(document)
    features = document.get("features") if document.get("type") == "FeatureCollection" else [document]
    if not isinstance(features, list):
        raise invalid_input("the FeatureCollection has no list of features: correct it")
    for feature in features:
        is_feature = isinstance(feature, dict) and feature.get("type") == "Feature"
        properties = (feature.get("properties") or {}) if is_feature else {}
        geojson = feature.get("geometry") if is_feature else feature
        try:
            geometry = shapely.from_geojson(json.dumps(geojson))
        except (ShapelyError, ValueError, TypeError) as error:
            raise invalid_input(f"not a GeoJSON geometry: {str(geojson)[:80]}. Expected a Polygon") from error
        name = feature.get("id") if is_feature else None
        name = properties.get("id", properties.get("name")) if name is None else name
        yield Area(name="" if name is None else str(name), geometry=geometry, crs=crs, properties=properties)


def _geojson_crs(document: dict[str, Any]) -> CRS:
    """Return the CRS of GeoJSON: degrees, unless an older file names another one."""
    named = document.get("crs")
    text = (named.get("properties") or {}).get("name") if isinstance(named, dict) else None
    if not isinstance(text, str) or "CRS84" in text:
        return WGS84
    parts = [part for part in text.split(":") if part]
    return parse_crs(f"{parts[-2]}:{parts[-1]}" if text.startswith("urn:") and len(parts) > 1 else text)


def _read_geojson_file(file: Fetched) -> Iterator[Area]:
    """Read GeoJSON without OGR, so that the extra `vector` is not needed."""
    size = file.path.stat().st_size
    if size > MAX_GEOJSON_BYTES:
        raise invalid_input(
            f"{file.uri} has {size:,} bytes: at most {MAX_GEOJSON_BYTES:,} are allowed; use GeoPackage"
        )
    try:
        document = json.loads(file.path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise invalid_input(
            f"{file.uri} is not JSON: copy it again, or correct it{library_words('JSON', error)}"
        ) from error
    yield from _read_geojson(document)


def _read_vector_file(file: Fetched, layer: str | None) -> Iterator[Area]:
    with require_extra("vector"):
        from dagmaster.geo.vector.models import VectorSource
        from dagmaster.geo.vector.readers import open_layer
    with open_layer(file, VectorSource(href=str(file.uri), layer=layer)) as features:
        if features.crs is None:
            raise invalid_input(
                f"{file.uri} has no CRS, so the place of its areas is unknown: set it in the file, as with"
                " ogr2ogr -a_srs EPSG:…"
            )
        crs = CRS.from_wkt(features.crs.to_wkt())
        for batch in features.batches:
            columns = [column.to_pylist() for column in batch.columns]
            for number, encoded in enumerate(batch.geometries):
                if encoded is not None:
                    row = {
                        name: _json_value(column[number])
                        for name, column in zip(features.names, columns, strict=True)
                    }
                    yield Area(name="", geometry=_decode_geometry(encoded), crs=crs, properties=row)


def _decode_geometry(encoded: bytes | str) -> Any:
    """Decode WKT or WKB without heights. Arcs become chords."""
    decode = shapely.from_wkt if isinstance(encoded, str) else shapely.from_wkb
    try:
        return shapely.force_2d(decode(encoded))
    except (ShapelyError, NotImplementedError) as error:
        linear = linearize_unsupported(encoded)
        if linear is None:
            raise invalid_input(
                "the geometry of an area is damaged and cannot be read: correct it, or name another file"
                f"{library_words('GEOS', error)}"
            ) from error
    return shapely.force_2d(shapely.from_wkb(linear))


def _extract_polygons(geometry: Any, index: int) -> Any:
    """Return the polygons of a geometry, repaired where they cross themselves."""
    if geometry is None or geometry.is_empty:
        raise invalid_input(f"area {index} is empty: expected a Polygon or MultiPolygon")
    valid = geometry if geometry.is_valid else shapely.make_valid(geometry)
    parts = [
        part
        for part in shapely.get_parts(shapely.get_parts(valid))
        if part.geom_type == "Polygon" and part.area > 0
    ]
    if not parts:
        raise invalid_input(
            f"area {index} is a {geometry.geom_type} and has no extent: expected a Polygon or MultiPolygon"
        )
    return parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts)


def _bbox_polygon(west: float, south: float, east: float, north: float) -> Any:
    is_longitude = all(-_FULL_CIRCLE <= side <= _FULL_CIRCLE for side in (west, east))
    if not (-90 <= south < north <= 90 and is_longitude and west != east):  # noqa: PLR2004 - degrees
        if max(map(abs, (west, south, east, north))) > _FULL_CIRCLE:
            raise invalid_input(
                f"{[west, south, east, north]} is not a bbox in degrees: these look like metres. Expected"
                " west, south, east, north in longitude and latitude, or GeoJSON with a crs"
            )
        raise invalid_input(
            f"{[west, south, east, north]} is not a bbox: expected west, south, east, north in degrees,"
            " south below north"
        )
    return shapely.box(west, south, east + (_FULL_CIRCLE if east < west else 0), north)


def _transform_points(points: Any, source: CRS, target: CRS) -> Any:
    xs, ys = transform(source, target, points[:, 0], points[:, 1])
    return np.column_stack([xs, ys])


def _unwrap_polygons(geometry: Any, name: str) -> Any:
    """Remove jumps across the antimeridian: longitudes may then exceed 180 degrees."""
    polygons = []
    for polygon in shapely.get_parts(geometry):
        rings = [unwrap_longitudes(list(ring.coords)) for ring in (polygon.exterior, *polygon.interiors)]
        if any(abs(ring[-1][0] - ring[0][0]) > 1 for ring in rings):
            raise invalid_input(f"the area {name} goes around a pole: state it in degrees, from -180 to 180")
        middle = _middle(rings[0])
        holes = [
            _shift(ring, _FULL_CIRCLE * round((middle - _middle(ring)) / _FULL_CIRCLE)) for ring in rings[1:]
        ]
        polygons.append(shapely.Polygon(rings[0], holes))
    return polygons[0] if len(polygons) == 1 else shapely.MultiPolygon(polygons)


def _middle(ring: list[tuple[float, float]]) -> float:
    return (min(x for x, _ in ring) + max(x for x, _ in ring)) / 2


def _shift(ring: list[tuple[float, float]], degrees: float) -> list[tuple[float, float]]:
    return [(x + degrees, y) for x, y in ring]


def _json_value(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
