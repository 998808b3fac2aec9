"""Mock handlers, which stand in for a workflow's handlers.

They take some time, fail sometimes, and return an output that fits what the workflow reads of it. The
behaviour of a node is drawn from the seed and its name, so that it is the same in every schedule of that
seed.
"""

from __future__ import annotations

import asyncio
import random
import sys
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.graph_parts import GraphPart, TaskPart
from dagmaster.engine.graph import FanOutSpec, TaskSpec
from dagmaster.errors import HandlerInvalid, PermanentError
from dagmaster.ports.added_nodes import MemberKind
from dagmaster.sdk.handler_context import HandlerContext  # noqa: TC001 - read by the decorator
from dagmaster.sdk.handler_decorator import mark_task
from dagmaster.sdk.handler_registry import Registry
from dagmaster.simulation.output_inference import Shapes
from dagmaster.simulation.value_schema import Kind, Requirement, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from dagmaster.engine.graph import Graph, Spec
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.sdk.handler_decorator import HandlerSpec

ADDED: Final = "_more_"
"""In the name of a node that a mock added, after the name of its own node."""

EXHAUSTING_FAILURES: Final = 9
"""More failures than the usual retry policies allow."""


class MockHandlers:
    """A mock for each handler of some workflows. `failures` returns how often a node of a job has failed.

    In the share `failing` of the seeds a node may fail permanently; in the others its retries suffice. The
    nodes of `poison` kill their worker: `kill_host` kills the process that calls it. Those of `growing` add
    nodes to their job.
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        seed: int,
        failures: Callable[[str, str], int],
        *,
        failing: float,
        shapes: Shapes,
        poison: Collection[str] = (),
        kill_host: Callable[[], None] = lambda: None,
        growing: Collection[str] = (),
    ) -> None:
        self._seed = seed
        self._failures = failures
        self._is_failing = random.Random(f"{seed} fails").random() < failing  # noqa: S311 - to be drawn again
        self._tasks = tasks_of(graphs)
        self._shapes = shapes
        self._poison = frozenset(poison)
        self._kill_host = kill_host
        self._growing = frozenset(growing)
        names = {task.handler for task in self._tasks.values()}
        self.registry = Registry([self._mock(name) for name in sorted(names)])

    def _mock(self, name: str) -> Callable[..., Any]:
        async def mock(ctx: HandlerContext) -> Any:
            return await self._run(ctx)

        # A task, because tasks of Python workflows return any JSON value.
        mark_task(mock, name, sys._getframe(), queue="default")  # noqa: SLF001 - local names of annotations
        return mock

    async def _run(self, ctx: HandlerContext) -> JsonValue:
        rng = random.Random(f"{self._seed} {ctx.node_id}")  # noqa: S311 - to be drawn again
        static = ctx.node_id.split("__", 1)[0]
        # Added nodes are named after the node that added them.
        task = self._tasks.get(static.partition(ADDED)[0])
        seconds = rng.choice((0.0, 0.001, 0.01, 0.3, 2.0, 9.0))
        fails = rng.choice((0, 0, 0, 0, 1, 1, 2, EXHAUSTING_FAILURES))
        phases = rng.choice((0, 0, 3))
        if task is not None and not self._is_failing:
            seconds = min(seconds, task.timeout_seconds / 4)
            fails = min(fails, 2, task.retry.max_attempts - 1)
        begun = (ctx.checkpoint_data or {}).get("phase", 0)
        for phase in range(begun, phases):
            await asyncio.sleep(seconds / 3)
            ctx.checkpoint(f"phase {phase}", {"phase": phase + 1})
            ctx.progress(phase + 1, phases)
        await asyncio.sleep(seconds)
        if static in self._poison:
            self._kill_host()
            await asyncio.Event().wait()
        if static in self._growing and task is not None:
            await _add_nodes(ctx, task, at_once=rng.random() < 0.5)  # noqa: PLR2004
        if self._failures(ctx.job_id, ctx.node_id) < fails:
            if rng.random() < 0.1 and self._is_failing:  # noqa: PLR2004
                raise PermanentError("drawn to fail permanently", kind="mock")
            raise RuntimeError("drawn to fail")
        output = self._shapes.of.get(static, Shape(Requirement(kind=Kind.OBJECT))).draw(rng)
        return {**output, "node": ctx.node_id, "attempt": ctx.attempt} if isinstance(output, dict) else output


async def _add_nodes(ctx: HandlerContext, task: TaskSpec, *, at_once: bool) -> None:
    """Add a chain and a collector.

    Their names are the same in every attempt: to add them twice would fail.
    """
    retry: JsonObject = {"max_attempts": 4, "initial_delay_seconds": 0.5, "max_lost": 100}
    definition: JsonObject = {"handler": task.handler, "queue": task.queue, "retry": retry}
    # Each attempt makes its own ids.
    first = ctx.fencing_token * 10
    part = GraphPart(
        [TaskPart(first + i, "more", dict(definition), f"{ctx.node_id}{ADDED}{i}") for i in range(4)]
    )
    part.tasks[2].definition = {"type": "fan_in", "sources": [first, first + 1]}
    part.tasks[3].definition = {**definition, "params": {"results": None}}
    part.tasks[3].references = [[["results"], first + 2, ["results"]]]
    kind = MemberKind.TASK
    # The collector waits for what it collects.
    edges = ((0, 1), (2, 3))
    part.dependencies = [(kind, first + source, kind, first + target) for source, target in edges]
    if at_once:
        await asyncio.wrap_future(ctx.add_nodes_at_once(part))
    else:
        ctx.add_nodes(part)


def learn_shapes(graphs: Sequence[Graph], known: Registry | None) -> Shapes:
    """Infer what mocks return.

    `known`: the real handlers, as far as they are installed; their models are exact.
    """
    shapes = Shapes(graphs)
    for node, task in tasks_of(graphs).items():
        spec = _find(known, task.handler)
        shape = shapes.of.setdefault(node, Shape())
        if spec is None or not spec.returns_json:
            shape.require(Requirement(kind=Kind.OBJECT))
        schema = None if spec is None else _schema(spec)
        if schema is not None:
            shapes.typed(node, schema)
    return shapes


def tasks_of(graphs: Sequence[Graph]) -> dict[str, TaskSpec]:
    return {spec.id: task for graph in graphs for spec in graph.specs.values() for task in _tasks(spec)}


def _find(known: Registry | None, name: str) -> HandlerSpec | None:
    try:
        return None if known is None else known.find(name)
    except HandlerInvalid:
        # Its module cannot be imported here. It is not needed to run.
        return None


def _schema(spec: HandlerSpec) -> dict[str, Any] | None:
    model = spec.output_model
    return None if model is None else model.model_json_schema(mode="serialization")


def _tasks(spec: Spec) -> Iterator[TaskSpec]:
    if isinstance(spec, TaskSpec):
        yield spec
    elif isinstance(spec, FanOutSpec):
        yield from _tasks(spec.child)
