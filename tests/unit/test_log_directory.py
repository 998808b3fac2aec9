"""Where the logs of tasks are as files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dagmaster import get_logs_dir
from dagmaster.errors import SettingsInvalid
from dagmaster.settings import load_settings
from dagmaster.settings.log_directory import default_logs_dir


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
