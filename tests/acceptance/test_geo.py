"""The shipped raster workflows on real data, with verified results, in this process.

The last tests run examples/landsat.py, which kills a worker of a real fleet.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rasterio.warp
from PIL import Image
from rio_cogeo.cogeo import cog_validate
from shapely import unary_union
from shapely.geometry import box, shape

from dagmaster.authoring.sibling_workflows import compile_with_children
from dagmaster.bootstrap import find_handlers
from dagmaster.bootstrap.services_config import handler_services_config
from dagmaster.ports.catalog import Search
from dagmaster.settings import Settings
from dagmaster.testing import run_workflow
from dagmaster.worker.lazy_services import LazyServices
from tests.acceptance.background_process import Process
from tests.acceptance.fork_server import run_command
from tests.patience import PATIENCE_SECONDS
from tests.server_folders import copy_migrated_cluster, server_folder

ROOT = Path(__file__).parents[2]
SCENE = ROOT / "examples" / "data" / "landsat7_olinda.tif"
HANDLERS = find_handlers(settings=Settings())


class Sandbox:
    """A folder with zones, catalog and tables, and the scene in bronze."""

    def __init__(self, folder: Path) -> None:
        (folder / "bronze").mkdir(parents=True)
        shutil.copy(SCENE, folder / "bronze")
        self.settings = Settings(blob_dir=folder, scratch_dir=folder / "scratch", concurrency=2)
        self.services = LazyServices(handler_services_config(self.settings, folder))

    def run(self, file: str, **inputs):
        """Run a workflow in this process."""
        path = ROOT / file
        compiled, children = compile_with_children(path, HANDLERS)
        services = LazyServices(handler_services_config(self.settings, processes=2))
        report = run_workflow(compiled.graph, inputs, handlers=HANDLERS, children=children, services=services)
        assert report.status == "COMPLETED", report.error
        return report

    def path(self, url: str) -> Path:
        return Path(url.removeprefix("file://"))

    def item(self, collection: str, item_id: str) -> dict[str, Any]:
        item = self.services.catalog.item(collection, item_id)
        assert item is not None
        return item


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory):
    return Sandbox(tmp_path_factory.mktemp("geo") / "blobs")


def is_cog(path: Path) -> bool:
    valid, errors, warnings = cog_validate(str(path))
    return valid and not errors and not warnings


def test_a_tiled_raster_is_mosaicked_pixel_by_pixel_and_found_by_its_extent_and_a_second_run_creates_no_files(
    sandbox,
):
    result = sandbox.run("workflows/raster_tiled.yaml", href="landsat7_olinda.tif", tile_size=200).result
    path = sandbox.path(result["cog_url"])
    with rasterio.open(SCENE) as scene, rasterio.open(path) as result_raster:
        assert np.array_equal(scene.read(), result_raster.read())
        assert result_raster.crs == scene.crs
        assert result_raster.transform.almost_equals(scene.transform)
        west, south, east, north = rasterio.warp.transform_bounds(scene.crs, "OGC:CRS84", *scene.bounds)
    assert is_cog(path)
    assert result["tiles"] == 4
    (item,) = sandbox.services.catalog.search(
        Search(bbox=(west, south, east, north), collections=("rasters",))
    )
    assert item["id"] == result["item_id"]
    assert box(west, south, east, north).buffer(1e-5).contains(shape(item["geometry"]))
    assert item["bbox"] == pytest.approx([west, south, east, north], abs=1e-5)

    before = sorted(path for path in sandbox.settings.blob_dir.rglob("*.tif"))
    assert (
        sandbox.run("workflows/raster_tiled.yaml", href="landsat7_olinda.tif", tile_size=200).result == result
    )
    assert sorted(path for path in sandbox.settings.blob_dir.rglob("*.tif")) == before


@pytest.mark.parametrize("file", ["workflows/process_raster.yaml", "examples/sources/process_raster.yaml"])
def test_a_raster_is_reprojected_to_degrees_as_by_gdal(sandbox, file):
    source = {"container_name": "bronze", "file_name": "landsat7_olinda.tif", "dataset_id": "olinda"}
    when = {"datetime": "2001-07-13T10:00:00Z"} if file.startswith("workflows") else {}
    report = sandbox.run(file, **source, **when)
    path = sandbox.path(report.nodes["cog_translate"]["output"]["cog_path"])
    with rasterio.open(SCENE) as scene, rasterio.open(path) as result_raster:
        assert result_raster.crs.to_epsg() == 4326
        expected = rasterio.warp.transform_bounds(scene.crs, result_raster.crs, *scene.bounds, densify_pts=21)
        assert result_raster.bounds == pytest.approx(expected, abs=2 * max(result_raster.res))
        assert result_raster.count == scene.count
    assert is_cog(path)
    registered = report.nodes["update_stac"]["output"]
    # The source's listing names no collection.
    assert registered["collection_id"] == ("olinda" if file.startswith("workflows") else "default-collection")
    item = sandbox.item(registered["collection_id"], registered["item_id"])
    data = [asset for asset in item["assets"].values() if "data" in asset.get("roles", ())]
    assert [sandbox.path(asset["href"]) for asset in data] == [path]
    if file.startswith("workflows"):
        assert item["properties"]["datetime"] == "2001-07-13T10:00:00Z"
        assert "dagmaster:datetime_assumed" not in item["properties"]
        thumbnails = [
            asset["href"] for asset in item["assets"].values() if "thumbnail" in asset.get("roles", ())
        ]
        assert [sandbox.path(href).read_bytes()[:8] for href in thumbnails] == [b"\x89PNG\r\n\x1a\n"]


@pytest.mark.parametrize(
    "file", ["workflows/raster_processing.yaml", "examples/sources/raster_processing_v1.yaml"]
)
def test_a_small_raster_takes_the_branch_for_small_rasters(sandbox, file):
    when = {"datetime": "2001-07-13T10:00:00Z"} if file.startswith("workflows") else {}
    report = sandbox.run(
        file, container_name="bronze", blob_name="landsat7_olinda.tif", collection_id="by-size", **when
    )
    statuses = {name: report.nodes[name]["status"] for name in ("process_fa", "process_docker_memory")}
    assert statuses == {"process_fa": "COMPLETED", "process_docker_memory": "SKIPPED"}
    result_raster = report.nodes["process_fa"]["output"]
    with rasterio.open(SCENE) as scene, rasterio.open(sandbox.path(result_raster["cog_url"])) as cog:
        assert np.array_equal(scene.read(), cog.read())
    item = sandbox.item("by-size", report.nodes["register_stac"]["output"]["item_id"])
    assert result_raster["cog_url"] in [asset["href"] for asset in item["assets"].values()]
    assert item["properties"]["datetime"] == when.get("datetime", item["properties"]["datetime"])


def test_the_sum_of_zones_is_the_sum_of_their_pixels(sandbox):
    west, south, east, north = -34.90, -8.03, -34.84, -7.97
    middle = (west + east) / 2
    zones = [("west", (west, south, middle, north)), ("east", (middle, south, east, north))]
    features = [
        {
            "type": "Feature",
            "properties": {"name": name},
            "geometry": json.loads(json.dumps(box(*bounds).__geo_interface__)),
        }
        for name, bounds in zones
    ]
    report = sandbox.run(
        "workflows/user_pipeline.yaml",
        href="landsat7_olinda.tif",
        aoi=[west, south, east, north],
        zones=features,
    )
    with rasterio.open(sandbox.path(report.result["clipped"])) as clipped:
        band = clipped.read(1, masked=True)
        inside = rasterio.warp.transform_bounds("OGC:CRS84", clipped.crs, west, south, east, north)
        assert box(*clipped.bounds).intersection(box(*inside)).area == pytest.approx(
            box(*inside).area, rel=0.02
        )
    first = [zone for zone in report.result["statistics"] if zone.get("band", 1) == 1]
    assert sum(zone["count"] for zone in first) == pytest.approx(band.count(), rel=0.03)
    assert sum(zone["sum"] for zone in first) == pytest.approx(float(band.sum()), rel=0.03)


def test_the_demo_waits_for_no_tile_of_a_job_that_ended(tmp_path):
    watch = subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"])
    watch.wait()
    demo = runpy.run_path(str(ROOT / "examples" / "landsat.py"))
    assert not demo["wait_for_tile"](tmp_path, watch)


def test_the_demo_does_not_share_the_database_of_running_services(tmp_path):
    with server_folder() as folder:
        copy_migrated_cluster(folder / "data")
        env = {**os.environ, "DAGMASTER_DATA_DIR": str(folder / "data"), "TMPDIR": str(tmp_path)}
        other = Process(["orchestrator"], env, subprocess.Popen)
        try:
            other.until("is ready")
            command = [sys.executable, str(ROOT / "examples" / "landsat.py"), "--chaos"]
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
            )
        finally:
            other.end()
        assert done.returncode == 1
        assert "runs on the same database" in done.stderr
        assert "submitted" not in done.stdout


def test_a_killed_worker_changes_no_pixel(tmp_path):
    with server_folder() as folder:
        copy_migrated_cluster(folder / "data")
        # One process a worker: each imports the libraries of rasters.
        env = {
            **os.environ, "DAGMASTER_DATA_DIR": str(folder / "data"), "DAGMASTER_SCRATCH_DIR": str(tmp_path),
            "DAGMASTER_PROCESSES": "1", "TMPDIR": str(tmp_path),
        }  # fmt: skip
        command = [sys.executable, str(ROOT / "examples" / "landsat.py"), "--chaos", "--tile-size", "64"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "kill -9" in done.stdout
        assert "✘" not in done.stdout.split("checks")[1]

        def ask(*arguments: str) -> str:
            answer = run_command(*arguments, env=env, timeout=PATIENCE_SECONDS)
            assert answer.returncode == 0, answer.stderr
            return answer.stdout

        tiles = json.loads(ask("jobs", "footprints", "last"))["features"]
        assert {tile["properties"]["status"] for tile in tiles} == {"COMPLETED"}
        with rasterio.open(SCENE) as scene:
            bounds = rasterio.warp.transform_bounds(scene.crs, "OGC:CRS84", *scene.bounds)
            across, down = -(-scene.width // 64), -(-scene.height // 64)
        assert len(tiles) == across * down
        assert unary_union([shape(tile["geometry"]) for tile in tiles]).bounds == pytest.approx(
            bounds, abs=1e-5
        )
        ask("jobs", "map", "last", "-o", str(tmp_path / "run.png"), "--width", "400")
        with Image.open(tmp_path / "run.png") as picture:
            # The sea, the land, and tiles that are done.
            pixels = np.asarray(picture.convert("RGB")).astype(int)
        red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
        assert ((green > red + 40) & (green > blue + 20)).mean() > 0.3
