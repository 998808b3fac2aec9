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

from dagmaster.cli.blobs import blobs
from dagmaster.cli.main import UNAVAILABLE, main


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
