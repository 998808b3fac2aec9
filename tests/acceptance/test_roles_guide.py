"""The commands of the guide to database roles work as they are written, on a server with passwords' place taken by trust."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from dagmaster.store.embedded.server import EmbeddedPostgres
from tests.acceptance.fork_server import ROOT, forked_programs
from tests.acceptance.test_readme import read_steps
from tests.conformance.server import OLDER, dsn_as
from tests.environment import without_settings
from tests.patience import PATIENCE_SECONDS
from tests.server_folders import server_folder

STEPS: Final = read_steps((ROOT / "docs" / "howto" / "database-roles.md").read_text())
pytestmark = pytest.mark.skipif(OLDER is None, reason="psql is not installed on this system")


def test_every_command_of_the_guide_works_as_it_is_written():
    assert OLDER is not None
    with server_folder() as folder, EmbeddedPostgres(folder / "data") as server:
        env = without_settings() | {
            "PATH": f"{Path(sys.executable).parent}:{OLDER.parent}:{os.environ['PATH']}",
            "ADMIN_URL": server.dsn,
            "DAGMASTER_DATABASE_URL": dsn_as(server.dsn, "app").replace("/dagmaster?", "/app?"),
            "DAGMASTER_BLOB_DIR": str(folder / "blobs"),
            "DAGMASTER_DRAIN_SECONDS": "0.5",
        }
        logins = {
            "ORCHESTRATOR_DATABASE": "orchestrator_1",
            "SERVER_DATABASE": "server_1",
            "WORKER_DATABASE": "worker_a",
            "DASHBOARD_DATABASE": "dashboard",
        }
        env |= {
            name: dsn_as(server.dsn, login).replace("/dagmaster?", "/app?") for name, login in logins.items()
        }
        services: list[subprocess.Popen[bytes]] = []

        def run(line: str) -> str:
            path = {"PATH": f"{forked_programs()}:{env['PATH']}"}
            done = subprocess.run(
                ["bash", "-uc", line], cwd=ROOT, env=env | path, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                check=False, timeout=PATIENCE_SECONDS,
            )  # fmt: skip
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            return done.stdout + done.stderr

        for statement in ("CREATE ROLE app LOGIN", "CREATE DATABASE app OWNER app"):
            run(f'psql "$ADMIN_URL" --command "{statement}"')
        printed = ""
        try:
            for step in STEPS:
                if step.text.endswith(" &"):
                    command = [
                        "bash",
                        "-uc",
                        f"{step.text.removesuffix(' &').replace('dagmaster ', 'exec dagmaster ')}",
                    ]
                    services.append(subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL))
                    continue
                if step.text.startswith('psql "$ADMIN_URL" --command "CREATE ROLE dagmaster_'):
                    # The guide shows what the command prints.
                    statement = step.text.split('"')[3]
                    assert f"{statement};" in printed
                printed += run(step.text)
        finally:
            for service in services:
                service.terminate()
            for service in services:
                service.wait(PATIENCE_SECONDS)
        assert len(services) == 3
        assert "COMPLETED" in printed
        assert "permission denied" in printed
