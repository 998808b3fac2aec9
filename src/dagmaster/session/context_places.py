"""Where the jobs of a context are, and where the code of the context is."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dagmaster.authoring.python.places import calling_place
from dagmaster.client.system import current_user

if TYPE_CHECKING:
    from dagmaster.ports.clock import Clock

_OWN_FOLDER: Final = str(Path(__file__).parents[1])
_MAX_FILE: Final = 200


def place_of_process() -> str:
    """Return the line of the calling code, its process, host and user, for people."""
    place = calling_place(_OWN_FOLDER)
    where = f"process {os.getpid()} on {socket.gethostname()}, user {current_user()}"
    return f"{place.file[-_MAX_FILE:]}:{place.line} ({where})"


def check_place(url: str | None, *, in_memory: bool, local: bool, clock: Clock | None) -> None:
    """Raise `ValueError` about arguments that name two places of jobs, or have no effect."""
    if url is not None and in_memory:
        raise ValueError("url and in_memory=True: a job is on a server or in memory, remove one of them")
    if url is not None and local:
        raise ValueError("url and local=True: the jobs of a server run there, remove one of them")
    if str(url).startswith(("postgresql:", "postgres:")):
        raise ValueError(
            "url is the address of a server, https://host:port: DAGMASTER_DATABASE_URL names a database"
        )
    if clock is not None and not in_memory:
        raise ValueError("clock has no effect without in_memory=True: a database has its own time")
