"""`dagmaster blobs`: store, list, fetch and delete blobs; errors are sentences."""

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


def invoke(*arguments: str):
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
def test_a_file_is_stored_where_workflows_refer_to_it(zones, arguments, place):
    code, out, err = invoke("put", *arguments)
    assert (code, out) == (0, f"file://{zones}/{place}\n")
    assert (zones / place).read_bytes() == b"pixels"
    assert "6 B stored. Workflows refer to it as " in err
    assert invoke("put", *arguments)[2].startswith("6 B unchanged.")


def test_another_file_of_the_same_name_is_rejected_and_the_blob_is_kept(zones, tmp_path):
    invoke("put", "scene.tif")
    (tmp_path / "scene.tif").write_bytes(b"others")
    code, out, err = invoke("put", "scene.tif")
    assert (code, out) == (1, "")
    assert "other content has the name of" in err
    assert (zones / "bronze" / "scene.tif").read_bytes() == b"pixels"


def listed(zone: str = "bronze") -> list[str]:
    return [line.rpartition(f"/{zone}/")[2] for line in invoke("list", "--zone", zone)[1].splitlines()]


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
def test_several_files_and_folders_are_stored_at_once(zones, tmp_path, arguments, names):
    (tmp_path / "b.tif").write_bytes(b"b")
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    for name in ("folder/a.shp", "folder/deep/c.txt", "folder/.hidden"):
        (tmp_path / name).write_text(name)
    code, out, err = invoke("put", *arguments)
    assert (code, listed()) == (0, names)
    assert sorted(line.rpartition("/bronze/")[2] for line in out.splitlines()) == names
    assert f"{len(names)} files: {len(names)} stored; " in err


def test_of_several_files_the_rejected_ones_are_reported_and_the_others_are_stored(zones, tmp_path):
    invoke("put", "scene.tif")
    (tmp_path / "scene.tif").write_bytes(b"changed")
    (tmp_path / "b.tif").write_bytes(b"b")
    code, out, err = invoke("put", "scene.tif", "b.tif")
    assert (code, out) == (1, f"file://{zones}/bronze/b.tif\n")
    assert f"other content has the name of file://{zones}/bronze/scene.tif, and was kept" in err
    assert (zones / "bronze" / "scene.tif").read_bytes() == b"pixels"


def test_a_corrected_file_replaces_the_blob_on_request(zones, tmp_path):
    invoke("put", "scene.tif")
    assert "replaced" not in invoke("put", "scene.tif", "--replace")[2]
    (tmp_path / "scene.tif").write_bytes(b"corrected")
    code, out, err = invoke("put", "scene.tif", "--replace")
    assert (code, out) == (0, f"file://{zones}/bronze/scene.tif\n")
    assert f"it was 6 B, sha256 {hashlib.sha256(b'pixels').hexdigest()}" in err
    assert (zones / "bronze" / "scene.tif").read_bytes() == b"corrected"


def test_blobs_are_deleted_after_a_confirmation(zones):
    for name in ("a.tif", "b.tif", "c/1.tif", "c/2.tif"):
        invoke("put", "scene.tif", name)
    for answer, message in (("n\n", "nothing was deleted"), ("", "the question was not answered: use --yes")):
        done = CliRunner().invoke(blobs, ["rm", "a.tif"], input=answer, standalone_mode=False)
        assert (done.return_value, done.stdout, len(listed())) == (1 if answer else None, "", 4)
        assert "Delete 1 blob, 6 B permanently?" in done.stderr
        assert message in f"{done.stderr}{done.exception}"
    done = CliRunner().invoke(blobs, ["rm", "a.tif"], input="y\n")
    assert (done.exit_code, done.stdout, listed()) == (
        0,
        f"file://{zones}/bronze/a.tif\n",
        ["b.tif", "c/1.tif", "c/2.tif"],
    )
    assert "it is a folder: use -r" in invoke("rm", "c", "--yes")[2]
    assert "there is no blob at" in invoke("rm", "b.tif", "nope.tif", "--yes")[2]
    assert "a whole zone cannot be deleted" in invoke("rm", "-r", "/", "--yes")[2]
    assert len(listed()) == 3
    assert invoke("rm", "-r", "c", f"file://{zones}/bronze/b.tif", "--yes")[::2] == (
        0,
        "3 blobs, 18 B: deleted",
    )
    assert listed() == []


def test_a_file_outside_the_zones_is_never_deleted(zones, tmp_path):
    for name in ("scene.tif", f"file://{tmp_path}/scene.tif"):
        assert invoke("rm", name, "--yes")[0] != 0
    assert (tmp_path / "scene.tif").read_bytes() == b"pixels"


def test_a_blob_that_the_catalog_refers_to_is_kept_unless_forced(zones):
    for name in ("referenced.tif", "other.tif"):
        invoke("put", "scene.tif", name, "--zone", "silver")
    catalog = open_catalog(str(zones / "catalog"))
    catalog.ensure_collection(a_collection("scenes"))
    asset = {"data": {"href": f"file://{zones}/silver/referenced.tif", "roles": ["data"]}}
    catalog.register([an_item("one", assets=asset)])
    both = ("rm", "referenced.tif", "other.tif", "--zone", "silver", "--yes")
    code, out, err = invoke(*both)
    assert (code, out, len(listed("silver"))) == (1, "", 2)
    assert "item one of collection scenes refers to" in err
    assert invoke("rm", "other.tif", "--zone", "silver", "--yes")[0] == 0
    assert invoke("rm", "referenced.tif", "--zone", "silver", "--yes", "--force")[0] == 0
    assert listed("silver") == []


def test_blobs_are_listed_in_order_by_folder_or_by_name(zones):
    for name in ("b.tif", "a/2.tif", "a/1.tif"):
        invoke("put", "scene.tif", name)
    code, out, err = invoke("list")
    names = [line.rpartition("/bronze/")[2] for line in out.splitlines()]
    assert (code, names, err) == (0, ["a/1.tif", "a/2.tif", "b.tif"], "3 blobs, 18 B")
    assert [line.rpartition("/")[2] for line in invoke("list", "a/")[1].splitlines()] == ["1.tif", "2.tif"]
    assert invoke("list", "b.tif")[1].endswith("bronze/b.tif\n")
    documents = json.loads(invoke("list", "--json")[1])
    assert (documents[0]["size"], documents[0]["uri"]) == (6, f"file://{zones}/bronze/a/1.tif")
    assert invoke("list", "--zone", "silver") == (0, "", f"file://{zones}/silver has no blobs")


def test_a_blob_is_fetched_by_its_name_or_its_uri(zones, tmp_path):
    invoke("put", "scene.tif", "a/other.tif")
    uri = f"file://{zones}/bronze/a/other.tif"
    for source, to, result in [("a/other.tif", "got", "got"), (uri, ".", "other.tif")]:
        code, out, err = invoke("get", source, to)
        assert (code, out.strip()) == (0, result)
        assert err == f"6 B, sha256 {hashlib.sha256(b'pixels').hexdigest()}"
        assert (tmp_path / result).read_bytes() == b"pixels"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["put", "nothing.tif"], "does not exist"),
        (["put", "scene.tif", "there.tiff", "x.tif"], "'there.tiff' does not exist"),
        (["put", "scene.tif", "./scene.tif"], "two files would be scene.tif"),
        (["put", "scene.tif", "../x"], "'..' part, which a blob name may not have"),
        (["put", "scene.tif", "--zone", "tin"], "'tin' is not one of 'bronze', 'silver', 'gold'"),
        (["get", "nothing.tif", "x"], "there is no blob at file://"),
        (["get", "http://host/x", "x"], "has to begin with one of"),
        (["get", "/etc/hostname", "x"], "outside the allowed directories"),
        (["get", "there.tif", "scene.tif"], "scene.tif exists: use another name, or --force"),
        (["get", "there.tif", "no/such/folder"], "there is no folder no/such"),
        (["list", "../.."], "'..' part"),
    ],
)
def test_a_user_error_is_a_sentence(zones, tmp_path, arguments, message):
    invoke("put", "scene.tif", "there.tif")
    code, out, err = invoke(*arguments)
    assert code in (1, 2)
    assert out == ""
    assert message in err
    assert (tmp_path / "scene.tif").read_bytes() == b"pixels"


def test_an_unreachable_storage_has_its_own_exit_code(zones, monkeypatch, capsys):
    monkeypatch.setenv("DAGMASTER_BRONZE_URL", "s3://bucket/x")
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as exited:
        main(["blobs", "put", "scene.tif"])
    assert exited.value.code == UNAVAILABLE
    output = capsys.readouterr().err
    assert (
        "s3://bucket/x/scene.tif cannot be read: there is no connection to the storage at 127.0.0.1:9"
        in " ".join(output.split())
    )
    assert "hunter2" not in output


@pytest.mark.process
def test_a_closed_pipe_is_not_an_error(zones):
    invoke("put", "scene.tif")
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "dagmaster", "blobs", "list"],
            stdout=writes,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writes)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


@pytest.mark.parametrize("name", list(blobs.commands))
def test_every_command_has_an_example(name):
    done = CliRunner().invoke(blobs, [name, "--help"])
    assert f"dagmaster blobs {name}" in done.output
    assert isinstance(blobs.commands[name], click.Command)
