"""Workflows of Python files and modules: what they may import, and how a failed import is reported."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from dagmaster import WorkflowInvalid, load_workflow
from dagmaster.authoring.python.workflow_files import file_of, handler_sources, load_workflows, task_modules
from dagmaster.sdk.handler_registry import discover

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TASKS = """
from dagmaster import task
@task(queue="light")
def inc(x: int) -> int:
    return x + STEP
STEP = 1
"""
FLOW = """
from dagmaster import workflow
from {tasks} import inc
@workflow
def flow(n: int = 1):
    return inc(n)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide a folder that is neither the working directory nor on the path; undo what is imported from it."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and file.startswith(str(tmp_path)):
            del sys.modules[name]


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")


def test_a_file_runs_tasks_of_a_module_in_its_folder(folder: Path):
    write(folder, beside=TASKS, flow=FLOW.format(tasks="beside"))
    assert load_workflow(folder / "flow.py").run(n=2) == 3
    assert task_modules(folder / "flow.py") == ("beside",)


def test_workers_get_the_file_whose_folder_has_the_modules_of_its_tasks(folder: Path):
    write(
        folder,
        beside=TASKS,
        flow=FLOW.format(tasks="beside").replace("from beside import inc", "import beside"),
    )
    (folder / "flow.py").write_text((folder / "flow.py").read_text().replace("inc(n)", "beside.inc(n)"))
    sources = handler_sources(folder / "flow.py")
    assert sources == (str(folder / "flow.py"), "beside")
    assert "beside.inc" in discover(sources, entry_points=False)


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")])
def test_two_files_that_import_each_other_have_the_same_tasks(folder: Path, order: tuple[str, str]):
    write(folder, first=TASKS, second=FLOW.format(tasks="first"))
    registry = discover([str(folder / f"{name}.py") for name in order], entry_points=False)
    assert [spec.name for spec in registry] == ["first.inc"]


def test_a_file_does_not_replace_a_module_of_the_same_name(folder: Path):
    write(folder, json=TASKS)
    import json

    assert "json.inc" in discover([str(folder / "json.py")], entry_points=False)
    assert sys.modules["json"] is json


def test_a_failed_import_is_reported_with_its_reason_and_line(folder: Path):
    write(folder, flow="import sys\n\nimport nowhere_at_all\n")
    with pytest.raises(WorkflowInvalid, match=r"No module named 'nowhere_at_all'.*install") as caught:
        load_workflows(folder / "flow.py")
    (problem,) = caught.value.problems
    assert (problem.line, problem.text) == (3, "import nowhere_at_all")
    assert "flow" not in sys.modules


def test_a_syntax_error_is_reported_with_its_line(folder: Path):
    write(folder, flow="x = 1\ndef f(:\n")
    with pytest.raises(WorkflowInvalid, match="SyntaxError") as caught:
        load_workflows(folder / "flow.py")
    assert caught.value.problems[0].line == 2


def test_a_relative_import_is_answered_with_what_to_write(folder: Path):
    (folder / "pack").mkdir()
    write(folder / "pack", __init__="", beside=TASKS, flow=FLOW.format(tasks=".beside"))
    with pytest.raises(
        WorkflowInvalid, match=r"without the dot, or name the module pack\.flow instead of the file"
    ):
        load_workflow(folder / "pack" / "flow.py")
    write(folder, alone="from .beside import inc")
    with pytest.raises(WorkflowInvalid, match=r"write the import without the dot\)"):
        load_workflow(folder / "alone.py")


def test_a_workflow_of_a_module_is_named_with_a_colon(folder: Path, monkeypatch: pytest.MonkeyPatch):
    (folder / "pack").mkdir()
    write(folder / "pack", __init__="", beside=TASKS, flow=FLOW.format(tasks=".beside"))
    monkeypatch.chdir(folder)
    assert load_workflow("pack.flow:flow").run(n=4) == 5
    assert task_modules("pack.flow:flow") == ("pack.beside",)
    assert file_of("pack.flow:flow") == folder / "pack" / "flow.py"
    with pytest.raises(WorkflowInvalid, match="the module has no workflow 'other'"):
        load_workflow("pack.flow:other")
    with pytest.raises(WorkflowInvalid, match=r"'pack\.nowhere' cannot be imported"):
        load_workflow("pack.nowhere:flow")
