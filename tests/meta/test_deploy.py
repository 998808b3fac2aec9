"""The units of systemd are valid, and start commands that exist."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from dagmaster.cli.main import cli

UNITS = sorted((Path(__file__).parents[2] / "deploy" / "systemd").glob("*.service"))
INSTALLED = "/opt/dagmaster/bin/dagmaster"


def started(unit: Path) -> list[str]:
    """Return the arguments of the command that a unit starts."""
    (line,) = [line for line in unit.read_text().splitlines() if line.startswith("ExecStart=")]
    command, *arguments = shlex.split(line.removeprefix("ExecStart="))
    assert command == INSTALLED
    return arguments


def test_there_is_a_unit_for_each_service():
    assert [started(unit)[0] for unit in UNITS] == ["gateway", "orchestrator", "server", "worker"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_a_command_with_options_that_it_has(unit):
    name, *options = started(unit)
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    known = {option for param in command.params for option in param.opts}
    assert {option for option in options if option.startswith("-")} <= known


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_accepts_a_unit(unit, tmp_path):
    """With a command that exists here: systemd verifies that, and warns of keys that it does not know."""
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(INSTALLED, sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
