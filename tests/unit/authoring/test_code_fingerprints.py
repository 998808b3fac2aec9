"""Fingerprints of functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster import code_fingerprint, task
from dagmaster.authoring.module_imports import import_source

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def function_of(folder: Path, name: str, text: str) -> Callable[..., Any]:
    file = folder / f"{name}.py"
    file.write_text(text)
    function: Callable[..., Any] = vars(import_source(str(file), "the file"))["double"]
    return function


def test_a_fingerprint_is_that_of_the_source_text_wherever_it_is(tmp_path: Path):
    plain = function_of(tmp_path, "plain", "def double(x):\n    return 2 * x\n")
    moved = function_of(tmp_path, "moved", "X = 1\n\n\nif X:\n    def double(x):  \n        return 2 * x\n\n\nY = 2\n")
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
