"""The commands of the guide to tenants work as they are written, on an embedded database."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

from tests.acceptance.fork_server import ROOT, forked_programs
from tests.acceptance.test_readme import read_steps
from tests.environment import without_settings
from tests.patience import PATIENCE_SECONDS
from tests.server_folders import server_folder

if TYPE_CHECKING:
    from pathlib import Path

STEPS: Final = read_steps((ROOT / "docs" / "howto" / "tenants.md").read_text())


def test_every_command_of_the_guide_works_as_it_is_written():
    with server_folder() as folder:
        run_guide(folder)


def run_guide(folder: Path) -> None:
    env = without_settings() | {
        "PATH": f"{forked_programs()}:{os.environ['PATH']}",
        "DAGMASTER_DATA_DIR": str(folder / "data"),
    }
    printed = ""
    for step in STEPS:
        done = subprocess.run(
            ["bash", "-uc", step.text], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, f"{step.text}\n{done.stdout}{done.stderr}"
        printed += done.stdout + done.stderr
    assert "20 requests a second" in printed
    assert "disabled since" in printed
    assert "workflows  its own; of the installation: all" in printed
