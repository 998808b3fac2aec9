"""`dagmaster blobs`: data goes in, results come out, mistakes are sentences."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from dagmaster.cli.commands.blobs import blobs
from dagmaster.cli.main import UNAVAILABLE, main
from tests.conformance.catalogs import a_collection, an_item, open_catalog


@pytest.fixture
def zones(tmp_path, monkeypatch):
    monkeypatch.delenv("DAGMASTER_DATABASE_URL", raising=False)
    monkeypatch.setenv("DAGMASTER_BLOB_DIR", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scene.tif").write_bytes(b"pixels")
    return tmp_path / "home"


def told(*arguments: str):
    done = CliRunner().invoke(blobs, arguments)
    return done.exit_code, done.stdout, " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["scene.tif"], "bronze/scene.tif"),
        (["scene.tif", "landsat/a b.tif"], "bronze/landsat/a b.tif"),
        (["scene.tif", "landsat/"], "bronze/landsat/scene.tif"),
        (["scene.tif", "--zone", "gold"], "gold/scene.tif"),
    ],
)
def test_a_file_is_put_where_a_workflow_finds_it(zones, arguments, place):
    code, out, err = told("put", *arguments)
    assert (code, out) == (0, f"file://{zones}/{place}\n")
    assert (zones / place).read_bytes() == b"pixels"
    assert "6 B, is there. A workflow finds it as " in err
    assert told("put", *arguments)[2].startswith("6 B, was there already, the same.")


def test_another_file_under_the_same_name_is_refused_and_what_is_there_stays(zones, tmp_path):
    told("put", "scene.tif")
    (tmp_path / "scene.tif").write_bytes(b"others")
    code, out, err = told("put", "scene.tif")
    assert (code, out) == (1, "")
    assert "something else is at" in err
    assert (zones / "bronze" / "scene.tif").read_bytes() == b"pixels"


def listed(zone: str = "bronze") -> list[str]:
    return [line.rpartition(f"/{zone}/")[2] for line in told("list", "--zone", zone)[1].splitlines()]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["scene.tif", "b.tif"], ["b.tif", "scene.tif"]),
        (["scene.tif", "b.tif", "to/"], ["to/b.tif", "to/scene.tif"]),
        (["folder"], ["folder/a.shp", "folder/deep/c.txt"]),
        (["folder/", "to"], ["to/a.shp", "to/deep/c.txt"]),
        (["folder", "to/"], ["to/folder/a.shp", "to/folder/deep/c.txt"]),
        (["folder", "b.tif"], ["b.tif", "folder/a.shp", "folder/deep/c.txt"]),
    ],
)
def test_several_files_and_folders_are_put_at_once(zones, tmp_path, arguments, names):
    (tmp_path / "b.tif").write_bytes(b"b")
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    for name in ("folder/a.shp", "folder/deep/c.txt", "folder/.hidden"):
        (tmp_path / name).write_text(name)
    code, out, err = told("put", *arguments)
    assert (code, listed()) == (0, names)
    assert sorted(line.rpartition("/bronze/")[2] for line in out.splitlines()) == names
    assert f"{len(names)} files: {len(names)} new; " in err


def test_of_several_files_those_that_may_are_put_and_the_others_are_told(zones, tmp_path):
    told("put", "scene.tif")
    (tmp_path / "scene.tif").write_bytes(b"mended")
    (tmp_path / "b.tif").write_bytes(b"b")
    code, out, err = told("put", "scene.tif", "b.tif")
    assert (code, out) == (1, f"file://{zones}/bronze/b.tif\n")
    assert f"something else is at file://{zones}/bronze/scene.tif, and stays" in err
    assert (zones / "bronze" / "scene.tif").read_bytes() == b"pixels"


def test_a_mended_file_takes_the_place_of_the_first_when_somebody_says_so(zones, tmp_path):
    told("put", "scene.tif")
    assert "replaced" not in told("put", "scene.tif", "--replace")[2]
    (tmp_path / "scene.tif").write_bytes(b"mended it")
    code, out, err = told("put", "scene.tif", "--replace")
    assert (code, out) == (0, f"file://{zones}/bronze/scene.tif\n")
    assert f"it was 6 B, sha256 {hashlib.sha256(b'pixels').hexdigest()}" in err
    assert (zones / "bronze" / "scene.tif").read_bytes() == b"mended it"


def test_blobs_are_taken_away_after_a_question(zones):
    for name in ("a.tif", "b.tif", "c/1.tif", "c/2.tif"):
        told("put", "scene.tif", name)
    for answer, said in (("n\n", "nothing is taken away"), ("", "nobody is there to answer: --yes does not ask")):
        done = CliRunner().invoke(blobs, ["rm", "a.tif"], input=answer, standalone_mode=False)
        assert (done.return_value, done.stdout, len(listed())) == (1 if answer else None, "", 4)
        assert "Take away 1 blob, 6 B, for good?" in done.stderr
        assert said in f"{done.stderr}{done.exception}"
    done = CliRunner().invoke(blobs, ["rm", "a.tif"], input="y\n")
    assert (done.exit_code, done.stdout, listed()) == (
        0,
        f"file://{zones}/bronze/a.tif\n",
        ["b.tif", "c/1.tif", "c/2.tif"],
    )
    assert "it is a folder, say -r" in told("rm", "c", "--yes")[2]
    assert "there is no blob at" in told("rm", "b.tif", "nope.tif", "--yes")[2]
    assert "a whole zone is not taken away" in told("rm", "-r", "/", "--yes")[2]
    assert len(listed()) == 3
    assert told("rm", "-r", "c", f"file://{zones}/bronze/b.tif", "--yes")[::2] == (0, "3 blobs, 18 B: gone")
    assert listed() == []


def test_a_file_that_is_no_blob_is_never_taken_away(zones, tmp_path):
    for name in ("scene.tif", f"file://{tmp_path}/scene.tif"):
        assert told("rm", name, "--yes")[0] != 0
    assert (tmp_path / "scene.tif").read_bytes() == b"pixels"


def test_what_the_catalog_speaks_of_stays_unless_forced(zones):
    for name in ("spoken.tif", "other.tif"):
        told("put", "scene.tif", name, "--zone", "silver")
    catalog = open_catalog(str(zones / "catalog"))
    catalog.ensure_collection(a_collection("scenes"))
    asset = {"data": {"href": f"file://{zones}/silver/spoken.tif", "roles": ["data"]}}
    catalog.register([an_item("one", assets=asset)])
    both = ("rm", "spoken.tif", "other.tif", "--zone", "silver", "--yes")
    code, out, err = told(*both)
    assert (code, out, len(listed("silver"))) == (1, "", 2)
    assert "the item one of scenes speaks of" in err
    assert told("rm", "other.tif", "--zone", "silver", "--yes")[0] == 0
    assert told("rm", "spoken.tif", "--zone", "silver", "--yes", "--force")[0] == 0
    assert listed("silver") == []


def test_a_list_is_in_order_and_of_one_folder_and_of_one_blob(zones):
    for name in ("b.tif", "a/2.tif", "a/1.tif"):
        told("put", "scene.tif", name)
    code, out, err = told("list")
    names = [line.rpartition("/bronze/")[2] for line in out.splitlines()]
    assert (code, names, err) == (0, ["a/1.tif", "a/2.tif", "b.tif"], "3 blobs, 18 B")
    assert [line.rpartition("/")[2] for line in told("list", "a/")[1].splitlines()] == ["1.tif", "2.tif"]
    assert told("list", "b.tif")[1].endswith("bronze/b.tif\n")
    documents = json.loads(told("list", "--json")[1])
    assert (documents[0]["size"], documents[0]["uri"]) == (6, f"file://{zones}/bronze/a/1.tif")
    assert told("list", "--zone", "silver") == (0, "", f"there is nothing in file://{zones}/silver")


def test_a_blob_is_got_by_its_name_or_its_uri(zones, tmp_path):
    told("put", "scene.tif", "a/other.tif")
    uri = f"file://{zones}/bronze/a/other.tif"
    for source, to, made in [("a/other.tif", "got", "got"), (uri, ".", "other.tif")]:
        code, out, err = told("get", source, to)
        assert (code, out.strip()) == (0, made)
        assert err == f"6 B, sha256 {hashlib.sha256(b'pixels').hexdigest()}"
        assert (tmp_path / made).read_bytes() == b"pixels"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["put", "nothing.tif"], "does not exist"),
        (["put", "scene.tif", "there.tiff", "x.tif"], "'there.tiff' does not exist"),
        (["put", "scene.tif", "./scene.tif"], "two files would be scene.tif"),
        (["put", "scene.tif", "../x"], "'..' part: a name leads straight to its blob"),
        (["put", "scene.tif", "--zone", "tin"], "'tin' is not one of 'bronze', 'silver', 'gold'"),
        (["get", "nothing.tif", "x"], "there is nothing at file://"),
        (["get", "http://host/x", "x"], "has to begin with one of"),
        (["get", "/etc/hostname", "x"], "outside of what may be read"),
        (["get", "there.tif", "scene.tif"], "scene.tif is there already: give another name, or --force"),
        (["get", "there.tif", "no/such/folder"], "there is no folder no/such"),
        (["list", "../.."], "'..' part"),
    ],
)
def test_a_mistake_is_a_sentence(zones, tmp_path, arguments, said):
    told("put", "scene.tif", "there.tif")
    code, out, err = told(*arguments)
    assert code in (1, 2)
    assert out == ""
    assert said in err
    assert (tmp_path / "scene.tif").read_bytes() == b"pixels"


def test_a_storage_that_is_away_has_its_own_exit_code(zones, monkeypatch, capsys):
    monkeypatch.setenv("DAGMASTER_BRONZE_URL", "s3://bucket/x")
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as left:
        main(["blobs", "put", "scene.tif"])
    assert left.value.code == UNAVAILABLE
    said = capsys.readouterr().err
    assert "s3://bucket/x/scene.tif cannot be read: there is no connection to the storage at 127.0.0.1:9" in " ".join(
        said.split()
    )
    assert "hunter2" not in said


@pytest.mark.process
def test_a_reader_that_leaves_the_list_is_no_failure(zones):
    told("put", "scene.tif")
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dagmaster", "blobs", "list"], stdout=writes, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writes)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


@pytest.mark.parametrize("name", list(blobs.commands))
def test_every_command_has_an_example(name):
    done = CliRunner().invoke(blobs, [name, "--help"])
    assert f"dagmaster blobs {name}" in done.output
    assert isinstance(blobs.commands[name], click.Command)
