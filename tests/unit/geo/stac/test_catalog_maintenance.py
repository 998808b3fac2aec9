"""The catalog is kept true to what is stored, and nothing is taken away by mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.errors import BlobNotFound, PermanentError
from dagmaster.geo.stac.item_builder import assign_collection
from dagmaster.geo.stac.raster_item import COG_TYPE
from dagmaster.ports.handler_reports import Checkpoint
from tests.conformance.catalogs import a_collection, an_item
from tests.unit.geo.raster.raster_context import numbers, write
from tests.unit.geo.stac.stac_context import REGISTRY

if TYPE_CHECKING:
    from dagmaster.ports.blob_uris import BlobUri


def test_every_raster_of_a_container_gets_an_item_once(harness):
    for number, name in enumerate(["a.tif", "deep/a.tif", "deep/b.TIFF"]):
        harness.raster(name, "bronze", seed=number)
    (harness.folder / "bronze" / "no.tif").write_text("no raster")
    (harness.folder / "bronze" / "note.txt").write_text("no raster either")
    (harness.folder / "bronze" / ".half.tif.0123").write_text("a writer that died")
    done = harness.run("stac_catalog_container", container_name="bronze", collection_id="scenes")
    assert (done["found"], done["created"], done["failed"]) == (4, 3, 1)
    assert done["failures"][0]["href"].endswith("no.tif")
    assert len(set(harness.ids("scenes"))) == 3
    again = harness.run("stac_catalog_container", container_name="bronze", collection_id="scenes")
    assert (again["known"], again["created"], again["updated"]) == (3, 0, 0)
    below = harness.run(
        "stac_catalog_container", container_name="bronze", prefix="deep/", collection_id="other"
    )
    assert (below["found"], below["created"]) == (2, 2)
    with pytest.raises(PermanentError, match=r"no\.tif"):
        harness.run("stac_catalog_container", container_name="bronze", collection_id="third", on_error="fail")
    assert harness.run("stac_catalog_container", container_name="a-bucket")["found"] == 0


def test_what_is_no_cog_is_not_catalogued_as_one(harness):
    path = write(harness.folder / "silver" / "strips.tif", numbers(600, 600))
    geotiff = "image/tiff; application=geotiff"
    assert (
        harness.run("stac.extract_metadata", href=f"file://{path}")["item"]["assets"]["data"]["type"]
        == geotiff
    )
    harness.run("stac.catalog_container", container_name="silver", collection_id="c")
    harness.run("register_silver_blobs", collection_id="s")
    (item,) = harness.services.catalog.items("c")
    assert item["assets"]["data"]["type"] == geotiff
    # An item from before is put right.
    item["assets"]["data"]["type"] = COG_TYPE
    harness.services.catalog.register([item])
    harness.run("rebuild_stac", collection_id="c")
    assert harness.services.catalog.item("c", item["id"])["assets"]["data"]["type"] == geotiff


def test_orphans_are_reported_and_left_alone(harness):
    known, orphan = harness.raster("known.tif"), harness.raster("deep/orphan.tif", seed=2)
    picture = harness.folder / "silver" / "known.png"
    picture.write_bytes(b"png")
    harness.run("stac.register_item", cog_url=known, preview_url=f"file://{picture}")
    result = harness.run("detect_orphan_blobs", min_age_seconds=0)
    size = (harness.folder / "silver" / "deep" / "orphan.tif").stat().st_size
    assert [one["href"] for one in result["orphans"]] == [orphan]
    assert (result["orphan_count"], result["checked"], result["referenced"], result["orphan_mb"]) == (
        1,
        3,
        2,
        size / 1e6,
    )
    young = harness.run("maintenance.detect_orphan_blobs")
    assert (young["orphan_count"], young["too_young"]) == (0, 1)
    assert harness.run("detect_orphan_blobs", min_age_seconds=0, prefix="none")["checked"] == 0
    assert harness.run("detect_orphan_blobs", min_age_seconds=0, limit=0)["orphan_count"] == 1
    assert harness.silver() == ["deep/orphan.tif", "known.png", "known.tif"]


def test_silver_files_without_an_item_get_one(harness):
    known, _ = harness.raster("known.tif"), harness.raster("deep/orphan.tif", seed=2)
    harness.run("stac.register_item", cog_url=known, collection_id="scenes")
    done = harness.run("register_silver_blobs")
    assert (done["found"], done["known"], done["created"], done["collection_id"]) == (2, 1, 1, "silver")
    assert len(harness.ids("silver")) == 1
    assert harness.run("register_silver_blobs")["created"] == 0
    assert harness.run("detect_orphan_blobs", min_age_seconds=0)["orphan_count"] == 0


def test_a_lost_catalog_is_rebuilt_from_the_files(harness):
    harness.raster("a.tif")
    harness.raster("b.tif", seed=2)
    done = harness.run("rebuild_stac", container_name="silver", collection_id="scenes")
    assert (done["found"], done["created"], done["missing"]) == (2, 2, 0)
    assert harness.run("rebuild_stac", collection_id="scenes")["unchanged"] == 2


def test_a_rebuilt_item_has_the_facts_of_its_file_and_keeps_what_it_was_told(harness):
    href = harness.raster("a.tif")
    first = harness.run("stac.register_item", cog_url=href, collection_id="scenes", properties={"cloud": 3})[
        "item"
    ]
    stale = {
        **first,
        "bbox": [0.0, 0.0, 1.0, 1.0],
        "properties": {**first["properties"], "proj:shape": [1, 1]},
    }
    harness.services.catalog.register([stale])
    done = harness.run("stac.rebuild", collection_id="scenes")
    assert (done["known"], done["updated"]) == (1, 1)
    assert harness.services.catalog.item("scenes", first["id"]) == first


def test_a_rebuild_does_not_take_files_of_other_collections(harness):
    harness.run("stac.register_item", cog_url=harness.raster("a.tif"), collection_id="one")
    assert harness.run("stac.rebuild", collection_id="two")["found"] == 0
    assert harness.services.catalog.counts() == {"one": 1}


def test_a_rebuild_goes_on_where_it_was_cut_off(harness):
    for number in range(3):
        harness.raster(f"{number}.tif", seed=number)
    ctx = harness.context("stac.rebuild", collection_id="scenes")
    after = f"{harness.folder}/silver/1.tif".lstrip("/")
    # A file before those that were looked at went away meanwhile: the list is another one, and nothing is left out.
    (harness.folder / "silver" / "0.tif").unlink()
    ctx.last_checkpoint = Checkpoint(
        "x", {"after": after, "counts": {"found": 3, "created": 2, "collection_id": "scenes"}}
    )
    assert harness.call(ctx, "stac.rebuild")["created"] == 3
    assert [one.rpartition("-")[0] for one in harness.ids("scenes")] == ["2"]


def test_an_item_whose_bucket_is_gone_is_one_whose_file_is_gone(harness, monkeypatch):
    for name in ("a.tif", "b.tif"):
        harness.run("stac.register_item", cog_url=harness.raster(name), collection_id="scenes", item_id=name)
    find = harness.services.blobs.find

    def no_bucket(uri: BlobUri) -> Any:
        if uri.name.endswith("a.tif"):
            raise BlobNotFound("there is no bucket")
        return find(uri)

    monkeypatch.setattr(harness.services.blobs, "find", no_bucket)
    done = harness.run("stac.repair_items", collection_id="scenes")
    assert (done["checked"], done["missing"]) == (2, 1)


def test_items_whose_files_are_gone_are_reported_and_removed_when_asked(harness):
    for name in ("a.tif", "b.tif"):
        harness.run("stac.register_item", cog_url=harness.raster(name), collection_id="scenes", item_id=name)
    harness.services.catalog.register(
        [assign_collection(an_item("elsewhere", assets={"data": {"href": "https://x/y.tif"}}), None)]
    )
    (harness.folder / "silver" / "a.tif").unlink()
    done = harness.run("stac.rebuild", collection_id="scenes")
    assert (done["missing"], done["removed"]) == (1, 0)
    done = harness.run("stac.rebuild", collection_id="scenes", remove_missing=True)
    assert (done["missing"], done["removed"]) == (1, 1)
    assert harness.ids("scenes") == ["b.tif", "elsewhere"]


def test_a_storage_that_looks_empty_takes_no_items_with_it(harness):
    for name in ("a.tif", "b.tif"):
        harness.run("stac.register_item", cog_url=harness.raster(name), collection_id="scenes")
        (harness.folder / "silver" / name).unlink()
    for name, asked in (
        ("stac.rebuild", {"remove_missing": True}),
        ("stac.repair_items", {"policy": "remove"}),
    ):
        with pytest.raises(PermanentError, match="is the storage mounted"):
            harness.run(name, collection_id="scenes", **asked)
    assert harness.services.catalog.counts() == {"scenes": 2}
    assert harness.run("stac.repair_items", policy="remove", allow_all=True)["removed"] == 2


@pytest.fixture
def mixed(harness):
    """Return a valid item, three that can be repaired, and two that cannot."""
    href = harness.raster("a.tif")
    data = {"data": {"href": href, "roles": ["data"]}}
    harness.services.catalog.ensure_collection(a_collection())
    harness.services.catalog.register(
        [
            assign_collection(an_item("right", assets=data), None),
            an_item("unlinked", assets=data),
            assign_collection(an_item("boxed", assets=data, bbox=[0, 0, 1, 1]), None),
            assign_collection(
                an_item("blind", assets={**data, "thumbnail": {"href": f"{href}.png"}, "odd": {}}), None
            ),
            assign_collection(
                an_item("gone", assets={"data": {"href": f"{href}.gone", "roles": ["data"]}}), None
            ),
            assign_collection(an_item("broken", assets=data, properties={"gsd": -1}), None),
        ]
    )
    return harness


def test_what_is_wrong_is_reported_and_nothing_is_changed(mixed):
    before = list(mixed.services.catalog.items("scenes"))
    done = mixed.run("repair_stac_items")
    assert {name: done[name] for name in ("checked", "malformed", "missing", "repaired", "removed")} == {
        "checked": 6,
        "malformed": 4,
        "missing": 2,
        "repaired": 0,
        "removed": 0,
    }
    assert {one["item_id"]: one["done"] for one in done["problems"]} == dict.fromkeys(
        ["blind", "boxed", "broken", "gone", "unlinked"], "reported"
    )
    assert list(mixed.services.catalog.items("scenes")) == before


def test_what_can_be_repaired_is_and_the_rest_is_reported_or_removed(mixed):
    done = mixed.run("stac.repair_items", collection_id="scenes", policy="repair")
    assert (done["repaired"], done["removed"]) == (3, 0)
    catalog = mixed.services.catalog
    assert catalog.item("scenes", "boxed")["bbox"] == [10.0, 50.0, 11.0, 51.0]
    assert list(catalog.item("scenes", "blind")["assets"]) == ["data"]
    assert catalog.item("scenes", "unlinked")["links"][0]["rel"] == "collection"
    assert sorted(one["item_id"] for one in mixed.run("stac.repair_items")["problems"]) == ["broken", "gone"]
    assert mixed.run("stac.repair_items", policy="remove")["removed"] == 2
    assert mixed.ids("scenes") == ["blind", "boxed", "right", "unlinked"]
    assert mixed.run("stac.repair_items")["problems"] == []
    with pytest.raises(PermanentError, match="no collection 'none'"):
        mixed.run("stac.repair_items", collection_id="none")


def test_an_item_across_the_antimeridian_keeps_its_bbox(harness):
    across = {
        "cog_url": "https://example.com/a.tif",
        "bbox": [170, -10, -170, 10],
        "datetime": "2026-01-01T00:00:00Z",
    }
    harness.run("stac.register_item", **across)
    assert harness.run("stac.repair_items")["problems"] == []


def test_a_task_that_was_asked_to_stop_stops(harness):
    harness.raster("a.tif")
    for name in ("stac.rebuild", "register_silver_blobs", "stac.register_items"):
        ctx = harness.context(name, **({"items": [an_item()]} if name.endswith("items") else {}))
        ctx.cancel()
        with pytest.raises(PermanentError, match="asked to stop"):
            REGISTRY.get(name).call(ctx)
    assert harness.services.catalog.counts() == {}
