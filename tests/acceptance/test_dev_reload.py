"""`dagmaster dev --reload` with real processes: files are edited, and what runs and what is published follows."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest

# The fixture, too.
from tests.acceptance.test_services import Sandbox, is_alive, new_sandbox, sandbox  # noqa: F401

if TYPE_CHECKING:
    from tests.acceptance.background_process import Process

pytestmark = pytest.mark.process

NIGHTLY = """from dagmaster import task, workflow


@task
def answer(x: int) -> int:
    return {value}


@workflow
def nightly(x: int = 1):
    return answer({argument})
"""
FLOW = "name: flow\nnodes:\n  only:\n    handler: echo\n    params: {{text: {text}}}\noutputs: {{text: '{{{{ nodes.only.output.echoed_params.text }}}}'}}\n"


def result_of(sandbox: Sandbox, workflow: str) -> Any:  # noqa: F811 - not the fixture
    done = sandbox.run("submit", workflow, "--wait", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])["result"]


def worker_pid(dev: Process) -> int:
    # Not a line about its end: "pid 7 has stopped".
    started = [re.fullmatch(r"  worker .*pid (\d+)", line.rstrip()) for line in dev.lines]
    return int([match for match in started if match is not None][-1][1])


def test_a_changed_file_is_published_and_its_code_runs(sandbox: Sandbox):  # noqa: F811 - the fixture
    nightly, flow = sandbox.folder / "nightly.py", sandbox.folder / "flow.yaml"
    nightly.write_text(NIGHTLY.format(value="1", argument="x"))
    flow.write_text(FLOW.format(text="one"))
    (sandbox.folder / "empty").mkdir()
    options = ("--reload", "--workflows", str(sandbox.folder / "empty"))
    dev = sandbox.start("dev", *options, str(nightly), str(flow), is_forked=False)
    dev.until("published nightly v1")
    dev.until("watching")
    assert "none in" not in dev.text
    assert "dagmaster submit nightly --wait" in dev.text
    first = worker_pid(dev)
    assert result_of(sandbox, "nightly") == {"result": 1}
    assert result_of(sandbox, "flow") == {"text": "one"}

    # A workflow file, first with a mistake: the line is named, and what was published stays.
    flow.write_text(FLOW.format(text="two").replace("handler: echo", "handlr: echo"))
    dev.until("flow.yaml is not published")
    assert "flow.yaml:4" in dev.text
    flow.write_text(FLOW.format(text="three"))
    dev.until("replaced flow v1")
    assert result_of(sandbox, "flow") == {"text": "three"}
    assert worker_pid(dev) == first

    # Code that cannot be imported: workers keep what they have.
    nightly.write_text(NIGHTLY.format(value="1 +", argument="x"))
    dev.until("workers keep the code that they have")
    assert "line 6" in dev.until("nightly.py' cannot be imported")

    # Other code, and another graph.
    nightly.write_text(NIGHTLY.format(value="x", argument="41"))
    dev.until("replaced nightly v1")
    dev.until(f"pid {first} has stopped")
    assert not is_alive(first)
    assert result_of(sandbox, "nightly") == {"result": 41}
    second = worker_pid(dev)

    dev.signal(signal.SIGTERM)
    assert dev.wait() == 0, dev.text
    assert not is_alive(second)
