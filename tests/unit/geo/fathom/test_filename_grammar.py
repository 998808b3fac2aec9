"""How files are named, and which square degree a tile is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.errors import PermanentError
from dagmaster.geo.fathom.filename_grammar import (
    FLAT,
    FOLDERS,
    Grammar,
    cell_corner,
    cell_name,
    tile_bbox,
    tile_corner,
    tile_name,
)
from dagmaster.geo.fathom.planning import find_cells, find_tiles, is_selected
from dagmaster.geo.rules.bounding_boxes import bbox_union
from dagmaster.ports.blob_uris import BlobUri
from dagmaster.ports.storage import BlobInfo

tiles = st.builds(tile_name, st.integers(-180, 179), st.integers(-90, 89))
facets = st.fixed_dictionaries(
    {
        "flood_type": st.sampled_from(["FLUVIAL", "pluvial", "Coastal"]),
        "defence": st.sampled_from(["DEFENDED", "undefended"]),
        "year": st.integers(1980, 2100).map(str),
        "scenario": st.sampled_from(["present", "SSP1-2.6", "ssp5-8.5"]),
    }
)


@given(tile=tiles, facets=facets, period=st.integers(1, 10_000), template=st.sampled_from([FOLDERS, FLAT]))
def test_what_is_written_by_a_template_is_read_back(tile, facets, period, template):
    name = template.format(tile=tile.upper(), return_period=f"1in{period}", **facets)
    parsed = Grammar().parse(name)
    assert parsed is not None
    assert (parsed.tile, parsed.return_period) == (tile, period)
    assert dict(parsed.facets) == {key: value.lower() for key, value in facets.items()}


def test_a_group_is_all_that_is_neither_tile_nor_return_period():
    parsed = Grammar().parse("FLUVIAL/DEFENDED/2020/present/1in100/n10w020.tif")
    assert parsed is not None
    assert parsed.group == "fluvial-defended-2020-present"


@pytest.mark.parametrize(
    "name",
    [
        "fluvial/defended/2020/present/1in5/n10e010.tif.aux.xml",
        "fluvial/defended/2020/present/1in0/n10e010.tif",
        "fluvial/defended/2020/present/1in5/n90e010.tif",
        "fluvial/defended/2020/present/1in5/n10e180.tif",
        "fluvial/defended/2020/present/1in5/s00e010.tif",
        "avalanche/defended/2020/present/1in5/n10e010.tif",
        "1in5/n10e010.tif",
        "README.txt",
        "",
    ],
)
def test_a_name_that_says_something_else_is_not_read(name):
    assert Grammar().parse(name) is None


def test_a_pattern_may_be_a_template_of_ones_own_or_an_expression():
    assert Grammar(["{model}/{return_period}/{tile}.tiff"]).parse("m3/1in20/s01e100.tiff").group == "m3"  # type: ignore[union-attr]
    parsed = Grammar([r"(?P<tile>[ns]\d\d[ew]\d{3})-RP(?P<return_period>\d+)\.tif"]).parse(
        "s01e100-RP0050.tif"
    )
    assert parsed is not None
    assert (parsed.tile, parsed.return_period, parsed.group) == ("s01e100", 50, "all")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{tile}.tif", "no field return_period"),
        ("(?P<return_period>\\d+)", "no field tile"),
        ("(?P<tile>(", "not a regular expression"),
        ("x" * 501, "at most 500"),
        (
            r"(?P<tile>\w{7})(?=_)_(?P<return_period>\d+)",
            r"look-ahead \(\?=…\) at character 16 is not supported",
        ),
        (r"(?P<tile>\w{7})_(?P<return_period>\d+)(?P=tile)", "a back reference"),
    ],
)
def test_a_pattern_that_cannot_serve_is_refused_with_what_was_expected(pattern, message):
    with pytest.raises(PermanentError, match=message) as caught:
        Grammar([pattern])
    assert caught.value.kind == "invalid_input"
    assert "{tile}" in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("{tile}_{a}_{b}_{c}_{d}_{e}_{return_period}.tif", "n10e020_a_b_c_d_e_1in5.tif"),
        ("{a}-{b}.{c}/{return_period}/{tile}.tif", "x-y.z/1in5/n10e020.tif"),
        (
            r"(?P<a>[a-z(+*]+)(?:-v\d+)?/(?P<tile>[ns]\d\d[ew]\d{3})\)?_(?P<return_period>\d+)",
            "ab-v3/n10e020_5",
        ),
        (r"(?:\d{2})+(?P<tile>[ns]\d\d[ew]\d{3})_(?P<return_period>\d+)", "2020n10e020_5"),
        (r"(?<tile>[ns]\d\d[ew]\d{3})(?<a>([a-z]+)+)_(?<return_period>\d+)", "n10e020ab_5"),
        ("{tile}{a}{b}{c}{d}{e}{f}{g}{h}_{return_period}.tif", "n10e020abcdefgh_1in5.tif"),
    ],
)
def test_a_pattern_that_tells_its_fields_apart_is_taken(pattern, name):
    parsed = Grammar([pattern]).parse(name)
    assert parsed is not None
    assert (parsed.tile, parsed.return_period) == ("n10e020", 5)


def test_the_fields_of_a_group_keep_the_order_of_the_pattern():
    parsed = Grammar(["{zone}_{tile}_{area}_{return_period}.tif"]).parse("z_n10e020_a_1in5.tif")
    assert parsed is not None
    assert parsed.facets == (("zone", "z"), ("area", "a"))


def test_a_name_that_is_too_long_is_not_read():
    assert Grammar(["{a}/{return_period}/{tile}.tif"]).parse(f"{'x' * 300}/1in5/n10e020.tif") is None


@given(tile=tiles)
def test_a_tile_is_the_square_whose_corner_it_names(tile):
    west, south, east, north = tile_bbox(tile)
    assert tile_name(*tile_corner(tile)) == tile
    assert (east - west, north - south) == (1, 1)


@given(tile=tiles, degrees=st.integers(1, 30))
def test_a_tile_lies_in_one_cell_of_the_grid(tile, degrees):
    west, south = cell_corner(tile, degrees)
    box = tile_bbox(tile)
    assert west % degrees == south % degrees == 0
    assert west <= box[0] < box[2] <= west + degrees
    assert south <= box[1] < box[3] <= south + degrees
    cell = (west, south, west + degrees, south + degrees)
    assert bbox_union([box, cell]) == cell


@given(names=st.lists(tiles, unique=True, max_size=30), degrees=st.integers(1, 10), lost=st.integers(0, 5))
def test_every_stack_is_in_one_cell_and_what_was_planned_without_a_stack_is_lacking(names, degrees, lost):
    planned = [{"tile": tile, "group": "g", "facets": {}} for tile in names]
    cells = find_cells([{**one, "href": f"x/{one['tile']}"} for one in planned[lost:]], planned, degrees)
    assert sorted(tile for cell in cells for tile in cell.stacks) == sorted(names[lost:])
    assert sorted(tile for cell in cells for tile in cell.lacking) == sorted(names[:lost])
    for cell in cells:
        assert {
            cell_name(*cell_corner(tile, degrees), degrees) for tile in [*cell.stacks, *cell.lacking]
        } == {cell.cell}


def info(name: str) -> BlobInfo:
    return BlobInfo(uri=BlobUri("s3", "bucket", f"in/{name}"), size=1, etag=name)


def test_files_are_gathered_by_group_and_tile_and_what_is_lacking_is_reported():
    names = [
        f"{kind}/defended/2020/present/1in{period}/{tile}.tif"
        for kind in ("fluvial", "coastal")
        for period in (5, 10)
        for tile in ("n01e001", "n00e001")
    ]
    result = find_tiles([info(name) for name in [*names[:-1], "notes.txt"]], "in", Grammar())
    assert [(tile.group.split("-")[0], tile.tile) for tile in result.tiles] == [
        ("coastal", "n00e001"),
        ("coastal", "n01e001"),
        ("fluvial", "n00e001"),
        ("fluvial", "n01e001"),
    ]
    assert [tile.missing([5, 10]) for tile in result.tiles] == [[10], [], [], []]
    assert result.unparsed == ["notes.txt"]
    assert result.duplicates == []


def test_two_files_that_say_the_same_are_reported():
    flat = FLAT.format(
        tile="n01e001",
        flood_type="fluvial",
        defence="defended",
        year=2020,
        scenario="x",
        return_period="1in5",
    )
    result = find_tiles([info("fluvial/defended/2020/x/1in5/n01e001.tif"), info(flat)], "in", Grammar())
    assert result.duplicates == [flat]


def test_a_box_may_go_across_180():
    names = [f"fluvial/defended/2020/x/1in5/{tile}.tif" for tile in ("n01e179", "n01w180", "n01e001")]
    tiles = find_tiles([info(name) for name in names], "in", Grammar()).tiles
    assert [tile.tile for tile in tiles if is_selected(tile, [179, 1, -179, 2], {})] == ["n01e179", "n01w180"]


def test_only_what_touches_the_box_and_has_the_facets_is_wanted():
    tile = find_tiles([info("fluvial/defended/2020/x/1in5/n01e001.tif")], "in", Grammar()).tiles[0]
    assert is_selected(tile, [1.5, 1.5, 9, 9], {"year": ["2050", "2020"], "flood_type": ["FLUVIAL"]})
    assert not is_selected(tile, [2, 2, 9, 9], {})
    assert not is_selected(tile, None, {"year": ["2050"]})
    assert not is_selected(tile, None, {"no_such_field": ["1"]})
