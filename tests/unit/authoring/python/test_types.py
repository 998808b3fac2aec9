"""What type checkers see: `make check` runs mypy over this file, the last test pyright, and `assert_type` fails there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_type

import pytest

from dagmaster import (
    Future,
    Progress,
    ResultCollector,
    Task,
    any_of,
    create_result_collector,
    create_task,
    get_current_context,
    run,
    task,
    workflow,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Generator

ROOT = Path(__file__).parents[4]


@task
def extract(day: date) -> list[int]:
    return [day.year, day.month]


@task(retry=3, queue="light")
async def double(x: int) -> int:
    return 2 * x


@task
def steps(x: int) -> Generator[Progress, None, str]:
    yield Progress(x)
    return str(x)


@task
async def stream(x: int) -> AsyncIterator[int]:
    yield x


@task(timeout_seconds=5)
def total(values: list[int]) -> int:
    return sum(values)


@workflow
def nightly(day: Future[date]) -> Future[int]:
    rows = extract(day)
    assert_type(rows, Future[list[int]])
    doubled = double.map(rows)
    assert_type(doubled, Future[list[int]])
    one = double(doubled[0])
    assert_type(one, Future[int])
    assert_type(steps(one), Future[str])
    assert_type(double.with_options(name="again", retry=1)(one), Future[int])
    assert_type(any_of(one, total(doubled)), Future[int])
    assert_type(one.default(None), Future[int | None])
    assert_type(rows.node.status, Future[str])
    return total(doubled)


@workflow(version=2)
def weekly(day: date) -> Future[int]:
    return nightly(day)


def test_a_call_in_a_workflow_is_a_future_and_a_call_alone_is_the_value():
    assert [type(value) for value in _called_alone()] == [list, int]
    assert nightly.run(day=date(2026, 1, 1)) == 4054
    assert weekly.run(day=date(2026, 1, 1)) == 4054
    assert run(nightly, day=date(2026, 1, 1)) == 4054


def _called_alone() -> list[Any]:
    rows = extract(date(2026, 1, 1))
    assert_type(rows, list[int])
    value = total(rows)
    assert_type(value, int)
    if TYPE_CHECKING:
        _: Coroutine[Any, Any, int] = double(3)
        assert_type(double.submit(3), Future[int])
        assert_type(stream(3), AsyncIterator[int])
        assert_type(steps(3), Generator[Any, Any, str])
        assert_type(nightly.run(day=1), int)
        assert_type(run(weekly, day=1), int)
    return [rows, value]


async def adds_tasks() -> None:
    context = get_current_context()
    one = create_task("m.f")
    assert_type(await context.apply(one, at_once=True), Task)
    context.apply([one]).wait()
    assert_type(create_result_collector(context.job_id, 1), ResultCollector)


WRONG = """
from typing import assert_type
from dagmaster import Future, task

@task
def double(x: int) -> int:
    return 2 * x

def flow(x: Future[int]) -> None:
    assert_type(double(x), int)
"""


def tutorial() -> str:
    """Return the code of the tutorial but for the block that is another file."""
    text = (ROOT / "docs/tutorial/python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return "\n".join(block for block in blocks if not block.startswith("# shop.py"))


@pytest.mark.process
def test_pyright_sees_the_types_of_this_file_and_of_the_tutorial_and_finds_wrong_ones(tmp_path: Path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    (tmp_path / "tutorial.py").write_text(tutorial())
    config = tmp_path / "pyrightconfig.json"
    config.write_text(
        json.dumps(
            {
                "include": [__file__, str(tmp_path)],
                "extraPaths": [str(ROOT / "src")],
                "typeCheckingMode": "standard",
            }
        )
    )
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "-p",
        str(config),
        "--pythonpath",
        sys.executable,
        "--outputjson",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    assert answer["summary"]["filesAnalyzed"] == 3
    problems = [
        (Path(one["file"]).name, line_of(one), one["rule"])
        for one in answer["generalDiagnostics"]
        if one["severity"] == "error"
    ]
    assert sorted(problems) == [
        ("tutorial.py", "if count > 3:", "reportOperatorIssue"),
        ("wrong.py", "assert_type(double(x), int)", "reportAssertTypeFailure"),
    ]


def line_of(diagnostic: dict[str, Any]) -> str:
    """Return the text of the line that a problem is at."""
    number: int = diagnostic["range"]["start"]["line"]
    return Path(diagnostic["file"]).read_text().splitlines()[number].strip()
