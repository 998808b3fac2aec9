"""Behind a real PgBouncer in transaction mode, where it is installed."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.store.postgres import schema_version
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.named_queries import compile_query
from tests.conformance.server import TEMPLATE, shared_server

PGBOUNCER = shutil.which("pgbouncer") or next((p for p in ("/usr/sbin/pgbouncer",) if Path(p).exists()), None)

pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed")


@pytest.fixture(scope="module")
def pooled():
    """Provide the DSN of a database behind a pooler with one connection for all clients."""
    with shared_server() as server, tempfile.TemporaryDirectory(prefix="dagmaster-", dir="/var/tmp") as place:
        values = parse_qs(urlsplit(server).query)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        Path(place, "pooler.ini").write_text(
            f"[databases]\n{TEMPLATE} = host={values['host'][0]} port={values['port'][0]} user={values['user'][0]}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = transaction\ndefault_pool_size = 1\nmax_client_conn = 100\nlogfile = {place}/log\n"
        )
        user: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
            shutil.chown(place, "nobody", "nogroup")
        process = subprocess.Popen([str(PGBOUNCER), f"{place}/pooler.ini"], cwd="/", stderr=subprocess.PIPE, **user)
        try:
            assert process.stderr is not None
            next(line for line in process.stderr if b"process up" in line)
            yield f"postgresql://{values['user'][0]}@127.0.0.1:{port}/{TEMPLATE}"
        finally:
            process.terminate()
            process.communicate()


def test_the_schema_is_read_and_migrated_by_processes_that_share_a_connection(pooled):
    # Processes: the driver numbers its statements, and each process begins with one.
    look = "import asyncio, sys; from dagmaster.store.postgres import schema_version; print(asyncio.run(schema_version.current(sys.argv[1])))"
    upgrade = "import sys; from dagmaster.store.postgres import schema_version; schema_version.upgrade(sys.argv[1])"
    for code, message in [(look, schema_version.HEAD), (look, schema_version.HEAD), (upgrade, ""), (upgrade, "")]:
        done = subprocess.run([sys.executable, "-c", code, pooled], capture_output=True, text=True, check=False)
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
