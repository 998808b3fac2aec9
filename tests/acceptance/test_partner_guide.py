"""The guide for partners works as it is written: submit, ask, receive signed callbacks, read the result."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.fork_server import ROOT, forked_programs
from tests.acceptance.test_readme import Shell, shell
from tests.patience import PATIENCE_SECONDS

__all__ = ["shell"]
GATEWAY, PORT, REQUEST = "http://127.0.0.1:8430", "8000", "0b8e6a1c-…"
READY = f"until curl -sf {GATEWAY}/readyz > ready.json; do sleep 0.1; done"
RECEIVER = "python examples/callback_receiver.py 8000"
LISTENING = (
    "until python -c \"import socket; socket.create_connection(('127.0.0.1', 8000))\" 2>&-; do :; done"
)
READ = "$(python -c \"import json; print(json.loads(open('{}').readlines()[-1])['{}'])\")"


BLOCKS = re.compile(
    r"^```json\n.*?^```|^```console\n(.*?)^```|((?:^    [^\n]+\n)+)", re.MULTILINE | re.DOTALL
)


def commands(guide: str) -> list[str]:
    """Return what a reader types: indented lines, and what follows the prompts of consoles."""
    typed: list[str] = []
    for console, indented in BLOCKS.findall(guide):
        typed += [line.removeprefix("    ") for line in indented.splitlines()]
        is_open = False
        for line in console.splitlines():
            if is_open:
                typed[-1] += f"\n{line}"
            elif line.startswith("$ "):
                typed.append(line.removeprefix("$ "))
            else:
                continue
            is_open = typed[-1].count("'") % 2 == 1
    return typed


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the guide uses curl")
def test_the_guide_works_as_written(shell: Shell):
    (shell.folder / "workflows").mkdir()
    shutil.copy(ROOT / "workflows" / "hello_world.yaml", shell.folder / "workflows")
    (shell.folder / "examples").mkdir()
    shutil.copy(ROOT / "examples" / "callback_receiver.py", shell.folder / "examples")
    dev = shell.start("dev", "--gateway", "--port=0")
    address = re.search(r"http://[\d.:]+", dev.until("  gateway       http"))
    assert address is not None
    dev.until("ready in")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    lines = commands((ROOT / "docs" / "howto" / "integrate-a-partner.md").read_text())
    assert lines[0] == "dagmaster dev --gateway"
    lines[0] = READY
    lines.remove("pip install standardwebhooks")
    at = lines.index(RECEIVER)
    lines[at : at + 1] = [f"{RECEIVER} > received.txt &", LISTENING]
    is_submit = ["/platform/submit" in line for line in lines]
    assert sum(is_submit) == 2
    for number, line in enumerate(lines):
        if is_submit[number]:
            lines[number] = f"{line} > accepted.json; cat accepted.json"
    lines = [line.replace(REQUEST, READ.format("accepted.json", "request_id")) for line in lines]
    # The receiver prints what the request became; what it names is read with the same key.
    done = f'grep "{READ.format("accepted.json", "request_id")}" received.txt | grep request.completed'
    lines += [
        f"until {done} > completed.json; do :; done",
        "cat completed.json",
        f'curl -s "{READ.format("completed.json", "result_url")}" -H "Authorization: Bearer $KEY"',
    ]
    script = "trap 'kill $!' EXIT\n" + "\n".join(f"echo; echo '# next'\n{line}" for line in lines)
    script = script.replace(GATEWAY, address[0]).replace(PORT, port)
    tools = Path(sys.executable).parent
    ran = subprocess.run(
        ["bash", "-eu", "-c", script], cwd=shell.folder, env=shell.env | {"PATH": f"{forked_programs()}:{tools}:{shell.env['PATH']}"},
        capture_output=True, text=True, check=False, timeout=3 * PATIENCE_SECONDS,
    )  # fmt: skip
    outputs = ran.stdout.split("\n# next\n")[1:]
    assert ran.returncode == 0, f"{lines[len(outputs) - 1]}\n{outputs[-1][-2000:]}{ran.stderr[-2000:]}"
    printed = dict(zip(lines, outputs, strict=True))
    status = next(json.loads(text) for line, text in printed.items() if "/platform/status/" in line)
    assert status["status"] in {"pending", "running", "completed"}
    checked = next(text for line, text in printed.items() if "partners check" in line)
    assert "failed" not in checked
    assert checked.count(" ok") >= 5
    callback, result = json.loads(printed["cat completed.json"]), json.loads(outputs[-1])
    assert (callback["type"], callback["status"]) == ("request.completed", "completed")
    assert (result["request_id"], result["status"]) == (callback["request_id"], "completed")
    assert result["result"] is not None
