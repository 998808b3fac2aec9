"""`dagmaster.run`: a workflow of Python code in this process, in scripts, notebooks and coroutines."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

import dagmaster
from dagmaster import (
    Checkpoint,
    HandlerContext,
    JobFailed,
    Progress,
    any_of,
    approval,
    create_task,
    get_current_context,
    handler,
    handler_task,
    task,
    wait,
    workflow,
)
from dagmaster.testing import run_workflow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator
    from pathlib import Path


class Size(BaseModel):
    width: int
    height: int = 1


@dataclass
class Pair:
    left: int
    right: date


RESULTS: list[Any] = [None, True, 0, 1.5, "text", [], [1, [None]], {}, {"a": None}]


@task
def give(index: int) -> Any:
    return RESULTS[index]


@pytest.mark.parametrize("index", range(len(RESULTS)))
def test_any_json_value_is_a_result_and_reaches_the_next_task_unchanged(index):
    @task
    def describe(value: Any) -> str:
        return repr(value)

    @workflow
    def flow():
        result = give(index)
        return {"result": result, "seen": describe(result)}

    assert dagmaster.run(flow) == {"result": RESULTS[index], "seen": repr(RESULTS[index])}


def test_models_dataclasses_and_dates_are_results_and_arguments():
    @task
    def measure(size: Size, factor: int) -> Size:
        return Size(width=size.width * factor, height=size.height)

    @task
    def pair(size: Size) -> Pair:
        return Pair(size.width, date(2026, 1, 1))

    @task
    def read(pair: Pair) -> int:
        return pair.left + pair.right.year

    @workflow
    def flow():
        return read(pair(measure(Size(width=2), 3)))

    assert flow.run() == 2032


def test_a_result_that_is_not_json_fails_and_names_the_task_and_the_type():
    @task(retry="none")
    def broken() -> object:
        return object()

    @workflow
    def flow():
        return broken()

    with pytest.raises(JobFailed, match=r"flow is FAILED.*broken.*type object") as error:
        flow.run()
    assert error.value.__context__ is None


def test_async_plain_and_generator_functions_are_tasks():
    @task
    async def on_loop(x: int) -> int:
        await asyncio.sleep(0)
        return x + 1

    @task
    def on_thread(x: int) -> bool:
        return threading.current_thread() is not threading.main_thread() and x > 0

    @task
    def steps(x: int) -> Generator[Progress | Checkpoint, None, list[int]]:
        yield Progress(1, 2)
        yield Checkpoint("half", {})
        return [x]

    @task
    async def stream(x: int) -> AsyncIterator[Any]:
        yield Progress(1, 2)
        yield x * 10

    @workflow
    def flow(x: int):
        return [on_loop(x), on_thread(x), steps(x), stream(x)]

    assert flow.run(x=1) == [2, True, [1], 10]


def test_a_retried_task_and_a_tolerated_failure():
    attempts: list[int] = []

    @task(retry={"max_attempts": 3, "initial_delay_seconds": 0})
    def flaky(ctx: HandlerContext) -> int:
        attempts.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return ctx.attempt

    @task(retry="none")
    def odd(x: int) -> int:
        if x % 2:
            raise ValueError(x)
        return x

    @workflow
    def flow():
        items = odd.with_options(on_item_error="tolerate").map([0, 1, 2])
        return {"attempts": flaky(), "items": items, "failed": items.node.failed}

    result = flow.run()
    assert result["attempts"] == 3
    assert attempts == [1, 2, 3]
    assert result["items"] == [0, None, 2]
    assert [failure["index"] for failure in result["failed"]] == [1]


def test_a_failed_node_can_be_caught():
    @task(retry="none")
    def fail() -> int:
        raise ValueError("no")

    @task
    def describe(status: str, message: str, value: int | None) -> list[Any]:
        return [status, message, value]

    @workflow
    def flow():
        tried = fail.with_options(allow_failure=True).submit()
        return describe(tried.node.status, tried.node.error.message, tried.default(None))

    assert flow.run() == ["FAILED", "no", None]


def test_a_workflow_without_a_result_returns_none_and_a_failure_raises():
    @workflow
    def silent():
        give(4)

    @task(retry="none")
    def fail() -> None:
        raise ValueError("the disk is full")

    @workflow
    def failing():
        fail()

    assert silent.run() is None
    with pytest.raises(JobFailed, match="node fail failed: ValueError: the disk is full"):
        failing.run()


@task(retry="none")
def divide(x: int) -> int:
    return 1 // x


@workflow
def dividing():
    return divide(0)


@workflow
def dividing_each():
    return divide.map([1, 0])


@workflow
def dividing_in_a_child():
    return dividing()


@pytest.mark.parametrize("flow", [dividing, dividing_each, dividing_in_a_child])
def test_the_error_of_a_run_shows_the_line_of_the_function_that_failed(flow):
    with pytest.raises(JobFailed) as error:
        flow.run()
    (note,) = error.value.__notes__
    assert "in divide\n    return 1 // x" in note
    assert note.endswith("ZeroDivisionError: integer division or modulo by zero")
    traceback = run_workflow(flow).traceback
    assert traceback is not None
    assert traceback in note


def test_an_approval_that_nobody_can_give_ends_the_run():
    @workflow
    def flow():
        approval("sure?", name="sure")

    with pytest.raises(JobFailed, match=r"sure waits for an approval.*`dagmaster run --approve sure`"):
        flow.run()


def test_registered_handlers_are_called_by_name_and_return_mappings():
    @workflow
    def flow():
        return handler_task("echo")(a=1)

    assert flow.run() == {"echoed_params": {"a": 1}}


@task
def halve(x: float) -> float:
    return x / 2


def quarter(x: float) -> float:
    return x / 4


def test_a_file_runs_with_the_tasks_of_imported_modules(tmp_path: Path):
    @workflow
    def flow(x: float):
        return halve(x)

    file = tmp_path / "flow.yaml"
    file.write_text(flow.to_yaml(), encoding="utf-8")
    assert dagmaster.load_workflow(file).run(x=3) == flow.run(x=3) == 1.5
    file.write_text(flow.to_yaml().replace("result:", "half:"), encoding="utf-8")
    assert dagmaster.load_workflow(file).run(x=3) == {"half": 1.5}


def test_a_file_finds_the_workflows_of_its_child_jobs_in_its_folder(tmp_path: Path):
    @workflow
    def inner(x: float):
        return halve(x)

    @workflow
    def middle(x: float):
        return inner(x)

    @workflow
    def outer(x: float):
        return {"all": [middle(x), inner(x)]}

    for member in outer.family():
        (tmp_path / f"{member.workflow_id}.yaml").write_text(member.to_yaml(), encoding="utf-8")
    # Another file has an older version of one of them.
    old = outer.to_yaml().replace("workflow_id: outer", "workflow_id: inner")
    (tmp_path / "a_old.yaml").write_text(old.replace("nodes:", "version: 1\nnodes:", 1), encoding="utf-8")
    (tmp_path / "inner.yaml").write_text(
        inner.to_yaml().replace("nodes:", "version: 2\nnodes:", 1), encoding="utf-8"
    )
    loaded = dagmaster.load_workflow(tmp_path / "outer.yaml")
    assert loaded.run(x=3) == outer.run(x=3) == {"all": [1.5, 1.5]}

    @workflow
    def around(x: float):
        return loaded(x)

    assert around.run(x=3) == {"all": [1.5, 1.5]}
    report = run_workflow(tmp_path / "outer.yaml", {"x": 3}, handlers=[halve])
    assert report.result == {"all": [1.5, 1.5]}


def test_files_that_run_each_other_are_loaded_once(tmp_path: Path):
    for name, other in (("first", "second"), ("second", "first")):
        nodes = f"{{own: {{type: workflow, workflow_id: {name}}}, other: {{type: workflow, workflow_id: {other}}}}}"
        (tmp_path / f"{name}.yaml").write_text(f"{{workflow_id: {name}, nodes: {nodes}}}", encoding="utf-8")
    family = dagmaster.load_workflow(tmp_path / "first.yaml").family()
    assert [member.workflow_id for member in family] == ["first", "second"]


@pytest.mark.parametrize("name", [f"{__name__}.quarter", "os.getcwd", "not_imported.at_all"])
def test_a_file_cannot_name_a_function_that_is_no_task_and_the_hint_says_what_to_do(
    name: str, tmp_path: Path
):
    file = tmp_path / "flow.yaml"
    file.write_text(f"{{name: flow, nodes: {{a: {{handler: {name}, queue: light}}}}}}", encoding="utf-8")
    with pytest.raises(
        dagmaster.WorkflowInvalid, match=r"(?s)unknown handler.*import the module.*DAGMASTER_HANDLERS"
    ):
        dagmaster.load_workflow(file).run()


ADDED: list[int] = []


@task
def leaf(x: int) -> None:
    ADDED.append(x)


@task
def grow(x: int, *, by_name: bool) -> int:
    get_current_context().apply(create_task(f"{__name__}.leaf" if by_name else leaf, {"x": x}))
    return x


@pytest.mark.parametrize("by_name", [False, True])
def test_a_running_task_adds_tasks_of_a_function_that_the_workflow_does_not_call(by_name: bool):
    @workflow
    def growing(n: int):
        return grow(n, by_name=by_name)

    ADDED.clear()
    assert growing.run(n=1) == 1
    assert run_workflow(growing, {"n": 2}).status == "COMPLETED"
    assert ADDED == [1, 2]


def test_run_works_inside_a_running_loop_and_has_an_async_twin():
    @workflow
    def flow():
        return any_of(give.submit(2), give.submit(4))

    async def main() -> list[Any]:
        return [dagmaster.run(flow), flow.run(), await dagmaster.run_async(flow), await flow.run_async()]

    assert asyncio.run(main()) == [0, 0, 0, 0]


def test_a_test_replaces_a_task_by_a_double_and_needs_no_time():
    @task
    def fetch(name: str) -> str:
        raise ValueError(f"no network: {name}")

    @workflow
    def flow(name: str):
        return fetch.submit(name).after(wait(seconds=3600))

    @handler(fetch.handler)
    def double(name: str) -> dict[str, str]:
        return {"name": name}

    report = run_workflow(flow, {"name": "x"}, handlers=[double])
    assert (report.status, report.result) == ("COMPLETED", {"result": {"name": "x"}})


SCRIPT = """
from dagmaster import task, workflow

@task
def add(x: int, y: int) -> int:
    return x + y

@workflow
def flow(x: int):
    return add(x, 2)

if __name__ == "__main__":
    print(add.handler, flow.run(x=3))
"""


@pytest.mark.process
def test_functions_of_a_script_work_under_the_name_of_its_file(tmp_path: Path):
    script = tmp_path / "my-script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["my_script.add", "5"]


@pytest.mark.process
def test_functions_of_a_notebook_work_without_a_file():
    code = SCRIPT.replace('if __name__ == "__main__":\n    print', "print")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["__main__.add", "5"]
