"""`dagmaster handlers test`: a handler runs as on a worker, whatever it does."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.fork_server import run_command

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

HANDLERS = """
import ctypes, os
from dagmaster import HandlerContext, handler

@handler("crashes")
def crashes() -> None:
    ctypes.string_at(0)

@handler("endless")
def endless() -> None:
    while True:
        pass

def _report(ctx):
    print("printed")
    ctx.logger.info("logged")
    ctx.progress(1, 3, "one")
    ctx.checkpoint("first", {})
    return {"pid": os.getpid(), "key": ctx.idempotency_key, "token": ctx.fencing_token}

@handler("plain")
def plain(ctx: HandlerContext) -> dict:
    return _report(ctx)

@handler("coroutine")
async def coroutine(ctx: HandlerContext) -> dict:
    return _report(ctx)
"""


def run_handler(folder: Path, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    file = folder / "mine.py"
    file.write_text(HANDLERS)
    return run_command("handlers", "test", name, "--handlers", str(file), *options, env=dict(os.environ))


def test_a_function_that_crashes_its_process_fails_with_its_location(tmp_path: Path):
    done = run_handler(tmp_path, "crashes")
    assert done.returncode == 1, done.stderr
    assert "FAILED (crashed): the handler's process died of signal 11 (SIGSEGV)" in done.stderr
    assert "in crashes" in done.stderr


def test_a_function_that_exceeds_its_timeout_is_killed(tmp_path: Path):
    done = run_handler(tmp_path, "endless", "--timeout", "0.2", "--json")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["error"]["kind"] == "timeout"


@pytest.mark.parametrize("name", ["plain", "coroutine"])
def test_reports_of_a_handler_are_printed_apart_from_its_output(tmp_path: Path, name: str):
    done = run_handler(tmp_path, name, "--attempt", "2")
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout)
    # Without a job, the token is the number of the attempt.
    assert (output["key"], output["token"]) == ("test:test", 2)
    assert done.stderr == "printed\nINFO dagmaster.task: logged\nprogress: 1 of 3 one\ncheckpoint: first\n"
