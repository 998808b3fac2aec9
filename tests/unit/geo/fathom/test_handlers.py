"""The FATHOM handlers on a storage of their own: what is to do, what is done, what is told, and what is left behind."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dagmaster.adapters.storage.router import ObjectStorage
from dagmaster.bootstrap import find_handlers
from dagmaster.errors import PermanentError
from dagmaster.geo.fathom import merge, synthetic_data
from dagmaster.geo.stac.catalog_maintenance import PlaceParams
from dagmaster.ports.catalog import Registered
from dagmaster.ports.handler_reports import Checkpoint
from dagmaster.ports.handler_services import Share
from dagmaster.sdk.handler_context import HandlerContext
from tests.unit.geo.fathom.rasters import pixels

HANDLERS = find_handlers()
GRID = synthetic_data.SyntheticGrid(
    columns=2, rows=2, pixels=32, west=9, south=49, return_periods=(5, 10, 20)
)
PERIODS = [5, 10, 20]


@dataclass
class World:
    """Zones in a folder, and the progress messages of handlers."""

    folder: Path
    blobs: ObjectStorage = field(init=False)
    share: Share = field(init=False)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    catalog: Any = None
    tables: Any = None
    pool: Any = None
    fail_at: str = ""

    def __post_init__(self) -> None:
        zones = {zone: f"file://{self.folder / zone}" for zone in ("bronze", "silver", "gold")}
        self.blobs = ObjectStorage(zones)
        self.share = Share(cache_mb=16, scratch=self.folder / "scratch")

    def progress(self, progress: Any) -> None:
        self.messages.append(progress.message)
        if self.fail_at and self.fail_at in progress.message:
            raise KeyboardInterrupt(progress.message)

    def checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        self.checkpoints.append(checkpoint)
        return checkpoint

    def call(self, name: str, *, last: Checkpoint | None = None, **params: Any) -> dict[str, Any]:
        spec = HANDLERS.get(name)
        ctx = HandlerContext(
            params=params,
            services=self,
            reporter=self,
            last_checkpoint=last,
            handler=spec.name,
            handler_version=spec.version,
        )
        try:
            result: dict[str, Any] = spec.call(ctx).model_dump()
            return result
        finally:
            ctx.close()

    def inventory(self, **params: Any) -> dict[str, Any]:
        return self.call("fathom.tile_inventory", **{"prefix": "maps", "return_periods": PERIODS} | params)

    def stack(self, tile: dict[str, Any]) -> dict[str, Any]:
        return self.call("fathom.band_stack", **tile)

    def files(self, zone: str = "silver") -> list[str]:
        root = self.folder / zone
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def maps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("maps")
    synthetic_data.write_grid(folder, GRID)
    return folder


@pytest.fixture
def world(tmp_path, maps):
    shutil.copytree(maps, tmp_path / "bronze" / "maps")
    return World(tmp_path)


def refused(call: Any, *arguments: Any, **params: Any) -> str:
    with pytest.raises(PermanentError) as caught:
        call(*arguments, **params)
    assert caught.value.kind == "invalid_input"
    return str(caught.value)


@pytest.mark.parametrize(
    "name", ["tile_inventory", "band_stack", "grid_inventory", "spatial_merge", "stac_register"]
)
def test_each_handler_also_has_the_name_of_the_sources(name):
    assert HANDLERS.get(f"fathom_{name}") is HANDLERS.get(f"fathom.{name}")


def test_an_inventory_lists_tiles_with_their_files_and_where_they_lie(world):
    inventory = world.inventory()
    assert [tile["tile"] for tile in inventory["tiles"]] == ["n49e009", "n49e010", "n50e009", "n50e010"]
    first = inventory["tiles"][0]
    assert first["group"] == "fluvial-defended-2020-present"
    assert first["bbox"] == first["footprint"] == [9, 49, 10, 50]
    assert list(first["sources"]) == ["1in5", "1in10", "1in20"]
    assert first["sources"]["1in5"].endswith("/bronze/maps/fluvial/defended/2020/present/1in5/n49e009.tif")
    assert (
        inventory["counts"] | {"files": 12, "tiles": 4, "to_do": 4, "done": 0, "incomplete": 0}
        == inventory["counts"]
    )
    size = sum(path.stat().st_size for path in (world.folder / "bronze").rglob("*.tif"))
    assert inventory["megabytes"] == pytest.approx(size / 1e6, abs=1e-3)


def test_a_tile_that_lacks_return_periods_is_left_out_and_told_or_fails(world):
    (world.folder / "bronze/maps/fluvial/defended/2020/present/1in10/n50e009.tif").unlink()
    inventory = world.inventory()
    assert inventory["incomplete"] == [
        {"tile": "n50e009", "group": "fluvial-defended-2020-present", "missing": ["1in10"]}
    ]
    assert [tile["tile"] for tile in inventory["tiles"]] == ["n49e009", "n49e010", "n50e010"]
    # Its cell is lacking it.
    assert [tile["tile"] for tile in inventory["planned"]] == ["n49e009", "n49e010", "n50e010", "n50e009"]
    assert "1 of 4 tiles are incomplete: n50e009" in refused(world.inventory, incomplete="fail")


def test_a_grid_without_any_stack_is_a_failure_that_names_the_reason(world):
    inventory = world.inventory()
    failed = [{"index": 0, "error": {"kind": "invalid_input", "message": "n49e009: 1in5 has no CRS"}}]
    params = {"stacks": [None] * 4, "planned": inventory["planned"], "failed": failed, "cell_degrees": 5}
    message = refused(world.call, "fathom.grid_inventory", **params)
    assert (
        "all 4 planned tiles failed or are incomplete. The first error: n49e009: 1in5 has no CRS" in message
    )


def test_what_is_stacked_is_done_until_a_file_changes(world):
    tiles = world.inventory()["tiles"]
    stacks = [world.stack(tile) for tile in tiles[:3]]
    assert all(stack["created"] for stack in stacks)
    inventory = world.inventory()
    assert [tile["tile"] for tile in inventory["tiles"]] == ["n50e010"]
    assert [done["href"] for done in inventory["done"]] == [stack["href"] for stack in stacks]
    # What shapes a stack otherwise makes another one.
    assert world.inventory(compression="ZSTD")["counts"]["done"] == 0
    assert world.inventory(monotone="fix")["counts"]["done"] == 0
    assert world.inventory(redo=True)["counts"]["to_do"] == 4

    changed = world.folder / "bronze/maps/fluvial/defended/2020/present/1in20/n49e009.tif"
    data = changed.read_bytes()
    changed.unlink()
    changed.write_bytes(data + b"\0")
    assert [tile["tile"] for tile in world.inventory()["tiles"]] == ["n49e009", "n50e010"]


def test_a_limit_leaves_tiles_for_the_next_run_and_their_cells_wait(world):
    inventory = world.inventory(limit=1)
    assert [tile["tile"] for tile in inventory["tiles"]] == ["n49e009"]
    assert len(inventory["planned"]) - 1 == inventory["counts"]["later"] == 3
    grid = world.call(
        "fathom.grid_inventory",
        stacks=[world.stack(inventory["tiles"][0])],
        planned=inventory["planned"],
        cell_degrees=5,
    )
    # n49e009 is alone in its cell: its neighbours are beyond 50 N and 10 E.
    assert [cell["cell"] for cell in grid["cells"]] == ["n45e005_5deg"]
    assert [cell["cell"] for cell in grid["held"]] == ["n45e010_5deg", "n50e005_5deg", "n50e010_5deg"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"prefix": "nothing/here"}, "there are no files below"),
        ({"pattern": "{tile}-{return_period}.tif"}, "no pattern matches any of the 12 files"),
        ({"prefix": "../elsewhere"}, "'..' part"),
        ({"prefix": "/etc"}, "outside the allowed directories"),
        ({"zone": "copper"}, "there is no zone 'copper'"),
        ({"where": {"year": "1999"}}, "bbox and where select none of the 4 tiles"),
        ({"bbox": [100, 10, 101, 11]}, "select none of the 4 tiles: the first one is n49e009"),
        (
            {"return_periods": [5, 10, 5000]},
            "4 of 4 tiles are incomplete: n49e009 of fluvial-defended-2020-present lacks 1in5000. All of these have return_periods=[5, 10, 20]",
        ),
    ],
)
def test_a_place_with_nothing_to_do_is_refused_in_words(world, params, message):
    assert message in refused(world.inventory, **params)


def test_files_of_the_same_size_and_time_elsewhere_make_another_stack(world):
    shutil.copytree(world.folder / "bronze/maps", world.folder / "bronze/others")
    for path in (world.folder / "bronze").rglob("*.tif"):
        os.utime(path, (1e9, 1e9))
    one, other = (world.stack(world.inventory(prefix=prefix)["tiles"][0]) for prefix in ("maps", "others"))
    assert one["href"] != other["href"]


def test_a_stack_is_published_once_and_a_twin_changes_nothing(world):
    tile = world.inventory()["tiles"][0]
    first = world.stack(tile)
    before = {path: (world.folder / "silver" / path).stat().st_mtime_ns for path in world.files()}
    again = world.stack(tile)
    assert again == first | {"created": False}
    assert {path: (world.folder / "silver" / path).stat().st_mtime_ns for path in world.files()} == before
    assert list((world.folder / "scratch").rglob("*.tif")) == []
    raster = pixels(world.blobs.local_path(world.blobs.resolve(first["href"])))
    for place, source in enumerate(tile["sources"].values()):
        assert np.array_equal(raster[place], pixels(source.removeprefix("file://"))[0])


def test_bands_are_in_the_order_of_return_periods_whatever_the_order_of_the_sources(world):
    tile = world.inventory()["tiles"][0]
    turned = {
        "RP20": tile["sources"]["1in20"],
        "5": tile["sources"]["1in5"],
        "1in10": tile["sources"]["1in10"],
    }
    assert world.stack(tile | {"sources": turned})["href"] == world.stack(tile)["href"]
    assert "'often' is not a return period" in refused(world.stack, tile | {"sources": {"often": "x.tif"}})


def test_a_broken_or_missing_file_leaves_nothing_behind(world):
    tile = world.inventory()["tiles"][0]
    path = Path(tile["sources"]["1in10"].removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-600])
    assert "1in10" in refused(world.stack, tile)
    path.unlink()
    assert "1in10: there is no file at" in refused(world.stack, tile)
    assert world.files() == []


def cells_of(world: World, **params: Any) -> dict[str, Any]:
    inventory = world.inventory()
    stacks = [world.stack(tile) for tile in inventory["tiles"]]
    return world.call(
        "fathom.grid_inventory",
        stacks=stacks,
        planned=inventory["tiles"],
        done=inventory["done"],
        cell_degrees=30,
        **params,
    )


def test_cells_are_merged_once_and_are_done_then(world):
    grid = cells_of(world)
    assert grid["counts"] == {"stacks": 4, "cells": 1, "done": 0, "to_do": 1, "held": 0, "lacking_tiles": 0}
    cell = grid["cells"][0]
    assert cell["cell"] == "n30e000_30deg"
    assert cell["bbox"] == cell["footprint"] == [9, 49, 11, 51]
    merged = world.call("fathom.spatial_merge", **cell)
    assert (merged["created"], merged["tiles"], merged["bands"]) == (True, 4, ["1in5", "1in10", "1in20"])
    again = cells_of(world)
    assert [done["href"] for done in again["done"]] == [merged["href"]]
    assert again["cells"] == []
    assert world.call("fathom.spatial_merge", **cell) == merged | {"created": False}
    # One stack for each tile, the cell and its item: no part stays.
    assert len(world.files()) == 6


def test_a_cell_without_its_item_is_not_done(world):
    """Its worker died between the two."""
    cell = cells_of(world)["cells"][0]
    merged = world.call("fathom.spatial_merge", **cell)
    (item,) = (world.folder / "silver").rglob("*.json")
    message = item.read_text()
    item.unlink()
    world.catalog = Catalog()
    assert "no item next to it" in refused(world.call, "fathom.stac_register", done=[merged | {"item": None}])
    assert cells_of(world)["counts"]["to_do"] == 1
    again = world.call("fathom.spatial_merge", **cell)
    assert again == merged | {"created": False}
    assert item.read_text() == message


def test_the_item_of_a_cell_tells_what_it_is_and_what_it_is_made_of(world):
    cell = cells_of(world)["cells"][0]
    merged = world.call("fathom.spatial_merge", **cell)
    item = merged["item"]
    path = world.blobs.local_path(world.blobs.resolve(merged["href"]))
    assert item["assets"]["data"]["file:checksum"] == f"1220{hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert item["bbox"] == pytest.approx([9, 49, 11, 51])
    assert item["properties"]["datetime"] == "2020-01-01T00:00:00Z"
    assert [one["href"] for one in item["properties"]["dagmaster:sources"]] == list(cell["stacks"].values())


def test_cells_are_registered_in_a_collection_with_the_item_next_to_them(world):
    cell = cells_of(world)["cells"][0]
    merged = world.call("fathom.spatial_merge", **cell)
    world.catalog = Catalog()
    now = world.call("fathom.stac_register", merged=[merged, None], collection_id="floods")
    later = world.call(
        "fathom.stac_register", done=cells_of(world)["done"], collection_id="floods", when="2021-05-05"
    )
    first, second = world.catalog.registered
    assert (
        (now["item_ids"], now["created"]) == (later["item_ids"], 1) == ([f"{cell['group']}-n30e000_30deg"], 1)
    )
    assert first["collection"] == second["collection"] == world.catalog.made["id"] == "floods"
    assert [one["properties"].pop("datetime") for one in (first, second)] == [
        "2020-01-01T00:00:00Z",
        "2021-05-05T00:00:00Z",
    ]
    assert first == second


class Catalog:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}
        self.registered: list[dict[str, Any]] = []

    def ensure_collection(self, collection: dict[str, Any]) -> bool:
        self.made = collection
        return True

    def register(self, items: list[dict[str, Any]]) -> Registered:
        self.registered += items
        return Registered(created=len(items))


def test_a_cell_that_lacks_a_tile_is_held_back_or_merged_without_it(world):
    inventory = world.inventory()
    stacks: list[Any] = [world.stack(tile) for tile in inventory["tiles"]]
    stacks[2] = None
    params: dict[str, Any] = {"stacks": stacks, "planned": inventory["tiles"]}
    held = world.call("fathom.grid_inventory", **params, cell_degrees=5)
    assert [cell["cell"] for cell in held["cells"]] == ["n45e005_5deg", "n45e010_5deg", "n50e010_5deg"]
    assert held["held"] == [
        {"cell": "n50e005_5deg", "group": "fluvial-defended-2020-present", "lacking": ["n50e009"]}
    ]
    merged = world.call("fathom.grid_inventory", **params, cell_degrees=30, lacking="merge")
    assert list(merged["cells"][0]["stacks"]) == ["n49e009", "n49e010", "n50e010"]


def test_a_run_all_of_whose_cells_are_held_back_fails_unless_later_runs_go_on(world):
    inventory = world.inventory()
    params: dict[str, Any] = {
        "stacks": [world.stack(inventory["tiles"][0])],
        "planned": inventory["tiles"],
        "cell_degrees": 30,
    }
    failed = [{"index": 1, "error": {"kind": "invalid_input", "message": "1in5 is not a raster"}}]
    with pytest.raises(
        PermanentError,
        match=r"no cell can be merged.* n30e000_30deg .* lacks n49e010, n50e009, .*lacking=merge.*error: 1in5 is not",
    ):
        world.call("fathom.grid_inventory", **params, failed=failed)
    assert world.call("fathom.grid_inventory", **params, later=3)["counts"]["held"] == 1


def test_a_merge_that_was_ended_at_its_third_band_begins_there(world, monkeypatch):
    cell = cells_of(world)["cells"][0]
    collected: list[int] = []
    merge_band = merge.merge_band

    def counted(canvas: Any, band: int, *rest: Any) -> None:
        collected.append(band)
        merge_band(canvas, band, *rest)

    monkeypatch.setattr(merge, "merge_band", counted)
    world.fail_at = "merging band 1in20"
    with pytest.raises(KeyboardInterrupt):
        world.call("fathom.spatial_merge", **cell)
    assert [one.data for one in world.checkpoints] == [{"bands": 1}, {"bands": 2}]
    assert [name.rpartition("/")[2] for name in world.files() if "parts" in name] == [
        ".band1.tif",
        ".band2.tif",
    ]
    # They are taken away later: no item is made of them.
    result = PlaceParams().rasters(HandlerContext(services=world))
    assert [uri.name for uri in result if "/parts/" in uri.name] == []

    world.fail_at = ""
    collected.clear()
    resumed = world.call("fathom.spatial_merge", **cell, last=world.checkpoints[-1])
    assert collected == [3]
    assert [name for name in world.files() if "parts" in name] == []
    result = pixels(world.blobs.local_path(world.blobs.resolve(resumed["href"])))
    for tile, href in cell["stacks"].items():
        north, east = 32 * (tile[:3] == "n49"), 32 * (tile[3:] == "e010")
        there = result[:, north : north + 32, east : east + 32]
        assert np.array_equal(there, pixels(href.removeprefix("file://")))


def test_a_checkpoint_whose_parts_are_gone_is_not_believed(world):
    cell = cells_of(world)["cells"][0]
    assert world.call("fathom.spatial_merge", **cell, last=Checkpoint("band 2", {"bands": 2}))["created"]
