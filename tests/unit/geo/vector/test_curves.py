"""Arcs become chords by a policy, and surfaces become polygons."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyogrio
import pytest
import shapely

from dagmaster.errors import PermanentError
from dagmaster.geo.vector import curves

if TYPE_CHECKING:
    from collections.abc import Sequence

CIRCLE = "CURVEPOLYGON (CIRCULARSTRING (0 0, 1 1, 2 0, 1 -1, 0 0))"
STADIUM = (
    "CURVEPOLYGON (COMPOUNDCURVE (CIRCULARSTRING (0 0, 1 -1, 2 0), (2 0, 2 3), CIRCULARSTRING (2 3, 1 4, 0 3), (0 3, 0 0)),"
    " (0.5 1, 1.5 1, 1.5 2, 0.5 1))"
)


def linear(text: str | bytes, step: float = 4) -> Any:
    return shapely.from_wkb(curves.linearize(curves.parse(text), step))


def circular_wkb(points: Sequence[tuple[float, ...]], *, code: int = 8, order: str = "<") -> bytes:
    head = struct.pack(f"{order}BII", int(order == "<"), code, len(points))
    return head + b"".join(struct.pack(f"{order}{len(point)}d", *point) for point in points)


def test_an_arc_keeps_its_three_points_and_has_chords_of_at_most_the_step():
    line = linear("CIRCULARSTRING (0 0, 1 1, 2 0)", step=7)
    points = shapely.get_coordinates(line)
    assert {(0.0, 0.0), (1.0, 1.0), (2.0, 0.0)} <= {tuple(point) for point in points.tolist()}
    assert np.hypot(points[:, 0] - 1, points[:, 1]) == pytest.approx(np.ones(len(points)))
    angles = np.degrees(2 * np.arcsin(np.hypot(*np.diff(points, axis=0).T) / 2))
    assert angles.max() <= 7 + 1e-9
    assert len(points) == 2 * math.ceil(90 / 7) + 1


@pytest.mark.parametrize("middle", ["1 1", "1 -1", "1.9 0.435889894354067", "0.2 -0.6"])
def test_an_arc_passes_its_middle_point_on_the_side_it_lies_on(middle):
    line = linear(f"CIRCULARSTRING (0 0, {middle}, 2 0)")
    assert line.distance(shapely.from_wkt(f"POINT ({middle})")) == 0
    assert line.length == pytest.approx(math.pi, rel=1e-3)


def test_an_arc_in_the_other_direction_has_the_same_vertices():
    points = [(0.1, 0.7), (13.3, 8.1), (9.9, -4.2)]
    forward, backward = (linear(circular_wkb(one)) for one in (points, points[::-1]))
    assert (shapely.get_coordinates(forward) == shapely.get_coordinates(backward)[::-1]).all()


def test_a_circle_of_three_points_is_a_full_circle():
    line = linear("CIRCULARSTRING (0 0, 2 0, 0 0)")
    assert line.is_ring
    assert line.length == pytest.approx(2 * math.pi, rel=1e-3)


def test_three_points_on_a_line_are_a_line():
    assert linear("CIRCULARSTRING (0 0, 1 1, 2 2)").wkt == "LINESTRING (0 0, 1 1, 2 2)"
    assert linear("CIRCULARSTRING EMPTY").wkt == "LINESTRING EMPTY"


@pytest.mark.parametrize(("text", "area"), [(CIRCLE, math.pi), (STADIUM, math.pi + 6 - 0.5)])
def test_a_polygon_with_arcs_is_a_valid_polygon_of_that_area(text, area):
    polygon = linear(text, step=1)
    assert polygon.is_valid
    assert polygon.area == pytest.approx(area, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "wkt"),
    [
        ("MULTICURVE ((0 0, 1 1), CIRCULARSTRING (0 0, 1 1, 2 2))", "MULTILINESTRING ((0 0, 1 1), (0 0, 1 1, 2 2))"),
        ("MULTISURFACE (((0 0, 1 0, 1 1, 0 0)))", "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)))"),
        ("TIN (((0 0, 1 0, 1 1, 0 0)), ((0 0, 1 1, 0 1, 0 0)))", "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((0 0, 1 1, 0 1, 0 0)))"),
        ("POLYHEDRALSURFACE Z (((0 0 1, 1 0 1, 1 1 2, 0 0 1)))", "MULTIPOLYGON Z (((0 0 1, 1 0 1, 1 1 2, 0 0 1)))"),
        ("TRIANGLE ((0 0, 1 0, 1 1, 0 0))", "POLYGON ((0 0, 1 0, 1 1, 0 0))"),
        ("GEOMETRYCOLLECTION (POINT (1 2), CIRCULARSTRING (0 0, 1 1, 2 2))", "GEOMETRYCOLLECTION (POINT (1 2), LINESTRING (0 0, 1 1, 2 2))"),
        ("SRID=4326;COMPOUNDCURVE ((0 0, 1 1), (1 1, 2 0))", "LINESTRING (0 0, 1 1, 2 0)"),
    ],
)  # fmt: skip
def test_every_type_has_its_simple_feature(text, wkt):
    assert linear(text).wkt == wkt


def test_heights_and_measures_change_evenly_along_an_arc():
    line = linear(circular_wkb([(0, 0, 0, 5), (1, 1, 10, 6), (2, 0, 0, 7)], code=3008), step=45)
    assert shapely.get_coordinates(line, include_z=True, include_m=True)[:, 2:].tolist() == [
        [0, 5], [5, 5.5], [10, 6], [5, 6.5], [0, 7],
    ]  # fmt: skip


def test_the_order_of_bytes_and_the_form_of_wkb_do_not_matter():
    points = [(0.0, 0.0), (1.0, 1.0), (2.0, 0.0)]
    expected = linear(circular_wkb(points))
    assert linear(circular_wkb(points, order=">")) == expected
    ewkb = struct.pack("<BIII", 1, 8 | 0x20000000, 4326, 3) + circular_wkb(points)[9:]
    assert linear(ewkb) == expected


def test_gdal_draws_the_same_circle(tmp_path):
    """GDAL's GeoJSON writer replaces arcs with chords of 4 degrees, too."""
    circle = struct.pack("<BII", 1, 10, 1) + circular_wkb([(0, 0), (1, 1), (2, 0), (1, -1), (0, 0)])
    table = pa.table({"g": pa.array([circle], pa.binary())})
    path = tmp_path / "x.geojson"
    pyogrio.raw.write_arrow(table, path, driver="GeoJSON", geometry_name="g", geometry_type="Unknown", crs="EPSG:4326", COORDINATE_PRECISION=15)  # fmt: skip
    _, _, geometries, _ = pyogrio.raw.read(path)
    assert shapely.hausdorff_distance(linear(CIRCLE), shapely.from_wkb(geometries[0])) < 1e-3
    assert linear(CIRCLE).area == pytest.approx(shapely.from_wkb(geometries[0]).area, rel=1e-4)


@pytest.mark.parametrize(
    "value",
    [
        b"", b"\x01", circular_wkb([(0, 0), (1, 1)]), circular_wkb([(0, 0)] * 3)[:-1], struct.pack("<BI", 1, 99),
        struct.pack("<BII", 1, 7, 1) * 100, "CIRCULARSTRING (0 0, 1 1", "CIRCULARSTRING (0 0, 1 1)", "CURVEPOLYGON", "(1 2)",
        "CIRCULARSTRING (a b, c d, e f)", "GEOMETRYCOLLECTION (" * 100,
    ],
)  # fmt: skip
def test_what_is_not_a_curve_is_not_linearized(value):
    assert curves.linearize_unsupported(value) is None


def geoparquet(services, *geometries: bytes) -> str:
    path = services.folder / "x.parquet"
    geo = {"primary_column": "g", "columns": {"g": {"encoding": "WKB"}}}
    table = pa.table({"n": range(len(geometries)), "g": pa.array(geometries, pa.binary())})
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), path)
    return str(path)


def test_the_policy_decides_what_becomes_of_arcs(services):
    line = shapely.to_wkb(shapely.LineString([(0, 0), (1, 1)]))
    href = geoparquet(services, line, circular_wkb([(0, 0), (1, 1), (2, 0)]))
    prepared = services.run("vector.prepare", href=href, curve_step_degrees=45)
    assert prepared["schema"]["geometry_type"] == "LineString"
    assert prepared["counts"]["linearized"] == 1
    rows = pq.read_table(prepared["chunks"][0]["href"].removeprefix("file://"))
    assert [len(one.coords) for one in shapely.from_wkb(rows["geometry"].to_pylist())] == [2, 5]
    with pytest.raises(
        PermanentError, match="feature 2 has arcs, which a table does not store: set curves: linearize"
    ):
        services.run("vector.prepare", href=href, curves="fail")


def test_arcs_of_a_csv_become_chords(services):
    href = services.put("x.csv", f'wkt,n\n"{CIRCLE}",1\n"TIN (((0 0, 1 0, 1 1, 0 0)))",2\n')
    counts = services.run("vector.prepare", href=href, source_crs="EPSG:4326")["counts"]
    assert (counts["linearized"], counts["surfaces_split"]) == (1, 1)


def test_arcs_that_gdal_delivers_become_chords(services):
    path = services.folder / "x.gpkg"
    table = pa.table({"g": pa.array([circular_wkb([(0, 0), (1, 1), (2, 0)])], pa.binary())})
    pyogrio.raw.write_arrow(table, path, geometry_name="g", geometry_type="Unknown", crs="EPSG:4326")
    assert services.run("vector.prepare", href=str(path))["counts"]["linearized"] == 1
