"""The FATHOM workflow that ships, with deliveries that have fewer return periods than eight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import rasterio

from dagmaster.authoring.compiler.compile import compile_file
from dagmaster.bootstrap import find_handlers
from dagmaster.geo.fathom.synthetic_data import SyntheticGrid, write_grid
from dagmaster.testing import local_services, run_workflow

if TYPE_CHECKING:
    from dagmaster.testing import JobReport

ROOT = Path(__file__).parents[4]


def run(folder: Path, **inputs: Any) -> JobReport:
    handlers = find_handlers()
    graph = compile_file(ROOT / "workflows/fathom_flood.yaml", handlers=handlers).graph
    inputs = {"prefix": "maps", "cell_degrees": 4, **inputs}
    return run_workflow(graph, inputs, handlers=handlers, services=local_services(folder))


@pytest.fixture
def delivery(tmp_path: Path) -> Path:
    write_grid(
        tmp_path / "bronze" / "maps", SyntheticGrid(columns=2, rows=1, pixels=16, return_periods=(10, 100))
    )
    return tmp_path


def test_the_return_periods_of_a_delivery_are_an_input(delivery: Path):
    report = run(delivery, return_periods=[10, 100])
    assert report.status == "COMPLETED", report
    assert len(report.result["items"]) == 1
    (cell,) = (delivery / "silver").rglob("*deg*.tif")
    with rasterio.open(cell) as raster:
        assert raster.descriptions == ("1in10", "1in100")


def test_a_job_that_can_make_nothing_fails_and_names_the_return_periods_that_there_are(delivery: Path):
    report = run(delivery)
    assert report.status == "FAILED"
    assert "2 of 2 tiles are incomplete" in json.dumps(report.nodes["inventory"])
    assert "return_periods=[10, 100]" in json.dumps(report.nodes["inventory"])


def test_a_job_whose_tiles_all_fail_is_a_failure_that_names_the_first_reason(delivery: Path):
    for path in (delivery / "bronze").rglob("*.tif"):
        path.write_bytes(b"no raster")
    report = run(delivery, return_periods=[10, 100])
    assert report.status == "FAILED"
    assert "no tile was stacked: all 2 planned tiles failed" in json.dumps(report.nodes["grid"])
    assert "The first error: n49e009: 1in10" in json.dumps(report.nodes["grid"])
