"""A place with canary secrets wherever a secret may be; what comes out of it is searched.

Everything is searched: every value of every table, every command with and without `--json`, the terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
from typing import TYPE_CHECKING

import asyncpg
import pytest
from click.testing import CliRunner

from dagmaster.cli.main import cli
from dagmaster.store.embedded.server import EmbeddedPostgres
from tests.acceptance.fork_server import DAGMASTER, CommandProcess, run_command
from tests.patience import PATIENCE_SECONDS
from tests.server_folders import copy_migrated_cluster, server_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY = "canary-key-7f3a"
PIN = 8675309421
NESTED = "canary-nested-c41d"
LISTED = "canary-listed-9b2e"
TOKEN = "canary-token-e8d0"
SECRETS = (KEY, str(PIN), NESTED, LISTED, TOKEN)

HANDLERS = """
import logging
import sys
import traceback

from dagmaster import HandlerContext, PermanentError, handler


def leak(ctx, value):
    text = f"{value}"
    print("printed", value)
    print(text[:7], end="", flush=True)
    print(text[7:], file=sys.stdout)
    print(value, file=sys.stderr)
    logging.getLogger("leaks").warning("logged %s", value)
    ctx.logger.info("logged %s", value)
    ctx.progress(1, 2, f"progress {value}")
    ctx.checkpoint(f"phase {value}", {"value": value, "nested": [{text: value}]})
    try:
        raise ValueError(f"inner {value}")
    except ValueError as error:
        if ctx.attempt == 1:
            raise RuntimeError(f"outer {value}") from error
        traceback.print_exc()
    return {"echo": value, text: text, "nested": [{"value": value}], "text": f"is {text}."}


@handler("leak.async", queue="default", retry=2)
async def leak_async(ctx: HandlerContext) -> dict:
    return leak(ctx, ctx.params["value"])


@handler("leak.plain", queue="default", retry=2)
def leak_plain(ctx: HandlerContext) -> dict:
    return leak(ctx, ctx.params["value"])


@handler("leak.fails", queue="default", retry=1)
async def leak_fails(ctx: HandlerContext) -> dict:
    raise PermanentError(f"failed with {ctx.params['value']}")
"""

INPUTS = """
inputs:
  key: {type: string, required: true, secret: true}
  pin: {type: integer, required: true, secret: true}
  box: {type: object, required: true, secret: true}
  list: {type: array, required: true, secret: true}
"""
RETRY = "retry: {max_attempts: 2, initial_delay_seconds: 0.01}"

FLOW = f"""
workflow_id: canary
version: 1
{INPUTS}
nodes:
  key: {{handler: leak.async, {RETRY}, params: {{value: "{{{{ inputs.key }}}}"}}}}
  pin: {{handler: leak.async, {RETRY}, params: {{value: "{{{{ inputs.pin }}}}"}}}}
  box: {{handler: leak.async, {RETRY}, params: {{value: "{{{{ inputs.box }}}}"}}}}
  token: {{handler: leak.plain, {RETRY}, params: {{value: "Bearer {{{{ secrets.CANARY }}}}"}}}}
  plain: {{handler: leak.plain, {RETRY}, params: {{value: "{{{{ inputs.list }}}}"}}}}
  fan:
    type: fan_out
    source: [1, 2]
    task: {{handler: leak.async, {RETRY}, params: {{value: "{{{{ item }}}} {{{{ inputs.list }}}} {{{{ secrets.CANARY }}}}"}}}}
    next: all
  all: {{type: fan_in}}
  child:
    type: workflow
    workflow_id: canary_child
    inputs: {{key: "{{{{ inputs.key }}}}", pin: "{{{{ inputs.pin }}}}", box: "{{{{ inputs.box }}}}", list: "{{{{ inputs.list }}}}"}}
  exposed:
    type: fan_out
    source: [1]
    on_item_error: tolerate
    task: {{type: workflow, workflow_id: canary_open, inputs: {{note: "{{{{ inputs.key }}}}"}}}}
  route:
    type: conditional
    depends_on: [key]
    condition_field: "{{{{ nodes.key.output.text }}}}"
    branches: [{{name: known, condition: "== '{KEY[:6]}'", next: other}}, {{default: true, next: ask}}]
  other: {{handler: echo, queue: default}}
  ask: {{type: approval, message: "Use {{{{ nodes.key.output.text }}}}?", next: fails}}
  fails: {{handler: leak.fails, allow_failure: true, params: {{value: "{{{{ inputs.key }}}}"}}, next: expression}}
  expression: {{handler: echo, queue: default, allow_failure: true, params: {{value: "{{{{ nodes.key.output.text | int }}}}"}}}}
outputs:
  echo: "{{{{ nodes.key.output }}}}"
  token: "{{{{ nodes.token.output }}}}"
  fan: "{{{{ nodes.fan.outputs }}}}"
  child: "{{{{ nodes.child.output }}}}"
"""
CHILD = f"""
workflow_id: canary_child
version: 1
{INPUTS}
nodes:
  work: {{handler: leak.async, {RETRY}, params: {{value: "{{{{ inputs.key }}}}"}}}}
outputs: {{work: "{{{{ nodes.work.output }}}}"}}
"""
OPEN = """
workflow_id: canary_open
version: 1
inputs:
  note: {type: string}
nodes:
  work: {handler: echo, queue: default, params: {note: "{{ inputs.note }}"}}
"""
FAILING = f"""
workflow_id: canary_failing
version: 1
{INPUTS}
nodes:
  work: {{handler: leak.fails, params: {{value: "{{{{ inputs.key }}}} {{{{ secrets.CANARY }}}} {{{{ inputs.pin }}}}"}}, next: after}}
  after: {{handler: echo, queue: default}}
"""

CONTROLLED = f"""
workflow_id: canary_controlled
version: 1
{INPUTS}
nodes:
  ask: {{type: approval, message: "Use it?", next: receive}}
  receive: {{type: wait, signal: go, next: work}}
  work: {{handler: leak.fails, params: {{value: "{{{{ inputs.key }}}} {{{{ nodes.receive.output }}}} {{{{ secrets.CANARY }}}}"}}, next: after}}
  after: {{handler: echo, queue: default}}
outputs: {{received: "{{{{ nodes.receive.output }}}}"}}
"""
TILES = f"""
workflow_id: canary_tiles
version: 1
{INPUTS}
nodes:
  tiles:
    type: fan_out
    source:
      - {{bbox: [0, 0, 1, 1]}}
      - {{bbox: [1, 1, 2, 2]}}
    on_item_error: tolerate
    task: {{handler: leak.fails, params: {{value: "{{{{ inputs.list }}}} {{{{ inputs.key }}}} {{{{ secrets.CANARY }}}}"}}}}
"""


class Sandbox:
    """A folder with the workflows, and the commands that run there. Everything that a command prints is searched."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self.dsn = dsn
        for name, text in (
            ("canary", FLOW),
            ("canary_child", CHILD),
            ("canary_open", OPEN),
            ("canary_failing", FAILING),
            ("canary_controlled", CONTROLLED),
            ("canary_tiles", TILES),
        ):
            (folder / f"{name}.yaml").write_text(text)
        (folder / "leaks.py").write_text(HANDLERS)
        (folder / "inputs.json").write_text(
            json.dumps(
                {"key": KEY, "pin": PIN, "box": {"inner": NESTED, "more": [NESTED]}, "list": [LISTED, LISTED]}
            )
        )

    def dagmaster(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run a command, search its output, and return what it printed on stdout."""
        done = run_command(*arguments, env=dict(os.environ), cwd=self.folder)
        assert done.returncode in codes, (arguments, done.stdout[-2000:], done.stderr[-4000:])
        for stream in (done.stdout, done.stderr):
            assert_clean(stream, " ".join(arguments))
        return done.stdout

    def run(self, name: str, *arguments: str, code: int) -> str:
        return self.dagmaster("run", f"{name}.yaml", "-I", "inputs.json", *arguments, codes=(code,))

    def read(self, *arguments: str) -> None:
        """Run a command in this process, which takes a tenth of the time, and search its output."""
        result = CliRunner().invoke(cli, arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            arguments,
            result.exception,
        )
        assert "No such command" not in result.output
        assert "No such option" not in result.output
        assert_clean(result.output, " ".join(arguments))

    def start(self, *arguments: str) -> CommandProcess:
        return CommandProcess(
            [DAGMASTER, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
        )

    @contextlib.contextmanager
    def services(self) -> Iterator[None]:
        """Run an orchestrator and a worker, and search what they log."""
        services = [self.start("orchestrator"), self.start("worker", "--queue", "default")]
        try:
            yield
        finally:
            for service in services:
                service.terminate()
            for service in services:
                assert_clean(service.communicate(timeout=PATIENCE_SECONDS)[0], str(service.args))

    def submit(self, name: str) -> str:
        printed = self.dagmaster("submit", f"{name}.yaml", "-I", "inputs.json", "--json")
        return str(json.loads(printed)["job_id"])

    def until(self, job_id: str, node: str, status: str) -> None:
        """Wait until a node of a job has a status."""

        async def wait() -> None:
            connection = await asyncpg.connect(self.dsn)
            query = "SELECT status FROM dagapp.dag_node_states WHERE job_id = $1 AND node_id = $2"
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while await connection.fetchval(query, int(job_id), node) != status:  # noqa: ASYNC110 - other processes change it
                        await asyncio.sleep(0.02)
            finally:
                await connection.close()

        asyncio.run(wait())

    def last_job(self, workflow: str) -> str:
        async def read() -> str:
            connection = await asyncpg.connect(self.dsn)
            try:
                query = "SELECT id FROM dagapp.dag_jobs WHERE workflow_id = $1 ORDER BY id DESC LIMIT 1"
                return str(await connection.fetchval(query, workflow))
            finally:
                await connection.close()

        return asyncio.run(read())

    def rows(self) -> list[tuple[str, str, str]]:
        """Every value of every table, as text: (table, column, value)."""

        async def read() -> list[tuple[str, str, str]]:
            connection = await asyncpg.connect(self.dsn)
            try:
                tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'dagapp'")
                values: list[tuple[str, str, str]] = []
                for (table,) in tables:
                    for row in await connection.fetch(f'SELECT * FROM dagapp."{table}"'):
                        values += [(table, column, str(value)) for column, value in row.items()]
                return values
            finally:
                await connection.close()

        return asyncio.run(read())


def assert_clean(text: str, source: str) -> None:
    for secret in SECRETS:
        at = text.find(secret)
        assert at < 0, f"{source}: …{text[max(0, at - 200) : at + 100]}…"


def leaks(sandbox: Sandbox) -> list[tuple[str, str, str]]:
    """Return every stored value that has a secret."""
    return [
        (table, column, value[:300])
        for table, column, value in sandbox.rows()
        if any(secret in value for secret in SECRETS)
    ]


@contextlib.contextmanager
def canary_sandbox() -> Iterator[Sandbox]:
    """Provide a sandbox with a database of its own."""
    with server_folder() as folder, pytest.MonkeyPatch.context() as patch:
        copy_migrated_cluster(folder / "postgres")
        patch.setenv("DAGMASTER_DATA_DIR", f"{folder}/postgres")
        patch.setenv("DAGMASTER_SECRET_CANARY", TOKEN)
        patch.setenv("DAGMASTER_HANDLERS", f"{folder}/leaks.py")
        with EmbeddedPostgres(folder / "postgres") as server:
            yield Sandbox(folder, server.dsn)
