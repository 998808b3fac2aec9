"""Run a workflow in a test: real engine, real handlers, no server, and time that does not have to pass."""

from __future__ import annotations

import asyncio
import pathlib
from typing import TYPE_CHECKING, Any

from dagmaster.authoring.compiler.compile import compile_file, compile_text
from dagmaster.authoring.handler_registry import Registry, discover
from dagmaster.handlers import SHIPPED_HANDLERS
from dagmaster.local.runner import Answers, InProcessRunner
from dagmaster.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dagmaster.engine.graph import Graph
    from dagmaster.ports.clock import Clock
    from dagmaster.ports.handler_services import Services
    from dagmaster.ports.job_records import JobReport


def run_workflow(
    workflow: Graph | pathlib.Path | str,
    inputs: Mapping[str, Any] | None = None,
    *,
    handlers: Registry | Iterable[Callable[..., Any] | pathlib.Path | str] | pathlib.Path | str = (),
    answers: Answers | None = None,
    clock: Clock | None = None,
    services: Services | None = None,
) -> JobReport:
    """Run a workflow (a graph, a file, or YAML text) to its end and give the report.

    Handlers are decorated functions, and modules (`my.handlers`) and files (a path) that have some. Those that ship,
    and those of installed packages, are known beside them; of two with one name the given one is meant, so a test may
    put a double in the place of a handler that ships. Without a clock, waits and retry delays pass at once. Handlers
    that ask for storage, a catalog or tables get those of `services`: see `local_services`.
    """
    registry = _registry(handlers).overlay(discover(SHIPPED_HANDLERS))
    if isinstance(workflow, pathlib.Path):
        workflow = compile_file(workflow, handlers=registry).graph
    elif isinstance(workflow, str):
        workflow = compile_text(workflow, handlers=registry).graph
    process = InProcessRunner(registry, answers=answers, clock=clock or FakeClock(), services=services, alone=True)
    return asyncio.run(process.run(workflow, inputs or {}))


def _registry(handlers: Registry | Iterable[Callable[..., Any] | pathlib.Path | str] | pathlib.Path | str) -> Registry:
    if isinstance(handlers, Registry):
        return handlers
    given = [handlers] if isinstance(handlers, pathlib.Path | str) else list(handlers)
    registry = discover([str(one) for one in given if isinstance(one, pathlib.Path | str)], entry_points=False)
    for one in given:
        if not isinstance(one, pathlib.Path | str):
            registry.register(one)
    return registry
