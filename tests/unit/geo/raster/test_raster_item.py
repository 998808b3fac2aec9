"""STAC items of rasters: valid, true, and the same twice. And footprints, against GDAL's own bounds."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pystac
import pytest
import rasterio
import shapely
from affine import Affine
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from rasterio.warp import transform_bounds
from stac_pydantic import Item

from dagmaster.errors import PermanentError
from dagmaster.geo.provenance import Provenance, provenance_properties, source_links
from dagmaster.geo.raster.footprints import raster_footprint
from dagmaster.geo.stac.item_builder import new_collection, stored_raster_item
from dagmaster.geo.stac.raster_item import COG_TYPE
from tests.unit.geo.raster.raster_context import LANDSAT, REGISTRY, numbers, write

if TYPE_CHECKING:
    from tests.unit.geo.raster.raster_context import HandlerHarness


def check(item: dict[str, Any]) -> None:
    """Against the core schema, which is in pystac, and against stac-pydantic. Schemas of extensions are elsewhere."""
    Item.model_validate(item)
    pystac.Item.from_dict({**item, "stac_extensions": []}).validate()


def test_an_item_says_when_its_file_was_made_and_of_the_first_hundred_of_many_sources(
    harness: HandlerHarness,
):
    harness.bronze("a.tif", numbers(8, 8))
    result = harness.run("raster.create_cog", href="a.tif")
    assert result.item == harness.run("raster.create_cog", href="a.tif").item
    at = datetime.fromisoformat(result.item["properties"]["created"]).timestamp()
    assert at == pytest.approx(harness.path(result.cog_url).stat().st_mtime, abs=1e-3)
    many = provenance_properties(
        Provenance(sources=[(f"s3://x/{number}.tif", "0" * 64) for number in range(101)]), {}
    )
    assert (len(many["dagmaster:sources"]), many["dagmaster:source_count"]) == (100, 101)
    assert "dagmaster:source_count" not in result.item["properties"]
    assert source_links(Provenance(sources=[("s3://x/1.tif", ""), ("s3://x/2.tif", "")])) == []


def test_an_item_is_valid_and_tells_what_is_in_the_file(harness: HandlerHarness):
    result = harness.run(
        "raster.create_cog", href=str(LANDSAT), collection_id="landsat", datetime="2001-07-13T10:00:00+02:00"
    )
    item = result.item
    check(item)
    properties = item["properties"]
    assert properties["datetime"] == "2001-07-13T08:00:00Z"
    with rasterio.open(LANDSAT) as source:
        assert properties["proj:code"] == f"EPSG:{source.crs.to_epsg()}"
        assert properties["proj:shape"] == list(source.shape)
        assert properties["proj:transform"] == list(source.transform)[:6]
        assert properties["proj:bbox"] == list(source.bounds)
    asset = item["assets"]["data"]
    assert asset["href"] == result.cog_url
    assert asset["file:size"] == harness.path(result.cog_url).stat().st_size
    assert asset["file:checksum"] == f"1220{result.sha256}"
    assert [band["data_type"] for band in asset["bands"]] == ["uint8"] * 6
    assert properties["processing:software"]["gdal"] == rasterio.__gdal_version__
    version = REGISTRY.get("raster.create_cog").version
    assert (properties["dagmaster:handler"], properties["dagmaster:workflow"]) == (
        f"raster.create_cog v{version}",
        "a_test v1",
    )
    assert item["collection"] == "landsat"
    pystac.Collection.from_dict(new_collection("landsat")).validate()


def test_items_of_tiles_warps_and_what_crosses_180_are_valid(harness: HandlerHarness):
    harness.bronze(
        "fiji.tif", numbers(), crs="EPSG:32701", transform=Affine(1_000, 0, 120_000, 0, -1_000, 8_100_000)
    )
    plan = harness.run("raster_plan_tiles", href="fiji.tif", tile_size=128)
    check(harness.run("raster.create_cog", tile_spec=plan.tiles[0]).item)
    check(harness.run("raster.reproject", href="fiji.tif", target_crs="ESRI:102019").item)
    check(harness.run("raster.mosaic", sources=["fiji.tif"]).item)


@pytest.mark.parametrize(
    ("name", "profile", "media"),
    [
        ("strips.tif", {}, "image/tiff; application=geotiff"),
        ("tiles.tif", {"tiled": True, "blockxsize": 256, "blockysize": 256}, COG_TYPE),
        ("cog.tif", {"driver": "COG"}, COG_TYPE),
        ("a.jp2", {"driver": "JP2OpenJPEG"}, "image/jp2"),
        ("a.hgt", {}, "application/octet-stream"),
    ],
)
def test_an_item_tells_a_cog_from_other_files(
    harness: HandlerHarness, name: str, profile: dict[str, Any], media: str
):
    path = harness.folder / "bronze" / name
    if name == "a.hgt":
        path = path.with_name("N00E006.hgt")
        path.write_bytes(bytes(1201 * 1201 * 2))
    else:
        write(path, numbers(600, 600, dtype="uint8"), **profile)
    ctx = harness.context("raster.validate")
    try:
        item = stored_raster_item(ctx, ctx.blobs.resolve(path.name), collection=None, datetime="2024-01-01")
    finally:
        ctx.close()
    assert item["assets"]["data"]["type"] == media
    check(item)


def test_a_cog_that_was_added_to_is_a_geotiff(harness: HandlerHarness):
    result = harness.run("raster.create_cog", href=harness.bronze("a.tif", numbers(600, 600)))
    assert result.item["assets"]["data"]["type"] == COG_TYPE
    changed = harness.folder / "bronze" / "changed.tif"
    changed.write_bytes(harness.path(result.cog_url).read_bytes())
    with rasterio.open(changed, "r+", IGNORE_COG_LAYOUT_BREAK="YES") as raster:
        raster.update_tags(NOTE="x" * 10_000)
    ctx = harness.context("raster.validate")
    try:
        item = stored_raster_item(ctx, ctx.blobs.resolve("changed.tif"), collection=None)
    finally:
        ctx.close()
    assert item["assets"]["data"]["type"] == "image/tiff; application=geotiff"


def test_a_moment_that_nobody_told_is_the_files_own_and_the_item_says_that_it_is_assumed(
    harness: HandlerHarness,
):
    harness.bronze("a.tif", numbers())
    result = harness.run("raster.create_cog", href="a.tif").item["properties"]
    assert result["dagmaster:datetime_assumed"] is True
    harness.bronze("b.tif", numbers(seed=2))
    with rasterio.open(harness.folder / "bronze" / "b.tif", "r+") as raster:
        raster.update_tags(TIFFTAG_DATETIME="2001:07:13 10:20:30")
    result = harness.run("raster.create_cog", href="b.tif").item["properties"]
    assert result["datetime"] == "2001-07-13T10:20:30Z"
    assert result["dagmaster:datetime_assumed"] is True
    with pytest.raises(PermanentError, match="'yesterday' is not a datetime"):
        harness.run("raster.create_cog", href="a.tif", datetime="yesterday")


def test_an_item_tells_moments_metres_and_coordinate_systems_as_stac_means_them(harness: HandlerHarness):
    degrees = Affine(0.001, 0, 10, 0, -0.001, 50)
    harness.bronze("a.tif", numbers(20, 20), crs="EPSG:4326", transform=degrees)
    item = harness.run("raster.create_cog", href="a.tif", datetime="2001-07-13T10:00:00.25Z").item
    assert item["properties"]["datetime"] == "2001-07-13T10:00:00.250000Z"
    assert item["assets"]["data"]["raster:spatial_resolution"] == pytest.approx(111.2, abs=0.2)
    result = harness.run("raster.reproject", href="a.tif", target_crs="ESRI:54009").item["properties"]
    assert result["proj:code"] == "ESRI:54009"
    assert result["proj:wkt2"].startswith("PROJCRS[")
    assert CRS.from_wkt(result["proj:wkt2"]) == CRS.from_string("ESRI:54009")


def test_a_step_takes_the_item_of_another_alone_by_href_in_a_collection_and_in_a_payload(
    harness: HandlerHarness,
):
    harness.bronze("a.tif", numbers(40, 40))
    item = harness.run("raster.create_cog", href="a.tif").item
    (harness.folder / "bronze" / "item.json").write_text(json.dumps(item))
    collection = {"type": "FeatureCollection", "features": [item]}
    process = [{"workflow": "w", "tasks": {"thumbnail": {}}}]
    ways = [item, "item.json", collection, {**collection, "process": process}, {"payload": {**collection}}]
    assert len({harness.run("raster.thumbnail", item=way).thumbnail_url for way in ways}) == 1
    with pytest.raises(PermanentError, match="item contains 2 items, expected one: fan out over them"):
        harness.run("raster.thumbnail", item={**collection, "features": [item, item]})
    with pytest.raises(PermanentError, match="contains no STAC item"):
        harness.run("raster.thumbnail", item={"features_": []})


def chained(harness: HandlerHarness, name: str, **details: str) -> dict[str, Any]:
    """Return the item after two steps."""
    first = harness.run("raster.reproject", href=name, target_crs="EPSG:4326")
    result = harness.run("raster.clip", href=first.cog_url, bbox=[-34.85, -8.15, -34.8, -8.1], **details)
    return dict(result.item)


def days(harness: HandlerHarness) -> list[str]:
    """Two days on which nothing was seen."""
    return [harness.bronze(f"2024-01-0{day}/mask.tif", np.zeros((200, 300), "uint8")) for day in (1, 2)]


def test_equal_rasters_of_two_days_are_two_items_after_any_number_of_steps(harness: HandlerHarness):
    items = [chained(harness, name, datetime=name[:10]) for name in days(harness)]
    assert items[0]["assets"]["data"]["href"] == items[1]["assets"]["data"]["href"]
    assert len({item["id"] for item in items}) == 2
    assert [item["properties"]["datetime"][:10] for item in items] == ["2024-01-01", "2024-01-02"]
    # One moment is one item, however it is spelled, and however often.
    assert chained(harness, "2024-01-01/mask.tif", datetime="2024-01-01T01:00:00+01:00") == items[0]
    mosaics = [
        harness.run("raster.mosaic", sources=[items[0]], datetime=f"2024-01-0{day}").item for day in (1, 2)
    ]
    assert mosaics[0]["id"] != mosaics[1]["id"]


def test_a_raster_with_a_separate_path_keeps_its_item_when_its_date_is_corrected(harness: HandlerHarness):
    (first, _) = days(harness)
    items = [
        harness.run("raster.create_cog", href=first, datetime=day).item
        for day in ("2024-01-01", "2024-01-03")
    ]
    assert items[0]["id"] == items[1]["id"] == harness.run("raster.create_cog", href=first).item["id"]
    assert chained(harness, first, item_id="mine", datetime="2024-01-01")["id"] == "mine"


def test_an_item_names_the_first_sources_after_any_number_of_steps(harness: HandlerHarness):
    harness.bronze("scene.tif", numbers(200, 300))
    item = chained(harness, "scene.tif")
    scene = f"file://{harness.folder}/bronze/scene.tif"
    (named,) = item["properties"]["dagmaster:sources"]
    assert named["href"] == scene
    assert [link["href"] for link in item["links"] if link["rel"] == "via"] == [scene]
    # The date that is assumed is the scene's, not that of a step.
    at = datetime.fromisoformat(item["properties"]["datetime"]).timestamp()
    assert at == int((harness.folder / "bronze" / "scene.tif").stat().st_mtime)
    (tile,) = harness.run("raster_plan_tiles", href=item["assets"]["data"]["href"]).tiles
    assert harness.run("raster.create_cog", tile_spec=tile).item["properties"]["dagmaster:sources"] == [named]


def test_every_name_of_the_sources_is_a_handler():
    names = {
        "raster.validate": ["raster_validate"],
        "raster.create_cog": [
            "create_cog",
            "raster_cog_docker",
            "raster_cog_functionapp",
            "raster_cog_translate",
        ],
        "raster.generate_tiling_scheme": ["raster_plan_tiles"],
        "raster.thumbnail": ["raster_thumbnail"],
        "raster.clip": ["raster_clip"],
        "raster.mosaic": ["raster_mosaic"],
        "raster.reproject": ["raster_reproject"],
        "raster.stats_zonal": ["stats_zonal"],
        "raster.list_files": ["list_raster_files"],
        "raster.process_complete": ["raster_process_complete"],
        "raster.ml_predict": ["ml_predict"],
        "raster.blob_to_mount": [],
        "raster.process_tile_batch": [],
    }
    assert REGISTRY.names() == sorted(names)
    for name, aliases in names.items():
        assert all(REGISTRY.get(alias).name == name for alias in aliases)
        assert REGISTRY.get(name).params_schema()
        assert REGISTRY.get(name).output_keys()


# ── footprints ──────────────────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=25, deadline=None)
@given(
    zone=st.integers(1, 60),
    south=st.booleans(),
    east=st.integers(200_000, 700_000),
    north=st.integers(200_000, 8_500_000),
    pixel=st.sampled_from([10, 30, 250]),
)
def test_a_footprint_has_the_bounds_that_gdal_gives(
    zone: int, south: bool, east: int, north: int, pixel: int
):
    crs = CRS.from_epsg((32700 if south else 32600) + zone)
    affine = Affine(pixel, 0, east, 0, -pixel, north + 1_000_000 if south else north + 300_000)
    place = raster_footprint(crs, affine, 400, 300)
    assert place is not None
    bounds = (affine.c, affine.f - 300 * pixel, affine.c + 400 * pixel, affine.f)
    expected = transform_bounds(crs, "OGC:CRS84", *bounds)
    assert place.bbox == pytest.approx(expected, abs=2e-5)
    shape = shapely.geometry.shape(place.geometry)
    assert shape.is_valid
    # All parts are in range, and together as large as the raster is on the sphere.
    west, bottom, right, top = shape.bounds
    assert -180 <= west <= right <= 180
    middle = np.radians((bottom + top) / 2)
    km2 = shape.area * np.cos(middle) * 111.195**2
    assert km2 == pytest.approx(400 * 300 * pixel**2 / 1e6, rel=0.03)
