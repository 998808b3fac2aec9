"""The help texts have examples, and are fast."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from dagmaster.cli.commands.jobs import jobs
from dagmaster.cli.commands.workflows import workflows
from dagmaster.cli.options import inputs_remedy, read_json_file
from dagmaster.errors import InputsInvalid, Problem

COMMANDS = [(jobs, name) for name in jobs.lazy] + [(workflows, name) for name in workflows.lazy]


@pytest.mark.parametrize(
    ("group", "name"), COMMANDS, ids=[f"{group.name} {name}" for group, name in COMMANDS]
)
def test_every_command_has_an_example(group, name):
    command = group.get_command(click.Context(group), name)
    assert command is not None
    done = CliRunner().invoke(group, [name, "--help"])
    assert done.exit_code == 0
    assert f"dagmaster {group.name} {name}" in done.output
    assert "--data-dir" in done.output


def test_an_invalid_time_is_reported():
    done = CliRunner().invoke(jobs, ["list", "--since", "soon"])
    assert done.exit_code == 2
    assert "'soon' is not a time: write a span before now (90s, 15m, 2h, 1d, 1w)" in " ".join(
        done.output.split()
    )


def test_two_output_formats_are_rejected():
    assert (
        "--json and --yaml exclude each other"
        in CliRunner().invoke(workflows, ["show", "x", "--json", "--yaml"]).output
    )


@pytest.mark.process
def test_the_help_of_jobs_imports_neither_a_driver_nor_the_compiler():
    code = "import sys; from dagmaster.cli.main import cli; cli.main(['jobs', '--help'], standalone_mode=False); print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"asyncpg", "rich.console", "pydantic", "jinja2", "asyncio"} & set(modules)


@pytest.mark.process
@pytest.mark.parametrize("arguments", [["handlers", "list"], ["workflows", "schema"]])
def test_a_closed_pipe_is_not_an_error(arguments):
    """As in `dagmaster … | head`."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        command = [sys.executable, "-m", "dagmaster", *arguments]
        done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writes)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_sentences_in_a_list_of_commands_are_not_truncated():
    assert "..." not in CliRunner().invoke(workflows, ["--help"]).output.partition("Commands")[2]


def test_an_invalid_file_of_inputs_is_named_once(tmp_path):
    file = tmp_path / "my.py"
    file.write_text("print(1)")
    with pytest.raises(click.ClickException, match=r"my\.py is not JSON: "):
        read_json_file(file)
    with pytest.raises(click.ClickException) as caught:
        read_json_file(tmp_path / "nosuch.json")
    assert caught.value.message == f"{tmp_path / 'nosuch.json'}: No such file or directory"


@pytest.mark.parametrize(
    ("message", "remedy"),
    [("missing input 'x'", "give inputs as -i"), ("`x` is no number", "the inputs are not valid")],
)
def test_the_remedy_for_a_missing_input_names_the_option(message, remedy):
    assert inputs_remedy(InputsInvalid([Problem(message=message)])).startswith(remedy)
