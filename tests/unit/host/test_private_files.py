"""Folders and files with the data of jobs are for their user alone, whatever the umask is."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dagmaster.adapters.output_blobs_local import LocalBlobs
from dagmaster.bootstrap import large_outputs
from dagmaster.bootstrap.services_config import handler_services_config
from dagmaster.host import atomic_files, private_files
from dagmaster.ports.task_journal import LogChunk
from dagmaster.ports.task_source import ClaimedTask
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.settings import load_settings
from dagmaster.worker.task_log_files import TaskLogFiles

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o277], ids=oct, autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Provide a folder that everybody may enter."""
    tmp_path.chmod(0o755)
    return tmp_path


def modes_below(folder: Path) -> set[str]:
    return {
        ("folder " if path.is_dir() else "file ") + oct(stat.S_IMODE(path.stat().st_mode))
        for path in folder.rglob("*")
    }


PRIVATE = {"folder 0o700", "file 0o600"}
HELD = {"7": ClaimedTask("7", "1", "n", "h", 1, "{}", None, 60.0, token=1, dispatched_at=0.0)}


def test_large_outputs_are_private_and_no_mode_of_a_parent_is_changed(folder):
    asyncio.run(LocalBlobs(folder / "x-blobs").write("job/node.json", b"{}"))
    assert modes_below(folder) == PRIVATE
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_logs_are_private_and_stay_so_when_they_grow(folder):
    files = TaskLogFiles(folder / "var" / "logs", HELD)
    for number in (1, 2):
        asyncio.run(files.write([LogChunk("7", 1, number, "text")]))
    assert modes_below(folder) == PRIVATE
    assert (folder / "var" / "logs" / "1" / "n.log").read_text().endswith("\ntexttext")


def test_a_key_is_private_even_in_a_shared_folder(folder):
    folder.chmod(0o2775)
    atomic_files.write_private(folder / "key", b"secret")
    assert modes_below(folder) == {"file 0o600"}


def test_scratch_folders_are_private_also_below_a_folder_that_is_made_for_them(folder, monkeypatch):
    monkeypatch.setenv("DAGMASTER_SCRATCH_DIR", str(folder / "fast" / "scratch"))
    monkeypatch.setenv("DAGMASTER_BLOB_DIR", str(folder / "blobs"))
    config = handler_services_config(load_settings()).config
    context = HandlerContext.__new__(HandlerContext)
    context._scratch = None
    context.services = type(
        "Services", (), {"share": type("Share", (), {"scratch": Path(config["scratch"])})}
    )()
    assert context.scratch.is_dir()
    assert modes_below(folder) == {"folder 0o700"}


def test_a_folder_that_an_earlier_version_left_open_is_closed_at_the_start(folder, monkeypatch):
    monkeypatch.delenv("DAGMASTER_BLOB_DIR", raising=False)
    monkeypatch.setenv("DAGMASTER_DATA_DIR", str(folder / "data"))
    for open_again in (
        lambda: handler_services_config(load_settings()),
        lambda: large_outputs(load_settings(), folder / "data-blobs"),
    ):
        (folder / "data-blobs").mkdir(exist_ok=True)
        (folder / "data-blobs").chmod(0o755)
        open_again()
        assert modes_below(folder) == {"folder 0o700"}


def test_a_folder_that_the_user_has_named_keeps_its_mode(folder, monkeypatch):
    (folder / "named").mkdir()
    (folder / "named").chmod(0o755)
    monkeypatch.setenv("DAGMASTER_BLOB_DIR", str(folder / "named"))
    handler_services_config(load_settings())
    large_outputs(load_settings(), folder / "named")
    assert modes_below(folder) == {"folder 0o755"}
    asyncio.run(LocalBlobs(folder / "named").write("job/node.json", b"{}"))
    assert modes_below(folder / "named") == PRIVATE


def test_what_is_made_in_a_folder_that_is_shared_with_a_group_is_also_shared(folder):
    (folder / "shared").mkdir()
    (folder / "shared").chmod(0o2770)
    asyncio.run(LocalBlobs(folder / "shared").write("job/node.json", b"{}"))
    asyncio.run(TaskLogFiles(folder / "shared" / "logs", HELD).write([LogChunk("7", 1, 1, "text")]))
    assert modes_below(folder / "shared") == {"folder 0o2770", "file 0o660"}
    private_files.tighten(folder / "shared")
    assert stat.S_IMODE((folder / "shared").stat().st_mode) == 0o2770


def test_a_link_is_not_followed_and_the_folder_of_another_user_is_left(folder):
    (folder / "theirs").mkdir()
    (folder / "theirs").chmod(0o755)
    (folder / "link").symlink_to(folder / "theirs")
    private_files.tighten(folder / "link")
    if os.geteuid() == 0:
        os.chown(folder / "theirs", 1, 1)
        private_files.tighten(folder / "theirs")
    assert stat.S_IMODE((folder / "theirs").stat().st_mode) == 0o755


def test_a_file_of_a_blob_in_a_zone_follows_the_umask(folder):
    """A zone may be read by other systems: its folder decides. The default zones are below a private one."""
    atomic_files.replace(folder / "tile.tif", lambda file: file.write(b"x"))
    now = os.umask(0)
    os.umask(now)
    assert stat.S_IMODE((folder / "tile.tif").stat().st_mode) == 0o666 & ~now
