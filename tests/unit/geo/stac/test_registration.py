"""What is registered is STAC, is there once, and is found again."""

from __future__ import annotations

import json
import socket

import pytest
import rasterio
from rasterio.warp import transform_bounds

from dagmaster.errors import PermanentError
from dagmaster.geo.stac.item_builder import assign_collection
from dagmaster.geo.stac.validation import check_stac_collection, check_stac_item
from dagmaster.ports.catalog import Search
from tests.conformance.catalogs import a_collection, an_item
from tests.unit.geo.raster.raster_context import LANDSAT
from tests.unit.geo.stac.stac_context import REGISTRY

ALIASES = {
    "stac.ensure_collection": ("raster.stac_ensure_collection", "stac_ensure_collection"),
    "stac.register_item": ("stac_register", "stac_register_item", "raster.stac_register_item"),
    "stac.register_items": ("raster.stac_register_items",),
    "stac.register_collection": ("stac_register_collection",),
    "stac.extract_metadata": ("extract_stac_metadata",),
    "stac.catalog_container": ("stac_catalog_container",),
    "stac.rebuild": ("rebuild_stac",),
    "stac.repair_items": ("repair_stac_items",),
    "maintenance.detect_orphan_blobs": ("detect_orphan_blobs",),
    "maintenance.register_silver_blobs": ("register_silver_blobs",),
}


def test_every_name_of_the_sources_leads_to_its_handler():
    assert {name: REGISTRY.get(name).aliases for name in ALIASES} == ALIASES
    assert all(REGISTRY.get(alias).name == name for name, aliases in ALIASES.items() for alias in aliases)


# ── valid or not ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_stac_is_checked_without_a_network(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a network was asked for")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    extension = "https://stac-extensions.github.io/projection/v2.0.0/schema.json"
    assert check_stac_item(
        assign_collection(an_item(stac_extensions=[extension], properties={"proj:code": "EPSG:4326"}), None)
    )
    assert check_stac_item(assign_collection(an_item(stac_version="1.0.0"), None))
    assert check_stac_collection(a_collection())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (an_item(stac_version="0.9.0"), "STAC version '0.9.0'"),
        (an_item(assets={"data": {"type": "image/tiff"}}), "assets.data.href"),
        (an_item(links=[{"href": "x"}]), "links.0.rel"),
        (an_item(properties={"gsd": -1}), "gsd"),
        (an_item(properties={"bands": "one"}), "at properties"),
        (an_item(stac_extensions=["no url"]), "stac_extensions.0"),
        (an_item(geometry=None), "no geometry"),
        (an_item("a\x00"), "control character"),
    ],
)
def test_what_is_not_valid_is_refused_with_its_place(harness, wrong, message):
    for run in (
        lambda: harness.run("stac.register_item", item=wrong),
        lambda: harness.run("stac.register_items", items=[an_item("fine"), wrong]),
    ):
        with pytest.raises(PermanentError) as caught:
            run()
        assert caught.value.kind == "invalid_input"
        assert message in str(caught.value)
    assert harness.services.catalog.collections() == []


def test_an_item_that_does_not_link_to_its_collection_is_not_valid():
    with pytest.raises(PermanentError, match="add a link with rel 'collection'"):
        check_stac_item(an_item())


# ── collections ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_collection_is_made_of_its_id_and_what_is_said_of_it(harness):
    message = {"collection_id": "scenes", "title": "Scenes", "keywords": ["x"], "bbox": [170, -10, -170, 10]}
    result = harness.run("stac.ensure_collection", **message, interval="2020-01-01T00:00:00Z/..")
    assert result["created"] is True
    check_stac_collection(result["collection"])
    assert result["collection"]["extent"] == {
        "spatial": {"bbox": [[170, -10, -170, 10]]},
        "temporal": {"interval": [["2020-01-01T00:00:00Z", None]]},
    }
    again = harness.run("stac_ensure_collection", collection_id="scenes", title="Another")
    assert (again["created"], again["collection"]["title"]) == (False, "Scenes")
    whole = harness.run("raster.stac_ensure_collection", collection=a_collection("whole"))
    assert whole["collection"] == a_collection("whole")


@pytest.mark.parametrize(
    "wrong",
    [
        {"collection": {"type": "Collection", "id": "x"}},
        {"collection": a_collection(), "collection_id": "other"},
        {"collection_id": "x\ny"},
        {"collection_id": "x", "bbox": [0, 1, 2]},
        {"collection_id": "x", "interval": "2020"},
    ],
)
def test_an_invalid_collection_is_refused(harness, wrong):
    with pytest.raises(PermanentError) as caught:
        harness.run("stac.ensure_collection", **wrong)
    assert caught.value.kind == "invalid_input"
    assert harness.services.catalog.collections() == []


# ── one item ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_item_is_registered_with_its_collection_and_twice_is_once(harness):
    first = harness.run("stac.register_item", item=an_item(), preview_url="file:///a.png")
    assert (first["created"], first["item_id"], first["collection_id"]) == (True, "a", "scenes")
    assert first["item"]["assets"]["thumbnail"]["type"] == "image/png"
    assert harness.services.catalog.item("scenes", "a") == first["item"]
    assert check_stac_collection(harness.services.catalog.collection("scenes"))
    again = harness.run("stac_register", item=an_item(), preview_url="file:///a.png")
    assert (again["created"], again["updated"], again["item"]) == (False, False, first["item"])
    other = harness.run("stac_register_item", item=an_item(properties={"v": 2}))
    assert (other["created"], other["updated"]) == (False, True)


def test_an_item_of_a_payload_or_an_output_or_a_file_is_found(harness):
    bare = an_item("p")
    del bare["collection"]
    payload = {"type": "FeatureCollection", "features": [bare], "process": [{"workflow": "x", "tasks": {}}]}
    assert harness.run("stac.register_item", item=payload)["collection_id"] == "default-collection"
    assert (
        harness.run("stac.register_item", item={"item": an_item("o"), "cog_url": "file:///x"})["item_id"]
        == "o"
    )
    (harness.folder / "bronze" / "i.json").write_text(json.dumps(an_item("f")))
    assert harness.run("stac.register_item", href="i.json")["item_id"] == "f"


def test_what_is_reported_of_an_item_wins_over_what_it_says(harness):
    values = an_item(properties={"v": 1, "kept": True, "dagmaster:datetime_assumed": True})
    details = {
        "item_id": "mine",
        "datetime": "2024-01-02",
        "properties": {"v": 2, "customer": "me"},
        "metadata": {"eo:cloud_cover": 3, "v": 5, "width": 7},
    }
    for way in (values, {"output": {"item": values}}):
        result = harness.run("stac.register_item", item=way, **details)["item"]
        assert result["id"] == "mine"
        properties = {
            name: result["properties"][name]
            for name in ("datetime", "v", "kept", "customer", "eo:cloud_cover")
        }
        assert list(properties.values()) == ["2024-01-02T00:00:00Z", 2, True, "me", 3]
        assert not {"dagmaster:datetime_assumed", "width"} & set(result["properties"])
    # What a step only assumed does not win over what the item says.
    assumed = {"datetime": "1999-01-01T00:00:00Z", "dagmaster:datetime_assumed": True}
    result = harness.run("stac.register_item", item=an_item(), metadata=assumed)["item"]
    assert result["properties"] == an_item()["properties"]
    with pytest.raises(PermanentError, match="has its own: leave bbox out"):
        harness.run("stac.register_item", item=values, bbox=[0, 0, 1, 1])
    with pytest.raises(PermanentError, match="'soon' is not a datetime"):
        harness.run("stac.register_item", item=values, datetime="soon")


def test_a_file_that_an_output_names_is_registered_with_what_is_reported(harness):
    held = {"cog_url": harness.raster("a.tif"), "datetime": "2024-01-01"}
    result = harness.run(
        "stac.register_item", item=held, item_id="mine", datetime="2024-01-02", properties={"v": 1}
    )
    assert (result["item_id"], result["item"]["properties"]["v"]) == ("mine", 1)
    assert result["item"]["properties"]["datetime"] == "2024-01-02T00:00:00Z"


def test_the_item_of_a_step_is_one_for_each_moment_that_is_reported_when_it_is_registered(harness):
    first = harness.run("raster.create_cog", href=harness.raster("a.tif", "bronze"))
    second = harness.run("raster.create_cog", href=first["cog_url"], compression="ZSTD")
    assert second["item"]["properties"]["dagmaster:undated_id"] is True
    for day in ("2024-01-01", "2024-01-02"):
        result = harness.run("stac.register_item", item=second, collection_id="days", datetime=day)["item"]
        assert "dagmaster:undated_id" not in result["properties"]
        # The same as if the step had been told.
        details = harness.run("raster.create_cog", href=first["cog_url"], compression="ZSTD", datetime=day)[
            "item"
        ]
        assert (details["id"], details["properties"]) == (result["id"], result["properties"])
        harness.run("stac.register_item", item=first, collection_id="first", datetime=day)
    assert (len(harness.ids("days")), len(harness.ids("first"))) == (2, 1)


def test_a_moment_that_a_step_assumed_is_no_part_of_an_id(harness):
    result = harness.run("raster.create_cog", href=harness.raster("a.tif", "bronze"))
    bare = harness.run("stac.register_item", cog_url=result["cog_url"])["item"]
    facts = harness.run("stac.extract_metadata", href=result["cog_url"])["metadata"]
    again = harness.run("stac.register_item", cog_url=result["cog_url"], metadata=facts)["item"]
    assert (again["id"], again["properties"]["dagmaster:datetime_assumed"]) == (bare["id"], True)
    details = harness.run(
        "stac.register_item", cog_url=result["cog_url"], metadata=facts, datetime="2024-01-01"
    )["item"]
    assert "dagmaster:datetime_assumed" not in details["properties"]


def test_an_item_of_another_collection_is_not_moved(harness):
    with pytest.raises(PermanentError, match="belongs to the collection 'scenes', and 'other' is requested"):
        harness.run("stac.register_item", item=an_item(), collection_id="other")


def test_a_cog_as_the_source_workflows_give_it_becomes_an_item_that_a_search_finds(harness):
    checked = harness.run("raster.validate", href=str(LANDSAT))
    result = harness.run("raster.create_cog", source_url=checked["blob_url"])
    by_url = harness.run(
        "stac_register", cog_url=result["cog_url"], collection_id="landsat", metadata=result["metadata"]
    )
    by_path = harness.run(
        "stac_register_item", cog_path=result["cog_path"], bbox=result["bbox"], properties=checked["metadata"]
    )
    assert by_path["collection_id"] == "default-collection"
    with rasterio.open(LANDSAT) as raster:
        truth = transform_bounds(raster.crs, "OGC:CRS84", *raster.bounds, densify_pts=21)
    assert by_url["item"]["bbox"] == pytest.approx(truth, abs=1e-3)
    check_stac_item(by_url["item"])
    check_stac_item(by_path["item"])
    west, south, east, north = truth
    middle = ((west + east) / 2, (south + north) / 2)
    items = harness.services.catalog.search(Search(bbox=(*middle, *middle), collections=("landsat",)))
    assert items == [by_url["item"]]
    assert (
        harness.run(
            "stac_register", cog_url=result["cog_url"], collection_id="landsat", metadata=result["metadata"]
        )["updated"]
        is False
    )


def test_a_cog_tells_of_what_it_is_made_to_who_registers_it_later(harness):
    result = harness.run("raster.create_cog", href=harness.raster("a.tif", "bronze"))
    details = {"metadata": {**result["metadata"], "eo:cloud_cover": 3, "platform": "landsat-7"}}
    for params in (details, {"properties": {**details["metadata"], "customer": "me"}}):
        properties = harness.run("stac.register_item", cog_url=result["cog_url"], **params)["item"][
            "properties"
        ]
        own = result["item"]["properties"]
        assert properties["dagmaster:sources"] == own["dagmaster:sources"]
        assert (properties["datetime"], properties["created"], properties["eo:cloud_cover"]) == (
            own["datetime"],
            own["created"],
            3,
        )
        bare = {name for name in properties if ":" not in name}
        assert bare == {"datetime", "created", "platform"} | (
            {"customer"} if "properties" in params else set()
        )


def test_a_cog_that_is_named_by_its_content_is_an_item_for_each_moment(harness):
    result = harness.run("raster.create_cog", href=harness.raster("a.tif", "bronze"))
    details = {"cog_url": result["cog_url"], "collection_id": "days"}
    for when in (
        {"datetime": "2024-01-01"},
        {"properties": {"datetime": "2024-01-02"}},
        {"datetime": "2024-01-01"},
    ):
        harness.run("stac.register_item", **details, **when)
    moments = {item["id"]: item["properties"]["datetime"] for item in harness.services.catalog.items("days")}
    assert sorted(moments.values()) == ["2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"]
    plain = {"cog_url": harness.raster("b.tif"), "collection_id": "plain"}
    for day in ("2024-01-01", "2024-01-02"):
        harness.run("stac.register_item", **plain, datetime=day)
    assert len(harness.ids("plain")) == 1


def test_what_others_wrote_where_a_cog_tells_its_sources_is_passed_by(harness):
    href = harness.raster("a.tif")
    for text in ("[1, 2", '{"sources": 3}', '{"sources": [1]}', "7"):
        with rasterio.open(href.removeprefix("file://"), "r+") as raster:
            raster.update_tags(DAGMASTER_MADE_OF=text)
        assert (
            "dagmaster:sources" not in harness.run("stac.extract_metadata", href=href)["item"]["properties"]
        )


def test_a_file_elsewhere_is_registered_by_what_is_reported_of_it(harness):
    details = {"cog_url": "https://example.com/a/b.tif", "bbox": [170, -10, -170, 10]}
    with pytest.raises(PermanentError, match=r"the datetime of .* is unknown"):
        harness.run("stac.register_item", **details)
    result = harness.run("stac.register_item", **details, datetime="2026-01-01T00:00:00Z")
    check_stac_item(result["item"])
    assert [harness.services.catalog.search(Search(bbox=(x, 0, x, 0))) for x in (175, -175, 0)] == [
        [result["item"]],
        [result["item"]],
        [],
    ]
    with pytest.raises(PermanentError, match="set its bbox"):
        harness.run("stac.register_item", cog_url="https://example.com/a/b.tif")


@pytest.mark.parametrize(
    "href", ["nothing.tif", "/etc/passwd", "../x.tif", "/vsicurl/x.tif", "s3:/x", "a\x00.tif"]
)
def test_a_file_that_is_not_there_or_may_not_be_read_is_bad_input(harness, href):
    with pytest.raises(PermanentError) as caught:
        harness.run("stac.register_item", cog_url=href)
    assert caught.value.kind == "invalid_input"
    assert harness.services.catalog.collections() == []


def test_one_thing_is_registered_at_a_time(harness):
    for wrong in ({}, {"item": an_item(), "cog_url": "x"}):
        with pytest.raises(PermanentError, match="name one thing"):
            harness.run("stac.register_item", **wrong)
    with pytest.raises(PermanentError, match="there are 2 items"):
        harness.run("stac.register_item", item={"items": [an_item("a"), an_item("b")]})


# ── many items ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_items_are_gathered_from_wherever_they_are(harness):
    (harness.folder / "bronze" / "f.json").write_text(
        json.dumps({"type": "FeatureCollection", "features": [an_item("f")]})
    )
    values = [
        an_item("a"),
        {"item": an_item("b")},
        "f.json",
        {"result": {"items": [an_item("c"), None]}},
        [[an_item("d")]],
    ]
    done = harness.run("stac.register_items", items=values, hrefs=["f.json"])
    assert (done["total"], done["created"], done["collection_ids"]) == (6, 5, ["scenes"])
    assert harness.ids("scenes") == ["a", "b", "c", "d", "f"]
    assert harness.run("raster.stac_register_items", items=values)["unchanged"] == 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"items": [5]}, r"items\[0\]\[0\] is 5"),
        ({"items": [{"no": "item"}]}, "contains no STAC item: it has no"),
        ({"items": ["none.json"]}, "no STAC document"),
        ({"hrefs": ["broken.json"]}, "not JSON"),
        ({"items": [[[[[[[[an_item()]]]]]]]]}, "nested too deep"),
        ({}, "there is nothing to register"),
        ({"items": [an_item("a"), an_item("a", properties={"v": 1})]}, "two different items"),
        ({"items": [an_item("a")], "collection_id": "other"}, "is requested"),
    ],
)
def test_what_holds_no_items_is_reported(harness, values, message):
    (harness.folder / "bronze" / "broken.json").write_text("{")
    with pytest.raises(PermanentError, match=message) as caught:
        harness.run("stac.register_items", **values)
    assert caught.value.kind == "invalid_input"
    assert harness.services.catalog.collections() == []


def test_the_tiles_of_a_raster_make_a_collection_that_spans_them(harness):
    source = harness.raster("scene.tif", "bronze")
    tiles = harness.run("raster.generate_tiling_scheme", source_url=source, tile_size=16)["tiles"]
    results = [harness.run("raster_cog_docker", tile_spec=tile) for tile in tiles]
    assert len(results) > 1
    done = harness.run("stac_register_collection", tile_results=results)
    assert (done["created"], done["collection_created"]) == (len(tiles), True)
    collection = harness.services.catalog.collection(done["collection_id"])
    boxes = [result["item"]["bbox"] for result in results]
    assert collection["extent"]["spatial"]["bbox"] == [
        [
            min(b[0] for b in boxes),
            min(b[1] for b in boxes),
            max(b[2] for b in boxes),
            max(b[3] for b in boxes),
        ]
    ]
    check_stac_collection(collection)
    again = harness.run("stac_register_collection", tile_results=results)
    assert (again["created"], again["updated"], again["collection_created"]) == (0, 0, False)
    bare = [{"cog_url": result["cog_url"]} for result in results]
    named = harness.run("stac_register_collection", tile_results=bare, collection_id="tiles", title="Tiles")
    assert (named["created"], len(harness.ids("tiles"))) == (len(tiles), len(tiles))


def test_the_items_of_a_batch_and_of_its_tiles_are_the_same(harness):
    source = harness.raster("scene.tif", "bronze")
    tiles = harness.run("raster.generate_tiling_scheme", source_url=source, tile_size=16)["tiles"]
    batch = harness.run("raster.process_tile_batch", tiles=tiles, datetime="2001-07-13")
    first = harness.run("stac_register_collection", tile_results=[batch], collection_id="tiles")
    second = harness.run("stac_register_collection", tile_results=batch["tiles"], collection_id="tiles")
    assert first["item_ids"] == second["item_ids"] == [item["id"] for item in batch["items"]]
    assert len(harness.ids("tiles")) == len(tiles)
    assert {item["properties"]["datetime"] for item in harness.services.catalog.items("tiles")} == {
        "2001-07-13T00:00:00Z"
    }


def test_tiles_without_a_result_or_of_two_collections_are_refused(harness):
    with pytest.raises(PermanentError, match="nothing to register"):
        harness.run("stac.register_collection", tile_results=[None])
    with pytest.raises(PermanentError, match="several collections, other, scenes"):
        harness.run("stac.register_collection", tile_results=[an_item("a"), an_item("b", collection="other")])


def test_metadata_is_extracted_and_nothing_is_registered(harness):
    done = harness.run("extract_stac_metadata", href=str(LANDSAT), collection_id="x", datetime="2001-07-13")
    assert check_stac_item(done["item"])["properties"]["datetime"] == "2001-07-13T00:00:00Z"
    assert done["metadata"]["proj:code"].startswith("EPSG:")
    assert harness.services.catalog.collections() == []
    (harness.folder / "bronze" / "x.tif").write_text("no raster")
    with pytest.raises(PermanentError, match=r"x\.tif") as caught:
        harness.run("stac.extract_metadata", href="x.tif")
    assert caught.value.kind == "invalid_input"
