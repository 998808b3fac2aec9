"""Natural Earth's countries, through the handlers: nothing is lost, moved or double."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyogrio
import pyproj
import pytest
import shapely

from dagmaster.errors import PermanentError
from dagmaster.geo.vector import readers
from dagmaster.sdk.handler_context import HandlerContext
from tests.conformance.table_worker import tables_at
from tests.unit.geo.vector.vector_context import REGISTRY, FolderServices

if TYPE_CHECKING:
    from dagmaster.ports.handler_reports import Checkpoint

SHAPEFILE = Path(__file__).parents[4] / "examples/data/naturalearth_lowres/naturalearth_lowres.shp"
GEOD = pyproj.Geod(ellps="WGS84")
COUNTRIES = 177


@pytest.fixture(scope="module")
def countries() -> Any:
    """As GDAL reads them."""
    _, table = pyogrio.raw.read_arrow(SHAPEFILE)
    return table


@pytest.fixture
def shapefile(services: FolderServices) -> str:
    folder = services.folder / "bronze" / "countries"
    shutil.copytree(SHAPEFILE.parent, folder)
    return "countries/naturalearth_lowres.shp"


def shapes_of(table: Any) -> Any:
    return shapely.from_wkb(
        table["wkb_geometry" if "wkb_geometry" in table.column_names else "geometry"].to_pylist()
    )


def area(shapes: Any) -> float:
    return float(
        sum(abs(GEOD.geometry_area_perimeter(one)[0]) for one in shapely.orient_polygons(np.array(shapes)))
    )


def length(shapes: Any) -> float:
    return float(sum(GEOD.geometry_length(one) for one in shapely.boundary(np.array(shapes))))


def as_multi(shapes: Any) -> Any:
    return np.array(
        [one if one.geom_type == "MultiPolygon" else shapely.multipolygons([one]) for one in shapes]
    )


def loaded(services: FolderServices, href: str, **params: Any) -> tuple[Any, Any]:
    """Prepare, upload and read back."""
    prepared = services.run("vector.prepare", href=href, **params)
    for chunk in prepared["chunks"]:
        services.run("vector_upload_chunk", chunk=chunk)
    return prepared, services.tables.read(prepared["table"])


def test_every_name_of_the_sources_is_there():
    names = {spec.name: spec.aliases for spec in REGISTRY}
    assert names == {
        "vector.prepare": ("vector_prepare",),
        "vector.upload_chunk": ("vector_upload_chunk",),
        "vector.create_stac": ("vector_create_stac",),
        "vector.simplify": ("vector_simplify",),
        "vector.dissolve": ("vector_dissolve",),
        "vector.process_complete": ("vector_docker_complete", "vector_process_complete"),
    }


@pytest.mark.parametrize("target", ["parquet", pytest.param("postgis", marks=pytest.mark.process)])
def test_every_country_comes_back_as_it_was(request, services, shapefile, countries, target):
    if target == "postgis":
        services.tables = tables_at(request.getfixturevalue("postgis"))
    prepared, back = loaded(services, shapefile, chunk_rows=50)
    assert [chunk["rows"] for chunk in prepared["chunks"]] == [50, 50, 50, 27]
    assert prepared["counts"] == {"rows": COUNTRIES, "chunks": 4, "read": COUNTRIES, "invalid": {}}
    assert (prepared["crs"], prepared["bbox"]) == ("EPSG:4326", [-180.0, -90.0, 180.0, 83.64513])
    assert prepared["schema"]["geometry_type"] == "MultiPolygon"
    assert back.num_rows == COUNTRIES
    countries = countries.sort_by("name")
    back = back.sort_by("name")
    for name in ("pop_est", "continent", "name", "iso_a3", "gdp_md_est"):
        assert back[name].to_pylist() == countries[name].to_pylist()
    assert shapely.equals_identical(shapes_of(back), as_multi(shapes_of(countries))).all()
    services.tables.drop(prepared["table"])


def test_the_same_again_makes_the_same_chunks_and_publishes_nothing(services, shapefile):
    first = services.run("vector.prepare", href=shapefile, chunk_rows=100)
    before = {path: path.stat().st_mtime_ns for path in (services.folder / "silver").rglob("*.parquet")}
    assert services.run("vector.prepare", href=shapefile, chunk_rows=100) == first
    assert {
        path: path.stat().st_mtime_ns for path in (services.folder / "silver").rglob("*.parquet")
    } == before
    other = services.run(
        "vector.prepare", href=shapefile, chunk_rows=100, target_crs="EPSG:6933", outside="clip"
    )
    assert {chunk["href"] for chunk in other["chunks"]}.isdisjoint(chunk["href"] for chunk in first["chunks"])


def test_a_change_of_a_sidecar_is_a_change_of_the_shapefile(services, shapefile):
    first = services.run("vector.prepare", href=shapefile)
    dbf = services.folder / "bronze/countries/naturalearth_lowres.dbf"
    dbf.write_bytes(dbf.read_bytes().replace(b"Fiji", b"FIJI"))
    second = services.run("vector.prepare", href=shapefile)
    assert first["chunks"][0]["href"] != second["chunks"][0]["href"]


def test_area_and_length_are_kept_by_a_reprojection_and_back(services, shapefile, countries):
    prepared, there = loaded(services, shapefile, table="equal", target_crs="EPSG:6933", outside="clip")
    assert prepared["source_crs"] == "EPSG:4326"
    # GDAL's own answer for the same points.
    to = pyproj.Transformer.from_crs("EPSG:4326", "EPSG:6933", always_xy=True)
    fiji = shapes_of(countries)[0]
    x, y = to.transform(*shapely.get_coordinates(fiji).T)
    assert np.allclose(shapely.get_coordinates(shapes_of(there)[0]), np.column_stack([x, y]), atol=1e-6)
    chunk = prepared["chunks"][0]["href"]
    _, back = loaded(services, chunk, table="back")
    kept = [at for at, name in enumerate(countries["name"].to_pylist()) if name != "Antarctica"]
    before, after = shapes_of(countries)[kept], shapes_of(back)[kept]
    # All but the seam of one country, which crossed itself on the other map by a hair and was repaired.
    assert prepared["counts"]["repaired"] == 1
    assert area(after) == pytest.approx(area(before), rel=1e-8)
    assert length(after) == pytest.approx(length(before), rel=1e-8)
    # An equal-area map has the area of the ellipsoid; edges that are long and straight there differ a little.
    assert shapely.area(shapes_of(there)[kept]).sum() == pytest.approx(area(before), rel=2e-3)


def test_what_a_map_cannot_show_is_refused_or_cut_off(services, shapefile):
    with pytest.raises(PermanentError, match="reaches beyond what EPSG:3857 can represent") as caught:
        services.run("vector.prepare", href=shapefile, target_crs="EPSG:3857")
    assert caught.value.kind == "invalid_input"
    prepared, back = loaded(services, shapefile, target_crs="EPSG:3857", outside="clip", table="mercator")
    assert prepared["counts"]["clipped"] == 1
    assert {"feature": 160, "problem": "clipped to the area of use of EPSG:3857"} in prepared["problems"]
    assert shapely.bounds(shapely.geometrycollections(shapes_of(back)))[1] == pytest.approx(
        -20048966.1, abs=0.2
    )
    assert prepared["bbox"][1] == pytest.approx(-85.06)


def test_quarters_of_the_map_have_the_area_and_the_rows_of_the_whole(services, shapefile, countries):
    whole = shapely.area(shapes_of(countries)).sum()
    quarters, rows = 0.0, set()
    for number, box in enumerate([(-181, -91, 0, 0), (0, -91, 181, 0), (-181, 0, 0, 91), (0, 0, 181, 91)]):
        prepared, back = loaded(services, shapefile, clip_bbox=box, table=f"q{number}")
        counts = prepared["counts"]
        assert counts["rows"] + counts["clipped_away"] == COUNTRIES
        quarters += shapely.area(shapes_of(back)).sum()
        rows |= set(back["name"].to_pylist())
    assert quarters == pytest.approx(whole, rel=1e-12)
    assert rows == set(countries["name"].to_pylist())


def test_a_dissolve_keeps_area_and_sums(services, shapefile, countries):
    done = services.run("vector.dissolve", href=shapefile, by=["continent"], sums=["pop_est"])
    assert (done["method"], done["rows"], done["source_rows"]) == ("coverage", 8, COUNTRIES)
    assert done["area_after"] == pytest.approx(done["area_before"], rel=1e-9)
    assert done["area_before"] == pytest.approx(area(shapes_of(countries)), rel=1e-9)
    _, back = loaded(services, done["href"], table="continents")
    assert shapely.area(shapes_of(back)).sum() == pytest.approx(
        shapely.area(shapes_of(countries)).sum(), rel=1e-9
    )
    assert sum(back["sum_pop_est"].to_pylist()) == sum(countries["pop_est"].to_pylist())
    assert sum(back["features"].to_pylist()) == COUNTRIES
    pairs = zip(countries["continent"].to_pylist(), countries["pop_est"].to_pylist(), strict=True)
    africa = sum(people for continent, people in pairs if continent == "Africa")
    assert (
        dict(zip(back["continent"].to_pylist(), back["sum_pop_est"].to_pylist(), strict=True))["Africa"]
        == africa
    )


def test_features_that_overlap_are_dissolved_plainly(services):
    href = services.put("over.geojson", collection(shapely.box(0, 0, 2, 2), shapely.box(1, 1, 3, 3)))
    done = services.run("vector.dissolve", href=href)
    assert (done["method"], done["rows"]) == ("plain", 1)
    _, back = loaded(services, done["href"], table="merged")
    assert shapely.area(shapes_of(back)).tolist() == [7.0]


def test_a_simplified_coverage_has_no_gaps_and_nearly_the_same_area(services, shapefile, countries):
    done = services.run("vector.simplify", href=shapefile, tolerance=0.5)
    assert (done["method"], done["rows"]) == ("coverage", COUNTRIES)
    assert done["vertices_after"] < done["vertices_before"] * 0.7
    # Half a degree of tolerance takes less than one percent of the land.
    assert done["area_after"] == pytest.approx(done["area_before"], rel=0.01)
    _, back = loaded(services, done["href"], table="simple")
    assert shapely.coverage_is_valid(shapes_of(back))
    assert back["name"].to_pylist() == countries["name"].to_pylist()


@pytest.mark.parametrize("handler", ["vector.simplify", "vector.dissolve"])
def test_what_is_repaired_before_is_counted(services, handler):
    bow_tie = shapely.Polygon([(0, 0), (2, 2), (2, 0), (0, 2)])
    href = services.put("x.geojson", collection(bow_tie, shapely.box(5, 5, 6, 6), None))
    done = services.run(handler, href=href, **({"tolerance": 0.01} if handler == "vector.simplify" else {}))
    assert done["counts"] == {
        "null_geometry": 1,
        "read": 3,
        "repaired": 1,
        "invalid": {"Self-intersection": 1},
    }
    assert [one["feature"] for one in done["problems"]] == [3, 1]


def test_a_dissolve_looks_whether_to_stop_while_it_reads(services, shapefile, monkeypatch):
    looked: list[int] = []
    monkeypatch.setattr(HandlerContext, "raise_if_cancelled", lambda _: looked.append(1))
    times = []
    for batch in (COUNTRIES, COUNTRIES, 50):
        looked.clear()
        monkeypatch.setattr(readers, "BATCH_FEATURES", batch)
        services.run("vector.dissolve", href=shapefile)
        times.append(len(looked))
    # In each of the four batches, instead of in one. The first run publishes, too.
    assert times[2] - times[1] == 3


def test_lines_are_simplified_plainly(services):
    line = shapely.LineString([(0, 0), (1, 0.01), (2, 0)])
    done = services.run("vector.simplify", href=services.put("line.geojson", collection(line)), tolerance=0.1)
    assert (done["method"], done["vertices_before"], done["vertices_after"]) == ("plain", 3, 2)


def collection(*shapes: Any) -> dict[str, Any]:
    result = [
        {
            "type": "Feature",
            "properties": {"n": at},
            "geometry": None if one is None else shapely.geometry.mapping(one),
        }
        for at, one in enumerate(shapes)
    ]
    return {"type": "FeatureCollection", "features": result}


# ── The catalog, and all of it in one task ──


def test_the_item_of_a_table_says_what_it_holds_and_is_stac(services, shapefile):
    import pystac

    prepared, _ = loaded(services, shapefile, chunk_rows=100, table="countries")
    services.tables.replace_chunk("countries", "old", services.tables.read("countries").slice(0, 3))
    result = services.run("vector.create_stac", table="countries", chunks=prepared["chunks"], source=prepared["source"], expected_rows=COUNTRIES)  # fmt: skip
    assert (result["rows"], result["removed_rows"], result["item_id"]) == (COUNTRIES, 3, "countries")
    item = result["item"]
    assert services.catalog.registered["vectors", "countries"] == item
    pystac.Collection.from_dict(services.catalog.collections["vectors"]).validate()
    properties = item["properties"]
    assert (properties["table:row_count"], properties["proj:code"]) == (COUNTRIES, "EPSG:4326")
    assert properties["table:columns"][-1] == {"name": "geometry", "type": "MultiPolygon"}
    assert [one["name"] for one in properties["table:columns"]][:2] == ["pop_est", "continent"]
    assert properties["dagmaster:handler"] == "vector.create_stac v3"
    assert properties["dagmaster:sources"][0]["href"].endswith("naturalearth_lowres.shp")
    assert item["bbox"] == [-180.0, -90.0, 180.0, 83.64513]
    read = pystac.Item.from_dict(item)
    read.stac_extensions = []
    read.validate()


def test_a_late_upload_of_an_earlier_run_is_not_taken_for_one_of_this_run(services, shapefile):
    first = services.run("vector.prepare", href=shapefile, table="world")
    dbf = services.folder / "bronze/countries/naturalearth_lowres.dbf"
    dbf.write_bytes(dbf.read_bytes().replace(b"Fiji", b"FIJI"))
    second, _ = loaded(services, shapefile, table="world")
    services.run("vector.upload_chunk", chunk=first["chunks"][0])
    services.run("vector.create_stac", table="world", chunks=second["chunks"], expected_rows=COUNTRIES)
    names = services.tables.read("world")["name"].to_pylist()
    assert ("FIJI" in names, "Fiji" in names) == (True, False)


def test_rows_that_are_missing_are_noticed(services, shapefile):
    prepared = services.run("vector.prepare", href=shapefile, chunk_rows=100, table="half")
    services.run("vector.upload_chunk", chunk=prepared["chunks"][0])
    with pytest.raises(PermanentError, match="has 100 rows, expected 177"):
        services.run("vector.create_stac", table="half", expected_rows=COUNTRIES)


class Stops:
    """A reporter whose process dies after some checkpoints."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.saved: list[Checkpoint] = []

    def progress(self, progress: Any) -> None:
        pass

    def checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        if len(self.saved) == self.after:
            raise KeyboardInterrupt
        self.saved.append(checkpoint)
        return checkpoint


def test_all_of_it_in_one_task_goes_on_where_it_was_killed(services, shapefile, monkeypatch):
    uploaded: list[str] = []
    whole = services.tables.replace_chunk

    def replace_chunk(table: str, chunk: str, rows: Any) -> int:
        uploaded.append(chunk)
        return int(whole(table, chunk, rows))

    monkeypatch.setattr(services.tables, "replace_chunk", replace_chunk)
    killed = Stops(after=3)
    with pytest.raises(KeyboardInterrupt):
        services.run("vector_docker_complete", reporter=killed, href=shapefile, chunk_rows=30)
    assert [one.phase for one in killed.saved] == ["prepared", "chunk 1", "chunk 2"]
    assert [one[:6] for one in uploaded] == ["c00001", "c00002", "c00003"]
    # What was prepared is kept once, next to the chunks, and not in each checkpoint.
    assert len(list((services.folder / "silver").rglob("prepared-*.json"))) == 1
    assert max(len(str(one.data)) for one in killed.saved) < 500
    done = services.run("vector.process_complete", checkpoint=killed.saved[-1], href=shapefile, chunk_rows=30)
    assert [one[:6] for one in uploaded[3:]] == ["c00003", "c00004", "c00005", "c00006"]
    assert (done["rows"], done["chunks"], done["resumed_from"]) == (COUNTRIES, 6, 2)
    assert services.tables.read("naturalearth_lowres").num_rows == COUNTRIES
    assert done["item"] == services.catalog.registered["vectors", "naturalearth_lowres"]
    assert not list((services.folder / "silver").rglob("prepared-*.json"))
    # Without it another attempt begins again, and comes to the same.
    again = services.run(
        "vector.process_complete", checkpoint=killed.saved[-1], href=shapefile, chunk_rows=30
    )
    assert again == done | {"resumed_from": 0}


@pytest.mark.parametrize("pattern", ["prepared-*.json", "c00004*.parquet"])
def test_all_of_it_in_one_task_prepares_again_what_is_gone_when_it_resumes(services, shapefile, pattern):
    killed = Stops(after=3)
    with pytest.raises(KeyboardInterrupt):
        services.run("vector.process_complete", reporter=killed, href=shapefile, chunk_rows=30)
    (gone,) = (services.folder / "silver").rglob(pattern)
    gone.unlink()
    assert all(list(one.artifacts) == [one.data["kept"]] for one in killed.saved)
    done = services.run("vector.process_complete", checkpoint=killed.saved[-1], href=shapefile, chunk_rows=30)
    assert (done["rows"], done["resumed_from"]) == (COUNTRIES, 0)
