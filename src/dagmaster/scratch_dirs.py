"""How the scratch folder of a process is named, and the folder that all of them are made in.

A name tells the machine, the container, the process and when it began: the folder may be shared by many machines, and
the number of a process is soon another's.
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
"""The machine, the process, and when it began."""


@functools.cache
def machine_name() -> str:
    """Return the machine since it was started, and the container on it: what numbers of processes are compared in."""
    host = socket.gethostname()
    said = [host]
    # Where there is no Linux, the host's name has to do.
    with contextlib.suppress(OSError):
        said.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        said.append(str(Path("/proc/self/ns/pid").readlink()))
    plain = re.sub(r"[^A-Za-z0-9.-]", "-", host)[:60].strip(".-") or "host"
    return f"{plain}-{hashlib.sha256('/'.join(said).encode()).hexdigest()[:12]}"


def process_start(pid: int) -> int | None:
    """Return the start time of a process in kernel ticks; None if it is gone, 0 if unknown."""
    try:
        # Behind the name of the program, which may have spaces and brackets in it.
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
    """Return the name of this process's folder."""
    pid = os.getpid()
    return f"{machine_name()}_{pid}_{process_start(pid) or 0}"


def ensure_private_dir(folder: Path) -> None:
    """Create a private folder; raise if it belongs to another user or is a link."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError:
        # Not writable: the first use reports it.
        return
    try:
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise SettingsInvalid(_not_ours(folder)) from error
    try:
        found = os.fstat(number)
        if found.st_uid != os.getuid():
            raise SettingsInvalid(_not_ours(folder))
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(number, 0o700)
    finally:
        os.close(number)


def _not_ours(folder: Path) -> str:
    return f"{folder} is a link or somebody else's, so tasks cannot work there: set DAGMASTER_SCRATCH_DIR to another."
