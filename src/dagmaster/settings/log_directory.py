"""The directory of task logs as files, and which processes write them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dagmaster.errors import SettingsInvalid
from dagmaster.host import private_files
from dagmaster.ports.task_log_names import log_file_name
from dagmaster.settings.groups import NO_LOG_FILES
from dagmaster.settings.reading import read_settings

if TYPE_CHECKING:
    from dagmaster.settings.groups import Settings

VARIABLE: Final = "DAGMASTER_LOG_DIR"


def get_logs_dir() -> str:
    """Return the directory of task logs, and create it.

    `DAGMASTER_LOG_DIR` or `AAICLICK_LOG_DIR`; else `~/.dagmaster/logs` on macOS and `/var/log/dagmaster`
    elsewhere. `dagmaster dev`, `dagmaster run` and scripts write files there if they may; `dagmaster worker`
    does if one of these variables is set. Raise `SettingsInvalid` if it cannot be created.
    """
    directory = configured_logs_dir() or default_logs_dir(sys.platform)
    try:
        private_files.make_folder(directory)
    except OSError as error:
        raise SettingsInvalid(
            f"the directory of task logs {directory} cannot be created: {error.strerror or error}."
            f" Set {VARIABLE} to a directory that you may write"
        ) from error
    return str(directory)


def configured_logs_dir() -> Path | None:
    """Return the directory that is set, also by its name of the source systems."""
    return named_logs_dir(read_settings(services=True).settings)


def named_logs_dir(settings: Settings) -> Path | None:
    """Return where a worker of a fleet writes files: the directory that is set."""
    return None if settings.log_dir == NO_LOG_FILES else settings.log_dir


def local_logs_dir(settings: Settings) -> Path | None:
    """Return where a process of one user writes files: the directory that is set, else the default one.

    None if the process may not write there, or is told not to.
    """
    if settings.log_dir is not None:
        return named_logs_dir(settings)
    directory = default_logs_dir(sys.platform)
    return directory if _may_write(directory) else None


def script_logs_dir() -> Path | None:
    """Return the same for scripts and `dev`, for which a name of the source systems counts as well."""
    return local_logs_dir(read_settings(services=True).settings)


def is_default_logs_dir(directory: Path | None) -> bool:
    return directory is None or directory == default_logs_dir(sys.platform)


def log_path_of(graph_task_id: str) -> str | None:
    """Return the path of the log of a task of a graph in code.

    None if no directory is set and the default one has no such file: the worker may be one of a fleet.
    """
    name = log_file_name("", "", graph_task_id)
    if (directory := configured_logs_dir()) is not None:
        return str(directory / name)
    path = default_logs_dir(sys.platform) / name
    return str(path) if os.access(path, os.R_OK) else None


def default_logs_dir(platform: str) -> Path:
    return Path.home() / ".dagmaster" / "logs" if platform == "darwin" else Path("/var/log/dagmaster")


def _may_write(directory: Path) -> bool:
    """Return whether this process can create files in a directory, or create that."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    return directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)
