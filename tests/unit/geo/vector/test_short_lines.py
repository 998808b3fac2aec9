"""Lines with fewer than two distinct points follow the rules for geometries, and no library's error is seen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import shapely

from dagmaster.errors import PermanentError
from tests.conformance.table_worker import tables_at
from tests.unit.geo.vector.vector_context import FolderServices

if TYPE_CHECKING:
    from pathlib import Path

GOOD = [[0, 0], [1, 1]]
ONE_POINT = {"type": "LineString", "coordinates": [[1, 1]]}
EQUAL_POINTS = {"type": "LineString", "coordinates": [[1, 1], [1, 1]]}
MULTI = {"type": "MultiLineString", "coordinates": [[[1, 1]], GOOD]}
NESTED = {
    "type": "GeometryCollection",
    "geometries": [{"type": "Point", "coordinates": [5, 5]}, ONE_POINT, MULTI],
}


@pytest.fixture
def services(tmp_path: Path) -> FolderServices:
    return FolderServices(tmp_path, tables_at(str(tmp_path / "tables")))


def load(services: FolderServices, geometry: Any, **params: Any) -> tuple[list[str], dict[str, Any]]:
    """Load a line and another geometry; return what the table has of them, and the counts."""
    features = [
        {"type": "Feature", "properties": {}, "geometry": one}
        for one in ({"type": "LineString", "coordinates": GOOD}, geometry)
    ]
    href = services.put("x.geojson", {"type": "FeatureCollection", "features": features})
    params = {"href": href, "mixed_types": "geometry", **params}
    counts = services.run("vector.prepare", table="t", **params)["counts"]
    services.run("vector.process_complete", table="t", **params)
    rows = services.tables.read("t")["geometry"].to_pylist()
    return [shapely.to_wkt(shapely.from_wkb(row)) if row else "" for row in rows], counts


@pytest.mark.parametrize("geometry", [ONE_POINT, EQUAL_POINTS], ids=json.dumps)
def test_it_is_emptied_and_then_follows_the_rule_for_missing_geometries(
    services: FolderServices, geometry: Any
):
    kept, counts = load(services, geometry)
    assert kept == ["LINESTRING (0 0, 1 1)", "LINESTRING EMPTY"]
    assert (counts["collapsed"], counts["empty_geometry"]) == (1, 1)
    dropped, counts = load(services, geometry, missing_geometry="drop", replace=True)
    assert (dropped, counts["dropped"]) == (["LINESTRING (0 0, 1 1)"], 1)
    with pytest.raises(PermanentError, match="feature 2 has no geometry: set missing_geometry"):
        load(services, geometry, missing_geometry="fail")
    with pytest.raises(PermanentError, match=r"feature 2 .*: set invalid: repair"):
        load(services, geometry, invalid="fail")


def test_a_line_of_one_point_is_emptied_even_where_problems_are_only_reported(services: FolderServices):
    kept, _ = load(services, ONE_POINT, invalid="report")
    assert kept[1] == "LINESTRING EMPTY"
    kept, _ = load(services, EQUAL_POINTS, invalid="report", replace=True)
    assert kept[1] == "LINESTRING (1 1, 1 1)"


def test_other_parts_of_a_collection_stay(services: FolderServices):
    assert load(services, MULTI)[0][1] == "MULTILINESTRING ((0 0, 1 1))"
    kept, _ = load(services, NESTED, replace=True)
    assert kept[1] == "GEOMETRYCOLLECTION (POINT (5 5), MULTILINESTRING ((0 0, 1 1)))"


def test_wkt_of_a_csv_follows_the_same_rule(services: FolderServices):
    href = str(services.folder / "x.csv")
    (services.folder / "x.csv").write_text('wkt\n"LINESTRING (0 0, 1 1)"\n"LINESTRING (1 1)"\n')
    services.run(
        "vector.process_complete", href=href, table="t", missing_geometry="drop", source_crs="EPSG:4326"
    )
    assert services.tables.read("t").num_rows == 1
