"""The commands of the guide to backups work as they are written, on servers of the system's PostgreSQL."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.acceptance.fork_server import ROOT, forked_programs
from tests.acceptance.test_readme import read_steps
from tests.conformance.server import OLDER
from tests.environment import without_settings
from tests.patience import PATIENCE_SECONDS
from tests.server_folders import server_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STEPS: Final = read_steps((ROOT / "docs" / "howto" / "backup.md").read_text())
BIG: Final = """
workflow_id: big
nodes:
  a: {handler: make_chunks, queue: default, params: {count: 20000}}
"""
PORTS: Final = {"PRIMARY": 5432, "RECOVERED": 5433, "STANDBY": 5434}
pytestmark = pytest.mark.skipif(OLDER is None, reason="PostgreSQL is not installed on this system")


class Servers:
    """A shell with the programs of PostgreSQL, and one server to start with."""

    def __init__(self, folder: Path) -> None:
        assert OLDER is not None
        self.folder = folder
        (folder / "big.yaml").write_text(BIG)
        tools = forked_programs()
        self.env = without_settings() | {
            "PATH": f"{OLDER.parent}:{tools}:{os.environ['PATH']}",
            "PGHOST": str(folder),
            "PGPORT": str(PORTS["PRIMARY"]),
            "PGUSER": "dagmaster",
            "PGDATA": f"{folder}/PRIMARY",
            "DAGMASTER_DATABASE_URL": self.url("PRIMARY"),
            "DAGMASTER_BLOB_DIR": f"{folder}/blobs",
            **{name: f"{folder}/{name}" for name in ("ARCHIVE", "BACKUP", "RECOVERED", "STANDBY")},
        }

    def url(self, server: str, database: str = "dagmaster") -> str:
        return f"postgresql:///{database}?host={self.folder}&port={PORTS[server]}&user=dagmaster"

    def run(self, line: str, env: Mapping[str, str] | None = None, *, code: int = 0) -> str:
        """Run a line as the user of the servers; fail unless it exits with a code."""
        drop = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
        if line.startswith("dagmaster"):
            # The environment of the checkout may not be readable for another user.
            drop = []
        with (self.folder / "output").open("w+b") as output:
            # A server that a line starts keeps its output open: no pipe, which would be waited for.
            done = subprocess.run(
                [*drop, "bash", "-euc", line],
                cwd=self.folder, env=self.env | dict(env or {}), stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                check=False, timeout=PATIENCE_SECONDS,
            )  # fmt: skip
            output.seek(0)
            text = output.read().decode()
        assert done.returncode == code, f"{line}\n{text}"
        return text

    def follow(self, section: str, *, code: Mapping[str, int] | None = None) -> Iterator[str]:
        """Run the lines of a section of the guide; yield each before it runs."""
        lines = [step.text.strip() for step in STEPS if step.section == section]
        assert lines
        for line in lines:
            yield line
            if line.startswith("export"):
                continue
            server = next((name for name in PORTS if f"${name}" in line and line.startswith("pg_ctl")), None)
            port = {} if server is None else {"PGPORT": str(PORTS[server])}
            self.run(line, port, code=(code or {}).get(line, 0))


@pytest.fixture
def servers() -> Iterator[Servers]:
    with server_folder() as place:
        folder = Path(place)
        folder.chmod(0o777)
        servers = Servers(folder)
        servers.run("initdb -U dagmaster -A trust -E UTF8 --no-sync; mkdir ARCHIVE")
        settings = f"unix_socket_directories = '{folder}'\nlisten_addresses = ''\nfsync = off\n"
        with (folder / "PRIMARY" / "postgresql.conf").open("a") as file:
            file.write(settings)
        servers.run("pg_ctl --wait --log=log start; createdb dagmaster; createdb restored")
        servers.run("dagmaster migrate")
        try:
            yield servers
        finally:
            for name in PORTS:
                if (folder / name / "postmaster.pid").exists():
                    servers.run(f"pg_ctl --pgdata={name} --mode=immediate --wait stop")
            shutil.rmtree(folder, ignore_errors=True)


def run_job(servers: Servers) -> None:
    servers.run("dagmaster run big.yaml")


def jobs(servers: Servers, url: str) -> int:
    return servers.run("dagmaster jobs list --json", {"DAGMASTER_DATABASE_URL": url}).count('"job_id"')


def test_a_dump_is_restored_and_shows_what_is_not_in_it(servers: Servers):
    restored = servers.url("PRIMARY", "restored")
    run_job(servers)
    url = servers.url("PRIMARY")
    lost = {"dagmaster jobs audit --outputs": 1}
    for line in servers.follow("A dump", code=lost):
        if line.startswith("export"):
            run_job(servers)
            servers.env["DAGMASTER_DATABASE_URL"] = restored
    assert (jobs(servers, url), jobs(servers, restored)) == (2, 1)
    text = servers.run("dagmaster jobs audit --outputs", code=1)
    assert "node a has an output, and the database has no such job" in text


def test_a_point_in_time_is_recovered(servers: Servers):
    time = ""
    for line in servers.follow("Any point in time"):
        if line.startswith("cp -a"):
            run_job(servers)
            time = servers.run('psql dagmaster -Atc "SELECT clock_timestamp()"').strip()
            servers.env["RECOVERY_TIME"] = time
            run_job(servers)
            servers.run('psql dagmaster -c "SELECT pg_switch_wal()"')
            servers.run(
                'until [ "$(psql dagmaster -Atc "SELECT last_archived_wal IS NOT NULL FROM pg_stat_archiver")" = t ]; do :; done'
            )
    recovered = servers.url("RECOVERED")
    assert (jobs(servers, servers.url("PRIMARY")), jobs(servers, recovered)) == (2, 1)
    servers.env["DAGMASTER_DATABASE_URL"] = recovered
    servers.run("dagmaster jobs audit")
    servers.run("dagmaster jobs audit --outputs", code=1)


def test_a_standby_takes_over_without_a_loss(servers: Servers):
    both = f"postgresql:///dagmaster?host={servers.folder},{servers.folder}&port=5432,5434&user=dagmaster&target_session_attrs=read-write"
    for line in servers.follow("Fail over to a standby"):
        if "promote" in line:
            run_job(servers)
            servers.run("pg_ctl --mode=immediate --wait stop")
        if "jobs audit" in line:
            servers.env["DAGMASTER_DATABASE_URL"] = both
    assert jobs(servers, both) == 1
    run_job(servers)
