"""A layer with only null or empty geometries becomes a table without extent, completely or not at all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import shapely

from dagmaster.errors import PermanentError
from dagmaster.testing import local_services
from tests.conformance.table_worker import tables_at
from tests.unit.geo.vector.vector_context import FolderServices

if TYPE_CHECKING:
    from pathlib import Path

POINT = {"type": "Point", "coordinates": [1, 2]}
MISSING = [
    [None, None],
    [{"type": "Polygon", "coordinates": []}, None],
    [{"type": "GeometryCollection", "geometries": []}],
    [{"type": "LineString", "coordinates": []}, {"type": "Polygon", "coordinates": []}],
]


@pytest.fixture(params=["parquet", pytest.param("postgis", marks=pytest.mark.process)])
def services(request: pytest.FixtureRequest, tmp_path: Path) -> FolderServices:
    """Services with a catalog that refuses an item without geometry, as the real ones do."""
    place = (
        str(tmp_path / "tables") if request.param == "parquet" else str(request.getfixturevalue("postgis"))
    )
    services = FolderServices(tmp_path, tables_at(place))
    services.catalog = local_services(tmp_path).catalog
    return services


def layer(services: FolderServices, geometries: list[Any]) -> str:
    features = [
        {"type": "Feature", "properties": {"n": n}, "geometry": one} for n, one in enumerate(geometries)
    ]
    return services.put("x.geojson", {"type": "FeatureCollection", "features": features})


@pytest.mark.parametrize("geometries", MISSING, ids=json.dumps)
def test_the_table_has_all_rows_and_no_extent(services, geometries):
    output = services.run("vector.process_complete", href=layer(services, geometries), table="missing")
    assert (output["rows"], output["bbox"], output["is_registered"]) == (len(geometries), None, False)
    assert services.tables.read("missing")["n"].to_pylist() == list(range(len(geometries)))
    assert services.tables.describe("missing").bbox is None
    services.tables.drop("missing")


def test_an_entry_of_the_catalog_goes_when_its_table_has_no_extent_any_more(services):
    href = layer(services, [POINT])
    params = {"href": href, "table": "missing", "mixed_types": "geometry", "collection_id": "c"}
    first = services.run("vector.process_complete", **params)
    assert first["is_registered"]
    assert services.catalog.item("c", first["item_id"]) is not None
    services.tables.drop("missing")
    layer(services, [None])
    assert not services.run("vector.process_complete", **params)["is_registered"]
    assert services.catalog.item("c", first["item_id"]) is None
    services.tables.drop("missing")


@pytest.mark.parametrize("params", [{"missing_geometry": "drop"}, {"clip_bbox": [50, 50, 60, 60]}])
def test_nothing_is_written_when_no_feature_remains(services, params):
    href = layer(
        services, [None, {"type": "Point", "coordinates": []}] if "missing_geometry" in params else [POINT]
    )
    with pytest.raises(PermanentError, match=r"none of the \d features remains: all are without geometry"):
        services.run("vector.process_complete", href=href, table="missing", **params)
    assert services.tables.describe("missing") is None
    assert not list((services.folder / "silver").rglob("*"))


def test_an_empty_geometry_of_another_type_stands_in_a_table_of_multi_geometries(services):
    many = {"type": "MultiPoint", "coordinates": [[3, 4]]}
    empty = {"type": "LineString", "coordinates": []}
    output = services.run(
        "vector.process_complete", href=layer(services, [POINT, many, empty]), table="missing"
    )
    assert (output["rows"], output["bbox"]) == (3, [1, 2, 3, 4])
    table = services.tables.read("missing")
    shapes = shapely.from_wkb(table["geometry"].to_pylist())
    assert [one.wkt for one in shapes] == ["MULTIPOINT ((1 2))", "MULTIPOINT ((3 4))", "MULTIPOINT EMPTY"]
    services.tables.drop("missing")
