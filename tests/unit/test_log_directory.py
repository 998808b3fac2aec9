"""Where the logs of tasks are as files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dagmaster import get_logs_dir
from dagmaster.errors import SettingsInvalid
from dagmaster.settings import load_settings
from dagmaster.settings.log_directory import (
    default_logs_dir,
    local_logs_dir,
    log_path_of,
    named_logs_dir,
    script_logs_dir,
)


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGMASTER_LOG_DIR")


@pytest.mark.parametrize("variable", ["DAGMASTER_LOG_DIR", "AAICLICK_LOG_DIR"])
def test_a_directory_that_is_set_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str):
    monkeypatch.setenv(variable, str(tmp_path / "a" / "b"))
    assert get_logs_dir() == str(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert load_settings(services=True).log_dir == tmp_path / "a" / "b"


def test_our_name_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DAGMASTER_LOG_DIR", str(tmp_path / "ours"))
    monkeypatch.setenv("AAICLICK_LOG_DIR", str(tmp_path / "theirs"))
    assert get_logs_dir() == str(tmp_path / "ours")


def test_the_default_depends_on_the_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert get_logs_dir() == str(tmp_path / ".dagmaster" / "logs")
    assert (tmp_path / ".dagmaster" / "logs").is_dir()
    assert default_logs_dir("linux") == Path("/var/log/dagmaster")


def test_a_directory_that_cannot_be_created_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DAGMASTER_LOG_DIR", str(tmp_path / "file" / "logs"))
    with pytest.raises(SettingsInvalid, match=r"file/logs cannot be created: .*\. Set DAGMASTER_LOG_DIR"):
        get_logs_dir()


@pytest.fixture
def default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the default directory of this machine, below a temporary folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "darwin")
    return tmp_path / ".dagmaster" / "logs"


def test_a_process_of_one_user_writes_to_the_default_directory_and_a_worker_of_a_fleet_does_not(
    default: Path,
):
    settings = load_settings()
    assert (local_logs_dir(settings), script_logs_dir()) == (default, default)
    assert named_logs_dir(settings) is None
    # Nothing is made before there is something to write.
    assert not default.exists()


def test_the_default_directory_is_not_used_where_it_cannot_be_written(
    default: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "access", lambda path, _: path != default.parent.parent)
    assert local_logs_dir(load_settings()) is None
    monkeypatch.undo()
    default.parent.touch()
    monkeypatch.setenv("HOME", str(default.parent.parent))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert local_logs_dir(load_settings()) is None


def test_no_files_are_written_when_the_directory_is_off(default: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DAGMASTER_LOG_DIR", "off")
    settings = load_settings()
    assert (local_logs_dir(settings), script_logs_dir(), named_logs_dir(settings)) == (None, None, None)
    assert get_logs_dir() == str(default)


def test_the_path_of_a_log_is_told_if_its_directory_is_set_or_the_file_is_in_the_default_one(
    default: Path, monkeypatch: pytest.MonkeyPatch
):
    assert log_path_of("7") is None
    default.mkdir(parents=True)
    (default / "7.log").touch()
    assert log_path_of("7") == str(default / "7.log")
    monkeypatch.setenv("DAGMASTER_LOG_DIR", "/shared")
    assert log_path_of("8") == "/shared/8.log"
