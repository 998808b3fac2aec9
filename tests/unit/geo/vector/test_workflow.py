"""The workflow that ships: countries into chunks, into a table, into the catalog."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyogrio
import pytest
import shapely

from dagmaster.authoring.compiler.compile import compile_file
from dagmaster.bootstrap import find_handlers
from dagmaster.geo.catalog.parquet_catalog import ParquetCatalog
from dagmaster.geo.vector.models import GeometryRules
from dagmaster.ports.catalog import Search
from dagmaster.ports.footprints import footprint_of
from dagmaster.testing import run_workflow
from tests.conformance.table_worker import tables_at
from tests.unit.geo.vector.test_natural_earth import (
    COUNTRIES,
    SHAPEFILE,
    as_multi,
    collection,
    shapes_of,
)

ROOT = Path(__file__).parents[4]


def run(services: Any, **inputs: Any) -> Any:
    handlers = find_handlers()
    graph = compile_file(ROOT / "workflows/vector_etl.yaml", handlers=handlers).graph
    return run_workflow(graph, inputs, handlers=handlers, services=services)


@pytest.mark.parametrize("target", ["parquet", pytest.param("postgis", marks=pytest.mark.process)])
def test_countries_become_a_table_that_is_found_by_place(request, services, target):
    if target == "postgis":
        services.tables = tables_at(request.getfixturevalue("postgis"))
    services.catalog = ParquetCatalog(services.folder / "catalog")
    shutil.copytree(SHAPEFILE.parent, services.folder / "bronze")
    report = run(services, href="naturalearth_lowres.shp", chunk_rows=25, table="world")
    assert report.status == "COMPLETED", report
    assert (report.result["table"], report.result["rows"]) == ("world", COUNTRIES)
    _, countries = pyogrio.raw.read_arrow(SHAPEFILE)
    countries, back = countries.sort_by("name"), services.tables.read("world").sort_by("name")
    assert back["gdp_md_est"].to_pylist() == countries["gdp_md_est"].to_pylist()
    assert shapely.equals_identical(shapes_of(back), as_multi(shapes_of(countries))).all()
    items = services.catalog.search(Search(collections=("vectors",), bbox=(10, 50, 11, 51)))
    assert [item["id"] for item in items] == ["world"]
    assert items[0]["properties"]["table:row_count"] == COUNTRIES
    # Fewer chunks the next time: those of the first run are gone, and nothing is there twice.
    again = run(services, href="naturalearth_lowres.shp", chunk_rows=100, table="world")
    assert again.result["rows"] == COUNTRIES
    info = services.tables.describe("world")
    assert info is not None
    assert [one[:6] for one in info.chunks] == ["c00001", "c00002"]


@pytest.mark.parametrize("name", list(GeometryRules.model_fields))
def test_every_rule_for_geometries_is_an_input_as_the_handler_has_it(name):
    declared = compile_file(ROOT / "workflows/vector_etl.yaml", handlers=find_handlers()).graph.inputs[name]
    field = GeometryRules.model_json_schema()["properties"][name]
    assert (declared.get("enum"), declared.get("default")) == (field.get("enum"), field["default"])


def test_the_rules_for_geometries_go_through_the_workflow(services):
    services.catalog = ParquetCatalog(services.folder / "catalog")
    points = [shapely.Point(1, 2, 3), None, shapely.Point(4, 5), shapely.Point(50, 5)]
    href = services.put("p.geojson", collection(*points))
    assert "Set heights: drop" in json.dumps(run(services, href=href).nodes["prepare"])
    report = run(services, href=href, heights="drop", missing_geometry="drop", clip_bbox=[0, 0, 10, 10])
    assert (report.status, report.result["rows"]) == ("COMPLETED", 2), report


def test_another_file_of_the_same_name_does_not_take_the_place_of_the_first(services):
    services.catalog = ParquetCatalog(services.folder / "catalog")
    for folder, count in (("a", 3), ("b", 2)):
        features = [
            {"type": "Feature", "properties": {"n": n}, "geometry": {"type": "Point", "coordinates": [n, 1]}}
            for n in range(count)
        ]
        (services.folder / "bronze" / folder).mkdir(parents=True)
        text = json.dumps({"type": "FeatureCollection", "features": features})
        (services.folder / "bronze" / folder / "roads.geojson").write_text(text)
    assert run(services, href="a/roads.geojson").result["rows"] == 3
    refused = run(services, href="b/roads.geojson")
    assert refused.status == "FAILED"
    assert "a/roads.geojson, not from" in str(refused)
    assert services.tables.read("roads").num_rows == 3
    assert run(services, href="a/roads.geojson").result["rows"] == 3
    assert run(services, href="b/roads.geojson", replace=True).result["rows"] == 2


def test_a_chunk_says_where_it_lies(services):
    shutil.copytree(SHAPEFILE.parent, services.folder / "bronze")
    prepared = services.run("vector.prepare", href="naturalearth_lowres.shp", chunk_rows=50, target_crs="EPSG:6933", outside="clip")  # fmt: skip
    places = [footprint_of(chunk) for chunk in prepared["chunks"]]
    assert all(
        -180 <= west < east <= 180 and -90 <= south < north <= 90 for west, south, east, north in places
    )
    assert places[0] != prepared["chunks"][0]["bbox"]
