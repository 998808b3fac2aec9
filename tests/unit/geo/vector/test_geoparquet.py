"""GeoParquet of every version, and Parquet's own geometry types, come out as they went in."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyproj
import pytest
import shapely

from dagmaster.errors import PermanentError
from tests.unit.geo.vector.test_natural_earth import loaded, shapes_of

POLYGON = shapely.Polygon([(0, 0), (4, 0), (4, 4), (0, 0)], [[(1, 0.5), (2, 0.5), (2, 1), (1, 0.5)]])
MERCATOR = pyproj.CRS("EPSG:3857")


class WkbType(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """The Arrow type that Arrow writes as Parquet's GEOMETRY, or as GEOGRAPHY."""

    def __init__(self, metadata: str = "{}") -> None:
        self._metadata = metadata.encode()
        super().__init__(pa.binary(), "geoarrow.wkb")

    def __arrow_ext_serialize__(self) -> bytes:
        return self._metadata

    @classmethod
    def __arrow_ext_deserialize__(cls, _: Any, serialized: bytes) -> WkbType:
        return cls(serialized.decode())


def write(
    services, geometry: pa.Array, geo: dict[str, Any] | None = None, name: str = "x.parquet", **more: Any
) -> str:
    table = pa.table({"n": range(len(geometry)), "geometry": geometry, **more})
    path = services.folder / name
    pq.write_table(table.replace_schema_metadata(None if geo is None else {"geo": json.dumps(geo)}), path)
    return str(path)


def described(version: str, **column: Any) -> dict[str, Any]:
    key = "schema_version" if version == "0.1.0" else "version"
    return {
        key: version,
        "primary_column": "geometry",
        "columns": {"geometry": {"encoding": "WKB", **column}},
    }


@pytest.mark.parametrize(
    "geo",
    [
        described("0.1.0", crs=MERCATOR.to_wkt(), bbox=[0, 0, 1, 1]),
        described("0.2.0", crs=MERCATOR.to_wkt("WKT2_2019"), geometry_type="Polygon"),
        described("0.3.0", crs=MERCATOR.to_wkt(), geometry_type=["Polygon"], edges="planar"),
        described("0.4.0", crs=MERCATOR.to_json_dict(), geometry_type="Polygon"),
        described("1.0.0", crs=MERCATOR.to_json_dict(), geometry_types=["Polygon"]),
        described(
            "1.1.0", crs=MERCATOR.to_json_dict(), geometry_types=["Polygon"], orientation="counterclockwise"
        ),
    ],
    ids=lambda geo: geo.get("version", "0.1.0"),
)
def test_every_version_of_geoparquet_is_read(services, geo):
    wkb = pa.array([shapely.to_wkb(POLYGON), None], pa.binary())
    prepared, rows = loaded(services, write(services, wkb, geo), target_crs="EPSG:3857")
    assert prepared["source_crs"] == "EPSG:3857"
    assert shapes_of(rows).tolist() == [POLYGON, None]


def test_columns_that_cover_the_geometry_are_left_out(services):
    geo = described(
        "1.1.0", covering={"bbox": {side: ["box", side] for side in ("xmin", "ymin", "xmax", "ymax")}}
    )
    box = pa.array([{"xmin": 0.0, "ymin": 0.0, "xmax": 4.0, "ymax": 4.0}])
    prepared, _ = loaded(
        services, write(services, pa.array([shapely.to_wkb(POLYGON)], pa.binary()), geo, box=box)
    )
    assert [column["name"] for column in prepared["schema"]["columns"]] == ["n"]
    assert prepared["source_crs"] == "OGC:CRS84"


NATIVE = {
    "point": [shapely.Point(1, 2), None, shapely.Point(3, 4)],
    "linestring": [shapely.LineString([(0, 0), (1, 1), (2, 0)]), None, shapely.LineString()],
    "polygon": [POLYGON, None, shapely.box(5, 5, 6, 6)],
    "multipoint": [shapely.MultiPoint([(0, 0), (1, 1)]), None, shapely.MultiPoint([(5, 5)])],
    "multilinestring": [shapely.MultiLineString([[(0, 0), (1, 1)], [(2, 2), (3, 3)]]), None],
    "multipolygon": [
        shapely.MultiPolygon([POLYGON, shapely.box(5, 5, 6, 6)]),
        None,
        shapely.MultiPolygon([POLYGON]),
    ],
}


def ragged(geometries: list[Any], *, has_z: bool = False) -> pa.Array:
    """Return geometries as nested lists of coordinates."""

    def nest(geometry: Any) -> Any:
        if hasattr(geometry, "geoms"):
            return [nest(part) for part in geometry.geoms]
        if geometry.geom_type == "Polygon":
            return [nest(ring) for ring in (geometry.exterior, *geometry.interiors)]
        rows = [
            dict(zip("xyz", point, strict=False))
            for point in shapely.get_coordinates(geometry, include_z=has_z).tolist()
        ]
        return rows[0] if geometry.geom_type == "Point" else rows

    coordinates = pa.struct([(axis, pa.float64()) for axis in ("xyz" if has_z else "xy")])
    depth = {
        "Point": 0,
        "LineString": 1,
        "Polygon": 2,
        "MultiPoint": 1,
        "MultiLineString": 2,
        "MultiPolygon": 3,
    }
    kind = coordinates
    for _ in range(depth[geometries[0].geom_type]):
        kind = pa.list_(kind)
    return pa.array([None if geometry is None else nest(geometry) for geometry in geometries], kind)


@pytest.mark.parametrize("prefix", ["", "geoarrow."])
@pytest.mark.parametrize("encoding", NATIVE)
def test_native_encodings_are_read(services, encoding, prefix):
    href = write(services, ragged(NATIVE[encoding]), described("1.1.0", encoding=f"{prefix}{encoding}"))
    _, rows = loaded(services, href, mixed_types="geometry")
    assert shapes_of(rows).tolist() == NATIVE[encoding]


def test_heights_of_native_encodings_stay(services):
    lines = [shapely.LineString([(0, 0, 7), (1, 1, 8)])]
    _, rows = loaded(
        services, write(services, ragged(lines, has_z=True), described("1.1.0", encoding="linestring"))
    )
    assert shapely.get_coordinates(shapes_of(rows), include_z=True).tolist() == [[0, 0, 7], [1, 1, 8]]


@pytest.mark.parametrize(
    ("metadata", "crs"),
    [
        ({}, "OGC:CRS84"),
        ({"crs": "EPSG:3857", "crs_type": "authority_code"}, "EPSG:3857"),
        ({"crs": MERCATOR.to_json_dict(), "crs_type": "projjson"}, "EPSG:3857"),
        ({"crs": "srid:3857", "crs_type": "srid"}, "EPSG:3857"),
        ({"edges": "spherical"}, "OGC:CRS84"),
    ],
)
@pytest.mark.parametrize("name", ["geometry", "the_shape"])
def test_the_geometry_types_of_parquet_itself_are_read(services, metadata, crs, name):
    wkb = pa.array([shapely.to_wkb(POLYGON), None], pa.binary())
    column = pa.ExtensionArray.from_storage(WkbType(json.dumps(metadata)), wkb)
    path = services.folder / "x.parquet"
    pq.write_table(pa.table({"n": [1, 2], name: column}), path, store_schema=False)
    prepared, rows = loaded(services, str(path), target_crs="EPSG:3857" if "3857" in crs else "EPSG:4326")
    assert prepared["source_crs"] == crs
    assert shapes_of(rows).tolist() == [POLYGON, None]
    assert rows["n"].to_pylist() == [1, 2]


def test_one_of_several_native_columns_has_to_be_called_geometry(services):
    column = pa.ExtensionArray.from_storage(WkbType(), pa.array([shapely.to_wkb(POLYGON)], pa.binary()))
    path = services.folder / "x.parquet"
    pq.write_table(pa.table({"a": column, "b": column}), path)
    with pytest.raises(PermanentError, match="has 2 geometry columns, a, b, and none is called 'geometry'"):
        services.run("vector.prepare", href=str(path))


@pytest.mark.parametrize(
    "crs", ["+init=/etc/passwd:x", "/etc/passwd", "http://127.0.0.1:9/x", "projjson:missing", "{"]
)
def test_the_crs_of_a_native_type_names_no_file(services, crs):
    wkb = pa.array([shapely.to_wkb(POLYGON)], pa.binary())
    column = pa.ExtensionArray.from_storage(
        WkbType(json.dumps({"crs": crs, "crs_type": "authority_code"})), wkb
    )
    path = services.folder / "x.parquet"
    pq.write_table(pa.table({"geometry": column}), path)
    with pytest.raises(
        PermanentError,
        match=r"expected a code such as EPSG:4326, or PROJJSON|the CRS of the file is unknown: write it",
    ):
        services.run("vector.prepare", href=str(path))


@pytest.mark.parametrize(
    ("geo", "message"),
    [
        ({}, "metadata of the GeoParquet is damaged, or not of versions 0.1 to 1.1: write the file again"),
        (
            described("1.1.0", encoding="flatbuffer"),
            "are encoded as 'flatbuffer': expected WKB, WKT or point, ",
        ),
        (
            described("1.1.0", encoding="polygon"),
            "are not encoded as polygon, as its metadata says: write it again",
        ),
        (described("1.1.0", covering={"bbox": {"xmin": []}}), "metadata of the GeoParquet is damaged"),
        (
            {"primary_column": "other", "columns": {"other": {"encoding": "WKB"}}},
            "has no such column: write it again",
        ),
    ],
)
def test_metadata_that_does_not_fit_is_refused(services, geo, message):
    with pytest.raises(PermanentError, match=message):
        services.run(
            "vector.prepare", href=write(services, pa.array([shapely.to_wkb(POLYGON)], pa.binary()), geo)
        )


def test_wkt_is_read(services):
    href = write(services, pa.array([POLYGON.wkt, None]), described("1.1.0", encoding="WKT"))
    _, rows = loaded(services, href)
    assert np.array_equal(shapes_of(rows), [POLYGON, None])
