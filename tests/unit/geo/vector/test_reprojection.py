"""Where a map ends, and features that lie on both sides of it."""

from __future__ import annotations

import numpy as np
import pyproj
import pytest
import shapely

from dagmaster.geo.vector.reprojection import Reprojection
from dagmaster.ports.footprints import footprint_geometry
from tests.unit.geo.vector.test_bad_input import geoparquet, refused
from tests.unit.geo.vector.test_natural_earth import area, collection, loaded, shapes_of

FIJI = shapely.box(178, -20, 182, -15)


def test_what_lies_on_both_sides_of_180_is_two_parts_on_a_map_of_the_world(services):
    prepared, back = loaded(
        services, services.put("x.geojson", collection(FIJI)), target_crs="EPSG:3857", table="fiji"
    )
    shape = shapes_of(back)[0]
    degree = 20037508.342789244 / 180
    assert (
        sorted(round(float(one.bounds[2] - one.bounds[0])) for one in shape.geoms) == [round(2 * degree)] * 2
    )
    assert sorted(float(one.bounds[0]) / degree for one in shape.geoms) == pytest.approx([-180, 178])
    assert prepared["counts"]["antimeridian_cut"] == 1
    lines = collection(shapely.LineString([(179, 0), (181, 0)]))
    _, back = loaded(services, services.put("y.geojson", lines), target_crs="EPSG:3857", table="line")
    assert shapes_of(back)[0].length == pytest.approx(2 * degree)


def test_a_map_that_goes_on_at_180_needs_no_cut(services):
    prepared, back = loaded(
        services, services.put("x.geojson", collection(FIJI)), target_crs="EPSG:32760", table="fiji"
    )
    assert shapes_of(back)[0].geom_type == "Polygon"
    assert "antimeridian_cut" not in prepared["counts"]


def test_what_lies_across_the_edge_of_another_map_is_refused(services):
    # A map of the Pacific ends in the Atlantic, 30 degrees west.
    href = services.put("x.geojson", collection(shapely.box(-30.5, 0, -29.5, 1)))
    refused(services, "across the boundary of its map", href=href, target_crs="EPSG:3832")
    near = services.put("y.geojson", collection(shapely.box(-68.5, 0, -67.5, 1)))
    _, back = loaded(services, near, target_crs="EPSG:3832", table="near")
    assert shapes_of(back)[0].bounds[2] - shapes_of(back)[0].bounds[0] == pytest.approx(111_319.49, rel=1e-4)


def test_what_lies_across_the_edge_of_a_map_is_cut_to_its_area_if_that_is_asked_for(services):
    # The area that this map is meant for goes across 180 degrees itself.
    href = services.put("x.geojson", collection(shapely.box(-100, 0, -20, 1), shapely.box(170, 0, 175, 1)))
    prepared, back = loaded(services, href, target_crs="EPSG:3832", outside="clip", table="pacific")
    assert prepared["counts"]["clipped"] == 1
    left, right = sorted(one.bounds for one in shapes_of(back))
    assert left[2] - left[0] == pytest.approx(5 * 111_319.49, rel=1e-4)
    # To 68 degrees west.
    assert right[2] - right[0] == pytest.approx(32 * 111_319.49, rel=1e-4)


@pytest.mark.parametrize("target", ["EPSG:3857", "EPSG:6933", "EPSG:8857", "EPSG:3031", "ESRI:54009"])
def test_long_edges_that_no_map_tears_are_no_tears(target):
    # From 170 west to 170 east the long way, in one edge, and as far north and south as the map goes.
    shapes = np.array([shapely.box(-170, -80, 170, -10), shapely.LineString([(-179, -60), (179, -5)])])
    _, bad = Reprojection(pyproj.CRS(4326), pyproj.CRS(target)).apply(shapes)
    assert not bad.any()


def test_heights_stay_where_a_feature_is_cut(services):
    raised = shapely.force_3d(FIJI, 7.0)
    _, back = loaded(services, geoparquet(services, "z.parquet", [raised], 4326), table="beyond")
    assert shapes_of(back)[0].has_z
    assert set(shapely.get_coordinates(shapes_of(back), include_z=True)[:, 2]) == {7.0}
    # On a map of the Pacific: in degrees its ring jumps from 179 to -179, and is unrolled.
    square = shapely.force_3d(shapely.box(3239638.0, -100_000, 3439638.0, 100_000), 7.0)
    point = shapely.Point(181, 3, 9)
    for name, shape, srid in (("square", square, 3832), ("point", point, 4326)):
        _, back = loaded(services, geoparquet(services, f"{name}.parquet", [shape], srid), table=name)
        assert shapes_of(back)[0].has_z
        assert set(shapely.get_coordinates(shapes_of(back), include_z=True)[:, 2]) == {
            7.0 if srid == 3832 else 9.0
        }


def test_a_table_across_180_is_catalogued_where_it_is(services):
    prepared, _ = loaded(
        services, services.put("x.geojson", collection(FIJI)), target_crs="EPSG:3832", table="fiji"
    )
    item = services.run("vector.create_stac", table="fiji", chunks=prepared["chunks"])["item"]
    assert item["bbox"] == pytest.approx([178, -20, -178, -15])
    place = shapely.geometry.shape(item["geometry"])
    assert (place.covers(shapely.Point(179, -17)), place.covers(shapely.Point(-179, -17))) == (True, True)
    assert not place.intersects(shapely.Point(0, -17))
    chunk = shapely.geometry.shape(footprint_geometry(prepared["chunks"][0]["footprint"]))
    assert chunk.area == pytest.approx(place.area) == pytest.approx(20)


def test_a_clip_may_go_across_180(services):
    href = services.put("x.geojson", collection(shapely.box(178, -20, 180, -15), shapely.box(0, 0, 1, 1)))
    prepared, back = loaded(services, href, clip_bbox=[179, -20, -179, -15], table="clip")
    assert prepared["counts"]["clipped_away"] == 1
    assert area(shapes_of(back)) == pytest.approx(area([shapely.box(179, -20, 180, -15)]), rel=1e-9)
