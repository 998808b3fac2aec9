"""One PostgreSQL for all processes of a test run, with a migrated database to copy."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

import asyncpg
import pytest

from dagmaster.store.embedded import process
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres import roles, schema_version
from tests.server_folders import one_at_a_time, run_folder, server_folder
from tests.system_packages import stop_without

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPLATE: Final = "migrated"
WORKER_LOGIN: Final = "worker_1"
"""A user with the role dagmaster_worker alone."""

_SETTINGS: Final = {"fsync": "off", "shared_buffers": "16MB"}
"""Nothing here outlives the run. A connection maps all buffers: with 128 MB it takes a quarter more CPU (2026-11)."""

FOLLOW_CLOCK: Final = """
DO $$ DECLARE function oid; BEGIN
    FOR function IN SELECT oid FROM pg_proc WHERE starts_with(proname, 'dag_worker_') LOOP
        EXECUTE replace(pg_get_functiondef(function), $t$PERFORM set_config('dagapp.clock_offset', '', true);$t$, '');
    END LOOP;
END $$
"""
"""Let the functions of workers follow the clock that a test sets."""


@contextlib.contextmanager
def shared_server() -> Iterator[str]:
    """Provide one server for all processes of a test run, with a migrated database to copy; the last user removes it."""
    data_dir = run_folder() / "data"
    embedded = EmbeddedPostgres(data_dir)
    with one_at_a_time():
        with pytest.MonkeyPatch.context() as patch:
            for name, value in _SETTINGS.items():
                patch.setitem(process._SETTINGS, name, value)
            dsn = embedded.start().dsn
        asyncio.run(_prepare(dsn))
    try:
        yield dsn
    finally:
        with one_at_a_time():
            embedded.stop()
            if not (data_dir / "cluster" / "postmaster.pid").exists():
                shutil.rmtree(data_dir, ignore_errors=True)
                _FREE.pop(dsn, None)


OLDER: Final = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))), None)
"""The system's PostgreSQL, if there is one: an older version than the embedded one."""


@contextlib.contextmanager
def older_server() -> Iterator[str]:
    """Provide a server of the system's PostgreSQL for this process."""
    if OLDER is None:
        stop_without("PostgreSQL")
    with server_folder() as place:
        user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
        if user:
            shutil.chown(place, "nobody", "nogroup")
        options = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        data, settings = f"{place}/data", f"-c listen_addresses= {options} -k {place}"

        def run(program: str, *arguments: str) -> None:
            command = [str(OLDER.with_name(program)), "-D", data, *arguments]
            subprocess.run(command, check=True, capture_output=True, cwd="/", **user)  # type: ignore[call-overload]

        run("initdb", "-U", "dagmaster", "-A", "trust", "-E", "UTF8", "--no-sync")
        run("pg_ctl", "-w", "-l", f"{place}/log", "-o", settings, "start")
        try:
            dsn = f"postgresql:///dagmaster?host={place}&port=5432&user=dagmaster"
            asyncio.run(_make_database(dsn))
            asyncio.run(_prepare(dsn))
            yield dsn
        finally:
            run("pg_ctl", "-m", "immediate", "stop")


async def _make_database(dsn: str) -> None:
    connection = await asyncpg.connect(dsn_of(dsn, "postgres"))
    await connection.execute("CREATE DATABASE dagmaster")
    await connection.close()


async def _prepare(server: str) -> None:
    connection = await asyncpg.connect(server)
    try:
        if await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", TEMPLATE):
            return
        await connection.execute(f"CREATE DATABASE {TEMPLATE}")
    finally:
        await connection.close()
    await asyncio.to_thread(schema_version.upgrade, dsn_of(server, TEMPLATE))
    await roles.apply_roles(dsn_of(server, TEMPLATE), is_exact=True)
    connection = await asyncpg.connect(dsn_of(server, TEMPLATE))
    try:
        # Tests set the clock, also that of workers with the role.
        await connection.execute(FOLLOW_CLOCK)
        if not await connection.fetchval("SELECT true FROM pg_roles WHERE rolname = $1", WORKER_LOGIN):
            await connection.execute(f"CREATE ROLE {WORKER_LOGIN} LOGIN IN ROLE dagmaster_worker")
    finally:
        await connection.close()


def dsn_of(server: str, database: str) -> str:
    """Return the DSN of another database of a server."""
    return server.replace("/dagmaster?", f"/{database}?")


def dsn_as(dsn: str, user: str) -> str:
    """Return the DSN of another user."""
    return dsn.replace("user=dagmaster", f"user={user}")


# ── Databases ──

_NUMBERS = itertools.count(1)
_FREE: dict[str, list[str]] = {}


async def take_database(server: str) -> str:
    """Take an empty, migrated database from the pool; return its name."""
    if _FREE.get(server):
        return _FREE[server].pop()
    name = f"t{os.getpid()}_{next(_NUMBERS)}"
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
    finally:
        await connection.close()
    return name


async def release_database(
    server: str, name: str, connection: asyncpg.Connection[asyncpg.Record] | None = None
) -> None:
    """Empty a database and put it back into the pool; close the connection to it, if one is given.

    The rows that migrations insert are there again. Deleting the rows takes 2 ms, truncating the tables 65, creating a
    database 50, a connection 4 (2026-11).
    """
    if connection is None or connection.is_closed():
        connection = await asyncpg.connect(dsn_of(server, name))
    try:
        # Without foreign key checks: all rows go.
        await connection.execute(f"SET session_replication_role = replica; {_EMPTY}")
        await connection.execute(";".join(["SET search_path = dagapp", *rows_of_migrations()]))
        await connection.execute(f"ALTER DATABASE {name} RESET ALL")
    finally:
        await connection.close()
    _FREE.setdefault(server, []).append(name)


@functools.cache
def rows_of_migrations() -> tuple[str, ...]:
    """Return the statements that insert rows of tenants and platforms, as the migrations have them."""
    folder = resources.files("dagmaster.store.postgres.migrations") / "versions"
    texts = [(folder / f"v{name}.sql").read_text() for name in ("0013_tenants", "0014_requests")]
    found = [
        re.findall(r"^(?:INSERT INTO|UPDATE) dag_(?:tenants|platforms) [^;]+", text, re.MULTILINE)
        for text in texts
    ]
    return tuple(statement for statements in found for statement in statements)


_EMPTY: Final = """
DO $$ DECLARE place text; used text; BEGIN
    SELECT format('base/%s/', oid) INTO place FROM pg_database WHERE datname = current_database();
    PERFORM pg_terminate_backend(pid) FROM pg_stat_get_activity(NULL)
    WHERE datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid();
    FOR used IN
        SELECT relname FROM pg_class
        WHERE relnamespace = 'dagapp'::regnamespace AND relkind = 'r' AND relname <> 'alembic_version'
        AND (pg_stat_file(place || relfilenode)).size > 0
    LOOP
        EXECUTE format('DELETE FROM dagapp.%I', used);
    END LOOP;
END $$
"""
"""End the other connections, and delete the rows of the tables whose files are not empty: to open all of them takes 5 ms."""
