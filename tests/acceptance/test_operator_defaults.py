"""Operators' defaults for timeouts, queues and the mode of a service, as commands read them."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.background_process import Process
from tests.acceptance.fork_server import CommandProcess, run_command
from tests.environment import without_settings

if TYPE_CHECKING:
    from pathlib import Path

SLEEPS = "{name: sleeps, nodes: {a: {handler: sleep, retry: none, params: {seconds: 600}}}}"
WAITS = "{name: waits, nodes: {a: {type: wait, signal: never}}}"


@pytest.fixture
def env() -> dict[str, str]:
    return without_settings()


def run_file(folder: Path, text: str, env: dict[str, str]) -> dict[str, object]:
    file = folder / "flow.yaml"
    file.write_text(text)
    done = run_command("run", str(file), "--ephemeral", "--json", env=env)
    assert done.returncode == 1, done.stdout + done.stderr
    error: dict[str, object] = json.loads(done.stdout)["error"]
    return error


def test_a_task_without_a_timeout_ends_after_that_of_the_operator(tmp_path, env):
    error = run_file(tmp_path, SLEEPS, env | {"DAGMASTER_TASK_TIMEOUT_SECONDS": "1"})
    assert "the handler did not finish within 1 second; its process was killed" in str(error["message"])


@pytest.mark.parametrize(("retry", "attempts"), [("", 2), (", retry: {max_attempts: 1}", 1)])
def test_a_task_without_a_retry_is_retried_as_often_as_the_operator_says(tmp_path, env, retry, attempts):
    (tmp_path / "own.py").write_text(
        "from dagmaster import handler\n@handler('fails', queue='q')\ndef fails() -> None: raise OSError('no')\n"
    )
    (tmp_path / "flow.yaml").write_text(f"{{name: fails, nodes: {{a: {{handler: fails{retry}}}}}}}")
    command = ("run", "flow.yaml", "--ephemeral", "--json", "--handlers", "./own.py")
    done = run_command(*command, env=env | {"DAGMASTER_TASK_MAX_RETRIES": "1"}, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert json.loads(done.stdout)["attempts"] == attempts


def test_a_job_without_a_deadline_ends_after_that_of_the_operator(tmp_path, env):
    error = run_file(tmp_path, WAITS, env | {"DAGMASTER_JOB_TIMEOUT_SECONDS": "0.2"})
    assert (error["kind"], error["message"]) == ("deadline", "the job exceeded its deadline of 0.2 s")


def test_the_default_queue_is_used_where_a_file_is_validated(tmp_path, env):
    (tmp_path / "own.py").write_text(
        "from dagmaster import handler\n@handler('own')\ndef own() -> dict: return {}\n"
    )
    (tmp_path / "flow.yaml").write_text("{name: flow, nodes: {a: {handler: own}}}")
    command = ("workflows", "validate", "flow.yaml", "--handlers", "./own.py")
    done = run_command(*command, env=env, cwd=tmp_path)
    assert (done.returncode, "missing key 'queue'" in done.stderr) == (2, True)
    assert run_command(*command, env=env | {"DAGMASTER_DEFAULT_QUEUE": "light"}, cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("names", "service"),
    [
        ({"RUN_MODE": "orchestrator"}, "orchestrator"),
        ({"DAGMASTER_RUN_MODE": "worker", "WORKER_QUEUE": "light,heavy"}, "worker of light, heavy"),
    ],
)
def test_serve_runs_the_service_that_the_mode_names(env, names, service):
    # Nothing listens there: it retries until it is stopped.
    address = {"DATABASE_URL": "postgresql://127.0.0.1:1/none"}
    process = Process(["serve", "--log-format", "json"], env | address | names, CommandProcess)
    try:
        record = json.loads(process.until("retrying with backoff"))
        assert record["logger"] == "dagmaster"
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    finally:
        process.end()


def test_serve_without_a_mode_says_what_to_set(env):
    done = run_command("serve", env=env)
    assert (done.returncode, "set DAGMASTER_RUN_MODE to orchestrator, worker, server" in done.stderr) == (
        2,
        True,
    )
    done = run_command("serve", env=env | {"RUN_MODE": "worker"})
    assert (done.returncode, "name the queues to serve" in done.stderr) == (2, True)
    done = run_command("serve", "--host", "0.0.0.0", env=env | {"RUN_MODE": "worker"})
    assert (done.returncode, "--host and --port are for" in done.stderr) == (2, True)


@pytest.mark.parametrize("mode", ["server", "gateway"])
def test_serve_runs_what_listens_before_its_database_is_there(env, mode):
    address = {"DATABASE_URL": "postgresql://127.0.0.1:1/none", "ORCHESTRATOR_URL": "http://127.0.0.1:1"}
    process = Process(["serve", "--port=0"], env | address | {"RUN_MODE": mode}, CommandProcess)
    try:
        assert f"{mode} at http://127.0.0.1:" in process.until("is ready")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    finally:
        process.end()
