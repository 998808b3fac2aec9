"""Fingerprints of functions."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster import code_fingerprint, create_task, handler_task, mock_handler, task
from dagmaster.authoring.python.graph_collection import collect
from dagmaster.sdk.code_fingerprints import entrypoint_fingerprint
from dagmaster.sdk.module_imports import import_source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ECHO = handler_task("echo")
STEPS = """
import functools
import no_such_module_of_the_submitter

import dagmaster
from dagmaster import task as node


def load(day):
    # The first of the month.
    return day

    # Not reached.


X = 1


@node(
    retry=3,
)
async def clean(rows):
    return rows


@dagmaster.task
def twice(x): return 2 * x


@functools.lru_cache
def cached(x):
    return x


def hidden(x):
    return x


hidden = cached


if X:
    def sometimes(x):
        return x
"""


def function_of(folder: Path, name: str, text: str) -> Callable[..., Any]:
    file = folder / f"{name}.py"
    file.write_text(text)
    function: Callable[..., Any] = vars(import_source(str(file), "the file"))["double"]
    return function


def test_a_fingerprint_is_that_of_the_source_text_wherever_it_is(tmp_path: Path):
    plain = function_of(tmp_path, "plain", "def double(x):\n    return 2 * x\n")
    moved = function_of(
        tmp_path, "moved", "X = 1\n\n\nif X:\n    def double(x):  \n        return 2 * x\n\n\nY = 2\n"
    )
    other = function_of(tmp_path, "other", "def double(x):\n    return x + x\n")
    assert code_fingerprint(plain) == code_fingerprint(moved) != code_fingerprint(other)
    assert len(code_fingerprint(plain)) == 16


def test_a_task_has_the_fingerprint_of_its_function():
    @task
    def double(x: int) -> int:
        return 2 * x

    assert code_fingerprint(double) == code_fingerprint(double.function) != ""


def test_a_function_without_source_has_none():
    names: dict[str, Any] = {}
    exec("def double(x): return 2 * x", names)
    assert code_fingerprint(names["double"]) == ""
    assert code_fingerprint(print) == ""


def a_package(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    """Write a package whose modules cannot be imported here; return the name of one."""
    package = folder / name / "inner"
    package.mkdir(parents=True)
    (folder / name / "__init__.py").write_text("raise RuntimeError('this package was imported')")
    (package / "__init__.py").write_text("")
    (package / "steps.py").write_text(STEPS)
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    return f"{name}.inner.steps"


@pytest.mark.parametrize("name", ["load", "clean", "twice"])
def test_the_fingerprint_of_an_entrypoint_needs_no_import_and_is_that_of_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    steps = a_package(tmp_path, monkeypatch, f"package_of_{name}")
    before = entrypoint_fingerprint(f"{steps}.{name}")
    assert not [module for module in sys.modules if module.startswith("package_of_")]
    file = tmp_path / f"worker_of_{name}.py"
    file.write_text(STEPS.replace("import no_such_module_of_the_submitter\n", ""))
    function = vars(import_source(str(file), "the file"))[name]
    assert before == code_fingerprint(function) != ""


@pytest.mark.parametrize("name", ["cached", "hidden", "sometimes", "X", "no_such_function"])
def test_an_entrypoint_whose_function_is_uncertain_has_no_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    steps = a_package(tmp_path, monkeypatch, f"uncertain_{name}")
    assert entrypoint_fingerprint(f"{steps}.{name}") == ""


@pytest.mark.parametrize("name", ["no_such_package.steps.load", "sys.exit", "echo", "os.path.join.x", "..x"])
def test_an_entrypoint_without_source_has_no_fingerprint(name: str):
    assert entrypoint_fingerprint(name) == ""


def test_a_module_that_is_no_python_has_no_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "broken_module.py").write_bytes(b"def load(:\n\xff\x00")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert entrypoint_fingerprint("broken_module.load") == ""


def test_tasks_of_a_submitter_have_the_fingerprint_of_their_function():
    name = f"{__name__}.a_package"
    tasks = [create_task(a_package, queue="q"), create_task(name, queue="q"), create_task(ECHO, queue="q")]
    definitions = [part.definition for part in collect(tasks, with_code=True).part.tasks]
    own = code_fingerprint(a_package)
    assert [definition.get("code_fingerprint") for definition in definitions] == [own, own, None]
    assert "code_fingerprint" not in collect(tasks).part.tasks[0].definition


def test_a_mock_is_no_other_version_of_a_function():
    mock = mock_handler(a_package, returns=1)
    assert code_fingerprint(mock.spec_for(None).function) == code_fingerprint(mock._answer) == ""
