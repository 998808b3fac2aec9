"""Behind a real PgBouncer in transaction mode, where it is installed."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.store.postgres import schema_version
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.named_queries import compile_query
from tests.conformance.server import TEMPLATE
from tests.server_folders import server_folder
from tests.system_packages import stop_without

PGBOUNCER = shutil.which("pgbouncer") or next((p for p in ("/usr/sbin/pgbouncer",) if Path(p).exists()), None)


@pytest.fixture(scope="module")
def pooled(postgres):
    """Provide the DSN of a database behind a pooler with one connection for all clients."""
    if PGBOUNCER is None:
        stop_without("PgBouncer")
    with server_folder() as place:
        values = parse_qs(urlsplit(postgres).query)
        Path(place, "pooler.ini").write_text(
            f"[databases]\n{TEMPLATE} = host={values['host'][0]} port={values['port'][0]} user={values['user'][0]}\n"
            f"[pgbouncer]\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = {place}\nauth_type = any\n"
            f"pool_mode = transaction\ndefault_pool_size = 1\nmax_client_conn = 100\nlogfile = {place}/log\n"
        )
        user: dict[str, Any] = {}
        if os.geteuid() == 0:
            # Only the user of the server may connect to it.
            owner = Path(values["host"][0]).stat()
            user = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
            os.chown(place, owner.st_uid, owner.st_gid)
        process = subprocess.Popen(
            [str(PGBOUNCER), f"{place}/pooler.ini"], cwd="/", stderr=subprocess.PIPE, **user
        )
        try:
            assert process.stderr is not None
            next(line for line in process.stderr if b"process up" in line)
            yield f"postgresql:///{TEMPLATE}?host={place}&port=6432&user={values['user'][0]}"
        finally:
            process.terminate()
            process.communicate()


def test_the_schema_is_read_and_migrated_by_processes_that_share_a_connection(pooled):
    # Processes: the driver numbers its statements, and each process begins with one.
    look = "import asyncio, sys; from dagmaster.store.postgres import schema_version; print(asyncio.run(schema_version.current(sys.argv[1])))"
    upgrade = (
        "import sys; from dagmaster.store.postgres import schema_version; schema_version.upgrade(sys.argv[1])"
    )
    for code, message in [
        (look, schema_version.HEAD),
        (look, schema_version.HEAD),
        (upgrade, ""),
        (upgrade, ""),
    ]:
        done = subprocess.run(
            [sys.executable, "-c", code, pooled], capture_output=True, text=True, check=False
        )
        assert (done.stdout.strip(), done.stderr) == (message, "")


def test_statements_of_sessions_that_share_a_connection_are_not_mixed_up(pooled):
    async def ask(number):
        session = Connection(DatabaseConfig(dsn=pooled, is_pooled=True), f"client {number}")
        query = compile_query("ask", f"SELECT {number} AS number, :given::integer AS given", "")
        rows = [await session.fetch(query, {"given": arguments}) for arguments in range(20)]
        await session.close()
        return [(row["number"], row["given"]) for (row,) in rows]

    async def all_of_them():
        return await asyncio.gather(*(ask(number) for number in range(8)))

    assert asyncio.run(all_of_them()) == [[(number, values) for values in range(20)] for number in range(8)]
