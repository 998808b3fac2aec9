"""Tasks for tests of graphs in Python, and the problems of a workflow as text."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster import WorkflowInvalid, task

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster import Problem, Workflow


@task(queue="light", retry=5)
async def double(x: int) -> int:
    return 2 * x


@task
def extract(day: date, count: int = 3) -> list[int]:
    assert type(day) is date
    return list(range(count))


@task
def total(values: list[int], note: str = "") -> dict[str, Any]:
    return {"sum": sum(values), "note": note}


@task
def echo(value: Any) -> Any:
    return value


def nodes_of(workflow: Workflow[..., Any]) -> dict[str, Any]:
    """Return the nodes of the document, which compiles."""
    workflow.compile(allow_missing_handlers=True)
    nodes: dict[str, Any] = workflow.document.data["nodes"]
    return nodes


def problem_of(workflow: Workflow[..., Any] | Callable[[], object]) -> Problem:
    """Return the one problem of a workflow."""
    with pytest.raises(WorkflowInvalid) as caught:
        workflow.compile() if hasattr(workflow, "compile") else workflow()
    (problem,) = caught.value.problems
    return problem
