"""The tutorial of the HTTP API works as it is written, in its order, against `dagmaster dev`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.fork_server import ROOT, forked_programs
from tests.acceptance.test_readme import DEV, Shell, read_steps, shell
from tests.patience import PATIENCE_SECONDS

__all__ = ["shell"]
ADDRESS = "http://127.0.0.1:8420"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the tutorial uses curl")
def test_the_tutorial_works_as_written(shell: Shell):
    dev = shell.start("dev", "--port=0")
    address = re.search(r"http://[\d.:]+", dev.until("  API"))
    assert address is not None
    dev.until("ready in")
    steps = read_steps((ROOT / "docs" / "tutorial" / "http.md").read_text())
    lines = [step.text for step in steps if not step.file and step.text != DEV]
    for step in steps:
        if step.file:
            (shell.folder / step.file).write_text(step.text)
    # One shell: what a line exports is there for the next.
    script = "\n".join(f"echo; echo '# next'\n{line}" for line in lines).replace(ADDRESS, address[0])
    tools = f"{forked_programs()}:{Path(sys.executable).parent}"
    done = subprocess.run(
        ["bash", "-eu", "-c", script], cwd=shell.folder, env=shell.env | {"PATH": f"{tools}:{shell.env['PATH']}"},
        capture_output=True, text=True, check=False, timeout=2 * PATIENCE_SECONDS,
    )  # fmt: skip
    outputs = done.stdout.split("\n# next\n")[1:]
    assert done.returncode == 0, f"{lines[len(outputs) - 1]}\n{outputs[-1][-2000:]}{done.stderr[-2000:]}"
    printed = list(zip(lines, outputs, strict=True))
    first, second = [json.loads(text) for line, text in printed if "Idempotency-Key" in line]
    assert (first["job_id"], first["is_new"], second["is_new"]) == (second["job_id"], True, False)
    for line, expected in {
        "/stream": '"reason":"finished"',
        '"nam"': '"code":"inputs_invalid"',
        "greetings.py": "COMPLETED HELLO, EVE",
        "greetings_async.py": "HELLO, ZOE",
        "--wait": "HELLO, ADA",
        "jobs events": '"submitted by key:tutorial"',
    }.items():
        text = next(text for command, text in printed if line in command)
        assert expected.lower().replace(" ", "") in text.lower().replace(" ", ""), f"{line}: {text}"
    assert "dm_" not in done.stdout + done.stderr
