"""The services as an operator starts them: real processes, a real server, real signals."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.store.embedded.server import EmbeddedPostgres
from tests.acceptance.fork_server import DAGMASTER, ROOT, CommandProcess, run_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

A_LONG_WHILE = 60.0
"""Longer than anything here takes, on a machine that is busy."""

HANDLERS = """
import asyncio, os, pathlib
from dagmaster import HandlerContext, handler

@handler("hold", queue="light")
async def hold(ctx: HandlerContext, place: str) -> dict:
    pathlib.Path(place, f"began-{ctx.attempt}").write_text(str(os.getpid()))
    if ctx.attempt == 1:
        await asyncio.Event().wait()
    return {"attempt": ctx.attempt}

@handler("deaf", queue="light", isolation="thread")
def deaf(place: str) -> None:
    pathlib.Path(place, "began").touch()
    import threading
    threading.Event().wait()
"""


class Process:
    """A command that runs, and what it said so far."""

    def __init__(self, arguments: tuple[str, ...], env: dict[str, str], start: type[subprocess.Popen[str]]) -> None:
        self._process = start(
            [DAGMASTER, *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=env,
        )  # fmt: skip
        self.pid = self._process.pid
        self.lines: list[str] = []
        self._heard = threading.Condition()
        self._is_over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                with self._heard:
                    self.lines.append(line.rstrip())
                    self._heard.notify_all()
        with self._heard:
            self._is_over = True
            self._heard.notify_all()

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def until(self, said: str) -> str:
        """Wait for a line that has this, and give it."""
        with self._heard:
            self._heard.wait_for(lambda: said in self.text or self._is_over, A_LONG_WHILE)
        found = [line for line in self.lines if said in line]
        assert found, f"{said!r} was not said:\n{self.text}"
        return found[0]

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def over(self) -> int:
        """Wait for its end, and give its exit code."""
        code = self._process.wait(A_LONG_WHILE)
        self._reader.join(A_LONG_WHILE)
        return code

    def end(self) -> None:
        """End it in peace, so that what it started ends with it; else by force."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(A_LONG_WHILE)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self.over()


class Place:
    """A directory with a database of its own, and the processes that a test starts there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[Process] = []
        (folder / "held.py").write_text(HANDLERS)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DAGMASTER_")}
        self.env = kept | {
            "DAGMASTER_DATA_DIR": str(folder / "data"),
            "DAGMASTER_BLOB_DIR": str(folder / "blobs"),
            "DAGMASTER_HANDLERS": str(folder / "held.py"),
            "DAGMASTER_WORKER_LEASE_SECONDS": "3",
            "DAGMASTER_ORCHESTRATOR_LEASE_SECONDS": "4",
            "DAGMASTER_DRAIN_SECONDS": "0.5",
        }

    def start(self, *arguments: str, is_forked: bool = True) -> Process:
        """Start a command; not `is_forked`, from its entry point, and with the signal handlers of this process."""
        process = Process(arguments, self.env, CommandProcess if is_forked else subprocess.Popen)
        self.processes.append(process)
        return process

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command(*arguments, env=self.env, timeout=A_LONG_WHILE)

    def count(self, query: str) -> int:
        """Ask the database itself: a command takes as long as a task that is asked to stop is waited for."""
        import asyncpg

        async def ask() -> int:
            with EmbeddedPostgres(self.folder / "data") as server:
                connection = await asyncpg.connect(server.dsn)
                try:
                    return int(await connection.fetchval(query))
                finally:
                    await connection.close()

        return asyncio.run(ask())

    def write(self, text: str, name: str = "flow.yaml") -> str:
        file = self.folder / name
        file.write_text(text)
        return str(file)

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until something is there. A file tells nobody."""
        for _ in range(int(A_LONG_WHILE / 0.02)):
            found = condition()
            if found:
                return found
            threading.Event().wait(0.02)
        raise AssertionError("it did not come about:\n" + "\n---\n".join(each.text for each in self.processes))


@pytest.fixture
def place() -> Iterator[Place]:
    # Not under pytest's own folder: as root the server runs as another user, who may not look into it.
    folder = Path(tempfile.mkdtemp(prefix="dagmaster-", dir="/var/tmp"))
    folder.chmod(0o755)
    found = Place(folder)
    yield found
    for process in found.processes:
        process.end()
    if (folder / "data" / "cluster" / "postmaster.pid").exists():
        # A server that outlived its users is joined, and ends with the last of them.
        with EmbeddedPostgres(folder / "data"):
            pass
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def on_server(place: Place) -> Iterator[Place]:
    """Provide a place whose server is the operator's."""
    with EmbeddedPostgres(place.folder / "data") as server:
        place.env["DAGMASTER_DATABASE_URL"] = server.dsn
        yield place
        for process in place.processes:
            process.end()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_dev_runs_everything_survives_a_kill_and_ends_with_all_it_started(place: Place):
    dev = place.start("dev", is_forked=False)
    dev.until("ready in")
    assert f"embedded PostgreSQL in {place.folder / 'data'}" in dev.until("database")
    pids = [int(dev.until(f"  {name} ").split("pid ")[1]) for name in ("orchestrator", "worker")]
    assert "hello_world" in dev.until("  workflows")
    assert all(map(is_alive, pids))

    # Exit codes tell how it ended.
    done = place.run("submit", "hello_world", "-i", "name=Ada", "--wait", "--json")
    assert (done.returncode, json.loads(done.stdout)["result"]) == (0, {"message": "Hello, Ada!"})
    bad = place.write(
        "{name: bad, nodes: {a: {handler: fail, params: {message: tile 47, permanent: true}}}}", "bad.yaml"
    )
    done = place.run("submit", bad, "--wait")
    assert done.returncode == 1
    assert "tile 47" in done.stderr + done.stdout
    done = place.run("submit", "hello_wrld")
    assert (done.returncode, "hello_world" in done.stderr) == (2, True)

    # A worker is killed, and the job does not notice.
    held = place.write(
        f"{{name: held, nodes: {{a: {{handler: hold, retry: none, params: {{place: {place.folder}}}}}}}}}", "held.yaml"
    )
    waiting = place.start("submit", held, "--wait")
    began = place.folder / "began-1"
    pid = int(place.until(lambda: began.is_file() and began.read_text()))
    assert pid == pids[1]
    os.kill(pid, signal.SIGKILL)
    assert waiting.over() == 0, waiting.text
    assert "restarting it" in dev.until(f"pid {pid} exited with code -9")
    done = place.run("jobs", "events", "last", "--json")
    assert "AttemptLost" in done.stdout

    # Everything ends with it.
    server = int((place.folder / "data" / "cluster" / "postmaster.pid").read_text().split()[0])
    pids = [
        *pids,
        *(int(line.split("pid ")[1]) for line in dev.lines if line.startswith("  worker  ") and "exited" not in line),
    ]
    dev.signal(signal.SIGTERM)
    assert dev.over() == 0, dev.text
    assert not any(map(is_alive, [*pids, server]))


def test_dev_that_is_killed_takes_its_children_with_it_and_jobs_go_on_when_it_starts_again(place: Place):
    dev = place.start("dev", is_forked=False)
    dev.until("ready in")
    pids = [int(dev.until(f"  {name} ").split("pid ")[1]) for name in ("orchestrator", "worker")]
    held = place.write(
        f"{{name: held, nodes: {{a: {{handler: hold, retry: none, params: {{place: {place.folder}}}}}}}}}", "held.yaml"
    )
    done = place.run("submit", held, "--json")
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)["job_id"]
    place.until((place.folder / "began-1").is_file)
    dev.signal(signal.SIGKILL)
    place.until(lambda: not any(map(is_alive, pids)))
    again = place.start("dev")
    again.until("ready in")
    done = place.run("jobs", "watch", job)
    assert done.returncode == 0, done.stdout + done.stderr


def test_services_on_a_server(on_server: Place):
    place = on_server
    # Before the migration, nothing runs, and it is said what to do.
    for command in (["orchestrator"], ["worker", "--queue", "light"], ["submit", "hello_world"], ["jobs", "list"]):
        done = place.run(*command)
        assert done.returncode == 3, done.stderr
        assert "run `dagmaster migrate`" in done.stderr
        assert "Traceback" not in done.stderr
    done = place.run("migrate")
    assert (done.returncode, done.stdout.strip()) == (0, "schema version: none -> 0002")
    orchestrator = place.start("orchestrator", is_forked=False)
    worker = place.start("worker", "--queue", "light", is_forked=False)
    orchestrator.until("orchestrator is ready")
    worker.until("worker of light is ready")

    flow = "{{name: flow, nodes: {{a: {{handler: echo, queue: {queue}}}}}}}"
    assert place.run("submit", place.write(flow.format(queue="light")), "--wait").returncode == 0

    # A queue that nobody serves is told.
    done = place.run("submit", place.write(flow.format(queue="heavy")), "--json")
    job = json.loads(done.stdout)["job_id"]
    place.until(lambda: "DISPATCHED" in place.run("jobs", "show", job, "--json").stdout)
    assert "no live worker serves this queue" in " ".join(place.run("jobs", "show", job).stdout.split())
    second = place.start("worker", "--queue", "heavy")
    assert place.run("jobs", "watch", job).returncode == 0

    for process, name in ((worker, "worker of light"), (second, "worker of heavy"), (orchestrator, "orchestrator")):
        process.signal(signal.SIGTERM)
        assert process.over() == 0, process.text
        process.until(f"{name} has stopped")


def test_a_schema_of_another_version_is_refused_with_a_sentence(on_server: Place):
    place = on_server
    assert place.run("migrate").returncode == 0
    for version, said in (("0000", "run `dagmaster migrate`"), ("9999", "upgrade dagmaster")):
        _do(place, f"UPDATE dagapp.alembic_version SET version_num = '{version}'")
        for command in (["orchestrator"], ["worker", "--queue", "light"], ["submit", "hello_world"]):
            done = place.run(*command)
            assert done.returncode == 3, done.stderr
            assert said in done.stderr
            assert len(done.stderr.strip().splitlines()) == 1


def _do(place: Place, statement: str) -> None:
    import asyncio

    import asyncpg

    async def work() -> None:
        connection = await asyncpg.connect(place.env["DAGMASTER_DATABASE_URL"])
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(work())


def test_services_wait_for_a_database_that_is_down_when_they_start(place: Place):
    embedded = EmbeddedPostgres(place.folder / "data")
    place.env["DAGMASTER_DATABASE_URL"] = embedded.start().dsn
    assert place.run("migrate").returncode == 0
    embedded.stop()
    orchestrator, worker = place.start("orchestrator"), place.start("worker", "--queue", "light")
    for process in (orchestrator, worker):
        line = process.until("trying again until it is there")
        assert "the database cannot be reached" in line
        assert len(process.lines) == 1, process.text
    done = place.run("submit", "hello_world")
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (3, 1)
    embedded.start()
    try:
        orchestrator.until("is ready")
        worker.until("is ready")
        text = place.write("{name: flow, nodes: {a: {handler: echo, queue: light}}}")
        assert place.run("submit", text, "--wait").returncode == 0
    finally:
        for process in (orchestrator, worker):
            process.signal(signal.SIGTERM)
            assert process.over() == 0, process.text
        embedded.stop()


def test_a_service_that_makes_the_schema_speaks_of_itself_alone(place: Place):
    orchestrator = place.start("orchestrator")
    orchestrator.until("is ready")
    assert len(orchestrator.lines) == 1, orchestrator.text


def test_a_second_signal_ends_a_worker_at_once(place: Place):
    place.env["DAGMASTER_DRAIN_SECONDS"] = "3600"
    dev = place.start("dev", "--workers", "0")
    dev.until("ready in")
    worker = place.start("worker", "--queue", "light")
    worker.until("is ready")
    text = place.write(f"{{name: held, nodes: {{a: {{handler: deaf, params: {{place: {place.folder}}}}}}}}}")
    assert place.run("submit", text).returncode == 0
    place.until((place.folder / "began").is_file)
    worker.signal(signal.SIGTERM)
    worker.until("worker of light is stopping")
    worker.signal(signal.SIGTERM)
    assert worker.over() == 130, worker.text
    worker.until("exiting at once")


def test_a_worker_without_queues_is_refused(place: Place):
    done = place.run("worker")
    assert done.returncode == 2
    assert "name the queues to serve" in done.stderr


def test_one_ctrl_c_cancels_a_run_and_waits_for_what_runs(place: Place):
    text = place.write(f"{{name: held, nodes: {{a: {{handler: hold, params: {{place: {place.folder}}}}}}}}}")
    run = place.start("run", text)
    place.until((place.folder / "began-1").is_file)
    run.signal(signal.SIGINT)
    assert run.over() == 130, run.text
    assert "cancelling: waiting for running tasks" in run.text
    assert "CANCELLED" in run.text
    assert '"CANCELLED"' in place.run("jobs", "show", "last", "--json").stdout


def test_a_second_ctrl_c_leaves_at_once_and_dev_goes_on_with_the_job(place: Place):
    text = place.write(f"{{name: held, nodes: {{a: {{handler: deaf, params: {{place: {place.folder}}}}}}}}}")
    run = place.start("run", text)
    place.until((place.folder / "began").is_file)
    run.signal(signal.SIGINT)
    # What was asked is stored; the task does not listen.
    place.until(lambda: place.count("SELECT count(*) FROM dagapp.dag_job_events WHERE type = 'CancelRequested'") > 0)
    run.signal(signal.SIGINT)
    assert run.over() == 130, run.text
    job = run.until("exiting now").split("job ")[1].split()[0]
    dev = place.start("dev")
    dev.until("ready in")
    # It had been asked to stop, and the task's worker is dead.
    done = place.run("jobs", "watch", job)
    assert done.returncode == 1, done.stdout + done.stderr
    assert '"CANCELLED"' in place.run("jobs", "show", job, "--json").stdout


@pytest.mark.parametrize("is_background", [False, True])
def test_a_client_that_is_terminated_leaves_no_server_behind(place: Place, is_background: bool):
    assert place.run("migrate").returncode == 0
    text = place.write("{name: stuck, nodes: {a: {handler: echo, queue: nobody}}}")
    assert place.run("submit", text).returncode == 0
    # What a shell starts in the background ignores Ctrl-C, and so do its children.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_background else signal.getsignal(signal.SIGINT)
    try:
        watch = place.start("jobs", "events", "last", "-f", is_forked=False)
    finally:
        signal.signal(signal.SIGINT, before)
    watch.until("submitted")
    watch.signal(signal.SIGTERM)
    assert watch.over() == 130, watch.text
    assert "Traceback" not in watch.text
    assert not (place.folder / "data" / "cluster" / "postmaster.pid").exists()
