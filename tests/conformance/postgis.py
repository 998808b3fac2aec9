"""A PostgreSQL with PostGIS, of the system's packages, for the tests of one process."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg

from tests.server_folders import server_folder
from tests.system_packages import stop_without

if TYPE_CHECKING:
    from collections.abc import Iterator


def _found() -> Path | None:
    """Return the programs of the newest PostgreSQL that has PostGIS."""
    for programs in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        version = programs.parent.name
        if Path(f"/usr/share/postgresql/{version}/extension/postgis.control").exists():
            return programs
    return None


PROGRAMS: Final = _found()


@contextlib.contextmanager
def postgis_server() -> Iterator[str]:
    """Provide a server with an empty PostGIS database `geo`; yield its URL."""
    if PROGRAMS is None:
        stop_without("PostGIS")
    with server_folder() as place:
        user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
        if user:
            shutil.chown(place, "nobody", "nogroup")
        settings = f"-c listen_addresses= -c fsync=off -c jit=off -c max_connections=50 -k {place}"

        def tell(program: str, *arguments: str) -> None:
            command = [str(PROGRAMS / program), "-D", f"{place}/data", *arguments]
            subprocess.run(command, check=True, capture_output=True, cwd="/", **user)  # type: ignore[call-overload]

        tell("initdb", "-U", "dagmaster", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-locale")
        tell("pg_ctl", "-w", "-l", f"{place}/log", "-o", settings, "start")
        try:
            with psycopg.connect(
                f"postgresql:///postgres?host={place}&user=dagmaster", autocommit=True
            ) as connection:
                connection.execute("CREATE DATABASE geo")
            yield f"postgresql:///geo?host={place}&user=dagmaster"
        finally:
            tell("pg_ctl", "-m", "immediate", "stop")
