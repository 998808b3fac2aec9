"""`dagmaster stac`: tables, GeoJSON, and a sentence for each error."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from dagmaster.cli.main import BAD_INPUT, cli, main
from tests.conformance.catalogs import a_collection, an_item, open_catalog


@pytest.fixture
def catalog_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGMASTER_CATALOG_URL", str(tmp_path / "catalog"))
    monkeypatch.setenv("COLUMNS", "100")
    return str(tmp_path / "catalog")


@pytest.fixture
def filled(catalog_dir):
    catalog = open_catalog(catalog_dir)
    catalog.ensure_collection(a_collection("scenes", title="Some scenes"))
    catalog.register(
        [an_item("berlin", box=(13.0, 52.0, 14.0, 53.0)), an_item("fiji", box=(177.0, -18.0, 180.0, -17.0))]
    )
    return catalog


def run(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["stac", *arguments], standalone_mode=False)
    assert done.exception is None
    return done.output


def fail(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["stac", *arguments])
    assert done.exit_code in (1, 2)
    return " ".join(done.output.split())


def test_a_search_prints_a_table_and_what_to_do_next(filled):
    out = run("search", "--bbox", "13.5,52.5,13.6,52.6", "--datetime", "2026-01-01")
    assert "berlin  scenes      2026-01-01 00:00  13,52,14,53  berlin.tif" in out
    assert "fiji" not in out
    assert "dagmaster stac show scenes berlin" in out
    assert "fiji" in run("search", "--bbox", "179,-20,-179,-10")
    assert "the first 1: --limit shows more" in run("search", "--limit", "1")


def test_columns_are_left_out_instead_of_truncated(filled, monkeypatch):
    where = "13.12,52.12,14.12,53.12"
    filled.register([an_item("a-name-of-forty-letters-" * 2, box=(13.123, 52.123, 14.123, 53.123))])
    row = f"scenes      2026-01-01 00:00  {where}"
    monkeypatch.setenv("COLUMNS", "80")
    assert row in run("search")
    monkeypatch.setenv("FORCE_COLOR", "1")
    at_eighty = run("search")
    assert "a-name-of-forty-letters-" * 2 in at_eighty
    assert "13.12" not in at_eighty


@pytest.mark.parametrize("more", [[], ["--json"], ["--collection", "scenes"]])
def test_a_search_in_an_unknown_collection_fails_and_suggests_the_nearest(filled, more, capsys):
    with pytest.raises(SystemExit) as exited:
        main(["stac", "search", "--collection", "scene", *more])
    output, errors = capsys.readouterr()
    is_json = "--json" in more
    assert (exited.value.code, (errors if is_json else output)) == (BAD_INPUT, "")
    if is_json:
        assert json.loads(output)["error"]["code"] == "collection_not_found"
    assert "no collection 'scene': did you mean 'scenes'?" in " ".join((output or errors).split())


def test_a_long_list_is_shown_by_its_first_entries(filled):
    sources = [{"href": f"s3://x/{number}.tif"} for number in range(50)]
    filled.register(
        [an_item("many", properties={"dagmaster:sources": sources, "proj:shape": [1, 2, 3, 4, 5]})]
    )
    out = run("show", "scenes", "many")
    assert 's3://x/2.tif"}, … and 47 more]' in out
    assert "[1, 2, 3, 4, 5]" in out


def test_json_is_a_feature_collection_and_nothing_else(filled):
    collection = json.loads(run("search", "--id", "fiji", "--collection", "scenes", "--json"))
    assert collection == {"type": "FeatureCollection", "features": [filled.item("scenes", "fiji")]}
    assert json.loads(run("search", "--id", "none", "--json")) == {
        "type": "FeatureCollection",
        "features": [],
    }
    assert json.loads(run("collections", "--json"))["collections"] == [filled.collection("scenes")]


def test_an_empty_result_prints_what_to_do_next(catalog_dir, filled):
    assert "no item matches. `dagmaster stac collections`" in run("search", "--datetime", "1999-01-01")


def test_a_server_that_is_named_is_not_asked_and_that_is_said(catalog_dir, monkeypatch):
    monkeypatch.setenv("DAGMASTER_URL", "http://127.0.0.1:1")
    done = CliRunner().invoke(cli, ["stac", "search"])
    assert done.exit_code == 0
    assert "DAGMASTER_URL is not asked" in done.stderr


def test_an_empty_catalog_prints_what_to_do_next(catalog_dir):
    for arguments in (["search"], ["search", "--id", "x"], ["collections"]):
        assert "the catalog is empty. Workflows fill it" in run(*arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--bbox", "1,2,3"], "expected four finite numbers, west, south, east, north"),
        (["--bbox", "a,b,c,d"], "is not a box: write west,south,east,north"),
        (["--bbox", "nan,0,1,1"], "four finite numbers"),
        (["--bbox", "0,5,1,2"], "the order is west,south,east,north"),
        (["--bbox", "0,0,190,2"], "Across the antimeridian, west is greater than east"),
        (["--datetime", "yesterday"], "A day is 2026-11-16"),
        (["--datetime", "2026-01-02/2026-01-01"], "ends before it starts"),
        (["--datetime", "../.."], "open at both ends"),
        (["--limit", "0"], "not in the range"),
    ],
)
def test_an_invalid_option_is_reported_in_a_sentence(catalog_dir, arguments, sentence):
    assert sentence in fail("search", *arguments)


def test_an_item_is_shown_or_the_nearest_one_is_suggested(filled):
    out = run("show", "scenes", "berlin")
    assert "berlin  of scenes" in out
    assert "file:///silver/berlin.tif" in out
    assert json.loads(run("show", "scenes", "berlin", "--json")) == filled.item("scenes", "berlin")
    assert "has no item 'berlim': did you mean 'berlin'?" in fail("show", "scenes", "berlim")
    assert "no collection 'scene': did you mean 'scenes'?" in fail("show", "scene", "x")
    assert "no item 'zzzzzzz': one of: berlin, fiji. `dagmaster" in fail("show", "scenes", "zzzzzzz")


def test_the_collections_are_listed_with_their_counts(filled):
    assert "scenes          2  Some scenes" in run("collections")


def test_a_directory_needs_no_preparation(catalog_dir):
    assert "it needs no preparation" in run("init")


def test_a_server_that_does_not_answer_is_reported_without_its_password(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("DAGMASTER_CATALOG_URL", f"postgresql://me:hunter2@/stac?host={tmp_path}")
    for command in ("search", "init"):
        with pytest.raises(SystemExit) as exited:
            main(["stac", command])
        assert exited.value.code == 3
        output = capsys.readouterr().err
        assert "is unavailable" in output
        assert "hunter2" not in output


@pytest.mark.process
def test_the_help_imports_nothing_that_is_slow():
    code = "import sys; from dagmaster.cli.main import cli; cli.main(['stac', '--help'], standalone_mode=False); print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"duckdb", "pyarrow", "psycopg", "rich.console", "pydantic", "asyncpg", "shapely"} & set(
        modules
    )
