"""Workflows for tests: how they are compiled, and the handlers that they may name."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, TypedDict

import pytest
from pydantic import BaseModel, Field

from dagmaster.authoring.compiler.compile import Compiled, compile_text
from dagmaster.errors import Problem, WorkflowInvalid
from dagmaster.sdk.handler_registry import Registry, handler

if TYPE_CHECKING:
    from dagmaster.engine.graph import Graph, Spec


class Sized(TypedDict):
    size_mb: int
    path: str


class Crop(BaseModel):
    path: str
    margin: int = 0
    bbox: list[float] = Field(default=[], min_length=4)


@handler(queue="own-queue", timeout_seconds=120, retry={"max_attempts": 7})
def measure(path: str) -> Sized:
    return {"size_mb": 1, "path": path}


@handler(aliases=["trim"])
def crop(params: Crop) -> dict[str, Any]:
    return {"path": params.path}


@handler(retry="none")
def once() -> dict[str, Any]:
    return {}


@handler()
def anything(**params: Any) -> dict[str, Any]:
    return params


HANDLERS = Registry([measure, crop, once, anything])


def compile_flow(text: str, **options: Any) -> Compiled:
    """Compile a workflow, indented as in a test. Handlers are not asked unless they are given."""
    return compile_text(textwrap.dedent(text), "flow.yaml", **options)


def graph_of(text: str, **options: Any) -> Graph:
    return compile_flow(text, **options).graph


def spec_of_node(node: str, **options: Any) -> Any:
    """Compile a workflow of one node, `a`, that is written in one line."""
    return graph_of(f"{{workflow_id: w, nodes: {{a: {node}}}}}", **options).specs["a"]


def nodes_of(nodes: str, **options: Any) -> dict[str, Spec]:
    """Compile nodes; the rest of the file is there."""
    return dict(graph_of(flow(nodes), **options).specs)


def flow(nodes: str, more: str = "") -> str:
    """Write a file around nodes."""
    inside = textwrap.indent(textwrap.dedent(nodes).strip("\n"), "  ")
    return f"workflow_id: w\nnodes:\n{inside}\n{textwrap.dedent(more).strip()}\n"


def problems_of(text: str, **options: Any) -> tuple[Problem, ...]:
    with pytest.raises(WorkflowInvalid) as caught:
        compile_flow(text, **options)
    return caught.value.problems


def the_problem_of(text: str, **options: Any) -> Problem:
    (problem,) = problems_of(text, **options)
    return problem


def described(problem: Problem) -> str:
    """Return the problems of a workflow: what is wrong, where, and the remedy."""
    return f"{problem.line}:{problem.column} {problem.message} | {problem.hint}"


def messages(problems: tuple[Problem, ...]) -> list[str]:
    return [problem.message for problem in problems]


# Tasks for sketches of graphs, where only the edges matter.
TASK = "handler: work, queue: q"
