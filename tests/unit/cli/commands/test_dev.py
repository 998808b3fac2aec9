"""`dagmaster dev` before it starts anything: what was meant, and what to type."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from click.testing import CliRunner

from dagmaster.cli.commands.dev import (
    MAX_NAMES,
    compile_folder,
    describe_missing_workflows,
    dev,
    gateway_environment,
)
from dagmaster.sdk.handler_registry import Registry

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_port_that_was_asked_for_and_is_taken_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = CliRunner().invoke(dev, ["--port", str(port)])
    assert done.exit_code == 1
    assert f"port {port} is taken by another program: stop it, or choose another one" in done.output
    assert "dagmaster dev --port 0" in done.output


def test_a_folder_without_workflow_files_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "flows"
    assert f"there is no folder {folder} here" in describe_missing_workflows(folder)
    folder.mkdir()
    text = describe_missing_workflows(folder)
    assert f"no workflow file (*.yaml, *.yml) in {folder}" in text
    assert "dagmaster workflows push FILE.yaml" in text
    (folder / "nightly.py").touch()
    assert f"dagmaster dev {folder}/nightly.py" in describe_missing_workflows(folder)


def test_a_folder_of_invalid_files_names_them(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("nodes: [")
    assert compile_folder(tmp_path, Registry([])) == []
    text = describe_missing_workflows(tmp_path)
    assert text.startswith(
        f"none: 1 file is invalid in {tmp_path}: a.yaml. Correct the problems above, then: "
    )
    assert text.endswith(f"dagmaster workflows push {tmp_path}/a.yaml")
    for number in range(MAX_NAMES):
        (tmp_path / f"b{number}.yml").write_text("nodes: [")
    text = describe_missing_workflows(tmp_path)
    assert f"all {MAX_NAMES + 1} files are invalid in {tmp_path}: a.yaml, b0.yml" in text
    assert " and 1 more. Correct" in text
    assert "no workflow file" not in text


def test_callbacks_lead_to_the_gateway_of_dev_unless_a_setting_names_another():
    assert gateway_environment(None, 8431) == {"DAGMASTER_GATEWAY_URL": "http://127.0.0.1:8431"}
    assert gateway_environment("https://partners.example.com", 8431) == {}
    assert gateway_environment(None, None) == {}
