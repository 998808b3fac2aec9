"""The system user that runs the embedded PostgreSQL of root, and the files of servers of another one.

PostgreSQL refuses root. A user that other services share, as `nobody`, could read the files of the server and
connect to it. So root's server runs as a system user that runs nothing else, made when it is first needed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import shutil
import stat
import subprocess
import time
from typing import TYPE_CHECKING, Final

from dagmaster.errors import DataDirectoryUnusable, EmbeddedPostgresUnavailable

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "dagmaster-postgres"
SHARED: Final = "nobody"
"""The user that served before version 0.2, and that other services may run as."""

_COMMANDS: Final = {
    "useradd": ("--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"),
    # Of BusyBox.
    "adduser": ("-S", "-D", "-H", "-h", "/nonexistent"),
}
_SHELLS: Final = ("/usr/sbin/nologin", "/sbin/nologin", "/bin/false")
_TRIES, _PAUSE_SECONDS = 50, 0.1
"""Another program may have locked the list of users, or may be creating this one."""

_LOGGER = logging.getLogger("dagmaster.postgres")


def find_or_create() -> pwd.struct_passwd:
    """Return the user of DAGMASTER_POSTGRES_USER, which must exist; else `dagmaster-postgres`."""
    name = named_user() or NAME
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(name)
    if name != NAME:
        raise EmbeddedPostgresUnavailable(
            f"PostgreSQL refuses to run as root, and there is no user {name!r} to run it. Name one with"
            f" DAGMASTER_POSTGRES_USER, or run dagmaster as another user."
        )
    return _create()


def named_user() -> str:
    """Return the name of DAGMASTER_POSTGRES_USER; empty if it is not set."""
    return os.environ.get("DAGMASTER_POSTGRES_USER", "")


def _create() -> pwd.struct_passwd:
    program = next((program for program in _COMMANDS if shutil.which(program)), None)
    output = "there is neither useradd nor adduser"
    for _ in range(_TRIES if program else 0):
        assert program is not None  # noqa: S101 - for mypy
        shell = next((shell for shell in _SHELLS if os.access(shell, os.X_OK)), _SHELLS[-1])
        command = [program, *_COMMANDS[program], "-s", shell, NAME]
        done = subprocess.run(  # noqa: S603 - our own arguments
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(NAME)
            if done.returncode == 0:
                _LOGGER.warning(
                    "created the system user %s: the embedded PostgreSQL runs as it, because it refuses root",
                    NAME,
                )
            return entry
        output = (done.stderr or done.stdout).strip().rpartition("\n")[2] or f"{program} failed"
        if "lock" not in output:
            break
        time.sleep(_PAUSE_SECONDS)
    raise EmbeddedPostgresUnavailable(
        f"PostgreSQL refuses to run as root, and the user {NAME!r} that should run it could not be created:"
        f" {output}. Create it with `useradd --system {NAME}`, name another unprivileged user with"
        " DAGMASTER_POSTGRES_USER, or run dagmaster as another user."
    )


def is_shared(folder: Path) -> bool:
    """Return whether root made this folder for the shared user, which was not asked for."""
    if named_user() == SHARED or folder.parent.stat().st_uid != 0:
        return False
    with contextlib.suppress(KeyError, FileNotFoundError):
        return pwd.getpwnam(SHARED).pw_uid == folder.lstat().st_uid
    return False


def take_over(data_dir: Path, cluster: Path, entry: pwd.struct_passwd) -> None:
    """Give the files of a stopped server to another user, and remove those that it makes again.

    The previous user may be hostile: no link is followed, and a file with a second name is refused.
    """
    previous = cluster.stat().st_uid
    # From here on, the previous user cannot enter it.
    os.chown(cluster, entry.pw_uid, entry.pw_gid, follow_symlinks=False)
    try:
        for _, folders, files, folder in os.fwalk(cluster, follow_symlinks=False):
            for name in (*folders, *files):
                _give(name, folder, entry)
    except BaseException:
        os.chown(cluster, previous, -1, follow_symlinks=False)
        raise
    # The binaries that the previous user could change.
    for path in data_dir.glob("install*"):
        shutil.rmtree(path, ignore_errors=True)
    _LOGGER.warning(
        "the files of the embedded PostgreSQL in %s belonged to %s, which other services may run as; they"
        " belong to %s now",
        data_dir, SHARED, entry.pw_name,
    )  # fmt: skip


def _give(name: str, folder: int, entry: pwd.struct_passwd) -> None:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise DataDirectoryUnusable(
            f"the file {name} of the embedded PostgreSQL has a second name elsewhere, and belongs to a user"
            f" that others share: it was not given to {entry.pw_name}. Remove the other name, or set"
            f" DAGMASTER_POSTGRES_USER={SHARED}."
        )
    os.chown(name, entry.pw_uid, entry.pw_gid, dir_fd=folder, follow_symlinks=False)
