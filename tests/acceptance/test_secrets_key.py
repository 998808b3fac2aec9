"""`dagmaster secrets-key`, and what commands and services do without the key of their database."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.adapters.secret_keys import new_key
from tests.acceptance.fork_server import run_command
from tests.conformance.server import dsn_of, release_database, take_database
from tests.environment import without_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.process

FLOW = """
workflow_id: flow
inputs: {key: {type: string, secret: true, required: true}}
nodes: {a: {handler: echo, queue: default, params: {key: "{{ inputs.key }}"}}}
"""


class Installation:
    """A database, and the commands of processes with different keys."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.folder = folder
        self._env = without_settings()
        self._env["DAGMASTER_DATABASE_URL"] = dsn
        (folder / "flow.yaml").write_text(FLOW)

    def run(self, *arguments: str, keys: str = "", **env: str) -> tuple[int, str, str]:
        env = self._env | env | ({"DAGMASTER_SECRETS_KEY": keys} if keys else {})
        done = run_command(*arguments, env=env, cwd=self.folder)
        return done.returncode, done.stdout, done.stderr

    def keys(self, *arguments: str, keys: str) -> tuple[int, Any]:
        code, printed, errors = self.run("secrets-key", *arguments, "--json", keys=keys)
        return code, json.loads(printed) if printed.startswith("{") else errors


@pytest.fixture
def installation(postgres: str, tmp_path: Path) -> Iterator[Installation]:
    name = asyncio.run(take_database(postgres))
    yield Installation(dsn_of(postgres, name), tmp_path)
    asyncio.run(release_database(postgres, name))


SUBMIT = ("submit", "flow.yaml", "-i", "key=hunter2-canary", "--json")
SERVICES = (("orchestrator",), ("worker", "--queue", "default"), ("server", "--port", "0"))


def test_the_key_of_a_database_is_needed_where_it_is_used_and_changed_by_a_rotation(
    installation: Installation,
):
    old, new = new_key(), new_key()
    assert installation.keys("check", keys=old)[1]["keys"][0]["is_current"] is False
    code, printed, _ = installation.run(*SUBMIT)
    assert (code, json.loads(printed)["error"]["code"]) == (2, "secrets_key_missing")
    assert "DAGMASTER_SECRETS_KEY" in json.loads(printed)["error"]["message"]
    assert installation.run(*SUBMIT, keys=old)[0] == 0
    code, printed, _ = installation.run(*SUBMIT, keys=new)
    assert (code, json.loads(printed)["error"]["code"]) == (2, "secrets_key_wrong")
    for service in SERVICES:
        for keys in ("", new):
            code, _, errors = installation.run(*service, keys=keys)
            assert code == 2, (service, errors)
            assert "secret inputs of this database are encrypted with key" in errors
            assert "hunter2" not in errors
    code, printed, errors = installation.run("dev", "--port", "0")
    assert code == 2, printed + errors
    assert printed.count("secret inputs of this database") == 1
    assert "http" not in printed
    # Who only reads needs no key.
    assert installation.run("jobs", "list")[0] == 0
    code, printed, _ = installation.run("jobs", "show", "last", "--json")
    assert (code, json.loads(printed)["inputs"]) == (0, {"key": "***"})
    code, view = installation.keys("check", keys=new)
    assert (code, view["keys"][0]["is_here"], view["keys"][0]["jobs"]) == (1, False, 1)
    assert "encrypted with key" in installation.keys("rotate", keys=new)[1]["error"]["message"]
    code, view = installation.keys("rotate", keys=f"{new},{old}")
    assert (code, [(key["is_current"], key["jobs"]) for key in view["keys"]]) == (0, [(True, 1), (False, 0)])
    code, printed, _ = installation.run("secrets-key", "check", keys=new)
    assert (code, printed.split("  ", 1)[1]) == (0, "1 job, 0 queued tasks  here, current\n")
    assert installation.run(*SUBMIT, keys=new)[0] == 0


def test_create_prints_a_key_that_a_file_may_have(installation: Installation):
    code, key, _ = installation.run("secrets-key", "create")
    assert (code, len(key.strip())) == (0, 43)
    file = installation.folder / "key"
    file.write_text(key)
    file.chmod(0o644)
    code, printed, _ = installation.run(*SUBMIT, DAGMASTER_SECRETS_KEY_FILE=str(file))
    assert (code, json.loads(printed)["error"]["code"]) == (2, "secrets_key_wrong")
    file.chmod(0o600)
    assert installation.run(*SUBMIT, DAGMASTER_SECRETS_KEY_FILE=str(file))[0] == 0
