"""Files that last: what is synced before what, what a full disk leaves, and names that a disk refuses."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dagmaster.adapters.storage.router import ObjectStorage
from dagmaster.errors import BlobNameInvalid, BlobNotFound, BlobsUnavailable
from dagmaster.host import atomic_files

if TYPE_CHECKING:
    from collections.abc import Iterator

MEGABYTE = 1 << 20


def storage_in(folder: Path) -> ObjectStorage:
    return ObjectStorage({zone: f"file://{folder}/{zone}" for zone in ("bronze", "silver", "gold")})


@pytest.fixture
def happened(monkeypatch) -> list[str]:
    """Record what the disk was asked, in order: sync, link and rename, by the last part of the name."""
    seen: list[str] = []
    fsync, link, rename = os.fsync, os.link, Path.replace

    def said_fsync(number: int) -> None:
        place = Path(f"/proc/self/fd/{number}").resolve()
        seen.append(f"sync folder {place.name}" if place.is_dir() else "sync file")
        fsync(number)

    def said_link(source: str, to: Path, **how: object) -> None:
        seen.append(f"link {to.name}")
        link(source, to, **how)  # type: ignore[arg-type]

    def said_rename(self: Path, to: Path) -> Path:
        seen.append(f"rename {to.name}")
        return rename(self, to)

    monkeypatch.setattr(os, "fsync", said_fsync)
    monkeypatch.setattr(os, "link", said_link)
    monkeypatch.setattr(Path, "replace", said_rename)
    return seen


def test_bytes_are_on_the_disk_before_their_name_and_the_name_before_the_answer(tmp_path, happened):
    target = tmp_path / "made"
    target.write_bytes(b"1")
    storage = storage_in(tmp_path)
    storage.publish(target, storage.in_zone("silver", "a/b.bin"))
    folders = [f"sync folder {tmp_path.name}", "sync folder silver"]
    assert happened == [*folders, "sync file", "link b.bin", "sync folder a"]
    happened.clear()
    storage.write(storage.in_zone("silver", "a/b.bin"), b"2")
    assert happened == ["sync file", "rename b.bin", "sync folder a"]


def test_without_unnamed_files_a_publish_is_as_whole(tmp_path, monkeypatch):
    opened = os.open

    def none_of_these(path: str, flags: int, *rest: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "Operation not supported")
        return opened(path, flags, *rest)

    monkeypatch.setattr(os, "open", none_of_these)
    assert atomic_files.create(tmp_path / "a" / "one", lambda file: file.write(b"1"))
    assert not atomic_files.create(tmp_path / "a" / "one", lambda file: file.write(b"2"))
    with pytest.raises(ZeroDivisionError):
        atomic_files.create(tmp_path / "a" / "two", lambda file: file.write(b"half") // 0)
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == {"one": b"1"}


KILLED_IN_BETWEEN = """
import os, signal, sys
from pathlib import Path
from tests.unit.adapters.storage.test_files import storage_in
storage = storage_in(Path(sys.argv[1]))
storage.publish(Path(sys.argv[2]), storage.in_zone("silver", "a.bin"), lambda done: os.kill(os.getpid(), signal.SIGKILL))
"""


@pytest.mark.process
def test_a_process_that_is_killed_while_it_publishes_leaves_nothing(tmp_path):
    target = tmp_path / "made"
    target.write_bytes(bytes(MEGABYTE))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_IN_BETWEEN, str(tmp_path), str(target)], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert list((tmp_path / "silver").iterdir()) == []


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_takes_no_more_is_a_sentence_and_leaves_nothing(tmp_path):
    target = tmp_path / "made"
    target.write_bytes(bytes(3 * MEGABYTE))
    storage = storage_in(tmp_path)
    there = storage.in_zone("silver", "there.bin")
    storage.publish(target, there)
    with files_of_at_most(MEGABYTE):
        for do in (
            lambda: storage.publish(target, storage.in_zone("silver", "a.bin")),
            lambda: storage.write(storage.in_zone("silver", "a.bin"), target.read_bytes()),
            lambda: storage.fetch(there, tmp_path / "got"),
        ):
            with pytest.raises(BlobsUnavailable, match="cannot be written: the file is too large"):
                do()
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["made", "there.bin"]
    storage.publish(target, storage.in_zone("silver", "a.bin"))


@pytest.mark.process
def test_a_disk_without_room_is_a_sentence_and_leaves_nothing(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root may make a small disk, and not in every container")
    try:
        target = tmp_path / "made"
        target.write_bytes(bytes(3 * MEGABYTE))
        storage, large = storage_in(small), storage_in(tmp_path / "large")
        there = large.in_zone("bronze", "there.bin")
        large.publish(target, there)
        for do in (
            lambda: storage.publish(target, storage.in_zone("silver", "a.bin")),
            lambda: storage.write(storage.in_zone("silver", "a.bin"), target.read_bytes()),
            lambda: large.fetch(there, small / "got"),
        ):
            with pytest.raises(BlobsUnavailable, match="cannot be written: the disk is full"):
                do()
        assert [path for path in small.rglob("*") if path.is_file()] == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_names_that_a_file_system_rejects_are_bad_input(tmp_path):
    storage = storage_in(tmp_path)
    storage.write(storage.in_zone("silver", "a/b"), b"1")
    for name, message in [
        ("x" * 300, "longer than the file system allows"),
        ("a/b/c", "is a file, not a folder"),
        ("a", "it is a folder"),
    ]:
        uri = storage.in_zone("silver", name)
        (tmp_path / "made").write_bytes(b"1")
        with pytest.raises(BlobNameInvalid, match=message):
            storage.publish(tmp_path / "made", uri)
        with pytest.raises((BlobNameInvalid, BlobNotFound)):
            storage.read(uri)
    assert storage.find(storage.in_zone("silver", "a")) is None
    assert [info.size for info in storage.list_blobs(storage.in_zone("silver"))] == [1]


def test_what_nobody_can_ask_for_is_in_no_list(tmp_path):
    storage = storage_in(tmp_path)
    storage.write(storage.in_zone("silver", "fine"), b"1")
    for name in (b"not\xfftext", b"new\nline", b"back\\slash"):
        (Path(os.fsdecode(os.fsencode(tmp_path / "silver") + b"/" + name))).write_bytes(b"1")
    assert [info.uri.stem for info in storage.list_blobs(storage.in_zone("silver"))] == ["fine"]


def test_a_file_that_is_published_and_is_not_there_is_no_missing_blob(tmp_path):
    storage = storage_in(tmp_path)
    with pytest.raises(FileNotFoundError):
        storage.publish(tmp_path / "nothing", storage.in_zone("silver", "a"))
