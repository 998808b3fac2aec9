"""Handlers that do nothing, for workflows whose own are not to run.

They take a while, fail at times, and give something that fits what the workflow reads of them. What a node does is
drawn from the seed and its name, so that it does the same in every schedule of that seed.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.handlers import Registry, handler
from dagmaster.engine.graph import ConditionalSpec, FanOutSpec, TaskSpec, WaitSpec, WorkflowSpec
from dagmaster.errors import PermanentError
from dagmaster.ports.handler import HandlerContext  # noqa: TC001 - read by the decorator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dagmaster.engine.graph import Graph, Spec
    from dagmaster.engine.templates import Template

ITEMS: Final = 4


class MockHandlers:
    """A mock for each handler of some workflows. `failures` tells how often a node of a job failed already."""

    def __init__(self, graphs: Sequence[Graph], seed: int, failures: Callable[[str, str], int]) -> None:
        self._seed = seed
        self._failures = failures
        self._shapes: dict[str, dict[str | int, Any]] = {}
        names: set[str] = set()
        for graph in graphs:
            names.update(task.handler for spec in graph.specs.values() for task in _tasks(spec))
            self._shape(graph)
        self.registry = Registry([self._mock(name) for name in sorted(names)])

    def _mock(self, name: str) -> Callable[..., Any]:
        async def mock(ctx: HandlerContext) -> dict[str, Any]:
            return await self._run(ctx)

        return handler(name, queue="default")(mock)

    async def _run(self, ctx: HandlerContext) -> dict[str, Any]:
        chance = random.Random(f"{self._seed} {ctx.node_id}")  # noqa: S311 - to be drawn again
        seconds = chance.choice((0.0, 0.001, 0.01, 0.3, 2.0, 9.0))
        fails = chance.choice((0, 0, 0, 0, 1, 1, 2, 9))
        phases = chance.choice((0, 0, 3))
        begun = (ctx.checkpoint_data or {}).get("phase", 0)
        for phase in range(begun, phases):
            await asyncio.sleep(seconds / 3)
            ctx.checkpoint(f"phase {phase}", {"phase": phase + 1})
            ctx.progress(phase + 1, phases)
        await asyncio.sleep(seconds)
        if self._failures(ctx.job_id, ctx.node_id) < fails:
            if chance.random() < 0.1:  # noqa: PLR2004
                raise PermanentError("drawn to fail for good", kind="mock")
            raise RuntimeError("drawn to fail")
        static = ctx.node_id.split("__", 1)[0]
        return {**_values(self._shapes.get(static, {}), chance), "node": ctx.node_id, "attempt": ctx.attempt}

    def _shape(self, graph: Graph) -> None:
        """Of each node, the paths that others read of its output. What a fan-out is made of is a list."""
        for spec in graph.specs.values():
            for template in _templates(spec):
                is_list = isinstance(spec, FanOutSpec) and template is spec.source
                for _, use in template.uses:
                    self._use(use.keys, is_list=is_list)
            if isinstance(spec, ConditionalSpec):
                for branch in spec.branches:
                    for use in () if branch.condition is None else branch.condition.uses:
                        self._use(use.keys, is_list=False)
        for _, use in () if graph.outputs is None else graph.outputs.uses:
            self._use(use.keys, is_list=False)

    def _use(self, path: Sequence[str | int], *, is_list: bool) -> None:
        match list(path):
            case ["nodes", str(node), "output", *keys] if keys:
                place: dict[str | int, Any] = self._shapes.setdefault(node, {})
                for key in keys[:-1]:
                    inner: Any = place.setdefault(key, {})
                    if not isinstance(inner, dict):
                        return
                    place = inner
                if is_list or keys[-1] not in place:
                    place[keys[-1]] = list if is_list else None


def _values(shape: dict[str | int, Any], chance: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, inner in shape.items():
        if isinstance(inner, dict):
            found[str(key)] = _values(inner, chance)
        elif inner is list:
            found[str(key)] = list(range(chance.randint(0, ITEMS)))
        else:
            found[str(key)] = chance.choice((0, 1, 50, 150, 1000))
    return found


def _tasks(spec: Spec) -> Iterator[TaskSpec]:
    if isinstance(spec, TaskSpec):
        yield spec
    elif isinstance(spec, FanOutSpec):
        yield from _tasks(spec.child)


def _templates(spec: Spec) -> Iterator[Template]:
    match spec:
        case TaskSpec():
            yield spec.params
        case FanOutSpec():
            yield spec.source
            yield from _templates(spec.child)
        case WorkflowSpec():
            yield spec.inputs
        case WaitSpec():
            yield from (each for each in (spec.seconds, spec.until) if each is not None)
        case ConditionalSpec():
            yield from (each for each in (spec.condition_field,) if each is not None)
        case _:
            return
