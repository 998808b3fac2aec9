"""Folders that tasks leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from dagmaster.bootstrap.services_config import handler_services_config
from dagmaster.errors import SettingsInvalid
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.scratch_dirs import machine_name, process_dir_name, process_start
from dagmaster.settings import Settings
from dagmaster.worker.scratch_cleanup import remove_process_dir, remove_stale_dirs

if TYPE_CHECKING:
    from pathlib import Path


def leave(scratch: Path, *names: str) -> None:
    for name in names:
        (scratch / name / "task-1").mkdir(parents=True)
        (scratch / name / "task-1" / "half.tif").write_bytes(b"1")


def names_in(scratch: Path) -> list[str]:
    return sorted(path.name for path in scratch.iterdir())


@pytest.fixture(scope="module")
def ended() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_a_sweep_takes_what_the_dead_left_and_nothing_else(tmp_path, ended):
    dead, before_us = f"{machine_name()}_{ended}_1", f"{machine_name()}_{os.getpid()}_1"
    leave(tmp_path, dead, before_us, process_dir_name(), "mount", str(ended))
    remove_stale_dirs(tmp_path)
    # Another process had our number before us. What is named otherwise is none of ours.
    assert names_in(tmp_path) == sorted([process_dir_name(), "mount", str(ended)])


def test_directories_of_other_machines_are_kept_until_they_are_old(tmp_path, ended):
    elsewhere, old = f"other-0123456789ab_{ended}_1", f"other-0123456789ab_{ended}_2"
    leave(tmp_path, elsewhere, old)
    os.utime(tmp_path / old, (0, 0))
    remove_stale_dirs(tmp_path)
    assert names_in(tmp_path) == [elsewhere]


def test_a_dead_process_is_forgotten_and_the_one_that_has_its_number_is_not(tmp_path, ended):
    leave(tmp_path, f"{machine_name()}_{ended}_1", process_dir_name(), f"{machine_name()}_{os.getpid()}_1")
    remove_process_dir(tmp_path, ended)
    remove_process_dir(tmp_path, os.getpid())
    assert names_in(tmp_path) == [process_dir_name()]


def test_a_scratch_folder_that_is_not_there_is_swept_and_forgotten_in_peace(tmp_path):
    remove_stale_dirs(tmp_path / "nothing")
    remove_process_dir(tmp_path / "nothing", 1)


def test_two_processes_with_the_same_id_have_different_directories(ended):
    assert process_start(ended) is None
    assert process_dir_name() == f"{machine_name()}_{os.getpid()}_{process_start(os.getpid())}"
    assert process_start(os.getpid()) != process_start(1)


def test_the_directory_of_an_attempt_is_its_own_and_removed_afterwards(tmp_path):
    from dagmaster.ports.handler_services import Share

    class Lent:
        share = Share(scratch=tmp_path)

    one, two = (HandlerContext(services=Lent()) for _ in range(2))  # type: ignore[arg-type]
    assert one.scratch != two.scratch
    assert one.scratch.parent == tmp_path / process_dir_name()
    assert one.scratch.parent.stat().st_mode & 0o077 == 0
    (one.scratch / "x").write_bytes(b"1")
    gone = one.scratch
    one.close()
    one.close()
    assert not gone.exists()
    assert two.scratch.exists()


# ── The folder of all of them, where anybody may write ──


def test_scratch_below_tmp_is_ours_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = tmp_path / f"dagmaster-scratch-{os.getuid()}"
    handler_services_config(Settings())
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o755)
    handler_services_config(Settings())
    assert place.stat().st_mode & 0o777 == 0o700


def test_scratch_below_tmp_that_is_a_link_or_of_another_user_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = tmp_path / f"dagmaster-scratch-{os.getuid()}"
    (tmp_path / "theirs").mkdir()
    place.symlink_to(tmp_path / "theirs")
    with pytest.raises(SettingsInvalid, match="DAGMASTER_SCRATCH_DIR"):
        handler_services_config(Settings())
    place.unlink()
    place.mkdir()
    ours = os.getuid()
    if ours == 0:
        os.chown(place, 65534, 65534)
        with pytest.raises(SettingsInvalid, match="belongs to another user"):
            handler_services_config(Settings())
