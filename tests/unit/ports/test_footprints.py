"""A footprint, however it is written."""

import json

import pytest

from dagmaster.ports.footprints import footprint_geometry, footprint_of, footprint_of_output

SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]}


@pytest.mark.parametrize(
    "footprint",
    [[0, 0, 1, 1], [0, 0, -5, 1, 1, 5], SQUARE, {"type": "Feature", "geometry": SQUARE, "properties": {}}],
    ids=["bbox", "bbox with heights", "GeoJSON", "feature"],
)
def test_a_place_is_a_polygon_however_it_is_written(footprint):
    assert footprint_geometry(footprint) == SQUARE


def test_a_bbox_across_the_antimeridian_is_two_rectangles():
    geometry = footprint_geometry([170, -10, -170, 10])
    assert geometry is not None
    assert geometry["type"] == "MultiPolygon"
    spans = [(min(x for x, _ in ring[0]), max(x for x, _ in ring[0])) for ring in geometry["coordinates"]]
    assert spans == [(170, 180), (-180, -170)]


@pytest.mark.parametrize("tile", ["1/0/0", {"z": 1, "x": 0, "y": 0}])
def test_a_tile_of_the_web_covers_its_quarter_of_the_world(tile):
    geometry = footprint_geometry(tile)
    assert geometry is not None
    corners = {(round(x, 3), round(y, 3)) for x, y in geometry["coordinates"][0]}
    assert corners == {(-180, 0), (0, 0), (0, 85.051), (-180, 85.051)}


@pytest.mark.parametrize(
    "footprint",
    [
        "1/2/0",
        "nowhere",
        "",
        7,
        True,
        [1, 2, 3],
        [0, 0, "1", 1],
        [0, 0, float("nan"), 1],
        {},
        {"type": "Polygon"},
        {"z": 0},
    ],
)
def test_what_is_not_a_place_has_no_geometry(footprint):
    assert footprint_geometry(footprint) is None


def test_an_item_says_its_place_by_footprint_first():
    item = {"bbox": [0, 0, 2, 2], "footprint": [0, 0, 1, 1], "geometry": json.loads(json.dumps(SQUARE))}
    assert footprint_of(item) == [0, 0, 1, 1]
    assert footprint_of({"bbox": [0, 0, 2, 2], "footprint": None}) == [0, 0, 2, 2]
    assert footprint_of({"n": 1}) is None
    assert footprint_of([0, 0, 1, 1]) is None


@pytest.mark.parametrize(
    ("output", "place"),
    [
        ({"bbox": [-35, -8, -34, -7]}, [-35, -8, -34, -7]),
        ({"bbox": None, "item": {"bbox": [170, -8, -170, -7]}}, [170, -8, -170, -7]),
        ({"bbox": [300_000, 9_000_000, 310_000, 9_100_000], "item": {"bbox": [0, 0, 1, 1]}}, [0, 0, 1, 1]),
        ({"bbox": [0, 1, 1, 0]}, None),
        ({"bbox": [0, 0, 1, True]}, None),
        ({"bbox": [0, 0, 1]}, None),
        ({"bbox": "0,0,1,1", "item": "x"}, None),
        (["bbox"], None),
        (None, None),
    ],
)
def test_an_output_says_where_it_lies_with_a_bbox_in_degrees(output, place):
    assert footprint_of_output(output) == place
