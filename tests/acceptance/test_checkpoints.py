"""A task of twenty phases whose worker ends in the thirteenth: another worker continues there."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from tests.acceptance.test_services import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HANDLERS = """
import asyncio, pathlib, time
from dagmaster import HandlerContext, handler

def begin(ctx, sandbox, phase):
    with pathlib.Path(sandbox, "ran").open("a") as file:
        file.write(f"{ctx.attempt}:{phase}\\n")

def phases(ctx):
    return range((ctx.checkpoint_data or {}).get("next", 1), 21)

@handler("plain", queue="light")
def plain(ctx: HandlerContext, sandbox: str) -> dict:
    for phase in phases(ctx):
        begin(ctx, sandbox, phase)
        while ctx.attempt == 1 and phase == 13:
            if ctx.cancelled:
                ctx.checkpoint("asked", {"next": 13, "asked": True})
            ctx.raise_if_cancelled()
            time.sleep(0.01)
        ctx.checkpoint(f"phase_{phase}", {"next": phase + 1, "asked": (ctx.checkpoint_data or {}).get("asked")})
    return {"asked": ctx.checkpoint_data["asked"]}

@handler("coroutine", queue="light")
async def coroutine(ctx: HandlerContext, sandbox: str) -> dict:
    for phase in phases(ctx):
        begin(ctx, sandbox, phase)
        if ctx.attempt == 1 and phase == 13:
            try:
                await asyncio.Event().wait()
            finally:
                ctx.checkpoint("asked", {"next": 13, "asked": True})
        ctx.checkpoint(f"phase_{phase}", {"next": phase + 1, "asked": (ctx.checkpoint_data or {}).get("asked")})
    return {"asked": ctx.checkpoint_data["asked"]}
"""


@pytest.fixture
def sandbox(dsn: str, tmp_path: Path) -> Iterator[Sandbox]:
    """Provide a sandbox with a migrated database, an orchestrator, and no worker yet."""
    sandbox = Sandbox(tmp_path)
    (tmp_path / "held.py").write_text(HANDLERS)
    sandbox.env |= {"DAGMASTER_DATABASE_URL": dsn, "DAGMASTER_DRAIN_SECONDS": "30"}
    sandbox.start("orchestrator").until("is ready")
    yield sandbox
    for process in sandbox.processes:
        process.end()


def phases_run(sandbox: Sandbox) -> list[str]:
    file = sandbox.folder / "ran"
    return file.read_text().split() if file.exists() else []


def checkpoint_phase(sandbox: Sandbox) -> Any:
    async def query() -> Any:
        connection = await asyncpg.connect(sandbox.env["DAGMASTER_DATABASE_URL"])
        try:
            return await connection.fetchval("SELECT phase FROM dagapp.dag_checkpoints")
        finally:
            await connection.close()

    return asyncio.run(query())


@pytest.mark.parametrize("name", ["plain", "coroutine"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_another_worker_continues_at_the_checkpoint(sandbox: Sandbox, name: str, number: signal.Signals):
    first = sandbox.start("worker", "--queue", "light")
    first.until("is ready")
    flow = sandbox.write(
        f"{{name: n, nodes: {{a: {{handler: {name}, retry: none, params: {{sandbox: {sandbox.folder}}}}}}}}}"
    )
    done = sandbox.run("submit", flow, "--json")
    job = json.loads(done.stdout)["job_id"]
    sandbox.until(lambda: "1:13" in phases_run(sandbox))
    # Checkpoints are stored with a delay.
    sandbox.until(lambda: checkpoint_phase(sandbox) == "phase_12")
    sandbox.start("worker", "--queue", "light").until("is ready")
    os.kill(first.pid, number)
    assert first.wait() == (0 if number == signal.SIGTERM else -signal.SIGKILL), first.text

    done = sandbox.run("jobs", "watch", job)
    assert done.returncode == 0, done.stdout + done.stderr
    assert phases_run(sandbox) == [f"1:{phase}" for phase in range(1, 14)] + [
        f"2:{phase}" for phase in range(13, 21)
    ]
    node = json.loads(sandbox.run("jobs", "show", job, "--json").stdout)
    assert "COMPLETED" in json.dumps(node)
    events = sandbox.run("jobs", "events", job, "--json").stdout
    # Neither uses up a retry; and a worker that shuts down saves another checkpoint.
    expected, other = ("AttemptReleased", "AttemptLost")[:: 1 if number == signal.SIGTERM else -1]
    assert (expected in events, other in events, "AttemptFailed" in events) == (True, False, False)
    assert ('"asked": true' in json.dumps(node)) is (number == signal.SIGTERM)
