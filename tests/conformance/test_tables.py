"""What every place of tables promises: GeoParquet in a directory, and PostGIS."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import shapely

from dagmaster.errors import PermanentError, TablesUnavailable
from dagmaster.geo.rules import arrow_features
from dagmaster.ports.table_schemas import TableSpec
from tests.conformance.postgis import postgis_server
from tests.conformance.table_worker import ROWS, rows_of, tables_at
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.ports.tables import Tables

ROOT = Path(__file__).parents[2]
NAMES = (f"t{number}" for number in itertools.count(1))


@pytest.fixture(scope="module")
def postgis() -> Iterator[str]:
    with postgis_server() as url:
        yield url


@pytest.fixture(params=["parquet", "postgis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "tables") if request.param == "parquet" else str(request.getfixturevalue("postgis"))


@pytest.fixture
def tables(place: str) -> Tables:
    return tables_at(place)


@pytest.fixture
def name() -> str:
    return next(NAMES)


def spec(name: str, **more: Any) -> TableSpec:
    return TableSpec(**{"name": name, "columns": {"name": "text"}, "geometry_type": "Point", **more})


def names_in(tables: Tables, name: str) -> list[str]:
    """Return the rows of a table, in no particular order."""
    return sorted(tables.read(name)["name"].to_pylist())


def test_a_table_is_made_once(tables, name):
    assert tables.describe(name) is None
    assert tables.create(spec(name)) is True
    assert tables.create(spec(name)) is False
    info = tables.describe(name)
    assert info is not None
    assert (info.rows, info.chunks, info.bbox, info.srid) == (0, (), None, 4326)
    assert (info.columns, info.geometry_type, info.geometry_column) == ({"name": "text"}, "Point", "geometry")
    assert tables.read(name).num_rows == 0


def test_a_table_refuses_another_source_unless_it_is_to_be_replaced(tables, name):
    assert tables.create(spec(name, source="file:///a/roads.gpkg")) is True
    assert tables.create(spec(name, source="file:///a/roads.gpkg")) is False
    with pytest.raises(
        PermanentError, match=r"created from file:///a/roads\.gpkg, not from .*`table`, .*`replace: true`"
    ):
        tables.create(spec(name, source="file:///b/roads.gpkg"))
    assert tables.create(spec(name, source="file:///b/roads.gpkg"), replace=True) is False
    assert tables.create(spec(name, source="file:///b/roads.gpkg")) is False
    with pytest.raises(PermanentError, match=r"created from file:///b/roads\.gpkg"):
        tables.create(spec(name, source="file:///a/roads.gpkg"))


def test_a_table_without_a_source_gets_the_first_one(tables, name):
    tables.create(spec(name))
    assert tables.create(spec(name, source="it's one")) is False
    assert tables.create(spec(name)) is False
    with pytest.raises(PermanentError, match="created from it's one"):
        tables.create(spec(name, source="another"))


def test_a_chunk_that_comes_twice_is_there_once(tables, name):
    tables.create(spec(name))
    assert tables.replace_chunk(name, "a", rows_of("a")) == ROWS
    assert tables.replace_chunk(name, "a", rows_of("a")) == ROWS
    assert tables.replace_chunk(name, "b", rows_of("b", 3)) == 3
    info = tables.describe(name)
    assert info is not None
    assert (info.rows, info.chunks) == (ROWS + 3, ("a", "b"))
    assert info.bbox == (0.0, 0.0, 39.0, 19.5)
    assert names_in(tables, name) == [*sorted(rows_of("a")["name"].to_pylist()), "b/0", "b/1", "b/2"]


def test_a_chunk_may_become_shorter_and_empty(tables, name):
    tables.create(spec(name))
    tables.replace_chunk(name, "a", rows_of("a"))
    assert tables.replace_chunk(name, "a", rows_of("a", 2)) == 2
    assert tables.read(name).num_rows == 2
    assert tables.replace_chunk(name, "a", rows_of("a", 0)) == 0
    assert tables.read(name).num_rows == 0


def test_chunks_of_earlier_runs_are_removed(tables, name):
    tables.create(spec(name))
    for chunk in "abc":
        tables.replace_chunk(name, chunk, rows_of(chunk, 5))
    assert tables.keep_only(name, ["b", "z"]) == 10
    info = tables.describe(name)
    assert info is not None
    assert info.chunks == ("b",)
    assert tables.keep_only(name, []) == 5


def test_a_table_is_dropped_once_and_may_come_again(tables, name):
    tables.create(spec(name))
    tables.replace_chunk(name, "a", rows_of("a"))
    assert tables.drop(name) is True
    assert tables.drop(name) is False
    assert tables.describe(name) is None
    assert tables.create(spec(name)) is True
    assert tables.read(name).num_rows == 0


EVERY_TYPE: dict[str, list[Any]] = {
    "text": ["ä 'quoted' \"so\"\n\t\\", "", None],
    "integer": [2**63 - 1, -(2**63), None],
    "number": [0.1, float("-inf"), None],
    "boolean": [True, False, None],
    "date": [dt.date(1, 1, 1), dt.date(2026, 2, 28), None],
    "timestamp": [
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
        dt.datetime(2262, 1, 1, tzinfo=dt.UTC),
        None,
    ],
    "json": ['{"a": [1, null]}', '"x"', None],
    "time": [dt.time(0, 0), dt.time(23, 59, 59, 999999), None],
    "binary": [b"\0\xff", b"", None],
    "decimal(38,10)": [Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001"), None],
    "decimal(4,0)": [Decimal(0), Decimal(-9999), None],
    "decimal(60,3)": [Decimal("9" * 57 + ".999"), Decimal("0.120"), None],
    "integer[]": [[1, None, -(2**63)], [], None],
    "text[]": [["a", 'ä, "b"'], [""], None],
    "number[]": [[0.1, float("inf")], [None], None],
    "boolean[]": [[True, False], [], None],
    "date[]": [[dt.date(1970, 1, 1)], [], None],
    "time[]": [[dt.time(12, 30)], [], None],
    "timestamp[]": [[dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], [], None],
    "binary[]": [[b"\0", b""], [], None],
    "decimal(10,2)[]": [[Decimal("12345678.90"), None], [Decimal("-0.01")], None],
}


def test_every_type_comes_back_as_it_went(tables, name):
    kinds = {f"a {kind}": kind for kind in EVERY_TYPE}
    tables.create(spec(name, columns=kinds))
    arrays: dict[str, Any] = {
        f"a {kind}": pa.array(values, arrow_features.arrow_type(kind)) for kind, values in EVERY_TYPE.items()
    }
    arrays["geometry"] = [shapely.to_wkb(shapely.Point(1, 2)), shapely.to_wkb(shapely.Point()), None]
    tables.replace_chunk(name, "a", pa.table(arrays))
    rows = tables.read(name)
    for kind, values in EVERY_TYPE.items():
        back = rows[f"a {kind}"].to_pylist()
        if kind == "json":
            # A server keeps what JSON says, not how it is written.
            assert [one and json.loads(one) for one in back] == [{"a": [1, None]}, "x", None]
        else:
            assert back == values, kind
    info = tables.describe(name)
    assert info is not None
    assert dict(info.columns) == kinds
    shapes = shapely.from_wkb(rows["geometry"].to_pylist())
    assert [None if one is None else one.wkt for one in shapes] == ["POINT (1 2)", "POINT EMPTY", None]


EVERY_GEOMETRY = [
    "POINT (1 2)", "LINESTRING (0 0, 1 1)", "POLYGON ((0 0, 9 0, 9 9, 0 0), (4 1, 5 1, 5 2, 4 1))",
    "MULTIPOINT ((1 2), (3 4))", "MULTILINESTRING ((0 0, 1 1), (2 2, 3 3))",
    "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), ((5 5, 6 5, 6 6, 5 5)))",
    "GEOMETRYCOLLECTION (POINT (1 2), LINESTRING (0 0, 1 1))", "POLYGON EMPTY",
]  # fmt: skip


@pytest.mark.parametrize("heights", [False, True])
def test_every_geometry_comes_back_as_it_went(tables, name, heights):
    shapes = shapely.from_wkt(EVERY_GEOMETRY[:-1] if heights else EVERY_GEOMETRY)
    shapes = shapely.force_3d(shapes, 7.5) if heights else shapes
    tables.create(spec(name, columns={}, geometry_type="Geometry Z" if heights else "Geometry", srid=3857))
    tables.replace_chunk(name, "a", pa.table({"geometry": pa.array(shapely.to_wkb(shapes), pa.binary())}))
    rows = shapely.from_wkb(tables.read(name)["geometry"].to_pylist())
    assert shapely.equals_identical(rows, shapes).all()
    info = tables.describe(name)
    assert info is not None
    assert (info.geometry_type, info.srid) == ("Geometry Z" if heights else "Geometry", 3857)


def test_bytes_may_come_in_the_other_order(tables, name):
    tables.create(spec(name, columns={}))
    wkb = shapely.to_wkb([shapely.Point(1, 2)], byte_order=0)
    tables.replace_chunk(name, "a", pa.table({"geometry": pa.array(wkb, pa.binary())}))
    assert shapely.from_wkb(tables.read(name)["geometry"].to_pylist())[0].wkt == "POINT (1 2)"


NASTY = ['we"ird', "select", "%s", "a;b--", "{x}", "Ä b", "a'b", "$1", "A", "a"]


def test_a_column_may_have_any_name(tables, name):
    tables.create(spec(name, columns=dict.fromkeys(NASTY, "integer"), geometry_column='the "geom"'))
    rows = pa.table(
        {**{one: [at] for at, one in enumerate(NASTY)}, 'the "geom"': [shapely.to_wkb(shapely.Point())]}
    )
    tables.replace_chunk(name, "a", rows)
    raster = tables.read(name).to_pylist()[0]
    assert [raster[one] for one in NASTY] == list(range(len(NASTY)))
    info = tables.describe(name)
    assert info is not None
    assert list(info.columns) == NASTY


@pytest.mark.parametrize(
    "bad", ["", "a b", 'x"; DROP TABLE y', "../x", "a.b.c", "1a", "x" * 64, ".hidden", "a\0", "ä"]
)
def test_a_table_has_a_plain_name(tables, bad):
    with pytest.raises(PermanentError, match="is not a valid table name") as caught:
        spec(bad)
    assert caught.value.kind == "invalid_input"
    for asked in (tables.describe, tables.drop, tables.read):
        with pytest.raises(PermanentError, match="is not a valid table name"):
            asked(bad)


@pytest.mark.parametrize("bad", ["", "../x", "_a", "a/b", "a.parquet", "x" * 101])
def test_a_chunk_has_a_plain_name(tables, name, bad):
    tables.create(spec(name))
    with pytest.raises(PermanentError, match="is not a valid chunk name"):
        tables.replace_chunk(name, bad, rows_of("a"))


@pytest.mark.parametrize("bad", ["_chunk", "xmin", "ctid", "x" * 64, "ä" * 32, "a\nb", "geometry"])
def test_a_column_that_no_table_can_have_is_refused(bad):
    with pytest.raises(PermanentError) as caught:
        spec("t", columns={bad: "text"})
    assert caught.value.kind == "invalid_input"


def test_a_schema_may_stand_before_the_name(tables, name):
    full = f"geo.{name}"
    assert tables.create(spec(full)) is True
    assert tables.create(spec(full)) is False
    tables.replace_chunk(full, "a", rows_of("a"))
    assert tables.describe(name) is None
    assert tables.drop(full) is True


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"columns": {"name": "integer"}}, "its column 'name' is text, not integer"),
        ({"columns": {"name": "text", "more": "text"}}, "its column 'more' is missing, not text"),
        ({"geometry_type": "MultiPoint"}, "its geometry type is Point, not MultiPoint"),
        ({"srid": 3857}, "its coordinate system is EPSG:4326, not EPSG:3857"),
    ],
)
def test_a_table_that_is_there_and_differs_is_refused(tables, name, other, message):
    tables.create(spec(name))
    with pytest.raises(PermanentError, match=message) as caught:
        tables.create(spec(name, **other))
    assert caught.value.kind == "invalid_input"


POLYGON = shapely.to_wkb(shapely.box(0, 0, 1, 1))
POINT = shapely.to_wkb(shapely.Point(1, 2))


@pytest.mark.parametrize(
    "rows",
    [
        {"name": ["x"], "geometry": [POLYGON]},
        {"name": ["x"], "geometry": [shapely.to_wkb(shapely.Point(1, 2, 3))]},
        {"name": ["x"], "geometry": [b"no wkb"]},
        {"name": ["x"], "geometry": [POINT], "more": [1]},
        {"geometry": [POINT]},
        {"name": [{"a": 1}], "geometry": [POINT]},
    ],
    ids=[
        "another type",
        "a height",
        "not WKB",
        "a column too many",
        "a column missing",
        "another column type",
    ],
)
def test_rows_that_do_not_fit_are_refused_and_what_was_there_stays(tables, name, rows):
    tables.create(spec(name))
    tables.replace_chunk(name, "a", rows_of("a"))
    with pytest.raises(PermanentError) as caught:
        tables.replace_chunk(name, "a", pa.table(rows))
    assert caught.value.kind == "invalid_input"
    assert names_in(tables, name) == sorted(rows_of("a")["name"].to_pylist())


def test_nothing_goes_into_a_table_that_is_not_there(tables, name):
    for asked in (lambda: tables.replace_chunk(name, "a", rows_of("a")), lambda: tables.keep_only(name, []), lambda: tables.read(name)):  # fmt: skip
        with pytest.raises(PermanentError, match=f"there is no table {name}"):
            asked()


# ── Many at once ──


def uploading(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.conformance.table_worker", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_many_processes_upload_the_same_and_other_chunks_and_nothing_is_lost_or_double(tables, place, name):
    tables.create(spec(name))
    chunks = [f"c{number}" for number in range(4)]
    # Each chunk is uploaded by three processes, in different orders, over and over.
    orders = [chunks, chunks[::-1], chunks[2:] + chunks[:2]]
    workers = [uploading(place, name, "3", *order) for order in orders]
    for worker in workers:
        worker.communicate(timeout=PATIENCE_SECONDS)
        assert worker.returncode == 0
    assert names_in(tables, name) == sorted(f"{chunk}/{number}" for chunk in chunks for number in range(ROWS))


def test_a_process_killed_in_the_middle_of_a_chunk_leaves_what_was_there(tables, place, name):
    tables.create(spec(name))
    tables.replace_chunk(name, "a", rows_of("a", 3))
    worker = uploading(place, name, "halfway", "a")
    assert worker.stdout is not None
    with worker:
        assert worker.stdout.readline() == "half\n"
        worker.kill()
    assert names_in(tables, name) == ["a/0", "a/1", "a/2"]
    # The next attempt does not wait for the dead one.
    assert tables.replace_chunk(name, "a", rows_of("a")) == ROWS
    assert names_in(tables, name) == sorted(rows_of("a")["name"].to_pylist())


# ── Each in its own way ──


def test_of_two_that_upload_one_chunk_to_postgis_the_second_waits_for_the_first(postgis, name):
    import psycopg

    tables = tables_at(postgis)
    tables.create(spec(name))
    first = uploading(postgis, name, "halfway", "a")
    assert first.stdout is not None
    second = threading.Thread(target=tables.replace_chunk, args=(name, "a", rows_of("a")))
    with first, psycopg.connect(postgis, autocommit=True) as connection:
        assert first.stdout.readline() == "half\n"
        second.start()
        # Until the second waits for a lock, or does not and is through.
        while (
            second.is_alive()
            and not connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone()
        ):
            second.join(0.01)
        first.communicate("go on\n", timeout=PATIENCE_SECONDS)
        assert first.returncode == 0
    second.join(PATIENCE_SECONDS)
    assert names_in(tables, name) == sorted(rows_of("a")["name"].to_pylist())


def test_chunks_are_removed_after_the_uploads(tables, place, name):
    tables.create(spec(name))
    upload = uploading(place, name, "halfway", "late")
    removed: list[int] = []
    keeping = threading.Thread(target=lambda: removed.append(tables.keep_only(name, [])))
    with upload:
        assert upload.stdout is not None
        assert upload.stdout.readline() == "half\n"
        keeping.start()
        # It waits: nothing happens until the upload goes on.
        keeping.join(0.2)
        assert removed == []
        upload.communicate("go on\n", timeout=PATIENCE_SECONDS)
    keeping.join(PATIENCE_SECONDS)
    assert removed == [20_000]
    assert names_in(tables, name) == []


def test_a_foreign_file_among_the_chunks_is_reported(tmp_path, name):
    import pyarrow.parquet as pq

    tables = tables_at(str(tmp_path))
    tables.create(spec(name))
    pq.write_table(pa.table({"a": [1]}), tmp_path / name / "theirs.parquet")
    for asked in (lambda: tables.describe(name), lambda: tables.keep_only(name, [])):
        with pytest.raises(PermanentError, match=r"theirs\.parquet is not a chunk"):
            asked()
    assert (tmp_path / name / "theirs.parquet").exists()


def test_many_make_tables_in_a_new_schema_of_postgis_at_once(postgis):
    tables = tables_at(postgis)
    tables.create(spec("before_all"))
    names = [f"{schema}.{next(NAMES)}" for schema in ("new_a", "new_b") for _ in range(6)]
    start = threading.Barrier(len(names))

    def make(name: str) -> bool:
        start.wait(PATIENCE_SECONDS)
        return tables.create(spec(name))

    with ThreadPoolExecutor(len(names)) as pool:
        assert list(pool.map(make, names)) == [True] * len(names)


def test_a_server_that_only_reads_may_write_again(postgis):
    read_only = tables_at(f"{postgis}&options=-c%20default_transaction_read_only%3Don")
    with pytest.raises(TablesUnavailable, match="read-only"):
        read_only.create(spec("not_yet"))


def test_a_server_that_is_not_there_may_come_back():
    with pytest.raises(TablesUnavailable, match="is unavailable"):
        tables_at("postgresql://ada:secret@127.0.0.1:1/geo").describe("t")


def test_a_password_is_in_no_address_and_no_error(postgis):
    tables = tables_at(postgis.replace("user=dagmaster", "user=dagmaster&password=s3cret"))
    tables.create(spec("addressed"))
    info = tables.describe("addressed")
    assert info is not None
    assert info.href.endswith("/geo/addressed")
    assert "s3cret" not in info.href
    with pytest.raises(TablesUnavailable) as caught:
        tables_at("postgresql://u:s3cret@127.0.0.1:1/geo").describe("t")
    assert "s3cret" not in str(caught.value)


def test_postgis_has_a_spatial_index_and_uses_it(postgis, name):
    import psycopg

    tables = tables_at(postgis)
    tables.create(spec(name))
    tables.replace_chunk(name, "a", rows_of("a", 500))
    with psycopg.connect(postgis) as connection:
        connection.execute("SET enable_seqscan = off")
        asked = f"EXPLAIN SELECT 1 FROM {name} WHERE geometry && ST_MakeEnvelope(0, 0, 1, 1, 4326)"
        assert "Index" in str(connection.execute(asked).fetchall())
        assert connection.execute(f"SELECT DISTINCT ST_SRID(geometry) FROM {name}").fetchall() == [(4326,)]


def test_postgis_reports_its_limit_of_columns(postgis):
    with pytest.raises(PermanentError, match="PostgreSQL allows 1,598"):
        tables_at(postgis).create(spec("wide", columns={f"c{number}": "integer" for number in range(3000)}))


def test_postgis_reads_the_source_in_a_comment_of_an_older_version(postgis):
    import psycopg

    tables = tables_at(postgis)
    tables.create(spec("older"))
    with psycopg.connect(postgis) as connection:
        connection.execute("COMMENT ON TABLE older IS 'dagmaster made this of file:///a.gpkg'")
    with pytest.raises(PermanentError, match=r"created from file:///a\.gpkg"):
        tables.create(spec("older", source="file:///b.gpkg"))
    tables.create(spec("older", source="file:///b.gpkg"), replace=True)
    with psycopg.connect(postgis) as connection:
        row = connection.execute("SELECT obj_description('older'::regclass, 'pg_class')").fetchone()
    assert row == ("dagmaster source: file:///b.gpkg",)


def test_a_foreign_table_is_not_changed(postgis):
    import psycopg

    with psycopg.connect(postgis) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS theirs (id int)")
        connection.execute("INSERT INTO theirs VALUES (1)")
    tables = tables_at(postgis)
    with pytest.raises(PermanentError, match="it was not created by dagmaster"):
        tables.create(spec("theirs"))
    with pytest.raises(PermanentError):
        tables.drop("theirs")


@pytest.mark.parametrize("text", ["a\0b"])
def test_what_postgresql_cannot_hold_is_bad_input(postgis, name, text):
    tables = tables_at(postgis)
    tables.create(spec(name))
    with pytest.raises(PermanentError, match="PostGIS rejected the request: invalid byte sequence") as caught:
        tables.replace_chunk(name, "a", pa.table({"name": [text], "geometry": [POINT]}))
    assert caught.value.kind == "invalid_input"


def test_a_file_of_a_chunk_is_geoparquet_that_others_read(tmp_path, name):
    import duckdb
    import geopandas
    import pyarrow.parquet as pq

    tables = tables_at(str(tmp_path))
    tables.create(spec(name, srid=3857))
    tables.replace_chunk(name, "a", rows_of("a", 5))
    tables.replace_chunk(name, "b", rows_of("b", 4))
    folder = tmp_path / name
    geo = json.loads(pq.read_metadata(folder / "a.parquet").metadata[b"geo"])
    assert (geo["version"], geo["primary_column"]) == ("1.1.0", "geometry")
    column = geo["columns"]["geometry"]
    assert (column["encoding"], column["geometry_types"], column["bbox"]) == (
        "WKB",
        ["Point"],
        [0.0, 0.0, 4.0, 2.0],
    )
    assert column["crs"]["id"] == {"authority": "EPSG", "code": 3857}
    frame = geopandas.read_parquet(folder)
    assert (len(frame), frame.crs.to_epsg()) == (9, 3857)
    assert len(geopandas.read_parquet(folder, bbox=(3.5, 0, 9, 9))) == 1
    asked = f"SELECT count(*), max(bbox.xmax) FROM read_parquet('{folder}/*.parquet')"
    assert duckdb.connect().execute(asked).fetchall() == [(9, 4.0)]


def test_what_a_dead_process_left_is_swept_when_it_is_old(tmp_path, name):
    import os

    tables = tables_at(str(tmp_path))
    tables.create(spec(name))
    tables.replace_chunk(name, "a", rows_of("a"))
    old, new = tmp_path / name / ".a.1.tmp", tmp_path / name / ".a.2.tmp"
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert tables.keep_only(name, ["a"]) == 0
    assert not old.exists()
    assert new.exists()
