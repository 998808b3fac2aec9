"""The guide to callbacks works as it is written, in its order, against `dagmaster dev`; its receiver verifies what it gets."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from tests.acceptance.fork_server import ROOT
from tests.acceptance.test_readme import Shell, read_steps, shell
from tests.patience import PATIENCE_SECONDS

__all__ = ["shell"]
PORT = "9000"


def test_the_guide_works_as_written(shell: Shell):
    shutil.copytree(ROOT / "workflows", shell.folder / "workflows")
    dev = shell.start("dev", "--port=0", "--workflows=workflows")
    dev.until("ready in")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    steps = read_steps((ROOT / "docs" / "howto" / "callbacks.md").read_text())
    for step in steps:
        if step.file:
            (shell.folder / step.file).write_text(step.text.replace(PORT, port))
    lines = [step.text.replace(PORT, port) for step in steps if not step.file]
    # The receiver is asked for in the background: the next line needs it.
    listening = (
        f"until python -c \"import socket; socket.create_connection(('127.0.0.1', {port}))\" 2>&-; do :; done"
    )
    received = "until [ $(wc -l < received.txt) = 2 ]; do :; done"
    script = "trap 'kill $!' EXIT\n"
    for line in lines:
        script += f"echo; echo '# next'\n{line}\n"
        if line.endswith("&"):
            script += f"{listening}\n"
        if "--wait" in line:
            script += f"{received}\n"
    tools = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-eu", "-c", script], cwd=shell.folder, env=shell.env | {"PATH": f"{tools}:{shell.env['PATH']}"},
        capture_output=True, text=True, check=False, timeout=5 * PATIENCE_SECONDS,
    )  # fmt: skip
    outputs = done.stdout.split("\n# next\n")[1:]
    assert done.returncode == 0, f"{lines[len(outputs) - 1]}\n{outputs[-1][-2000:]}{done.stderr[-2000:]}"
    received_lines = (shell.folder / "received.txt").read_text().splitlines()
    bodies = [json.loads(line.partition(" ")[2]) for line in received_lines]
    assert [body["status"] for body in bodies[:2]] == ["running", "completed"]
    assert bodies[0].keys() == {"type", "timestamp", "job_id", "status", "error", "result_url"}
    printed = dict(zip(lines, outputs, strict=True))
    assert len(re.findall(r"msg_[0-9a-f]{32}", printed["dagmaster callbacks list"])) == 2
    assert "2 callbacks will be sent again" in done.stderr
    assert f"http://127.0.0.1:{port} is resumed" in done.stderr
