"""Handlers that cannot be stopped, in real processes: their worker exits, and its supervisor starts a new one."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

from tests.acceptance.test_services import new_sandbox, on_server, sandbox

if TYPE_CHECKING:
    from tests.acceptance.test_services import Sandbox

__all__ = ["new_sandbox", "on_server", "sandbox"]

RUNAWAYS = """
import asyncio, pathlib
from dagmaster import HandlerContext, handler

@handler("spins", queue="light")
async def spins(ctx: HandlerContext) -> None:
    while True:
        pass

@handler("recurses", queue="light")
async def recurses(ctx: HandlerContext) -> None:
    async def deeper() -> None:
        while True:
            try:
                await deeper()
            except BaseException:
                pass
    await deeper()

@handler("grows", queue="light")
async def grows(ctx: HandlerContext) -> None:
    kept = []
    while True:
        kept.append(bytearray(64 * 1024 * 1024))
        await asyncio.sleep(0.05)
        if len(kept) > 16:
            await asyncio.Event().wait()
"""


def test_dev_replaces_a_worker_that_cannot_stop_a_handler(sandbox: Sandbox):
    (sandbox.folder / "held.py").write_text(RUNAWAYS)
    dev = sandbox.start("dev", "--port=0")
    dev.until("ready in")
    flow = sandbox.write("{name: f, nodes: {a: {handler: spins, retry: none, timeout_seconds: 1}}}")
    done = sandbox.run("submit", flow, "--wait", "--json")
    report = json.loads(done.stdout)
    assert dev.until("could not stop a handler and exited with code 80; restarting it in 1 s")
    assert done.returncode == 1, done.stdout + done.stderr
    why = sandbox.run("jobs", "why", report["job_id"]).stdout
    assert "could not be stopped (it ignored cancellation for" in " ".join(why.split())
    assert "its worker restarted" in " ".join(why.split())
    dev.signal(signal.SIGTERM)
    assert dev.wait() == 0


def test_a_worker_exits_with_the_code_of_its_reason(on_server: Sandbox):
    sandbox = on_server
    (sandbox.folder / "held.py").write_text(RUNAWAYS)
    orchestrator = sandbox.start("orchestrator")
    orchestrator.until("orchestrator is ready")
    for name, code, setting in (("recurses", 80, "0"), ("grows", 81, "700")):
        sandbox.env["DAGMASTER_WORKER_MEMORY_MB"] = setting
        worker = sandbox.start("worker", "--queue", "light")
        worker.until("worker of light is ready")
        flow = f"{{name: f, nodes: {{a: {{handler: {name}, retry: none, timeout_seconds: 2}}}}}}"
        if name == "grows":
            flow = flow.replace(", timeout_seconds: 2", "")
        done = sandbox.run("submit", sandbox.write(flow), "--wait")
        assert worker.wait() == code, worker.text
        assert f"exits with code {code} to be restarted" in worker.text
        assert done.returncode == 1
