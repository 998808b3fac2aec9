"""Where large outputs are kept: a directory, or a storage. Both do alike."""

from __future__ import annotations

import asyncio

import pytest

from dagmaster.adapters.output_blobs_local import LocalBlobs
from dagmaster.adapters.output_blobs_remote import StoredBlobs
from dagmaster.bootstrap import large_outputs
from dagmaster.errors import BlobNotFound, BlobsUnavailable
from dagmaster.ports.output_blobs import CHUNK_BYTES
from dagmaster.settings import Settings
from tests.conformance.storages import place_of, served


@pytest.fixture(scope="module", params=["directory", "local", "memory", "s3"])
def kind(request):
    with served(request.param) as env:
        yield request.param, env


@pytest.fixture
def blobs(kind, tmp_path, monkeypatch):
    name, env = kind
    for key, value in env.items():
        monkeypatch.setenv(key, value)
    if name == "directory":
        return LocalBlobs(tmp_path)
    place = place_of(name, tmp_path, env)
    return StoredBlobs(place.storage, place.storage.in_zone("silver"))


def test_what_is_written_is_read_and_may_be_written_over(blobs):
    async def story():
        await blobs.write("jobs/1/a.b_c-d/2-x.json", b"old")
        await blobs.write("jobs/1/a.b_c-d/2-x.json", b"new" * 100_000)
        return await blobs.read("jobs/1/a.b_c-d/2-x.json"), await blobs.size("jobs/1/a.b_c-d/2-x.json")

    assert asyncio.run(story()) == (b"new" * 100_000, 300_000)


def test_the_names_of_all_blobs_are_listed(blobs):
    names = {f"jobs/{job}/listed/{attempt}-9.json" for job in (1, 2) for attempt in (1, 2)}

    async def story():
        for name in names:
            await blobs.write(name, b"{}")
        return {name async for name in blobs.names()}

    assert {name for name in asyncio.run(story()) if "/listed/" in name} == names


def test_a_blob_is_read_in_chunks_of_bounded_size(blobs):
    data = bytes(range(256)) * 16 * 1024

    async def story():
        await blobs.write("jobs/1/large", data)
        await blobs.write("jobs/1/empty", b"")
        empty = [chunk async for chunk in blobs.read_chunks("jobs/1/empty")]
        return [chunk async for chunk in blobs.read_chunks("jobs/1/large")], empty

    chunks, empty = asyncio.run(story())
    assert (b"".join(chunks), b"".join(empty)) == (data, b"")
    assert max(map(len, chunks)) <= CHUNK_BYTES


@pytest.mark.parametrize("name", ["nothing", "../x", "/x", "a//b", "", "a b", ".hidden", "a\x00", "ü"])
def test_a_missing_blob_or_an_invalid_name_is_not_found(blobs, name):
    with pytest.raises(BlobNotFound):
        asyncio.run(blobs.read(name))
    with pytest.raises(BlobNotFound):
        asyncio.run(blobs.size(name))
    with pytest.raises(BlobNotFound):
        asyncio.run(anext(blobs.read_chunks(name)))


def test_many_are_written_at_once(blobs):
    async def story():
        await asyncio.gather(*(blobs.write(f"jobs/{number}", str(number).encode()) for number in range(20)))
        return await asyncio.gather(*(blobs.read(f"jobs/{number}") for number in range(20)))

    assert asyncio.run(story()) == [str(number).encode() for number in range(20)]


def test_a_directory_that_cannot_be_written_is_unavailable(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BlobsUnavailable):
        asyncio.run(LocalBlobs(tmp_path / "file").write("a", b"1"))


def test_a_setting_decides_where_they_go(tmp_path):
    beside = large_outputs(Settings(), tmp_path)
    elsewhere = large_outputs(Settings(outputs_url=f"file://{tmp_path}/else"), tmp_path)
    assert isinstance(beside, LocalBlobs)
    asyncio.run(elsewhere.write("jobs/a", b"1"))
    assert (tmp_path / "else" / "jobs" / "a").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://box", "must be durable"),
        ("bucket/prefix", "is not a storage URL"),
        ("https://key:hunter2@bucket", "has to begin with one of"),
    ],
)
def test_an_invalid_address_is_rejected_when_it_is_parsed(url, message, monkeypatch):
    from dagmaster.errors import SettingsInvalid
    from dagmaster.settings import load_settings

    monkeypatch.setenv("DAGMASTER_OUTPUTS_URL", url)
    with pytest.raises(SettingsInvalid, match=message) as error:
        load_settings()
    assert "hunter2" not in str(error.value)
