"""The services as an operator starts them: real processes, a real server, real signals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres import schema_version
from tests.acceptance.background_process import Process
from tests.acceptance.fork_server import CommandProcess, run_command
from tests.environment import without_settings
from tests.patience import PATIENCE_SECONDS
from tests.server_folders import copy_migrated_cluster, server_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HANDLERS = """
import asyncio, os, pathlib
from dagmaster import HandlerContext, handler

@handler("hold", queue="light")
async def hold(ctx: HandlerContext, sandbox: str) -> dict:
    pathlib.Path(sandbox, f"started-{ctx.attempt}").write_text(str(os.getpid()))
    if ctx.attempt == 1:
        await asyncio.Event().wait()
    return {"attempt": ctx.attempt}

@handler("deaf", queue="light", isolation="thread")
def deaf(sandbox: str) -> None:
    pathlib.Path(sandbox, "started").touch()
    import threading
    threading.Event().wait()

@handler("leaver", queue="light", isolation="thread")
def leaver(sandbox: str) -> None:
    import subprocess
    child = subprocess.Popen(["sleep", "100000"], start_new_session=True)
    pathlib.Path(sandbox, "left").write_text(str(child.pid))

@handler("locker", queue="light")
async def locker() -> None:
    import ctypes
    # It does not release the interpreter's lock.
    ctypes.PyDLL(None).pause()
"""


class Sandbox:
    """A directory with its own database, and the processes that a test starts there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[Process] = []
        (folder / "held.py").write_text(HANDLERS)
        kept = without_settings()
        self.env = kept | {
            "DAGMASTER_DATA_DIR": str(folder / "data"),
            "DAGMASTER_BLOB_DIR": str(folder / "blobs"),
            "DAGMASTER_HANDLERS": str(folder / "held.py"),
            "DAGMASTER_SHORT_LEASES": "1",
            "DAGMASTER_WORKER_LEASE_SECONDS": "3",
            "DAGMASTER_ORCHESTRATOR_LEASE_SECONDS": "4",
            "DAGMASTER_DRAIN_SECONDS": "0.5",
            "DAGMASTER_PROCESSES": "2",
        }

    def start(self, *arguments: str, is_forked: bool = True) -> Process:
        """Start a command; not `is_forked`, from its entry point, and with the signal handlers of this process."""
        process = Process(arguments, self.env, CommandProcess if is_forked else subprocess.Popen)
        self.processes.append(process)
        return process

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command(*arguments, env=self.env, timeout=PATIENCE_SECONDS)

    def count(self, query: str) -> int:
        """Query the database directly: a command would take as long as a cancelled task is waited for."""
        import asyncpg

        async def ask() -> int:
            with EmbeddedPostgres(self.folder / "data") as server:
                connection = await asyncpg.connect(server.dsn)
                try:
                    return int(await connection.fetchval(query))
                finally:
                    await connection.close()

        return asyncio.run(ask())

    @contextlib.contextmanager
    def on_server(self) -> Iterator[None]:
        """Configure the database as a server."""
        with EmbeddedPostgres(self.folder / "data") as server:
            self.env["DAGMASTER_DATABASE_URL"] = server.dsn
            yield
            self.end_all()

    def end_all(self) -> None:
        for process in self.processes:
            process.end()

    def write(self, text: str, name: str = "flow.yaml") -> str:
        file = self.folder / name
        file.write_text(text)
        return str(file)

    def until(self, condition: Callable[[], Any]) -> Any:
        """Poll until a condition is true; return its value."""
        ends = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < ends:
            value = condition()
            if value:
                return value
            threading.Event().wait(0.02)
        raise AssertionError(
            "the condition did not become true:\n"
            + "\n---\n".join(process.text for process in self.processes)
        )


@pytest.fixture
def new_sandbox() -> Iterator[Sandbox]:
    """Provide a sandbox without a database: the first command creates it."""
    with server_folder() as folder:
        sandbox = Sandbox(folder)
        yield sandbox
        sandbox.end_all()
        if (folder / "data" / "cluster" / "postmaster.pid").exists():
            # A server that outlived its users stops when its last user leaves.
            with EmbeddedPostgres(folder / "data"):
                pass


@pytest.fixture
def sandbox(new_sandbox: Sandbox) -> Sandbox:
    """Provide a sandbox whose database has tables."""
    copy_migrated_cluster(new_sandbox.folder / "data")
    return new_sandbox


@pytest.fixture
def on_server(sandbox: Sandbox) -> Iterator[Sandbox]:
    """Provide a sandbox whose database is a configured server."""
    with sandbox.on_server():
        yield sandbox


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_dev_restarts_a_killed_worker_and_stops_everything_it_started(new_sandbox: Sandbox):
    sandbox = new_sandbox
    dev = sandbox.start("dev", "--port=0", is_forked=False)
    dev.until("ready in")
    assert f"embedded PostgreSQL in {sandbox.folder / 'data'}" in dev.until("database")
    pids = [int(dev.until(f"  {name} ").split("pid ")[1]) for name in ("orchestrator", "worker")]
    assert "hello_world" in dev.until("  workflows")
    assert all(map(is_alive, pids))

    # The exit code is the outcome of the job.
    done = sandbox.run("submit", "hello_world", "-i", "name=Ada", "--wait", "--json")
    assert (done.returncode, json.loads(done.stdout)["result"]) == (0, {"message": "Hello, Ada!"})
    bad = sandbox.write(
        "{name: bad, nodes: {a: {handler: fail, params: {message: tile 47, permanent: true}}}}", "bad.yaml"
    )
    done = sandbox.run("submit", bad, "--wait")
    assert done.returncode == 1
    assert "tile 47" in done.stderr + done.stdout
    done = sandbox.run("submit", "hello_wrld")
    assert (done.returncode, "hello_world" in done.stderr) == (2, True)

    # A worker is killed, and the job completes.
    held = sandbox.write(
        f"{{name: held, nodes: {{a: {{handler: hold, retry: none, params: {{sandbox: {sandbox.folder}}}}}}}}}",
        "held.yaml",
    )
    waiting = sandbox.start("submit", held, "--wait")
    started = sandbox.folder / "started-1"
    pid = int(sandbox.until(lambda: started.is_file() and started.read_text()))
    assert pid == pids[1]
    os.kill(pid, signal.SIGKILL)
    assert waiting.wait() == 0, waiting.text
    assert "restarting it" in dev.until(f"pid {pid} was killed by SIGKILL")
    done = sandbox.run("jobs", "events", "last", "--json")
    assert "AttemptLost" in done.stdout

    # All processes end with dev.
    server = int((sandbox.folder / "data" / "cluster" / "postmaster.pid").read_text().split()[0])
    pids = [
        *pids,
        *(
            int(line.split("pid ")[1])
            for line in dev.lines
            if line.startswith("  worker  ") and "restarting" not in line
        ),
    ]
    dev.signal(signal.SIGTERM)
    assert dev.wait() == 0, dev.text
    assert not any(map(is_alive, [*pids, server]))


def test_children_of_a_killed_dev_exit_and_jobs_continue_when_dev_is_started_again(sandbox: Sandbox):
    dev = sandbox.start("dev", "--port=0", is_forked=False)
    dev.until("ready in")
    pids = [int(dev.until(f"  {name} ").split("pid ")[1]) for name in ("orchestrator", "worker")]
    held = sandbox.write(
        f"{{name: held, nodes: {{a: {{handler: hold, retry: none, params: {{sandbox: {sandbox.folder}}}}}}}}}",
        "held.yaml",
    )
    done = sandbox.run("submit", held, "--json")
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)["job_id"]
    sandbox.until((sandbox.folder / "started-1").is_file)
    dev.signal(signal.SIGKILL)
    sandbox.until(lambda: not any(map(is_alive, pids)))
    again = sandbox.start("dev", "--port=0")
    again.until("ready in")
    done = sandbox.run("jobs", "watch", job)
    assert done.returncode == 0, done.stdout + done.stderr


def test_services_on_a_server(new_sandbox: Sandbox):
    with new_sandbox.on_server():
        _check_services_on_a_new_database(new_sandbox)


def _check_services_on_a_new_database(sandbox: Sandbox) -> None:
    # Before the migration, every command fails with the remedy.
    for command in (
        ["orchestrator"],
        ["worker", "--queue", "light"],
        ["submit", "hello_world"],
        ["jobs", "list"],
    ):
        done = sandbox.run(*command)
        assert done.returncode == 3, done.stderr
        assert "run `dagmaster migrate`" in done.stderr
        assert "Traceback" not in done.stderr
    done = sandbox.run("migrate")
    assert (done.returncode, done.stdout.strip()) == (0, f"schema version: none -> {schema_version.HEAD}")
    orchestrator = sandbox.start("orchestrator", is_forked=False)
    worker = sandbox.start("worker", "--queue", "light", is_forked=False)
    orchestrator.until("orchestrator is ready")
    worker.until("worker of light is ready")

    flow = "{{name: flow, nodes: {{a: {{handler: echo, queue: {queue}}}}}}}"
    assert sandbox.run("submit", sandbox.write(flow.format(queue="light")), "--wait").returncode == 0

    # A queue without workers is reported.
    done = sandbox.run("submit", sandbox.write(flow.format(queue="heavy")), "--json")
    job = json.loads(done.stdout)["job_id"]
    sandbox.until(lambda: "DISPATCHED" in sandbox.run("jobs", "show", job, "--json").stdout)
    assert "no live worker serves this queue" in " ".join(sandbox.run("jobs", "show", job).stdout.split())
    second = sandbox.start("worker", "--queue", "heavy")
    assert sandbox.run("jobs", "watch", job).returncode == 0

    # A drained worker claims nothing, and stays until it is stopped.
    place = f"{socket.gethostname()}:{worker.pid}"
    done = sandbox.run("fleet", "drain", place, "--wait")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        0,
        f"worker {place} is drained: it holds nothing, and can be stopped",
    ), done.stderr
    assert f"{place} drained" in sandbox.run("fleet").stdout
    assert "service_not_found" in sandbox.run("fleet", "drain", "7", "--json").stdout
    worker.until("this worker is drained")

    for process, name in (
        (worker, "worker of light"),
        (second, "worker of heavy"),
        (orchestrator, "orchestrator"),
    ):
        process.signal(signal.SIGTERM)
        assert process.wait() == 0, process.text
        process.until(f"{name} has stopped")


def records_of(process: Process) -> list[dict[str, Any]]:
    return [json.loads(line) for line in process.lines]


def test_logs_are_json_and_every_line_about_a_job_names_it(on_server: Sandbox):
    sandbox = on_server
    options = ("--log-format", "json")
    orchestrator = sandbox.start("orchestrator", *options)
    sandbox.env["DAGMASTER_LOG_FORMAT"] = "JSON"
    worker = sandbox.start("worker", "--queue", "light")
    orchestrator.until("orchestrator is ready")
    worker.until("worker of light is ready")
    flow = f"{{name: flow, nodes: {{a: {{handler: deaf, params: {{sandbox: {sandbox.folder}}}}}}}}}"
    job = json.loads(sandbox.run("submit", sandbox.write(flow), "--json").stdout)["job_id"]
    sandbox.until((sandbox.folder / "started").is_file)
    # A task that does not stop on request.
    second = sandbox.start("orchestrator", *options, "--log-level", "info")
    second.until("orchestrator is ready")
    orchestrator.signal(signal.SIGKILL)
    assert second.until("took over 1 job")
    assert sandbox.run("jobs", "cancel", job, "--wait").returncode == 0
    worker.until("is abandoned")
    lines = [*records_of(second), *records_of(worker)]
    assert all({"time", "level", "logger", "message", "pid"} <= line.keys() for line in lines)
    for words in ("of dead orchestrators", "took over"):
        (line,) = [line for line in lines if words in line["message"]]
        assert (line["job_ids"], line["jobs"], line["owner_id"].isdigit()) == ([job], 1, True)
    (line,) = [line for line in lines if "is abandoned" in line["message"]]
    assert (line["job_id"], line["node_id"], line["level"]) == (job, "a", "WARNING")
    assert line["task_id"].isdigit()
    assert line["worker_id"].isdigit()


def test_the_level_of_the_log_is_a_setting_and_dev_is_ready_without_a_line(sandbox: Sandbox):
    sandbox.env["DAGMASTER_LOG_LEVEL"] = "error"
    dev = sandbox.start("dev", "--port=0", "--log-format", "json")
    dev.until("ready in")
    dev.signal(signal.SIGTERM)
    assert dev.wait() == 0
    assert "{" not in dev.text


def test_a_password_is_not_logged(new_sandbox: Sandbox):
    sandbox = new_sandbox
    sandbox.env |= {
        "DAGMASTER_DATABASE_URL": "postgresql://u:c4n4ry@127.0.0.1:1/d",
        "DAGMASTER_SECRET_X": "127.0.0.1",
    }
    orchestrator = sandbox.start("orchestrator", "--log-format", "json")
    record = json.loads(orchestrator.until("retrying with backoff"))
    assert (record["level"], "c4n4ry" in orchestrator.text, "127.0.0.1" in orchestrator.text) == (
        "WARNING",
        False,
        False,
    )


READERS = """
import dagmaster

async def read(job_id):
    return str((await dagmaster.get_job(job_id)).status)

def read_in_a_process(job_id):
    return str(dagmaster.blocking.get_job(job_id).status)
"""


def check_readers(sandbox: Sandbox, *where: str, submit_env: dict[str, str] | None = None) -> None:
    """Run tasks that read their own job, and check that nothing else was read. `where`: options of all commands."""
    readers = sandbox.write(READERS, "readers.py")
    params = "retry: none, queue: light, params: {job_id: '{{ job.id }}'}"
    flow = sandbox.write(
        f"{{name: reading, nodes: {{a: {{handler: readers.read, {params}}},"
        f" b: {{handler: readers.read_in_a_process, {params}}}}}, outputs: {{a: '{{{{ nodes.a.output }}}}',"
        f" b: '{{{{ nodes.b.output }}}}'}}}}"
    )
    sandbox.env["DAGMASTER_DATA_DIR"] = str(sandbox.folder / "other")
    sandbox.start("orchestrator", *where)
    sandbox.start("worker", "--queue=light", f"--handlers={readers}", *where)
    sandbox.env |= submit_env or {}
    done = sandbox.run("submit", flow, f"--handlers={readers}", "--wait", "--json", *where)
    assert json.loads(done.stdout)["result"] == {"a": "RUNNING", "b": "RUNNING"}, done.stdout
    assert not (sandbox.folder / "other").exists()


@pytest.mark.parametrize(
    "elsewhere",
    [
        {},
        {"dagmaster_database_url": "postgresql://127.0.0.1:1/d", "DAGMASTER_URL": "http://127.0.0.1:1"},
        {"DATABASE_URL": "postgresql://127.0.0.1:1/d"},
        {"POSTGRES_HOST": "127.0.0.1", "POSTGRES_PORT": "1", "POSTGRES_DB": "d"},
    ],
    ids=["data_dir", "settings", "alias", "parts"],
)
def test_tasks_of_a_worker_read_the_database_of_its_data_dir(sandbox: Sandbox, elsewhere: dict[str, str]):
    sandbox.env |= elsewhere
    check_readers(sandbox, f"--data-dir={sandbox.folder / 'data'}")


def test_tasks_of_a_worker_read_its_database_although_an_alias_names_it(on_server: Sandbox):
    url = on_server.env.pop("DAGMASTER_DATABASE_URL")
    on_server.env["DATABASE_URL"] = url
    # Only services read aliases.
    check_readers(on_server, submit_env={"DAGMASTER_DATABASE_URL": url})


def test_a_workflow_can_be_published_on_a_new_data_directory(new_sandbox: Sandbox):
    flow = new_sandbox.write("{name: flow, nodes: {a: {handler: echo, queue: light}}}")
    done = new_sandbox.run("workflows", "push", flow)
    assert (done.returncode, done.stdout) == (0, "published  flow v1\n"), done.stderr


def test_lists_of_a_new_data_directory_are_empty(new_sandbox: Sandbox):
    done = new_sandbox.run("jobs", "list")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "no jobs yet. Submit one" in done.stderr


def test_a_schema_of_another_version_is_rejected_with_the_remedy(on_server: Sandbox):
    sandbox = on_server
    # Not compatible with this code.
    function = "dagapp.dag_compatible_from() RETURNS text LANGUAGE sql AS $$ SELECT '9999' $$"
    _do(sandbox, f"CREATE OR REPLACE FUNCTION {function}")
    for version, remedy in (("0000", "run `dagmaster migrate`"), ("9999", "upgrade dagmaster")):
        _do(sandbox, f"UPDATE dagapp.alembic_version SET version_num = '{version}'")
        for command in (["orchestrator"], ["worker", "--queue", "light"], ["submit", "hello_world"]):
            done = sandbox.run(*command)
            assert done.returncode == 3, done.stderr
            assert remedy in done.stderr
            assert len(done.stderr.strip().splitlines()) == 1


def _do(sandbox: Sandbox, statement: str) -> None:
    import asyncio

    import asyncpg

    async def work() -> None:
        connection = await asyncpg.connect(sandbox.env["DAGMASTER_DATABASE_URL"])
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(work())


def test_services_wait_for_a_database_that_is_unavailable_at_their_start(sandbox: Sandbox):
    embedded = EmbeddedPostgres(sandbox.folder / "data")
    sandbox.env["DAGMASTER_DATABASE_URL"] = embedded.start().dsn
    embedded.stop()
    orchestrator, worker = sandbox.start("orchestrator"), sandbox.start("worker", "--queue", "light")
    for process in (orchestrator, worker):
        line = process.until("retrying with backoff")
        assert "the database cannot be reached" in line
        assert len(process.lines) == 1, process.text
    done = sandbox.run("submit", "hello_world")
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (3, 1)
    embedded.start()
    try:
        orchestrator.until("is ready")
        worker.until("is ready")
        text = sandbox.write("{name: flow, nodes: {a: {handler: echo, queue: light}}}")
        assert sandbox.run("submit", text, "--wait").returncode == 0
    finally:
        for process in (orchestrator, worker):
            process.signal(signal.SIGTERM)
            assert process.wait() == 0, process.text
        embedded.stop()


def test_a_service_that_creates_the_schema_logs_no_migration(new_sandbox: Sandbox):
    orchestrator = new_sandbox.start("orchestrator")
    orchestrator.until("is ready")
    assert len(orchestrator.lines) == 1, orchestrator.text


def test_a_second_signal_ends_a_worker_at_once(sandbox: Sandbox):
    sandbox.env["DAGMASTER_DRAIN_SECONDS"] = "3600"
    dev = sandbox.start("dev", "--port=0", "--workers", "0")
    dev.until("ready in")
    worker = sandbox.start("worker", "--queue", "light")
    worker.until("is ready")
    text = sandbox.write(
        f"{{name: held, nodes: {{a: {{handler: deaf, params: {{sandbox: {sandbox.folder}}}}}}}}}"
    )
    assert sandbox.run("submit", text).returncode == 0
    sandbox.until((sandbox.folder / "started").is_file)
    worker.signal(signal.SIGTERM)
    worker.until("worker of light is stopping")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 130, worker.text
    worker.until("exiting at once")


def test_a_worker_ends_what_its_threads_started_and_itself_if_native_code_holds_the_lock(on_server: Sandbox):
    sandbox = on_server
    sandbox.env["DAGMASTER_BLOCKED_SECONDS"] = "1"
    sandbox.start("orchestrator").until("orchestrator is ready")
    worker = sandbox.start("worker", "--queue", "light")
    worker.until("is ready")
    flow = f"{{name: left, nodes: {{a: {{handler: leaver, params: {{sandbox: {sandbox.folder}}}}}}}}}"
    assert sandbox.run("submit", sandbox.write(flow), "--wait").returncode == 0
    left = int((sandbox.folder / "left").read_text())
    os.kill(left, 0)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.text
    with pytest.raises(ProcessLookupError):
        os.kill(left, 0)
    worker = sandbox.start("worker", "--queue", "light")
    worker.until("is ready")
    assert (
        sandbox.run("submit", sandbox.write("{name: locked, nodes: {a: {handler: locker}}}")).returncode == 0
    )
    # No signal could end it but SIGKILL.
    assert worker.wait() == 1, worker.text
    assert "Timeout (0:00:03)!" in worker.text
    assert "in locker" in worker.text


def test_a_worker_without_queues_is_rejected(new_sandbox: Sandbox):
    done = new_sandbox.run("worker")
    assert done.returncode == 2
    assert "name the queues to serve" in done.stderr


def test_one_ctrl_c_cancels_a_run_and_waits_for_running_tasks(sandbox: Sandbox):
    text = sandbox.write(
        f"{{name: held, nodes: {{a: {{handler: hold, params: {{sandbox: {sandbox.folder}}}}}}}}}"
    )
    run = sandbox.start("run", text)
    sandbox.until((sandbox.folder / "started-1").is_file)
    run.signal(signal.SIGINT)
    assert run.wait() == 130, run.text
    assert "cancelling: waiting for running tasks" in run.text
    assert "CANCELLED" in run.text
    assert '"CANCELLED"' in sandbox.run("jobs", "show", "last", "--json").stdout


def test_a_second_ctrl_c_exits_at_once_and_dev_continues_the_job(sandbox: Sandbox):
    text = sandbox.write(
        f"{{name: held, nodes: {{a: {{handler: deaf, params: {{sandbox: {sandbox.folder}}}}}}}}}"
    )
    run = sandbox.start("run", text)
    sandbox.until((sandbox.folder / "started").is_file)
    run.signal(signal.SIGINT)
    # The request is stored; the task ignores it.
    sandbox.until(
        lambda: sandbox.count("SELECT count(*) FROM dagapp.dag_job_events WHERE type = 'CancelRequested'") > 0
    )
    run.signal(signal.SIGINT)
    assert run.wait() == 130, run.text
    job = run.until("exiting now").split("job ")[1].split()[0]
    dev = sandbox.start("dev", "--port=0")
    dev.until("ready in")
    # Its cancellation was requested, and the worker of its task is dead.
    done = sandbox.run("jobs", "watch", job)
    assert done.returncode == 1, done.stdout + done.stderr
    assert '"CANCELLED"' in sandbox.run("jobs", "show", job, "--json").stdout


@pytest.mark.parametrize("is_background", [False, True])
def test_a_client_that_is_terminated_leaves_no_server_behind(sandbox: Sandbox, is_background: bool):
    text = sandbox.write("{name: stuck, nodes: {a: {handler: echo, queue: nobody}}}")
    assert sandbox.run("submit", text).returncode == 0
    # A background process of a shell ignores Ctrl-C, and so do its children.
    before = (
        signal.signal(signal.SIGINT, signal.SIG_IGN) if is_background else signal.getsignal(signal.SIGINT)
    )
    try:
        watch = sandbox.start("jobs", "events", "last", "-f", is_forked=False)
    finally:
        signal.signal(signal.SIGINT, before)
    watch.until("submitted")
    watch.signal(signal.SIGTERM)
    assert watch.wait() == 130, watch.text
    assert "Traceback" not in watch.text
    assert not (sandbox.folder / "data" / "cluster" / "postmaster.pid").exists()
