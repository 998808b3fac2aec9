"""The names of the scratch directories of processes, and the private directory that contains them.

A name identifies the machine, the container, the process and its start time: many machines may share the
directory, and process ids are reused.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import socket
import stat
from pathlib import Path
from typing import Final

from dagmaster.errors import SettingsInvalid

NAME: Final = re.compile(r"([A-Za-z0-9.-]+-[0-9a-f]{12})_(\d+)_(\d+)")
"""The machine, the process id, and the start time."""


@functools.cache
def machine_name() -> str:
    """Return a name of the machine (since its last boot) and container: process ids are unique within it."""
    host = socket.gethostname()
    parts = [host]
    # On other systems than Linux, only the host name is known.
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    plain = re.sub(r"[^A-Za-z0-9.-]", "-", host)[:60].strip(".-") or "host"
    return f"{plain}-{hashlib.sha256('/'.join(parts).encode()).hexdigest()[:12]}"


def process_start(pid: int) -> int | None:
    """Return the start time of a process in kernel ticks; None if it is gone, 0 if unknown."""
    try:
        # After the name of the program, which may contain spaces and parentheses.
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19])
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except (OSError, ValueError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return 0
    return 0


def process_dir_name() -> str:
    pid = os.getpid()
    return f"{machine_name()}_{pid}_{process_start(pid) or 0}"


def ensure_private_dir(folder: Path) -> None:
    """Create a private directory; raise if it is a link or belongs to another user."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError:
        # Not writable: the first use reports it.
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise SettingsInvalid(_not_ours(folder)) from error
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid():
            raise SettingsInvalid(_not_ours(folder))
        if stat.S_IMODE(status.st_mode) & 0o077:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def _not_ours(folder: Path) -> str:
    return (
        f"{folder} is a link or belongs to another user, so tasks cannot use it: set DAGMASTER_SCRATCH_DIR to"
        " another"
        " directory."
    )
