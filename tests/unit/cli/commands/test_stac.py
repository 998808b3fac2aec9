"""`dagmaster stac`: a table for people, GeoJSON for programs, and a sentence for what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from dagmaster.cli.commands.stac import stac
from dagmaster.cli.main import BAD_INPUT, main
from tests.conformance.catalogs import a_collection, an_item, open_catalog


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGMASTER_CATALOG_URL", str(tmp_path / "catalog"))
    monkeypatch.setenv("COLUMNS", "100")
    return str(tmp_path / "catalog")


@pytest.fixture
def filled(place):
    catalog = open_catalog(place)
    catalog.ensure_collection(a_collection("scenes", title="Some scenes"))
    catalog.register(
        [an_item("berlin", box=(13.0, 52.0, 14.0, 53.0)), an_item("fiji", box=(177.0, -18.0, 180.0, -17.0))]
    )
    return catalog


def said(*arguments: str) -> str:
    done = CliRunner().invoke(stac, list(arguments), standalone_mode=False)
    assert done.exception is None
    return done.output


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(stac, list(arguments))
    assert done.exit_code in (1, 2)
    return " ".join(done.output.split())


def test_a_search_prints_a_table_and_what_to_do_next(filled):
    out = said("search", "--bbox", "13.5,52.5,13.6,52.6", "--datetime", "2026-01-01")
    assert "berlin  scenes      2026-01-01 00:00  13,52,14,53  berlin.tif" in out
    assert "fiji" not in out
    assert "dagmaster stac show scenes berlin" in out
    assert "fiji" in said("search", "--bbox", "179,-20,-179,-10")
    assert "the first 1: --limit shows more" in said("search", "--limit", "1")


def test_no_cell_is_cut_columns_give_way_instead(filled, monkeypatch):
    where = "13.12,52.12,14.12,53.12"
    filled.register([an_item("a-name-of-forty-letters-" * 2, box=(13.123, 52.123, 14.123, 53.123))])
    row = f"scenes      2026-01-01 00:00  {where}"
    monkeypatch.setenv("COLUMNS", "80")
    assert row in said("search")
    monkeypatch.setenv("FORCE_COLOR", "1")
    at_eighty = said("search")
    assert "a-name-of-forty-letters-" * 2 in at_eighty
    assert "13.12" not in at_eighty


@pytest.mark.parametrize("more", [[], ["--json"], ["--collection", "scenes"]])
def test_a_search_in_a_collection_that_is_not_there_fails_and_tells_the_nearest(filled, more, capsys):
    with pytest.raises(SystemExit) as left:
        main(["stac", "search", "--collection", "scene", *more])
    output, errors = capsys.readouterr()
    is_json = "--json" in more
    assert (left.value.code, (errors if is_json else output)) == (BAD_INPUT, "")
    if is_json:
        assert json.loads(output)["error"]["code"] == "collection_not_found"
    assert "no collection 'scene': did you mean 'scenes'?" in " ".join((output or errors).split())


def test_a_long_list_is_shown_by_its_first_entries(filled):
    sources = [{"href": f"s3://x/{number}.tif"} for number in range(50)]
    filled.register([an_item("many", properties={"dagmaster:sources": sources, "proj:shape": [1, 2, 3, 4, 5]})])
    out = said("show", "scenes", "many")
    assert 's3://x/2.tif"}, … and 47 more]' in out
    assert "[1, 2, 3, 4, 5]" in out


def test_json_is_a_feature_collection_and_nothing_else(filled):
    found = json.loads(said("search", "--id", "fiji", "--collection", "scenes", "--json"))
    assert found == {"type": "FeatureCollection", "features": [filled.item("scenes", "fiji")]}
    assert json.loads(said("search", "--id", "none", "--json")) == {"type": "FeatureCollection", "features": []}
    assert json.loads(said("collections", "--json"))["collections"] == [filled.collection("scenes")]


def test_nothing_found_says_what_to_do_next(place, filled):
    assert "no item fits. `dagmaster stac collections`" in said("search", "--datetime", "1999-01-01")


def test_an_empty_catalog_says_what_to_do_next(place):
    for arguments in (["search"], ["search", "--id", "x"], ["collections"]):
        assert "the catalog is empty. Workflows fill it" in said(*arguments)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--bbox", "1,2,3"], "expected four finite numbers, west, south, east, north"),
        (["--bbox", "a,b,c,d"], "is no box: write west,south,east,north"),
        (["--bbox", "nan,0,1,1"], "four finite numbers"),
        (["--bbox", "0,5,1,2"], "the order is west,south,east,north"),
        (["--bbox", "0,0,190,2"], "Across the antimeridian, west is greater than east"),
        (["--datetime", "yesterday"], "A day is 2026-11-16"),
        (["--datetime", "2026-01-02/2026-01-01"], "ends before it starts"),
        (["--datetime", "../.."], "open at both ends"),
        (["--limit", "0"], "not in the range"),
    ],
)
def test_what_makes_no_sense_gets_a_sentence(place, arguments, sentence):
    assert sentence in refused("search", *arguments)


def test_one_item_is_shown_or_the_nearest_one_is_told(filled):
    out = said("show", "scenes", "berlin")
    assert "berlin  of scenes" in out
    assert "file:///silver/berlin.tif" in out
    assert json.loads(said("show", "scenes", "berlin", "--json")) == filled.item("scenes", "berlin")
    assert "has no item 'berlim': did you mean 'berlin'?" in refused("show", "scenes", "berlim")
    assert "no collection 'scene': did you mean 'scenes'?" in refused("show", "scene", "x")
    assert "no item 'zzzzzzz': one of: berlin, fiji. `dagmaster" in refused("show", "scenes", "zzzzzzz")


def test_the_collections_are_listed_with_their_counts(filled):
    assert "scenes          2  Some scenes" in said("collections")


def test_a_directory_needs_no_preparation(place):
    assert "it needs no preparation" in said("init")


def test_a_server_that_does_not_answer_is_told_without_its_password(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("DAGMASTER_CATALOG_URL", f"postgresql://me:hunter2@/stac?host={tmp_path}")
    for command in ("search", "init"):
        with pytest.raises(SystemExit) as ended:
            main(["stac", command])
        assert ended.value.code == 3
        told = capsys.readouterr().err
        assert "does not answer" in told
        assert "hunter2" not in told


@pytest.mark.process
def test_the_help_imports_nothing_that_is_slow():
    code = "import sys; from dagmaster.cli.main import cli; cli.main(['stac', '--help'], standalone_mode=False); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"duckdb", "pyarrow", "psycopg", "rich.console", "pydantic", "asyncpg", "shapely"} & set(modules)
