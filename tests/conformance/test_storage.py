"""What every storage does alike: files, memory, S3 (moto) and Azure (Azurite)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import resource
import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import rasterio

from dagmaster.adapters.byte_streams import CHUNK_BYTES
from dagmaster.errors import BlobNameInvalid, BlobNotFound, BlobsUnavailable
from dagmaster.geo.gdal import gdal_env, open_raster
from dagmaster.ports.blob_uris import UNFINISHED, BlobUri
from dagmaster.ports.handler_services import Share
from tests.conformance.storages import BACKENDS, Place, place_of, served
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from dagmaster.ports.storage import BlobInfo

LARGE = CHUNK_BYTES + 1_000_003
ODD_NAMES = ["a b", "p%20q%", "ü/ñ/日本.tif", "x#y", "q?z", "til~de+*&()[]{}'\"^|", "12:30", "dot.", "-"]


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request):
    with served(request.param) as env:
        yield request.param, env


@pytest.fixture
def place(backend, tmp_path, monkeypatch) -> Place:
    name, env = backend
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    return place_of(name, tmp_path / "zones", env)


def a_file(folder: Path, data: bytes, name: str = "made") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def data_of(size: int, seed: bytes = b"x") -> bytes:
    piece = hashlib.sha512(seed).digest()
    return (piece * (size // len(piece) + 1))[:size]


@pytest.mark.parametrize("size", [0, 1, LARGE])
def test_what_is_published_comes_back_byte_by_byte(place, tmp_path, size):
    data = data_of(size)
    collected: list[int] = []
    fetched: list[int] = []
    uri = place.storage.in_zone("silver", "a/b.bin")
    published = place.storage.publish(a_file(tmp_path, data), uri, collected.append)
    got = place.storage.fetch(uri, tmp_path / "got", fetched.append)
    assert (tmp_path / "got").read_bytes() == data
    checksum = hashlib.sha256(data).hexdigest()
    assert published.created
    assert (published.size, published.sha256) == (got.size, got.sha256) == (size, checksum)
    assert (published.etag, published.modified) == (got.etag, got.modified)
    assert collected == sorted(collected)
    assert (collected or [0])[-1] == (fetched or [0])[-1] == size
    assert len(collected) > 1 or size < CHUNK_BYTES
    assert place.storage.find(uri) == replace(got, sha256="")


@pytest.mark.parametrize("size", [10, LARGE])
def test_what_is_there_stays_and_the_answer_is_about_it(place, tmp_path, size):
    uri = place.storage.in_zone("silver", "one.bin")
    first = place.storage.publish(a_file(tmp_path, data_of(size, b"first")), uri)
    second = place.again().publish(a_file(tmp_path, data_of(size + 1, b"second")), uri)
    assert second == replace(first, created=False)
    assert place.storage.read(uri) == data_of(size, b"first")
    assert place.storage.publish(tmp_path / "made", place.storage.in_zone("silver", "other.bin")).created


@pytest.mark.parametrize("size", [0, 10, LARGE])
def test_what_is_replaced_is_the_new_one_and_what_breaks_off_leaves_the_old_one(place, tmp_path, size):
    uri = place.storage.in_zone("bronze", "a/one.bin")
    place.storage.publish(a_file(tmp_path, b"first"), uri)
    data, reports = data_of(size, b"second"), list[int]()
    target = place.storage.replace(a_file(tmp_path, data), uri, reports.append)
    assert (target.size, target.sha256) == (size, hashlib.sha256(data).hexdigest())
    assert place.again().read(uri) == data
    assert (reports or [0])[-1] == size

    def enough(_: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        place.storage.replace(a_file(tmp_path, data_of(LARGE, b"third")), uri, enough)
    assert place.again().read(uri) == data
    assert [one.uri for one in place.storage.list_blobs(place.storage.in_zone("bronze"))] == [uri]
    assert (
        place.storage.replace(a_file(tmp_path, b"new"), place.storage.in_zone("bronze", "other.bin")).size
        == 3
    )


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_twin_that_was_faster_stays(place, tmp_path, size):
    """It comes after we looked, and before we are done."""
    uri = place.storage.in_zone("silver", "one.bin")
    ours = a_file(tmp_path, data_of(size, b"ours"))
    twins = a_file(tmp_path, data_of(size, b"twin"), "twin")
    first: list[BlobInfo] = []

    def meanwhile(_done: int) -> None:
        if not first:
            # On another thread: obstore calls this from inside itself.
            twin = threading.Thread(target=lambda: first.append(place.again().publish(twins, uri)))
            twin.start()
            twin.join()

    assert place.storage.publish(ours, uri, meanwhile) == replace(first[0], created=False)
    assert first[0].created
    assert place.storage.read(uri) == data_of(size, b"twin")
    assert len(place.everything()) == 1


PUBLISHER = """
import json, sys, time
from pathlib import Path
from tests.conformance.storages import zones_at
url, source, name = sys.argv[1:]
storage = zones_at(url)
storage.find(storage.in_zone("silver", "nothing"))
print("ready", flush=True)
sys.stdin.readline()
info = storage.publish(Path(source), storage.in_zone("silver", name))
print(json.dumps([info.created, info.size, info.sha256, info.etag, info.modified]))
"""


@pytest.mark.parametrize("size", [1000, LARGE])
def test_of_two_concurrent_publishers_one_creates_and_both_get_the_same_metadata(place, tmp_path, size):
    # Processes cost a second each; memory has only one.
    if size < LARGE or place.url.startswith("memory"):
        answers = twin_threads(place, tmp_path, size)
    else:
        answers = twin_processes(place, tmp_path, size)
    assert sorted(bool(answer[0]) for answer in answers) == [False, True]
    assert answers[0][1:] == answers[1][1:]
    kept = place.storage.read(place.storage.in_zone("silver", "twin.bin"))
    assert hashlib.sha256(kept).hexdigest() == answers[0][2]
    assert [name for name in place.everything() if UNFINISHED in name] == []


def twin_processes(place: Place, folder: Path, size: int) -> list[list[object]]:
    twins = []
    for seed in (b"one", b"two"):
        source = a_file(folder, data_of(size, seed), seed.decode())
        command = [sys.executable, "-c", PUBLISHER, place.url, str(source), "twin.bin"]
        twins.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for twin in twins:
        assert twin.stdout is not None
        assert twin.stdout.readline() == "ready\n"
    for twin in twins:
        assert twin.stdin is not None
        twin.stdin.write("\n")
        twin.stdin.flush()
    return [json.loads(twin.communicate(timeout=PATIENCE_SECONDS)[0]) for twin in twins]


def twin_threads(place: Place, folder: Path, size: int) -> list[list[object]]:
    answers: list[list[object]] = []
    both = threading.Barrier(2)

    def publish(seed: bytes) -> None:
        source = a_file(folder, data_of(size, seed), seed.decode())
        storage = place.again()
        both.wait()
        info = storage.publish(source, storage.in_zone("silver", "twin.bin"))
        answers.append([info.created, info.size, info.sha256, info.etag, info.modified])

    threads = [threading.Thread(target=publish, args=(seed,)) for seed in (b"one", b"two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


class Enough(Exception):
    pass


def enough(_done: int) -> None:
    raise Enough


def test_a_publish_that_breaks_off_leaves_nothing(place, tmp_path):
    source = a_file(tmp_path, data_of(3 * CHUNK_BYTES))
    with pytest.raises(Enough):
        place.storage.publish(source, place.storage.in_zone("bronze", "a/broken.bin"), enough)
    assert place.storage.find(place.storage.in_zone("bronze", "a/broken.bin")) is None
    assert place.everything() == []


def test_a_fetch_that_breaks_off_leaves_nothing(place, tmp_path):
    uri = place.storage.in_zone("bronze", "a.bin")
    place.storage.write(uri, data_of(LARGE))
    (tmp_path / "to").mkdir()
    with pytest.raises(Enough):
        place.storage.fetch(uri, tmp_path / "to" / "got", enough)
    assert list((tmp_path / "to").iterdir()) == []


def test_what_is_half_written_is_in_no_list_and_cannot_be_named(place):
    place.storage.write(place.storage.in_zone("bronze", "a/seen"), b"1")
    home = place.storage.in_zone("bronze")
    for name in (f"{UNFINISHED}/0123", f"a/{UNFINISHED}-0123"):
        place.storage.write(BlobUri(home.scheme, home.container, f"{home.name}/{name}"), b"half")
        with pytest.raises(BlobNameInvalid, match="reserved for unfinished files"):
            place.storage.in_zone("bronze", name)
    assert len(place.everything()) == 3
    assert [info.uri for info in place.storage.list_blobs(home)] == [
        place.storage.in_zone("bronze", "a/seen")
    ]


def test_a_list_is_in_order_of_names_and_of_one_place_only(place):
    names = ["a/b", "a/b/c", "a-b", "a.b", "a/z", "aa", "b/c/d", "b/c.d", "Z", "ü"]
    if place.url.startswith("file"):
        names.remove("a/b")
    for name in names:
        place.storage.write(place.storage.in_zone("bronze", name), name.encode())
    place.storage.write(place.storage.in_zone("silver", "elsewhere"), b"")
    home = place.storage.in_zone("bronze")
    listed = list(place.storage.list_blobs(home))
    assert [info.uri.name.removeprefix(f"{home.name}/") for info in listed] == sorted(names)
    assert [info.size for info in listed] == [len(name.encode()) for name in sorted(names)]
    assert [place.storage.find(info.uri) for info in listed] == listed
    below = [info.uri for info in place.storage.list_blobs(home.child("a"))]
    assert below == [home.child(name) for name in sorted(names) if name.startswith("a/")]
    assert list(place.storage.list_blobs(home.child("nothing"))) == []


def test_blobs_next_to_another_are_listed_by_the_beginning_of_their_names(place):
    names = [
        "a.tif",
        "a.tfw",
        "a.tif.aux.xml",
        "a_RPC.TXT",
        "a",
        "b.tif",
        "A.tif",
        "a.dir/x",
        "a.dir/y",
        "a.z",
        "ab.tif",
    ]
    for name in names:
        place.storage.write(place.storage.in_zone("bronze", f"in/{name}"), b"1")
    place.storage.write(place.storage.in_zone("bronze", "a.outside"), b"1")
    uri = place.storage.in_zone("bronze", "in/a.tif")
    listed = list(place.storage.list_beside(uri, "a."))
    assert [info.uri.name.rpartition("/")[2] for info in listed] == ["a.tfw", "a.tif", "a.tif.aux.xml", "a.z"]
    assert listed[1] == place.storage.find(uri)
    assert [info.uri.name.rpartition("/")[2] for info in place.storage.list_beside(uri, "a_")] == [
        "a_RPC.TXT"
    ]
    both = [info.uri.name.rpartition("/")[2] for info in place.storage.list_beside(uri, "a_", "a.t")]
    assert both == ["a_RPC.TXT", "a.tfw", "a.tif", "a.tif.aux.xml"]
    assert list(place.storage.list_beside(place.storage.in_zone("bronze", "nothing/a.tif"), "a.")) == []


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_is_not_decoded(place, tmp_path, name):
    uri = place.storage.in_zone("bronze", name)
    assert BlobUri.parse(str(uri)) == uri
    assert place.storage.publish(a_file(tmp_path, b"odd"), uri).created
    assert place.storage.resolve(str(uri)) == uri
    assert place.storage.read(uri) == b"odd"
    assert [info.uri for info in place.storage.list_blobs(place.storage.in_zone("bronze"))] == [uri]
    assert place.storage.delete(uri)
    assert place.everything() == []


def test_a_write_replaces_the_blob(place):
    uri = place.storage.in_zone("bronze", "state.json")
    place.storage.write(uri, b"old and long")
    assert place.storage.write(uri, b"new").sha256 == hashlib.sha256(b"new").hexdigest()
    assert place.storage.read(uri) == b"new"


@pytest.mark.parametrize("size", [3, LARGE])
def test_the_version_of_a_blob_is_the_same_for_its_writer_and_its_readers_until_it_is_replaced(
    place, tmp_path, size
):
    uri = place.storage.in_zone("silver", f"versions/{size}")
    published = place.storage.publish(a_file(tmp_path, data_of(size)), uri)
    assert place.storage.find(uri).version == published.version
    assert (
        place.storage.publish(a_file(tmp_path, data_of(size, b"y"), "other"), uri).version
        == published.version
    )
    written = place.storage.replace(a_file(tmp_path, data_of(size, b"y"), "other"), uri)
    assert place.storage.find(uri).version == written.version != published.version
    assert place.storage.write(uri, b"new").version == place.storage.find(uri).version != written.version


def test_a_missing_blob_is_not_found(place, tmp_path):
    uri = place.storage.in_zone("bronze", "nothing/here")
    assert place.storage.find(uri) is None
    assert not place.storage.delete(uri)
    with pytest.raises(BlobNotFound, match=r"there is nothing at .*nothing/here"):
        place.storage.read(uri)
    with pytest.raises(BlobNotFound, match="there is nothing at"):
        place.storage.fetch(uri, tmp_path / "got")
    assert list(tmp_path.glob("*got*")) == []


def test_a_fetch_to_a_disk_that_takes_no_more_leaves_nothing_and_can_be_done_again(place, tmp_path):
    uri = place.storage.in_zone("bronze", "a.bin")
    place.storage.publish(a_file(tmp_path, data_of(LARGE)), uri)
    (tmp_path / "to").mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(BlobsUnavailable, match="to/got cannot be written: the file is too large"):
            place.storage.fetch(uri, tmp_path / "to" / "got")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "to").iterdir()) == []
    assert place.storage.fetch(uri, tmp_path / "to" / "got").size == LARGE


@pytest.mark.parametrize("backend", ["az"], indirect=True)
def test_azure_rejects_a_wrong_key_and_the_error_does_not_contain_it(place, tmp_path, monkeypatch):
    # moto takes every key; a wrong one for S3 is tried in tests/unit/adapters.
    wrong = base64.b64encode(b"hunter2" * 9).decode()
    text = re.sub("AccountKey=[^;]*", f"AccountKey={wrong}", place.env["AZURE_STORAGE_CONNECTION_STRING"])
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    storage = place.again()
    uri = storage.in_zone("bronze", "x")
    for do in (
        lambda: storage.find(uri),
        lambda: storage.fetch(uri, tmp_path / "got"),
        lambda: list(storage.list_blobs(uri)),
        lambda: storage.publish(a_file(tmp_path, b"1"), uri),
    ):
        with pytest.raises(
            BlobsUnavailable, match=r"rejected the credentials, which are read from AZURE_STORAGE"
        ) as error:
            do()
        assert wrong not in str(error.value)


@pytest.mark.parametrize("backend", ["s3", "az"], indirect=True)
def test_a_container_that_is_not_there_has_its_own_sentence(place, tmp_path):
    uri = replace(place.storage.in_zone("bronze", "x"), container="nobody-made-this")
    message = r"there is no (bucket|container) 'nobody-made-this': create it"
    for read in (
        lambda: place.storage.find(uri),
        lambda: place.storage.read(uri),
        lambda: place.storage.fetch(uri, tmp_path / "got"),
        lambda: list(place.storage.list_blobs(uri)),
        lambda: place.storage.delete(uri),
    ):
        with pytest.raises(BlobNotFound, match=message):
            read()
    with pytest.raises(BlobsUnavailable, match=message):
        place.storage.publish(a_file(tmp_path, b"1"), uri)
    with pytest.raises(BlobsUnavailable, match=message):
        place.storage.write(uri, b"1")


@pytest.mark.parametrize("name", ["scene.tif", "ü b/p%20q#.tif"])
def test_gdal_reads_a_window_in_place_with_the_same_keys(place, tmp_path, name):
    if place.url.startswith("memory"):
        with pytest.raises(BlobNameInvalid, match="fetch it first"):
            place.storage.gdal_path(place.storage.in_zone("bronze", name))
        return
    raster = tmp_path / "scene.tif"
    pixels = np.arange(256 * 256, dtype="uint16").reshape(256, 256)
    profile = {"driver": "GTiff", "width": 256, "height": 256, "count": 1, "dtype": "uint16", "tiled": True}
    where = {"crs": "EPSG:32625", "transform": rasterio.Affine(30, 0, 500000, 0, -30, 9000000)}
    with rasterio.open(raster, "w", blockxsize=64, blockysize=64, **profile, **where) as result:
        result.write(pixels, 1)
    uri = place.storage.in_zone("bronze", name)
    place.storage.publish(raster, uri)
    there = place.storage.gdal_path(uri)
    with gdal_env(Share(), **there.options), open_raster(there.path, Share()) as scene:
        assert scene.crs.to_epsg() == 32625
        assert (scene.read(1, window=((70, 80), (130, 200))) == pixels[70:80, 130:200]).all()
    assert not any(secret in repr(there) for secret in place.env.values())
