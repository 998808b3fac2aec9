"""What a terminal would obey comes from everywhere, and no command prints it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import Mock

import click
import pytest

from dagmaster.application.submission import JobRequest, submit_job
from dagmaster.application.views import LogView
from dagmaster.cli.commands import jobs_logs
from dagmaster.cli.commands.jobs_logs import LogPrinter
from dagmaster.cli.main import cli
from dagmaster.errors import PermanentError
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import Registry, handler
from tests.unit.application.memory_application import finished
from tests.unit.cli.test_remote import Terminal
from tests.unit.http.loopback import Loopback, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

HOSTILE: Final = (
    "<\x1b]0;title\x07\x1b[2J\x1b]8;;http://evil\x1b\\link\x1b]52;c;aGk=\x07\x9b31m\x9d0;t\x9c\u202etxt.exe\u2066"
    "\x08\x08\r\x7f\x85\u2028\x0b\x0c\U000e0041>"
)
FORBIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
QUOTED: Final = json.dumps(HOSTILE).replace(r"\udb40\udc41", r"\U000e0041")

FLOW: Final = f"""
workflow_id: hostile
version: 1
description: {QUOTED}
on_failure: continue
inputs: {{name: {{type: string, default: {QUOTED}, description: {QUOTED}}}}}
nodes:
  works: {{handler: hostile.works, params: {{name: "{{{{ inputs.name }}}}"}}}}
  fails: {{handler: hostile.fails, retry: none, params: {{name: "{{{{ inputs.name }}}}"}}}}
outputs: {{text: "{{{{ inputs.name }}}}"}}
"""
ASKING: Final = f"""
workflow_id: asking
version: 1
nodes:
  ask: {{type: approval, message: {QUOTED}}}
"""


class HostileError(Exception):
    pass


@handler("hostile.works", queue="q")
async def works(name: str, ctx: HandlerContext) -> dict[str, Any]:
    ctx.progress(1, 2, name)
    ctx.checkpoint("phase", {"text": name})
    return {"text": name, name: [name]}


@handler("hostile.fails", queue="q")
async def fails(name: str) -> None:
    raise PermanentError(name) from HostileError(name)


JOBS: dict[str, str] = {}


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    from dagmaster.application.commands.publication import publish_workflows
    from dagmaster.application.commands.validation import to_sources, validate_text

    registry = Registry([works, fails])
    with serve(registry) as server:
        app = server.services.application
        texts = {"hostile": FLOW, "asking": ASKING}
        sources = to_sources([validate_text(text, registry, name=name) for name, text in texts.items()])
        server.run(publish_workflows(app, sources))
        for name in texts:
            request = JobRequest(workflow_id=name, submitted_by="eve")
            JOBS[name] = server.run(submit_job(app, request)).job_id or ""
        server.run(finished(app, JOBS["hostile"]))
        yield server


@pytest.fixture
def terminal(
    server: Loopback, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    return Terminal(server, capsys, monkeypatch)


SHOWN: Final = {
    "jobs list": ["", "--json", f"--workflow {HOSTILE}"],
    "jobs show": [
        "hostile",
        "asking",
        "hostile works",
        "hostile fails",
        "hostile --json",
        "hostile fails --json",
        "hostile ?",
    ],
    "jobs why": ["hostile", "asking", "hostile fails", "hostile --json", "hostile ?"],
    "jobs logs": ["hostile", "hostile fails", "hostile ?", "hostile ? --json"],
    "jobs events": ["hostile", "hostile --json", "asking"],
    "jobs watch": ["hostile --plain", "hostile", "hostile --json"],
    "jobs audit": ["hostile", "hostile --json", "?"],
    "jobs cancel": ["hostile", "hostile ? --json"],
    "jobs retry": ["hostile --dry-run", "hostile fails --dry-run --json"],
    "jobs resume": ["hostile --dry-run", "hostile --dry-run --json", "hostile -i ?=1 --dry-run"],
    "jobs approve": ["hostile ?", "asking ? --json"],
    "jobs reject": ["hostile ?"],
    "jobs signal": ["hostile ?"],
    "jobs footprints": ["hostile", "?"],
    "jobs map": ["hostile"],
    "workflows list": ["", "--json", "--tag ?"],
    "workflows show": ["hostile", "hostile --yaml", "hostile --json", "?"],
    "workflows activate": ["? 1"],
    "workflows validate": ["FILE", "FILE --json"],
    "workflows diagram": ["FILE"],
    "workflows push": ["FILE"],
    "workflows export": ["?"],
    "handlers list": ["", "--json"],
    "handlers show": ["?", "? --json"],
    "handlers test": ["?"],
    "handlers trust": ["?", "? --caller ?"],
    "handlers distrust": ["?"],
    "submit": ["?", "hostile -i ?=1", "hostile -i ?=1 --json"],
    "storm": ["FILE --runs 1"],
    "run": ["FILE --ephemeral"],
    "fleet": ["", "--json"],
    "fleet drain": ["?"],
    "fleet undrain": ["? --json"],
    "metrics workflows": ["", "--json"],
    "metrics nodes": ["hostile", "?"],
    "metrics failures": ["", "--json"],
    "metrics throughput": [""],
    "keys list": ["", "--json"],
    "keys create": ["? --scope read", "eve --scope ?"],
    "keys revoke": ["?"],
    "keys rotate": ["?"],
    "keys sessions": ["", "--json"],
    "keys revoke-session": ["?"],
    "changes": ["", "--json", "--actor ?"],
    "callbacks list": [
        "",
        "--json",
        "--endpoints",
        "--paused --json",
        "--endpoint ?",
        "--of ? --tenant ?",
        "--since ?",
    ],
    "callbacks show": ["?", "? --json"],
    "callbacks replay": ["?", "--endpoint ?", "--of ? --json"],
    "callbacks pause": ["?"],
    "callbacks resume": ["? --tenant ?"],
    "callbacks secrets list": ["", "--json", "--tenant ?"],
    "callbacks secrets create": ["--tenant ?"],
    "callbacks secrets revoke": ["?"],
    "tenants create": ["?", "t2 --title ? --callback-url https://example.com/?"],
    "tenants list": ["", "--json"],
    "tenants show": ["?", "default --json"],
    "tenants set": ["? --title x", "default --title ?"],
    "platforms list": ["", "--json"],
    "platforms show": ["?", "ddh --json"],
    "platforms set": ["? --id-field x", "p2 --title ? --id-field ?"],
    "requests list": ["", "--json", "--workflow ?", "--actor ? --tenant ?", "--idempotency-key ?"],
    "requests show": ["?", "? --json"],
    "partners check": ["? --secret whsec_AAAA", "https://example.invalid/ --secret ?"],
    "blobs list": ["?", "file:///?"],
    "blobs get": ["? x"],
    "blobs put": ["? ?"],
    "blobs rm": ["?"],
    "config show": ["", "--json"],
    "migrate downgrade": ["?"],
    "stac search": ["--collection ?"],
    "stac show": ["?"],
    "stac collections": [""],
}
"""The command lines of each command. `?` is the hostile text, FILE a workflow file with it; job ids are filled in."""

WITHOUT_DATA: Final = {
    "dev", "gateway", "orchestrator", "relay", "serve", "server", "worker",
    "doctor", "keys login-link", "secrets-key check", "secrets-key create", "secrets-key rotate",
    "metrics rebuild", "migrate", "migrate current", "migrate history", "migrate upgrade", "stac init", "workflows schema",
}  # fmt: skip
"""Services, whose logs are tested with the formatter; what prints numbers, versions and new keys; checks of this machine."""


def test_every_command_is_tried_or_has_no_data():
    assert set(leaves(cli)) == SHOWN.keys() | WITHOUT_DATA


def words(arguments: str, file: Path, *, is_job: bool) -> list[str]:
    fill = {"FILE": str(file), **(JOBS if is_job else {})}
    return [fill.get(word, word).replace("?", HOSTILE) for word in arguments.split()]


def leaves(command: click.Command, path: str = "") -> Iterator[str]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from leaves(child, f"{path} {name}".strip())
        if command.invoke_without_command:
            yield path
    else:
        yield path


@pytest.mark.parametrize("command", SHOWN)
def test_a_command_prints_nothing_that_a_terminal_obeys(terminal: Terminal, tmp_path: Path, command: str):
    file = tmp_path / "flow.yaml"
    file.write_text(FLOW + f"\n# {HOSTILE.encode('unicode_escape').decode()}\n", encoding="utf-8")
    for arguments in SHOWN[command]:
        _, out, err = terminal.local(
            *command.split(), *words(arguments, file, is_job=command.startswith("jobs"))
        )
        printed = out + err
        assert printed, arguments
        found = FORBIDDEN.findall(printed)
        assert not found, (arguments, found, printed[:2000])
        if "--json" in arguments:
            lines = [out] if out.startswith("{\n") else out.splitlines()
            assert [json.loads(line) for line in lines], arguments


def test_what_was_hostile_is_shown_as_escapes(terminal: Terminal):
    _, out, _ = terminal.local("jobs", "why", JOBS["hostile"])
    assert r"\x1b]0;title" in out
    _, out, _ = terminal.local("jobs", "show", JOBS["hostile"], "works", "--json")
    assert json.loads(out)["output"] == {"text": HOSTILE, HOSTILE: [HOSTILE]}


def a_log(text: str) -> LogView:
    return LogView(job_id="1", node_id="a", attempt=1, text=text, at=0.0, cursor="")


def test_logs_are_escaped_line_by_line_unless_they_are_raw(capsys: pytest.CaptureFixture[str]):
    text = f"one{HOSTILE}\r\ntwo\n"
    LogPrinter(is_prefixed=True, as_json=False).print("a", a_log(text))
    out = capsys.readouterr().out
    assert not FORBIDDEN.findall(out)
    assert [line[:4] for line in out.splitlines()] == ["a │ ", "a │ "]
    LogPrinter(is_prefixed=False, as_json=False, is_raw=True).print("a", a_log(text))
    assert capsys.readouterr().out == text
    LogPrinter(is_prefixed=False, as_json=True).print("a", a_log(text))
    out = capsys.readouterr().out
    assert not FORBIDDEN.findall(out)
    assert json.loads(out)["text"] == text


def test_raw_logs_are_for_a_pipe(terminal: Terminal, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jobs_logs, "sys", Mock(stdout=Mock(isatty=lambda: True)))
    code, _, err = terminal.local("jobs", "logs", JOBS["hostile"], "--raw")
    assert (code, "a terminal obeys control characters" in err) == (2, True)
