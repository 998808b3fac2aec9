"""Arguments of tasks in code: what a function does not take is reported where the task is applied."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import BaseModel, Field

from dagmaster import HandlerContext, create_task, mock_handler, task
from dagmaster.authoring.entrypoint_arguments import argument_problem
from dagmaster.authoring.python.graph_collection import collect
from dagmaster.errors import NodesRejected

if TYPE_CHECKING:
    from pathlib import Path

LATER = """
from dagmaster import HandlerContext, task
import a_module_that_is_not_there


async def load(day: str, count=2, *, ctx: HandlerContext, deep: bool): ...


def anything(first, **rest): ...


@task(retry=2)
def decorated(x: int = 0): ...


@a_module_that_is_not_there.wraps
def wrapped(x): ...


def renamed(x: "Annotated[int, Field(alias='y')]"): ...


def unannotated(ctx, x): ...


def aliased(c: Ctx, x): ...
"""


class Box(BaseModel):
    west: float


def plain(day: str, count: int = 1) -> None: ...


async def open_ended(first: int, **rest: Any) -> None: ...


@task(retry=2)
def decorated(ctx: HandlerContext, box: Box, size: Annotated[int, Field(alias="pixels")] = 1) -> None: ...


def apply(entrypoint: Any, **kwargs: Any) -> None:
    collect(create_task(entrypoint, kwargs), default_queue="q")


@pytest.mark.parametrize(
    ("function", "kwargs", "problem"),
    [
        (plain, {"dya": "x"}, "no parameter 'dya' (did you mean 'day'?)"),
        (plain, {"count": 1}, "the argument 'day' is missing"),
        (plain, {"day": "x", "count": 2}, ""),
        (open_ended, {"first": 1, "other": 2}, ""),
        (open_ended, {"other": 2}, "the argument 'first' is missing"),
        (decorated, {"box": {"west": 1}, "pixels": 3}, ""),
        (decorated, {"box": {"west": 1}, "ctx": 3}, "no parameter 'ctx'"),
        (decorated, {"pixels": 3}, "the argument 'box' is missing"),
    ],
)
@pytest.mark.parametrize("is_named", [True, False])
def test_a_function_that_is_here_is_compared(function, kwargs, problem, is_named):
    entrypoint = f"{__name__}.{function.__name__}" if is_named else function
    if not problem:
        apply(entrypoint, **kwargs)
        return
    with pytest.raises(NodesRejected) as error:
        apply(entrypoint, **kwargs)
    assert problem in str(error.value)
    assert str(error.value).startswith(f"task {function.__name__} ({__name__}.{function.__name__}): ")


@pytest.mark.parametrize(
    ("name", "kwargs", "problem"),
    [
        ("load", {"day": "x", "deep": True}, ""),
        ("load", {"day": "x"}, "the argument 'deep' is missing"),
        ("load", {"day": "x", "deep": True, "ctx": 1}, "no parameter 'ctx'"),
        ("anything", {"first": 1, "more": 2}, ""),
        ("anything", {}, "the argument 'first' is missing"),
        ("decorated", {"y": 1}, "no parameter 'y' (one of: x)"),
        # What it takes is not certain: the worker checks.
        ("wrapped", {"y": 1}, ""),
        ("renamed", {"y": 1}, ""),
        ("aliased", {"x": 1}, ""),
        ("unannotated", {"x": 1}, ""),
        ("unannotated", {"y": 1}, "no parameter 'y' (one of: x)"),
        ("missing", {"y": 1}, ""),
    ],
)
def test_a_function_whose_source_is_here_is_compared_without_an_import(
    name, kwargs, problem, tmp_path: Path, monkeypatch
):
    (tmp_path / "arguments_later.py").write_text(LATER)
    monkeypatch.syspath_prepend(str(tmp_path))
    if problem:
        with pytest.raises(NodesRejected) as error:
            apply(f"arguments_later.{name}", **kwargs)
        assert problem in str(error.value)
    else:
        apply(f"arguments_later.{name}", **kwargs)
    assert "arguments_later" not in sys.modules


def test_a_source_that_was_edited_is_read_again_before_a_task_is_rejected(tmp_path: Path, monkeypatch):
    file = tmp_path / "edited_later.py"
    file.write_text("def load(day): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    apply("edited_later.load", day=1)
    file.write_text("def load(day, hour): ...\n")
    apply("edited_later.load", day=1, hour=2)


@pytest.mark.parametrize("function", [math.hypot, max])
def test_a_function_without_a_signature_is_left_to_the_worker(function):
    assert argument_problem(function, "math.hypot", ["x"]) == ""


def test_kwargs_that_cannot_be_written_as_json_name_their_task():
    with pytest.raises(NodesRejected, match=r"task plain .*not JSON"):
        apply(plain, day=10**5000)


def test_a_mock_takes_what_the_test_gives():
    with mock_handler(f"{__name__}.plain", returns={}):
        apply(f"{__name__}.plain", other=1)


def test_each_set_of_arguments_is_compared():
    tasks = [create_task(plain, {"day": str(number)}) for number in range(10)]
    with pytest.raises(NodesRejected, match="'hour'"):
        collect([*tasks, create_task(plain, {"day": "x", "hour": 1})], default_queue="q")
