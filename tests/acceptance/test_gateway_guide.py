"""The guide of the gateway works as it is written, against `dagmaster dev --gateway`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.fork_server import ROOT
from tests.acceptance.test_readme import Shell, read_steps, shell
from tests.patience import PATIENCE_SECONDS

__all__ = ["shell"]
DEV = "dagmaster dev --gateway"
ADDRESS = "http://127.0.0.1:8430"
READY = f"until curl -sf {ADDRESS}/readyz > ready.json; do sleep 0.1; done"
"""The services start together; a reader of the guide is slower."""


@pytest.mark.skipif(shutil.which("curl") is None, reason="the guide uses curl")
def test_the_guide_works_as_written(shell: Shell):
    (shell.folder / "workflows").mkdir(exist_ok=True)
    shutil.copy(ROOT / "workflows" / "hello_world.yaml", shell.folder / "workflows")
    dev = shell.start("dev", "--gateway", "--port=0")
    address = re.search(r"http://[\d.:]+", dev.until("  gateway       http"))
    assert address is not None
    dev.until("ready in")
    steps = [step.text for step in read_steps((ROOT / "docs" / "howto" / "gateway.md").read_text())]
    assert steps[0] == DEV
    lines = [READY, *(line for line in steps[1:] if line.startswith(("export", "curl", "cat accepted")))]
    assert len(lines) == 6
    script = "\n".join(f"echo; echo '# next'\n{line}" for line in lines).replace(ADDRESS, address[0])
    tools = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-eu", "-c", script], cwd=shell.folder, env=shell.env | {"PATH": f"{tools}:{shell.env['PATH']}"},
        capture_output=True, text=True, check=False, timeout=2 * PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    *_, accepted, status, batch = done.stdout.split("\n# next\n")[1:]
    request = json.loads(accepted)
    assert request.keys() == {"request_id", "workflow_id", "submitted_at", "status"}
    told = json.loads(status)
    assert (told["request_id"], told["status"] in ("pending", "running", "completed")) == (
        request["request_id"],
        True,
    )
    assert [one["status"] for one in json.loads(batch)["results"]] == ["accepted", "rejected"]


def test_the_folder_of_the_function_app_is_made_as_it_is_written(tmp_path: Path):
    steps = [step.text for step in read_steps((ROOT / "docs" / "howto" / "gateway.md").read_text())]
    lines = [line for line in steps if line.startswith(("mkdir", "cp "))]
    assert len(lines) == 4
    script = "\n".join(lines).replace("build/function-app", str(tmp_path))
    subprocess.run(["bash", "-eu", "-c", script], cwd=ROOT, check=True)
    assert {path.name for path in tmp_path.iterdir()} == {
        "function_app.py",
        "host.json",
        ".funcignore",
        "requirements.txt",
        "dagmaster",
    }
