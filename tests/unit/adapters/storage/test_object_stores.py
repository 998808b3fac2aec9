"""Publishing to an object store: what is taken away, what is looked at again, and what goes which way."""

from __future__ import annotations

from typing import Any

import obstore
import pytest

from dagmaster.adapters.byte_streams import CHUNK_BYTES
from dagmaster.adapters.storage import object_stores
from dagmaster.adapters.storage.object_stores import BlobStores
from dagmaster.errors import BlobsUnavailable
from dagmaster.ports.blob_uris import UNFINISHED, BlobUri

HOME = BlobUri("memory", "box", "zone")
SMALL, LARGE = 10, CHUNK_BYTES + 1


@pytest.fixture
def stores() -> BlobStores:
    return BlobStores([HOME, BlobUri("memory", "box", "")])


def a_file(folder, size: int):
    path = folder / "made"
    path.write_bytes(bytes(size))
    return path


def names(stores: BlobStores) -> list[str]:
    return [meta["path"] for batch in obstore.list(stores._store(HOME)) for meta in batch]


def test_uploads_of_a_killed_process_are_deleted_a_day_later_and_not_before(stores, tmp_path, monkeypatch):
    left = f"zone/{UNFINISHED}/0123"
    obstore.put(stores._store(HOME), left, b"half")
    stores.publish(a_file(tmp_path, LARGE), HOME.child("one"))
    assert names(stores) == [left, "zone/one"]
    monkeypatch.setattr(object_stores, "STALE_AFTER_SECONDS", -1)
    again = BlobStores([HOME])
    again._stores = stores._stores
    again.publish(a_file(tmp_path, LARGE), HOME.child("two"))
    assert names(stores) == ["zone/one", "zone/two"]


def test_a_copy_that_fails_deletes_the_temporary_name(stores, tmp_path, monkeypatch):
    def fails(*_given: Any, **_how: Any) -> None:
        raise obstore.exceptions.GenericError("no")

    monkeypatch.setattr(obstore, "copy", fails)
    with pytest.raises(BlobsUnavailable, match="memory://box/zone/one cannot be written"):
        stores.publish(a_file(tmp_path, LARGE), HOME.child("one"))
    assert names(stores) == []


def test_a_blob_that_is_not_as_long_as_what_was_sent_is_no_success(stores, tmp_path, monkeypatch):
    copy = obstore.copy

    def short(store: Any, source: str, to: str, **how: Any) -> None:
        copy(store, source, to, **how)
        obstore.put(store, to, b"short")

    monkeypatch.setattr(obstore, "copy", short)
    with pytest.raises(BlobsUnavailable, match="changed or deleted by another client"):
        stores.publish(a_file(tmp_path, LARGE), HOME.child("one"))


@pytest.mark.parametrize(
    ("size", "max_copy_bytes", "ways"),
    [(SMALL, 1 << 40, ["create"]), (LARGE, 1 << 40, ["parts", "copy"]), (LARGE, LARGE - 1, ["parts"])],
)
def test_each_size_goes_its_way(tmp_path, monkeypatch, size, max_copy_bytes, ways):
    went: list[str] = []
    home = BlobUri("s3", "box", "zone")
    stores = BlobStores([home])
    stores._stores["s3", "box"] = obstore.store.MemoryStore()
    put, copy = obstore.put, obstore.copy

    def seen_put(store: Any, name: str, data: Any, **how: Any) -> Any:
        went.append("create" if how["mode"] else "parts")
        return put(store, name, data, **how)

    def seen_copy(*values: Any, **how: Any) -> None:
        went.append("copy")
        assert how == {"overwrite": False}
        copy(*values, **how)

    monkeypatch.setattr(obstore, "put", seen_put)
    monkeypatch.setattr(obstore, "copy", seen_copy)
    monkeypatch.setattr(object_stores, "MAX_COPY_BYTES", max_copy_bytes)
    assert stores.publish(a_file(tmp_path, size), home.child("one")).created
    assert went == ways


def test_a_large_upload_has_no_more_parts_than_a_store_takes(stores, monkeypatch):
    details: dict[str, Any] = {}
    monkeypatch.setattr(obstore, "put", lambda *_given, **how: details.update(how))
    terabyte = 10**12
    stores._put(HOME, "x", iter(()), size=terabyte)
    assert terabyte / details["chunk_size"] <= 10_000
    stores._put(HOME, "x", iter(()), size=LARGE)
    assert details["chunk_size"] == CHUNK_BYTES
