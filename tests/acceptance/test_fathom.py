"""Flood maps from files to catalog, as an operator runs them: one tile is broken, is repaired, and is redone alone."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pystac
import pytest
import rasterio
from rio_cogeo.cogeo import cog_validate
from stac_pydantic import Item

from dagmaster.geo.catalog.parquet_catalog import ParquetCatalog
from dagmaster.geo.fathom import synthetic_data
from dagmaster.geo.fathom.depth_codes import RETURN_PERIODS, band_name
from dagmaster.ports.catalog import Search
from tests.acceptance.fork_server import DAGMASTER, ROOT, run_command
from tests.environment import without_settings
from tests.patience import PATIENCE_SECONDS
from tests.server_folders import copy_migrated_cluster, server_folder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

GRID = synthetic_data.SyntheticGrid(columns=2, rows=2, west=8, south=49, pixels=40)
BROKEN = "n50e009"
GROUP = "fluvial-defended-2020-present"


class Scenario:
    """A database with its zones, and the outputs of the commands of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blobs = folder / "data-blobs"
        kept = without_settings()
        self.env = kept | {"DAGMASTER_DATA_DIR": str(folder / "data")}

    def play(self) -> None:
        synthetic_data.write_grid(self.blobs / "bronze" / "maps", GRID)
        broken = self.blobs / "bronze" / "maps" / GRID.file_name(BROKEN, 100)
        whole = broken.read_bytes()
        broken.write_bytes(whole[: len(whole) // 2])
        with self.dev():
            self.first = self.run("submit", "workflows/fathom_flood.yaml", *INPUTS, "--wait")
            self.after_first = self.files()
            self.nodes = self.run("jobs", "show", "last", "--all")["nodes"]
            broken.write_bytes(whole)
            self.planned = self.run("jobs", "resume", "last", "--from", "stack__3", "--dry-run")
            self.resumed = self.run("jobs", "resume", "last", "--from", "stack__3", "--wait")
            self.after_resume, self.registered = self.files(), self.items()
            self.second = self.run("submit", "workflows/fathom_flood.yaml", *INPUTS, "--wait")

    def dev(self) -> Any:
        process = subprocess.Popen(
            [DAGMASTER, "dev", "--port", "0", "--concurrency", "1"],
            cwd=ROOT, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        return Dev(process)

    def run(self, *arguments: str) -> Any:
        done = run_command(*arguments, "--json", env=self.env)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def files(self) -> dict[str, int]:
        """Return the files in silver, and when they were written."""
        silver = self.blobs / "silver"
        return {
            str(path.relative_to(silver)): path.stat().st_mtime_ns
            for path in silver.rglob("*")
            if path.is_file()
        }

    def items(self) -> list[dict[str, Any]]:
        items = ParquetCatalog(self.blobs / "catalog").search(Search(collections=("fathom-flood",)))
        return sorted(items, key=lambda item: str(item["id"]))

    def raster(self, kind: str, name: str) -> Path:
        (path,) = (self.blobs / "silver" / "fathom" / kind / GROUP).glob(f"{name}-*.tif")
        return path


class Dev:
    """`dagmaster dev`, from the moment when it is ready."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def __enter__(self) -> None:
        assert self.process.stdout is not None
        if not any(line.startswith("ready in") for line in iter(self.process.stdout.readline, "")):
            raise AssertionError(f"dagmaster dev ended with code {self.process.wait(PATIENCE_SECONDS)}")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE_SECONDS)


def short_names(files: Iterable[str]) -> list[str]:
    """Return the files without folders and fingerprints."""
    return sorted(re.sub(r".*/([^/]+)-\w+\.(\w+)", r"\1 \2", file) for file in files)


INPUTS = ("-i", "prefix=maps", "-i", "cell_degrees=2")


@pytest.fixture(scope="module")
def scenario():
    with server_folder() as folder:
        copy_migrated_cluster(folder / "data")
        scenario = Scenario(folder)
        scenario.play()
        yield scenario


# The scenario takes long, and tests of one module may run in several processes: so there are few tests.


def test_only_a_broken_tile_fails_and_is_redone_and_a_second_job_changes_nothing(scenario):
    a_truncated_file_fails_its_tile_alone_and_holds_its_cell_back(scenario)
    the_repaired_tile_is_redone_alone_with_its_cell(scenario)
    a_second_job_finds_everything_done_and_changes_nothing(scenario)


def test_the_results_are_correct(scenario):
    every_pixel_of_the_sources_is_in_the_cells_at_its_place_and_return_period(scenario)
    stacks_and_cells_are_cogs(scenario)
    the_catalog_finds_the_cells_by_place_and_year_and_they_are_stac(scenario)


def a_truncated_file_fails_its_tile_alone_and_holds_its_cell_back(scenario: Scenario) -> None:
    result = scenario.first["result"]
    (failed,) = result["failed_tiles"]
    assert failed["index"] == 3
    assert failed["error"]["kind"] == "invalid_input"
    assert f"{BROKEN}: 1in100 cannot be read to its end" in failed["error"]["message"]
    assert f"{BROKEN}.tif]" in failed["error"]["message"]
    assert "See previous exception" not in failed["error"]["message"]
    assert "Traceback" not in json.dumps(failed)
    # It was tried once: no retry repairs a file.
    assert scenario.nodes["stack__3"]["attempt"] == 1
    assert result["held_cells"] == [{"cell": "n50e008_2deg", "group": GROUP, "lacking": [BROKEN]}]
    assert result["items"] == [f"{GROUP}-n48e008_2deg"]
    assert short_names(scenario.after_first) == [
        "n48e008_2deg json",
        "n48e008_2deg tif",
        *(f"{tile} tif" for tile in GRID.tiles[:3]),
    ]


def the_repaired_tile_is_redone_alone_with_its_cell(scenario: Scenario) -> None:
    assert scenario.planned["redone"][0]["children"] == {"reused": 3, "redone": 1}
    new = set(scenario.after_resume) - set(scenario.after_first)
    assert short_names(new) == ["n50e008_2deg json", "n50e008_2deg tif", f"{BROKEN} tif"]
    assert {name: scenario.after_resume[name] for name in scenario.after_first} == scenario.after_first
    assert scenario.resumed["result"]["failed_tiles"] == []
    assert scenario.resumed["result"]["items"] == [f"{GROUP}-n48e008_2deg", f"{GROUP}-n50e008_2deg"]


def a_second_job_finds_everything_done_and_changes_nothing(scenario: Scenario) -> None:
    assert scenario.second["result"]["tiles"]["done"] == 4
    assert scenario.second["result"]["tiles"]["to_do"] == scenario.second["result"]["cells"]["to_do"] == 0
    assert scenario.second["result"]["items"] == scenario.resumed["result"]["items"]
    assert scenario.files() == scenario.after_resume
    assert scenario.items() == scenario.registered


def every_pixel_of_the_sources_is_in_the_cells_at_its_place_and_return_period(scenario: Scenario) -> None:
    for number, (cell, south) in enumerate((("n48e008_2deg", 49), ("n50e008_2deg", 50))):
        with rasterio.open(scenario.raster("cells", cell)) as raster:
            merged = raster.read()
            assert tuple(raster.bounds) == (8, south, 10, south + 1)
            assert raster.crs.to_epsg() == 4326
            assert raster.descriptions == tuple(map(band_name, RETURN_PERIODS))
        tiles = GRID.tiles[2 * number : 2 * number + 2]
        for band, period in enumerate(RETURN_PERIODS):
            sources = [
                rasterio.open(scenario.blobs / "bronze" / "maps" / GRID.file_name(tile, period))
                for tile in tiles
            ]
            assert np.array_equal(merged[band], np.hstack([source.read(1) for source in sources]))
            for source in sources:
                source.close()
        depths = np.where(merged < 0, 0, merged)
        assert (np.diff(depths, axis=0) >= 0).all()


def stacks_and_cells_are_cogs(scenario: Scenario) -> None:
    files = list((scenario.blobs / "silver").rglob("*.tif"))
    assert len(files) == 6
    for file in files:
        assert cog_validate(str(file), strict=True) == (True, [], [])


def the_catalog_finds_the_cells_by_place_and_year_and_they_are_stac(scenario: Scenario) -> None:
    catalog = ParquetCatalog(scenario.blobs / "catalog")
    (result,) = catalog.search(Search(bbox=(8.2, 50.2, 8.3, 50.3), datetime="2020-01-01T00:00:00Z"))
    assert result["id"] == f"{GROUP}-n50e008_2deg"
    assert result["bbox"] == pytest.approx([8, 50, 10, 51])
    assert result["assets"]["data"]["href"] == f"file://{scenario.raster('cells', 'n50e008_2deg')}"
    assert [band["name"] for band in result["assets"]["data"]["bands"]] == [
        band_name(one) for one in RETURN_PERIODS
    ]
    sources = {one["href"] for one in result["properties"]["dagmaster:sources"]}
    assert sources == {f"file://{scenario.raster('stacks', tile)}" for tile in ("n50e008", BROKEN)}
    assert result["properties"]["fathom:flood_type"] == "fluvial"
    for item in scenario.registered:
        Item.model_validate(item)
        # The core's schema comes with pystac. Those of the extensions are on the network.
        pystac.Item.from_dict({**item, "stac_extensions": []}).validate()
    assert not list((scenario.blobs / "silver").rglob("parts/*/*"))
