"""One rule for the names of queues, wherever they are written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pydantic import TypeAdapter, ValidationError

from dagmaster import (
    Task,
    compile_definition,
    compile_text,
    create_task,
    handler,
    handler_task,
    task,
    workflow,
)
from dagmaster.authoring.python.graph_collection import collect
from dagmaster.cli.commands.services import worker
from dagmaster.errors import HandlerInvalid, SettingsInvalid, WorkflowInvalid
from dagmaster.http.api.graph_bodies import TaskDefinition
from dagmaster.http.api.tasks import Queue
from dagmaster.ports.queue_names import MAX_QUEUE, QUEUE_RULE, is_queue_name
from dagmaster.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable

WRONG = [
    "a b",
    " a",
    "a\n",
    "a\tb",
    "a\x00b",
    "a\x1bb",
    "a\x85b",
    "a\u2028b",
    "a\u00a0b",
    "a,b",
    "*",
    "",
    "q" * 129,
]
RIGHT = ["light", "functionapp-tasks", "run:17", "a.b_c/d", "größe", "q" * MAX_QUEUE]


def compile_queue(queue: str) -> Any:
    text = json.dumps({"workflow_id": "w", "nodes": {"a": {"handler": "h.f", "queue": queue}}})
    return compile_text(text, allow_missing_handlers=True)


def build_queue(queue: str) -> Any:
    @workflow
    def flow():
        handler_task("h.f").with_options(queue=queue)()

    return flow.compile(allow_missing_handlers=True)


def f() -> None: ...


PLACES: dict[str, tuple[Callable[[str], Any], type[Exception]]] = {
    "handler": (lambda queue: handler("h", queue=queue), HandlerInvalid),
    "task": (lambda queue: task(queue=queue)(f), HandlerInvalid),
    "Task": (lambda queue: Task("m.f", queue=queue), HandlerInvalid),
    "graph": (lambda queue: collect(create_task("m.f", queue=queue)), HandlerInvalid),
    "file": (compile_queue, WorkflowInvalid),
    "node": (build_queue, WorkflowInvalid),
    "API": (lambda queue: TaskDefinition(handler="h.f", queue=queue), ValidationError),
    "worker": (TypeAdapter(Queue).validate_python, ValidationError),
}


def test_a_stored_definition_with_another_name_still_loads():
    graph = compile_definition(
        {"workflow_id": "w", "version": 1, "nodes": {"a": {"handler": "h", "queue": "a b"}}}
    )
    assert getattr(graph.specs["a"], "queue") == "a b"  # noqa: B009 - of a task


@pytest.mark.parametrize(("use", "kind"), PLACES.values(), ids=PLACES.keys())
def test_a_name_that_could_not_be_served_is_refused_everywhere(use, kind):
    for queue in WRONG:
        with pytest.raises(kind, match=r"queue|[sS]tring"):
            use(queue)
        assert not is_queue_name(queue)


@pytest.mark.parametrize("place", [place for place in PLACES if place != "task"])
def test_other_names_are_accepted_everywhere(place):
    for queue in RIGHT:
        PLACES[place][0](queue)
        assert is_queue_name(queue)


def test_the_error_of_a_file_has_the_rule_and_the_name():
    with pytest.raises(WorkflowInvalid) as caught:
        compile_queue("a b")
    (problem,) = caught.value.problems
    assert problem.message == f"queue is {QUEUE_RULE}, not 'a b'"
    assert problem.path == "nodes.a.queue"


def test_a_wrong_queue_in_a_fan_out_is_one_problem():
    child = {"handler": "h.f", "queue": "a b"}
    node = {"type": "fan_out", "source": [1], "task": child}
    with pytest.raises(WorkflowInvalid) as caught:
        compile_text(json.dumps({"workflow_id": "w", "nodes": {"a": node}}))
    assert [problem.path for problem in caught.value.problems] == ["nodes.a.task.queue"]


def test_the_error_of_a_task_names_it():
    with pytest.raises(
        HandlerInvalid, match=r"task load: queue is a name of at most 128 characters.*, not 'a b'"
    ):
        Task("m.load", queue="a b")


@pytest.mark.parametrize("name", ["DEFAULT_QUEUE", "PYTHON_QUEUE", "QUEUES"])
def test_a_setting_is_such_a_name(name, monkeypatch):
    monkeypatch.setenv(f"DAGMASTER_{name}", "a b")
    with pytest.raises(SettingsInvalid, match=f"DAGMASTER_{name}.*without spaces.*'a b'"):
        load_settings()
    monkeypatch.setenv("DAGMASTER_QUEUES", "light, *")
    monkeypatch.setenv(f"DAGMASTER_{name}", "light")
    load_settings()


def test_a_worker_serves_such_names_only():
    result = CliRunner().invoke(worker, ["--queue", "light", "--queue", "a b"])
    assert result.exit_code == 2
    assert "a queue is a name of at most 128 characters" in result.output
