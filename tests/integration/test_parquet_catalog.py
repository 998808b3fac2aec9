"""The catalog in a directory: all or nothing at every step of a write, and readable by others."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit
from urllib.request import url2pathname

import duckdb
import pyarrow.parquet as pq
import pytest
import stac_geoparquet.arrow

from dagmaster.errors import CatalogUnavailable
from dagmaster.geo.catalog import parquet_catalog, parquet_manifest, stac_parquet
from dagmaster.geo.catalog.parquet_catalog import ParquetCatalog
from dagmaster.geo.rules.stac_items import collection_link
from dagmaster.ports.catalog import Registered, Search
from tests.conformance.catalogs import a_collection, an_item

if TYPE_CHECKING:
    from collections.abc import Callable

USER = Path(__file__).parents[1] / "conformance" / "catalog_user.py"


class Died(BaseException):
    """The process is gone. Nothing catches it, and nothing is tidied up."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    target = ParquetCatalog(tmp_path / "catalog")
    target.ensure_collection(a_collection())
    target.register([an_item("old"), an_item("changed"), an_item("removed")])
    return tmp_path / "catalog"


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def steps(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object], die_at: int | None) -> int:
    """Do something, and die before the n-th step that touches the disk. How many steps it took."""
    taken = 0

    def counted(original: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object, **named: object) -> object:
            nonlocal taken
            taken += 1
            if taken == die_at:
                raise Died
            return original(*arguments, **named)

        return step

    with monkeypatch.context() as patch:
        for place, name in (
            (os, "fsync"),
            (Path, "replace"),
            (Path, "unlink"),
            (stac_parquet, "write_items"),
            (parquet_catalog, "_write_table"),
            (parquet_manifest, "_write_text"),
        ):
            patch.setattr(place, name, counted(getattr(place, name)))
        work()
    return taken


CHANGED = an_item("changed", properties={"v": 2})
WORK = {
    "register": (
        lambda catalog: catalog.register([an_item("new"), CHANGED]),
        ["changed", "new", "old", "removed"],
    ),
    "remove": (lambda catalog: catalog.remove("scenes", ["removed"]), ["changed", "old"]),
}


@pytest.mark.parametrize("name", WORK)
def test_a_writer_that_dies_at_any_step_leaves_all_or_nothing(root, monkeypatch, name, tmp_path):
    work, after = WORK[name]
    before = list(ParquetCatalog(root).items("scenes"))
    shutil.copytree(root, tmp_path / "copy")
    total = steps(monkeypatch, lambda: work(ParquetCatalog(root)), None)
    done = list(ParquetCatalog(root).items("scenes"))
    assert [item["id"] for item in done] == after
    seen = set()
    for die_at in range(1, total + 1):
        place = tmp_path / str(die_at)
        shutil.copytree(tmp_path / "copy", place)
        with pytest.raises(Died):
            steps(monkeypatch, partial(work, ParquetCatalog(place)), die_at)
        catalog = list(ParquetCatalog(place).items("scenes"))
        assert catalog in (before, done)
        seen.add(catalog == done)
        # The next writer is not disturbed, and sweeps what was left.
        work(ParquetCatalog(place))
        assert list(ParquetCatalog(place).items("scenes")) == done
        ParquetCatalog(place).register([an_item("z")])
        parts = json.loads((place / "parts.json").read_text())["parts"]
        named = {f"{folder}/{part['name']}" for part in parts for folder in ("items", "index")}
        assert files(place) == named | {"parts.json", ".lock", "collections/scenes.json"}
    assert seen == {True, False}


def test_a_merge_that_dies_changes_nothing(tmp_path, monkeypatch):
    target = ParquetCatalog(tmp_path / "made")
    target.ensure_collection(a_collection())
    for number in range(7):
        target.register([an_item(f"i{number}")])
    shutil.copytree(tmp_path / "made", tmp_path / "copy")
    total = steps(monkeypatch, lambda: target.register([an_item("i7")]), None)
    assert len(target._manifest.current()) == 1
    whole = [an_item(f"i{number}") for number in range(8)]
    for die_at in range(1, total + 1, 2):
        place = tmp_path / str(die_at)
        shutil.copytree(tmp_path / "copy", place)
        with pytest.raises(Died):
            steps(monkeypatch, partial(ParquetCatalog(place).register, [an_item("i7")]), die_at)
        assert list(ParquetCatalog(place).items("scenes")) in (whole, whole[:-1])
        ParquetCatalog(place).register(whole)
        assert list(ParquetCatalog(place).items("scenes")) == whole


def test_writers_that_are_killed_lose_no_call_that_was_answered(tmp_path):
    place = tmp_path / "catalog"
    users = [
        subprocess.Popen(
            [sys.executable, str(USER), str(place), str(number), "1000", "2"], stdout=subprocess.DEVNULL
        )
        for number in range(2)
    ]
    catalog = ParquetCatalog(place)
    enough = 30
    for user in users:
        while len(catalog.search(Search(limit=enough))) < enough and user.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                user.wait(0.02)
        enough += 20
        user.send_signal(signal.SIGKILL)
        user.wait()
    items = [item["id"] for item in catalog.items("shared")]
    assert len(items) == len(set(items)) >= 30
    # Calls are whole: two items of its own, and two that all have.
    calls = {tuple(name.split("-")[:-1]) for name in items}
    assert len(items) == 2 * len(calls)
    assert catalog.register([an_item("z", collection="shared")]) == Registered(created=1)


def test_many_small_parts_become_few_and_nothing_is_lost(root):
    catalog = ParquetCatalog(root)
    for number in range(40):
        catalog.register([an_item(f"i{number:02}", properties={"v": number if number % 2 else str(number)})])
    assert len(catalog._manifest.current()) <= 15
    assert [item["id"] for item in catalog.items("scenes")][1:-2] == [f"i{number:02}" for number in range(40)]
    assert catalog.counts() == {"scenes": 43}


def test_a_reader_whose_parts_are_merged_away_reads_the_newer_ones(root, monkeypatch):
    catalog = ParquetCatalog(root)
    stale = catalog._manifest.current()
    ParquetCatalog(root).register([CHANGED])
    answers = [stale]
    real = catalog._manifest.current
    monkeypatch.setattr(catalog._manifest, "current", lambda: answers.pop() if answers else real())
    assert catalog.item("scenes", "changed") == CHANGED


def test_a_search_looks_on_where_the_first_rows_only_seem_to_fit(root, monkeypatch):
    monkeypatch.setattr(parquet_catalog, "FIRST_PAGE_SLACK", 1)
    triangle = {"type": "Polygon", "coordinates": [[[30, 0], [40, 0], [30, 10], [30, 0]]]}
    seeming = [
        an_item(f"i{number}", geometry=triangle, bbox=[30, 0, 40, 10], when="2026-02-01T00:00:00Z")
        for number in range(9)
    ]
    catalog = ParquetCatalog(root)
    catalog.register([*seeming, an_item("met", box=(38, 8, 39, 9))])
    assert [item["id"] for item in catalog.search(Search(bbox=(38, 8, 39, 9), limit=2))] == ["met"]


def test_a_full_disk_is_reported_and_leaves_nothing(root, monkeypatch):
    before = files(root)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parquet_manifest, "_write_text", full)
    with pytest.raises(CatalogUnavailable, match="No space left"):
        ParquetCatalog(root).register([an_item("new")])
    monkeypatch.undo()
    assert ParquetCatalog(root).item("scenes", "new") is None
    ParquetCatalog(root).register([])
    assert ParquetCatalog(root).remove("scenes", ["none"]) == 0
    assert files(root) == before


def test_a_foreign_file_is_reported(root):
    (root / "parts.json").write_text('{"format": 99, "parts": []}')
    with pytest.raises(CatalogUnavailable, match="format 99"):
        ParquetCatalog(root).search(Search())
    (root / "parts.json").write_text("{")
    with pytest.raises(CatalogUnavailable, match="cannot be read"):
        ParquetCatalog(root).register([an_item("x")])


def test_others_read_the_items_as_stac_geoparquet(root):
    catalog = ParquetCatalog(root)
    catalog.register(
        [an_item(f"i{number}", properties={"cloud": number / 2, "odd": {}}) for number in range(3)]
    )
    catalog.register([an_item("wild", properties={"cloud": "none", "odd": [1, "x"]}, assets={})])
    catalog.register([CHANGED])
    paths = sorted(root.glob("items/*.parquet"))
    expected = sorted(item["id"] for item in catalog.items("scenes"))
    rows = duckdb.execute(
        f"SELECT id, bbox.xmin FROM read_parquet('{root}/items/*.parquet', union_by_name = true)"
    ).fetchall()
    assert sorted(row[0] for row in rows) == expected
    assert {row[1] for row in rows} == {10.0}
    geopandas = pytest.importorskip("geopandas")
    frames = [geopandas.read_parquet(path) for path in paths]
    assert sorted(name for frame in frames for name in frame["id"]) == expected
    assert {tuple(bounds) for frame in frames for bounds in frame.geometry.bounds.to_numpy()} == {
        (10, 50, 11, 51)
    }
    items = [
        item for path in paths for item in stac_geoparquet.arrow.stac_table_to_items(pq.read_table(path))
    ]
    assert sorted(item["id"] for item in items) == expected
    (plain,) = [item for item in items if item["id"] == "old"]
    assert plain["geometry"] == an_item()["geometry"]
    assert plain["assets"]["data"]["href"] == "file:///silver/old.tif"


@pytest.mark.parametrize("name", ["scenes", "a/b c", ".hidden", "50%", "Ünïcødé", "x" * 400])
def test_the_link_of_an_item_leads_to_its_collection(root, name):
    catalog = ParquetCatalog(root)
    catalog.ensure_collection(a_collection(name))
    catalog.register([an_item("linked", collection=name, links=[collection_link(name)])])
    item = catalog.item(name, "linked")
    assert item is not None
    (link,) = item["links"]
    a_file = next((root / "items").glob("*.parquet")).as_uri()
    result = Path(url2pathname(urlsplit(urljoin(a_file, link["href"])).path))
    assert json.loads(result.read_text())["id"] == name


def test_nothing_of_the_catalog_has_a_name_by_which_stac_means_something_else(root):
    assert not [
        name for name in files(root) if name.rpartition("/")[2] in ("catalog.json", "collection.json")
    ]


def test_assets_named_after_their_files_make_no_table_of_thousands_of_columns(root):
    catalog = ParquetCatalog(root)
    items = [an_item(f"i{number}", assets={f"file-{number}": {"href": "x"}}) for number in range(600)]
    catalog.register(items)
    widest = max(len(pq.read_schema(path).field("assets").type) for path in root.glob("items/*.parquet"))
    assert widest < 10
    assert catalog.item("scenes", "i7") == items[7]
