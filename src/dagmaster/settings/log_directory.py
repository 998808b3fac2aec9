"""The directory of task logs as files."""

from __future__ import annotations

import sys
from pathlib import Path

from dagmaster.errors import SettingsInvalid
from dagmaster.host import private_files
from dagmaster.settings.reading import read_settings


def get_logs_dir() -> str:
    """Return the directory of task logs, and create it.

    `DAGMASTER_LOG_DIR` or `AAICLICK_LOG_DIR`; else `~/.dagmaster/logs` on macOS and `/var/log/dagmaster`
    elsewhere. Workers write files only if one of these variables is set. Raise `SettingsInvalid` if it cannot
    be created.
    """
    directory = read_settings(services=True).settings.log_dir or default_logs_dir(sys.platform)
    try:
        private_files.make_folder(directory)
    except OSError as error:
        raise SettingsInvalid(
            f"the directory of task logs {directory} cannot be created: {error.strerror or error}."
            " Set DAGMASTER_LOG_DIR to a directory that you may write"
        ) from error
    return str(directory)


def log_path_of(task_id: str) -> str | None:
    """Return the path of the log of a task; None if no directory is set: then workers write no files."""
    directory = configured_logs_dir()
    return None if directory is None else str(directory / f"{task_id}.log")


def configured_logs_dir() -> Path | None:
    return read_settings(services=True).settings.log_dir


def default_logs_dir(platform: str) -> Path:
    return Path.home() / ".dagmaster" / "logs" if platform == "darwin" else Path("/var/log/dagmaster")
