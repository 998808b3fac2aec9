"""Commands print the same through a server as on the database, and exit with the same codes."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
from typing import TYPE_CHECKING, Any, cast

import pytest

from dagmaster import Client
from dagmaster.application.api_keys import create_key
from dagmaster.application.queries.metrics import workflow_metrics
from dagmaster.application.submission import JobRequest, submit_job
from dagmaster.application.views import ReasonCode
from dagmaster.cli import system
from dagmaster.cli.commands import handlers, jobs_control, migrate
from dagmaster.cli.main import LOCAL_REASONS, REMOTE, cli, main
from dagmaster.cli.system import Part
from dagmaster.client.system import LocalSystem
from dagmaster.errors import PermanentError
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ports.handler_contracts import HandlerOffer
from dagmaster.sdk.handler_definitions import define_handler
from dagmaster.sdk.handler_registry import Registry, handler
from tests.environment import LOG_DIR
from tests.patience import PATIENCE_SECONDS
from tests.unit.application.memory_application import finished
from tests.unit.http.loopback import Loopback, serve

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from dagmaster.application.context import Application

pytestmark = pytest.mark.slow

FLOWS = {
    "fine": """
workflow_id: fine
version: 1
tags: [night]
inputs: {name: {type: string, default: world}, token: {type: string, secret: true, default: canary-4711}}
nodes:
  greet: {handler: remote.greet, params: {name: "{{ inputs.name }}"}, next: tiles}
  tiles: {type: fan_out, source: [1, 2, 3], task: {handler: remote.greet, params: {name: "{{ item }}"}}, next: all}
  all: {type: fan_in}
outputs: {text: "{{ nodes.greet.output.text }}"}
""",
    "broken": """
workflow_id: broken
version: 1
nodes:
  tiles:
    type: fan_out
    source: [1, 2, 3]
    task: {handler: remote.fail, params: {number: "{{ item }}"}}
    next: after
  after: {handler: remote.greet, params: {name: x}}
""",
    "asking": """
workflow_id: asking
version: 1
nodes:
  ask: {type: approval, message: "go on?", next: signal}
  signal: {type: wait, signal: go}
""",
    "asking_twice": """
workflow_id: asking_twice
version: 1
on_failure: continue
nodes:
  east: {type: approval}
  west: {type: approval}
""",
}


@handler("remote.greet", queue="q")
async def greet(name: Any) -> dict[str, Any]:
    return {"text": f"hello {name}"}


@handler("remote.fail", queue="q")
async def fail(number: int) -> dict[str, Any]:
    if number == 2:
        raise PermanentError("two is broken")
    return {"number": number}


JOBS: dict[str, str] = {}


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    from dagmaster.application.commands.publication import publish_workflows
    from dagmaster.application.commands.validation import to_sources, validate_text

    registry = Registry([greet, fail])
    with serve(registry) as server:
        app = server.services.application
        sources = to_sources(
            [validate_text(text, registry, name=f"{name}.yaml") for name, text in FLOWS.items()]
        )
        server.run(publish_workflows(app, sources))
        for name in FLOWS:
            result = server.run(submit_job(app, JobRequest(workflow_id=name, submitted_by="ada")))
            JOBS[name] = result.job_id or ""
            if not name.startswith("asking"):
                server.run(finished(app, result.job_id))
        server.run(counted(app, jobs=2))
        yield server


async def counted(app: Application, *, jobs: int) -> None:
    """Wait until an orchestrator has counted jobs that finished."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sum(view.total_jobs for view in (await workflow_metrics(app)).workflows) < jobs:  # noqa: ASYNC110 - metrics notify no one
            await asyncio.sleep(0.01)


class Terminal:
    """Runs commands on the stores, and through the server."""

    def __init__(
        self, server: Loopback, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.server = server
        self._capsys = capsys
        for name in [name for name in os.environ if name.startswith("DAGMASTER_") and name != LOG_DIR]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("DAGMASTER_KEY", server.key)
        monkeypatch.setattr(system, "database_session", lambda _data_dir: contextlib.nullcontext(self))
        # It asks the database itself.
        monkeypatch.setattr(migrate, "_check_services", lambda *_: None)

    def run(
        self,
        work: Callable[[LocalSystem], Awaitable[Any]],
        *,
        migrate: bool = False,
        part: Part = Part.APPLICATION,
        answer_seconds: float | None = None,
    ) -> Any:
        """Run something on the stores, as a session on a database does."""
        services = self.server.services
        assert migrate in (True, False)
        assert answer_seconds is None or answer_seconds > 0

        parts = {
            Part.KEYS: services.keys,
            Part.CHANGES: services.admin.changes,
            Part.DATABASE: services.admin,
        }

        async def answer() -> Any:
            return await work(LocalSystem(parts.get(part, services.application)))

        return self.server.run(answer())

    def local(self, *arguments: str) -> tuple[int, str, str]:
        """Return exit code, output and errors of a command on the stores."""
        with pytest.raises(SystemExit) as exited:
            main(arguments)
        out, err = self._capsys.readouterr()
        return int(exited.value.code or 0), out, err

    def remote(self, *arguments: str, key: str | None = None) -> tuple[int, str, str]:
        """Return exit code, output and errors of a command through the server."""
        options = ["--url", self.server.url, *([] if key is None else ["--key", key])]
        return self.local(*options, *arguments)


@pytest.fixture
def terminal(
    server: Loopback, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    return Terminal(server, capsys, monkeypatch)


def filled(arguments: str) -> list[str]:
    """Return the words of a command line, with the ids of jobs."""
    first, second, *rest = arguments.split()
    # The id of a workflow is the name of its job here.
    is_job = first == "jobs" and "--workflow" not in rest
    return [first, second, *(JOBS.get(word, word) if is_job else word for word in rest)]


def without_times(value: Any) -> Any:
    """Return JSON without what differs from one moment to the next."""
    if isinstance(value, list):
        return [without_times(item) for item in value]
    if isinstance(value, dict):
        return {
            key: without_times(item)
            for key, item in value.items()
            if not key.endswith("_seconds") and key not in ("counters", "last_used_at", "since", "until")
        }
    return value


FINISHED = [
    "jobs show fine",
    "jobs show broken",
    "jobs show fine greet",
    "jobs show broken tiles__1",
    "jobs show fine --json --all",
    "jobs why fine",
    "jobs why broken",
    "jobs why broken after",
    "jobs logs fine",
    "jobs logs fine greet",
    "jobs logs broken tiles__1",
    "jobs logs broken after",
    "jobs events fine",
    "jobs events broken --after 3 --node tiles__1",
    "jobs watch fine --plain",
    "jobs watch broken --plain",
    "jobs resume broken --dry-run",
    "jobs retry broken tiles__1 --dry-run",
    "jobs resume fine --from greet --dry-run",
    "workflows list",
    "workflows list --tag night",
    "workflows show fine",
    "workflows show fine --yaml",
    "jobs audit",
    "jobs audit fine",
    "migrate history",
    "migrate upgrade",
]
"""Handlers are not among them: without a server they are those of this machine."""


@pytest.mark.parametrize("arguments", FINISHED)
def test_a_command_about_what_has_ended_prints_the_same(terminal, arguments):
    local, remote = terminal.local(*filled(arguments)), terminal.remote(*filled(arguments))
    ages = re.compile(r"\d+ s ago")
    assert ages.sub("", str(remote)) == ages.sub("", str(local))
    assert remote[1] + remote[2]


AS_JSON = [
    "jobs list --json",
    "jobs list --json --status failed --since 1d --workflow broken",
    "jobs list --json --limit 2",
    "jobs show fine --json",
    "jobs show broken --json",
    "jobs show asking --json",
    "jobs show fine greet --json",
    "jobs show broken tiles__1 --json",
    "jobs why asking --json",
    "jobs why broken --json",
    "jobs why asking signal --json",
    "jobs logs fine --json",
    "jobs events fine --json",
    "jobs events asking --json",
    "jobs watch fine --json",
    "jobs resume broken --dry-run --json",
    "jobs resume fine -i name=Eve --dry-run --json",
    "jobs retry broken tiles__1 --dry-run --json",
    "workflows list --json",
    "workflows show fine --json",
    "fleet --json",
    "metrics workflows --json",
    "metrics nodes fine --json",
    "metrics failures --json",
    "metrics throughput --json",
    "keys list --json",
    "changes --json",
    "changes --kind key --actor test --limit 1 --json",
    "jobs audit --json",
    "metrics rebuild --json",
]


@pytest.mark.parametrize("arguments", AS_JSON)
def test_a_command_with_json_prints_equal_documents(terminal, arguments):
    (code, out, err), (remote_code, remote_out, remote_err) = (
        terminal.local(*filled(arguments)),
        terminal.remote(*filled(arguments)),
    )
    assert (remote_code, remote_err) == (code, err)
    documents = [[json.loads(line) for line in text.splitlines()] for text in (out, remote_out)]
    assert without_times(documents[1]) == without_times(documents[0])
    assert "canary-4711" not in remote_out


ERRORS = [
    "jobs show 1",
    "jobs show fine gret",
    "jobs why fine gret",
    "jobs logs fine gret",
    "jobs events nonsense",
    "jobs cancel fine",
    "jobs resume asking",
    "jobs resume fine",
    "jobs retry fine greet",
    "jobs approve asking signal",
    "jobs approve fine greet",
    "jobs signal asking goo",
    "jobs list --cursor x",
    "jobs list --cursor eyJ9",
    "jobs footprints fine",
    "submit nothing",
    "submit fine -i nam=x",
    "submit fine --version 9",
    "workflows show nothing",
    "workflows activate fine 9",
    "keys revoke dm_000000000000",
    "changes --cursor x",
    "jobs audit 1",
    "fleet drain 7",
    "fleet undrain far:1",
]


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("arguments", ERRORS)
def test_an_error_has_the_same_sentence_and_exit_code(terminal, arguments, as_json):
    if as_json and arguments.startswith("jobs footprints"):
        return
    command = [*filled(arguments), *(["--json"] if as_json else [])]
    local, remote = terminal.local(*command), terminal.remote(*command)
    assert remote == local
    assert local[0] == 2


def test_a_job_is_submitted_and_controlled_through_a_server(terminal):
    code, out, err = terminal.remote("submit", "asking", "--name", "remote", "--json")
    assert (code, err) == (0, "")
    job_id = json.loads(out)["job_id"]
    assert terminal.remote("jobs", "approve", job_id, "ask", "--comment", "fine")[0] == 0
    assert terminal.remote("jobs", "signal", job_id, "go", '{"rows": 1}')[0] == 0
    code, out, _ = terminal.remote("jobs", "watch", job_id, "--json")
    job = json.loads(out)
    assert (code, job["status"], job["submitted_by"], job["name"]) == (0, "COMPLETED", "key:ada", "remote")
    events = terminal.remote("jobs", "events", job_id)[1]
    assert "ada approved" in events or "ada" in events

    code, out, _ = terminal.remote("jobs", "resume", job_id, "--from", "signal", "--json")
    assert (code, json.loads(out)["accepted"]) == (0, True)
    code, out, _ = terminal.remote("jobs", "cancel", job_id, "--wait", "--comment", "wrong year")
    assert code == 0
    assert "requested cancellation: wrong year" in terminal.remote("jobs", "events", job_id)[1]


@pytest.mark.parametrize("arguments", ["jobs show last --json", "jobs audit last --json"])
def test_last_is_the_newest_job_here_and_the_own_newest_one_through_a_server(terminal, arguments):
    own = json.loads(terminal.remote("submit", "fine", "--json")[1])["job_id"]
    assert terminal.remote("jobs", "watch", own)[0] == 0
    app = terminal.server.services.application
    other = terminal.server.run(submit_job(app, JobRequest(workflow_id="fine", submitted_by="eve"))).job_id
    terminal.server.run(finished(app, other))
    command = arguments.split()
    for run, job_id in ((terminal.remote, own), (terminal.local, other)):
        by_id = [job_id if word == "last" else word for word in command]
        documents = [[json.loads(line) for line in run(*words)[1].splitlines()] for words in (command, by_id)]
        assert without_times(documents[0]) == without_times(documents[1])
    last = terminal.remote("jobs", "show", "last", "--json")[1]
    assert json.loads(last)["job_id"] == own
    assert json.loads(terminal.local("jobs", "show", "last", "--json")[1])["job_id"] == other


def submit_waiting(terminal: Terminal, workflow: str, sentence: str) -> str:
    """Submit a job and return its id when its explanation has a sentence."""
    job_id: str = json.loads(terminal.remote("submit", workflow, "--json")[1])["job_id"]
    assert any(sentence in terminal.remote("jobs", "why", job_id, "--json")[1] for _ in range(500))
    return job_id


def test_the_only_approval_and_the_only_signal_need_no_name(terminal):
    job_id = submit_waiting(terminal, "asking", "waits for approval")
    code, _, err = terminal.remote("jobs", "signal", job_id)
    assert (code, f"no node of job {job_id} waits for a signal" in err) == (2, True)
    assert terminal.remote("jobs", "approve", job_id)[0] == 0
    assert any("waits for signal go" in terminal.remote("jobs", "why", job_id)[1] for _ in range(500))
    assert terminal.remote("jobs", "signal", job_id)[0] == 0
    assert terminal.remote("jobs", "watch", job_id)[0] == 0


def test_an_answer_without_a_name_goes_to_the_job_that_was_looked_at(terminal):
    job_id = submit_waiting(terminal, "asking", "waits for approval")

    with Client(terminal.server.url, terminal.server.key) as client:
        why = client.why_job(job_id)

    class Looked:
        async def call(self, *_: Any) -> Any:
            return why

    answered = asyncio.run(
        jobs_control._find_waiting(cast("Any", Looked()), "last", None, ReasonCode.APPROVAL)
    )
    assert answered == (job_id, "ask")


def test_several_approvals_are_listed(terminal):
    job_id = submit_waiting(terminal, "asking_twice", "waits for approval")
    for command in ("approve", "reject"):
        code, _, err = terminal.remote("jobs", command, job_id)
        assert (code, f"job {job_id} waits for 2 approvals: name one of east, west" in err) == (2, True)
    assert terminal.remote("jobs", "approve", job_id, "east")[0] == 0
    assert terminal.remote("jobs", "reject", job_id)[0] == 0


def test_a_worker_is_drained_and_undrained_through_a_server(terminal):
    worker_id = json.loads(terminal.remote("fleet", "--json")[1])["workers"][0]["worker_id"]
    try:
        code, out, err = terminal.remote("fleet", "drain", worker_id, "--wait")
        assert (code, err) == (0, "")
        assert out.splitlines()[-1].endswith("is drained: it holds nothing, and can be stopped")
    finally:
        code, out, _ = terminal.remote("fleet", "undrain", worker_id, "--json")
    assert (code, json.loads(out)["is_draining"]) == (0, False)


def test_a_submission_waits_and_its_outcome_is_the_exit_code(terminal):
    code, out, _ = terminal.remote("submit", "fine", "-i", "name=Eve", "--wait")
    assert (code, json.loads(out)) == (0, {"text": "hello Eve"})
    assert terminal.remote("submit", "broken", "--wait")[0] == 1


def test_a_failed_node_is_run_again_and_an_approval_rejected(terminal):
    code, out, _ = terminal.remote("submit", "broken", "--wait", "--json")
    job_id = json.loads(out)["job_id"]
    assert code == 1
    assert terminal.remote("jobs", "retry", job_id, "tiles__1")[0] == 0
    assert terminal.remote("jobs", "watch", job_id)[0] == 1
    code, out, _ = terminal.remote("jobs", "retry", job_id, "tiles__1", "tiles__0", "--dry-run")
    assert (code, "redone" in out) == (0, True)
    assert terminal.remote("jobs", "retry", job_id, "tiles__1", "tiles__0")[0] == 0
    assert terminal.remote("jobs", "watch", job_id)[0] == 1
    code, out, _ = terminal.remote("jobs", "resume", JOBS["fine"], "-i", "name=Zoe", "--wait", "--json")
    assert (code, json.loads(out)["result"]) == (0, {"text": "hello Zoe"})
    job_id = json.loads(terminal.remote("submit", "asking", "--json")[1])["job_id"]
    assert terminal.remote("jobs", "reject", job_id, "ask")[0] == 0
    assert terminal.remote("jobs", "watch", job_id)[0] == 1
    job_id = json.loads(terminal.remote("submit", "asking", "--json")[1])["job_id"]
    code, out, err = terminal.remote("jobs", "cancel", job_id, "aks")
    assert (code, "Did you mean 'ask'" in err) == (2, True)
    code, out, err = terminal.remote("jobs", "cancel", job_id, "ask")
    assert (code, out.strip().partition(" ")[2]) == (0, "requested cancellation of ask")
    assert terminal.remote("jobs", "watch", job_id)[0] == 1
    assert "was cancelled by" in terminal.remote("jobs", "why", job_id, "ask")[1]
    code, _, err = terminal.remote("jobs", "cancel", job_id, "ask", "--comment", "wrong year")
    assert (code, "--comment is stored with the cancel of a job" in err) == (2, True)
    code, _, err = terminal.remote("jobs", "cancel", job_id, "ask", "--wait")
    assert (code, "--wait waits for the end of the job" in err) == (2, True)


def test_a_batch_has_an_outcome_for_each_line(terminal, tmp_path):
    file = tmp_path / "names.jsonl"
    file.write_text('{"name": "Ada"}\n{"nam": "Eve"}\n{"name": "Zoe"}\n')
    arguments = ("submit", "fine", "--batch", str(file), "--idempotency-key", "night", "--json")
    code, out, _ = terminal.remote(*arguments)
    assert code == 2
    assert [result["outcome"] for result in json.loads(out)] == ["accepted", "error", "accepted"]
    assert [result["outcome"] for result in json.loads(terminal.remote(*arguments)[1])] == [
        "existing",
        "error",
        "existing",
    ]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tasks.py").write_text("from tests.unit.cli.test_remote import fail, greet\n")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parent.yaml").write_text(
        "{workflow_id: parent, version: 1, nodes: {child: {type: workflow, workflow_id: child}}}"
    )
    (tmp_path / "child.yaml").write_text(
        "{workflow_id: child, version: 1, nodes: {greet: {handler: remote.greet, params: {name: child}}}}"
    )
    return tmp_path


@pytest.mark.usefixtures("files")
def test_a_file_is_submitted_with_the_workflows_of_its_folder(terminal):
    code, out, err = terminal.remote("submit", "parent.yaml", "--handlers", "./tasks.py", "--wait", "--json")
    assert (code, json.loads(out)["status"]) == (0, "COMPLETED"), err
    assert terminal.remote("workflows", "show", "parent")[0] == 2


def test_handlers_that_only_workers_have_are_checked_as_they_have_published_them(terminal, files):
    flow, commands = files / "far.yaml", (("workflows", "validate"), ("workflows", "push"), ("submit",))
    text = "{workflow_id: far, version: 1, nodes: {greet: {handler: remote.greet, params: {name: far}}}}"
    for content, expected, message in (
        # This machine does not have the handler: no --handlers names it.
        (text, 0, ""),
        (text.replace("name:", "nam:"), 2, "'nam'"),
        (text.replace("remote.greet", "far.away"), 2, "Functions without a decorator are not published"),
    ):
        flow.write_text(content)
        for command in commands:
            code, _, err = terminal.remote(*command, "far.yaml")
            assert (code, message in err) == (expected, True), err


def test_files_are_published_all_or_none_and_activated(terminal, files):
    push = ("workflows", "push", ".", "--handlers", "./tasks.py", "--json")
    code, out, err = terminal.remote(*push)
    assert (code, {result["outcome"] for result in json.loads(out)}) == (0, {"published"}), err
    # The content is the same, whichever way it was published.
    assert {result["outcome"] for result in json.loads(terminal.local(*push)[1])} == {"unchanged"}
    for name in ("parent", "child"):
        file = files / f"{name}.yaml"
        file.write_text(file.read_text().replace("version: 1", "version: 2, name: newer"))
    (files / "more.yaml").write_text((files / "child.yaml").read_text().replace("newer", "other"))
    code, out, _ = terminal.remote(*push)
    assert (code, json.loads(out)["error"]["code"]) == (2, "workflow_version_conflict")
    (files / "more.yaml").unlink()
    assert terminal.remote(*push, "--no-activate")[0] == 0
    assert terminal.remote("workflows", "activate", "child", "2")[:2] == (
        0,
        "new jobs of child get v2 (before: v1)\n",
    )


def test_handlers_of_the_workers_are_listed_and_shown(terminal):
    code, out, err = terminal.remote("handlers", "list")
    assert (code, out.split()) == (0, ["remote.fail", "remote.greet"])
    assert err.startswith("\n2 handlers.")
    (failing, greeting) = json.loads(terminal.remote("handlers", "list", "--json")[1])
    assert (failing["name"], greeting["queue"], greeting["workers"]) == ("remote.fail", "q", 1)
    code, out, _ = terminal.remote("handlers", "show", "remote.fail")
    assert code == 0
    assert "number integer, required" in " ".join(out.split())
    assert "workers 1 live worker with this version" in " ".join(out.split())
    assert json.loads(terminal.remote("handlers", "show", "remote.fail", "--json")[1]) == failing
    code, _, err = terminal.remote("handlers", "show", "remote.gret")
    assert code == 2
    assert "no worker has published a handler 'remote.gret': did you mean" in err


def test_a_key_that_may_submit_published_workflows_only_is_told_so_when_it_submits_a_file(terminal, files):
    keys, origin = terminal.server.services.keys, ChangeOrigin(actor="test")
    key = terminal.server.run(create_key(keys, "shop", [Scope.SUBMIT], origin=origin, now=0.0)).key
    file = str(files / "child.yaml")
    code, _, err = terminal.remote("submit", file, key=key)
    text = " ".join(err.split())
    assert code != 0
    assert "this needs the scope" in text
    assert f"publish the file first (`dagmaster workflows push {file}`" in text
    code, _, err = terminal.remote("submit", "nobody_has_it", key=key)
    assert "publish the file first" not in err


def test_trust_says_what_it_replaces_asks_and_is_undone(terminal, monkeypatch):
    contract = json.loads(terminal.remote("handlers", "show", "remote.greet", "--json")[1])
    schema = {**contract["params"], "title": "x" * 500}
    definition = define_handler(name="remote.greet", version="1", queue="evil", params=schema)
    contracts = terminal.server.services.remote_tasks.workers.contracts
    terminal.server.run(contracts.offer(HandlerOffer("key:stranger", [definition])))
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    code, out, err = terminal.local("handlers", "trust", "remote.greet")
    assert (code, out) == (2, ""), err
    first, *differences = err.splitlines()
    assert first == "remote.greet: version 1 of key:stranger, instead of the contract of installation"
    assert '  queue: "q" → "evil"' in differences
    assert max(map(len, differences)) < 200
    assert "use --yes to skip it" in err
    answers = iter([False, True])
    monkeypatch.setattr(handlers, "confirm", lambda _question: next(answers))
    code, _, err = terminal.remote("handlers", "trust", "remote.greet")
    assert (code, "nothing was changed" in err) == (1, True)
    for more in ([], ["--yes"]):
        terminal.server.run(contracts.offer(HandlerOffer("key:stranger", [definition])))
        code, _, err = terminal.remote("handlers", "trust", "remote.greet", *more)
        assert code == 0, err
        assert json.loads(terminal.remote("handlers", "show", "remote.greet", "--json")[1])["queue"] == "evil"
        code, _, err = terminal.remote("handlers", "distrust", "remote.greet", "--caller", "key:stranger")
        assert err.endswith("; its contract is that of installation\n")
        assert json.loads(terminal.remote("handlers", "show", "remote.greet", "--json")[1]) == contract
    code, _, err = terminal.remote("handlers", "trust", "nobody.has.it", "--yes")
    assert (code, "narrowed to the handler" in " ".join(err.split())) == (2, True)


def test_a_handler_is_tested_on_a_worker(terminal):
    code, out, err = terminal.remote("handlers", "test", "remote.greet", "-p", "name=Ada")
    assert (code, json.loads(out)) == (0, {"text": "hello Ada"})
    assert err.startswith("the handler runs on a worker, as job ")
    job_id = err.split()[-1]
    job = json.loads(terminal.remote("jobs", "show", job_id, "--json")[1])
    assert (job["status"], job["submitted_by"]) == ("COMPLETED", "key:ada")
    assert job_id not in terminal.remote("jobs", "list", "--json")[1], "lists leave it out"
    code, out, _ = terminal.remote("handlers", "test", "remote.fail", "-p", "number=2", "--json")
    assert (code, json.loads(out)["status"], json.loads(out)["error"]["message"]) == (
        1,
        "FAILED",
        "two is broken",
    )
    assert terminal.remote("handlers", "test", "remote.fail", "-p", "number=two")[0] == 2


def test_handlers_of_this_machine_are_asked_for_by_their_module(terminal, files, monkeypatch):
    module = str(files / "tasks.py")
    code, _, err = terminal.remote("handlers", "list", "--handlers", module)
    assert (code, "leave one of them out" in " ".join(err.split())) == (2, True)
    code, _, err = terminal.remote("handlers", "test", "remote.greet", "--attempt", "2")
    assert (code, "--attempt is for a test on this machine" in " ".join(err.split())) == (2, True)
    monkeypatch.setenv("DAGMASTER_URL", terminal.server.url)
    names = [handler["name"] for handler in json.loads(terminal.local("handlers", "list", "--json")[1])]
    assert names == ["remote.fail", "remote.greet"]
    code, out, err = terminal.local(
        "handlers", "test", "remote.greet", "-p", "name=Eve", "--handlers", module
    )
    assert (code, json.loads(out), err) == (0, {"text": "hello Eve"}, "")


def test_keys_are_made_rotated_and_revoked(terminal):
    code, out, _ = terminal.remote("keys", "create", "eve", "--scope", "read", "--json")
    key = json.loads(out)
    assert (code, key["name"], key["created_by"]) == (0, "eve", "key:ada")
    assert terminal.remote("jobs", "list", key=key["key"])[0] == 0
    code, out, _ = terminal.remote("keys", "rotate", key["key_id"], "--json")
    assert (code, json.loads(out)["name"]) == (0, "eve")
    # The text of a key names it, and is not sent.
    assert terminal.remote("keys", "revoke", json.loads(out)["key"])[0] == 0
    code, out, _ = terminal.remote("changes", "--kind", "key", "--limit", "3")
    assert re.findall(r"ada +(key\.\w+)", out) == ["key.revoke", "key.rotate", "key.create"]


def test_a_key_is_missing_unknown_or_has_not_the_scope(terminal, monkeypatch):
    reader = terminal.server.make_key(Scope.READ)
    code, _, err = terminal.remote("jobs", "cancel", JOBS["asking"], key=reader)
    assert code == 2
    assert "this needs the scope `operate`" in err
    unknown = "dm_000000000000_" + "x" * 43
    code, _, err = terminal.remote("jobs", "list", key=unknown)
    assert code == 2
    assert "the key is unknown, revoked or expired" in err
    assert "DAGMASTER_KEY" in err
    assert unknown not in err
    monkeypatch.delenv("DAGMASTER_KEY")
    code, out, _ = terminal.remote("jobs", "list", "--json")
    assert (code, json.loads(out)["error"]["code"]) == (2, "api_key_rejected")


def test_a_server_that_is_not_there_is_exit_code_3(terminal, monkeypatch):
    from dagmaster.client import connection
    from dagmaster.client.retries import Retries

    monkeypatch.setattr(connection, "Retries", lambda: Retries(base_seconds=0.0))
    code, _, err = terminal.local("--url", "http://127.0.0.1:9", "jobs", "list")
    assert code == 3
    assert err.startswith(
        "Error: cannot reach the server at http://127.0.0.1:9: connection refused. Is it running"
    )
    assert "Traceback" not in err
    assert terminal.server.key not in err


def test_the_environment_names_the_server_and_an_option_wins(terminal, monkeypatch, tmp_path):
    monkeypatch.setenv("DAGMASTER_URL", terminal.server.url)
    monkeypatch.setenv("DAGMASTER_KEY", "wrong")
    assert terminal.local("jobs", "list")[0] == 2
    assert terminal.local("--key", terminal.server.key, "jobs", "list")[0] == 0
    # A data directory names a database.
    assert terminal.local("jobs", "list", "--data-dir", str(tmp_path))[0] == 0


@pytest.mark.parametrize("command", sorted(set(cli.lazy) - REMOTE))
def test_a_command_of_this_machine_refuses_a_server_by_name(terminal, command):
    code, _, err = terminal.remote(command)
    assert code == 2
    sentence = " ".join(err.split())
    assert f"`dagmaster {command}` works on this machine" in sentence
    assert LOCAL_REASONS[command] in sentence


def test_options_that_exclude_each_other_are_refused(terminal, tmp_path, monkeypatch):
    for arguments, sentence in [
        (["jobs", "list", "--data-dir", str(tmp_path)], "leave one of them out"),
        (["migrate", "upgrade", "0005"], "older than its code"),
        (["migrate", "downgrade", "base", "--yes"], "its keys included"),
        (["jobs", "approve", JOBS["asking"], "ask", "--as", "eve"], "a server records the name of the key"),
    ]:
        code, _, err = terminal.remote(*arguments)
        assert (code, sentence in " ".join(err.split())) == (2, True), err
    monkeypatch.delenv("DAGMASTER_KEY")
    code, _, err = terminal.local("--key", "dm_x", "jobs", "list")
    assert (code, "name it with --url or DAGMASTER_URL" in " ".join(err.split()), "dm_x" in err) == (
        2,
        True,
        False,
    )


def test_events_without_children_have_their_failures_only(terminal):
    with Client(terminal.server.url, terminal.server.key) as client:
        events = client.list_events(JOBS["broken"], with_children=False).items
        everything = client.list_events(JOBS["broken"]).items
    of_children = [event for event in events if "__" in (event.node_id or "")]
    assert {event.node_id for event in of_children} == {"tiles__1"}
    assert {event.event_status for event in of_children} == {"failure"}
    assert len(events) < len(everything)
