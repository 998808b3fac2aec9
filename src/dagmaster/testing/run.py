"""Run a workflow in a test: the real engine, orchestrator and worker, without a server or waiting."""

from __future__ import annotations

import asyncio
import functools
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagmaster.authoring.compiler.compile import compile_file, compile_text
from dagmaster.authoring.python.process_functions import ProcessRegistry
from dagmaster.authoring.python.workflow_inputs import to_inputs
from dagmaster.authoring.python.workflows import DEFAULT_QUEUE, Workflow
from dagmaster.authoring.sibling_workflows import compile_with_children
from dagmaster.engine.graph import ApprovalSpec
from dagmaster.errors.suggestions import did_you_mean
from dagmaster.handlers import SHIPPED_HANDLERS
from dagmaster.local.memory_services import memory_services
from dagmaster.local.runner import LocalRunner
from dagmaster.sdk.handler_mocks import with_mocks
from dagmaster.sdk.handler_registry import Registry, discover
from dagmaster.store.memory.database import MemoryDatabase
from dagmaster.testing.clock import FakeClock
from dagmaster.testing.job_report import load_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dagmaster.engine.graph import Graph
    from dagmaster.local.runner import Answers, ApprovalRequest
    from dagmaster.ports.clock import Clock
    from dagmaster.ports.handler_services import WorkerServices
    from dagmaster.testing.job_report import JobReport

_PERSON = "tester"


def run_workflow(
    workflow: Graph | Workflow[..., Any] | pathlib.Path | str,
    inputs: Mapping[str, Any] | None = None,
    *,
    handlers: Registry | Iterable[Callable[..., Any] | pathlib.Path | str] | pathlib.Path | str = (),
    children: Sequence[Graph] = (),
    answers: Answers | Mapping[str, bool] | None = None,
    clock: Clock | None = None,
    secrets: Mapping[str, str] | None = None,
    services: WorkerServices | None = None,
) -> JobReport:
    """Run a workflow (a graph, Python code, a file, or YAML text) until it finishes, and return the report.

    `handlers` are decorated functions, and modules (`my.handlers`) and files (a path) that contain some.
    Built-in handlers and handlers of installed packages are also known; one of `handlers` replaces another of
    the same name, so a test may replace a built-in handler with a double. `children` are the workflows that
    child jobs need, for a file by default the workflows of files next to it, `secrets` the values of
    `secrets.NAME`. `answers` has True or False for each approval that is answered, such as `{"ok": True}`, or
    is an object with `async def approval(request)`; a name that is not an approval is a `ValueError`. Without
    a clock, waits and retry delays take no time. Handlers that ask for storage, a catalog or tables get them
    from `services`: see `local_services`.

    All handlers run in the process of the test, where they can be patched, debugged and measured: coroutines
    on the event loop of the run, plain functions on threads. (`dagmaster run` and workers run plain functions
    in child processes.) At its timeout a coroutine is cancelled, and an exception is raised in the thread of
    a plain function; one that blocks in a system call ends when that call returns. The attempt fails with
    `timeout` when the function has ended, and only then is it retried: two attempts never overlap. A function
    that has not ended ten seconds later is abandoned, and its failure is permanent.
    """
    registry = with_mocks(_registry(handlers).overlay(_known_handlers()))
    # The worker of this run serves every queue.
    registry.default_queue = registry.default_queue or DEFAULT_QUEUE
    if isinstance(workflow, Workflow):
        # A double of `handlers` also replaces a task.
        doubles = _registry(handlers)
        registry = with_mocks(doubles.overlay(workflow.handlers(DEFAULT_QUEUE)).overlay(_known_handlers()))
        inputs = to_inputs(inputs or {})
        workflow, *called = [member.compile(registry).graph for member in workflow.family()]
        children = [*called, *children]
    elif isinstance(workflow, pathlib.Path) and children:
        workflow = compile_file(workflow, handlers=registry).graph
    elif isinstance(workflow, pathlib.Path):
        compiled, children = compile_with_children(workflow, registry)
        workflow = compiled.graph
    elif isinstance(workflow, str):
        workflow = compile_text(workflow, handlers=registry).graph
    clock = clock or FakeClock()
    database = MemoryDatabase(clock)
    local = memory_services(
        # A running task may add tasks of functions that the workflow does not call.
        registry.overlay(ProcessRegistry(_known_handlers)),
        database=database,
        clock=clock,
        secrets=dict(secrets or {}).get,
        services=services,
    )
    runner = LocalRunner(local, answers=_read_answers(answers, [workflow, *children]), is_alone=True)
    return asyncio.run(_run(runner, database, workflow, inputs or {}, children))


async def _run(
    runner: LocalRunner,
    database: MemoryDatabase,
    graph: Graph,
    inputs: Mapping[str, Any],
    children: Sequence[Graph],
) -> JobReport:
    job_id = await runner.run(graph, inputs, children=children)
    return await load_report(database, job_id, node_order=graph.specs, note=runner.note)


@functools.cache
def _known_handlers() -> Registry:
    """Return the installed handlers. Importing them takes longer than running a small workflow."""
    return discover(SHIPPED_HANDLERS)


def _registry(
    handlers: Registry | Iterable[Callable[..., Any] | pathlib.Path | str] | pathlib.Path | str,
) -> Registry:
    if isinstance(handlers, Registry):
        return handlers
    sources = [handlers] if isinstance(handlers, pathlib.Path | str) else list(handlers)
    registry = discover(
        [str(source) for source in sources if isinstance(source, pathlib.Path | str)], entry_points=False
    )
    for source in sources:
        if not isinstance(source, pathlib.Path | str):
            registry.register(source)
    return registry


class _NodeAnswers:
    """Answers approvals by their nodes: True approves, False rejects. The person is the first approver."""

    def __init__(self, answers: Mapping[str, bool]) -> None:
        self.answers = answers

    async def approval(self, request: ApprovalRequest) -> tuple[bool, str, str] | None:
        """Return the answer of a node, or None to leave the approval open."""
        approved = self.answers.get(request.node)
        return None if approved is None else (approved, next(iter(request.approval.approvers), _PERSON), "")


def _read_answers(answers: Any, graphs: Iterable[Graph]) -> Answers | None:
    """Return what answers the approvals of these graphs.

    Raise `TypeError` if it is neither a mapping of booleans nor can answer, `ValueError` about a node that is
    no approval.
    """
    if isinstance(answers, Mapping) and all(isinstance(value, bool) for value in answers.values()):
        _check_approvals(answers, graphs)
        return _NodeAnswers(answers)
    if answers is None or callable(getattr(answers, "approval", None)):
        return answers  # type: ignore[no-any-return]
    raise TypeError(
        'answers= takes a mapping of approvals to True or False, as {"ok": True}, or an object with'
        " `async def approval(self, request)` that returns (approved, person, comment) or None, not"
        f" {answers!r:.100}"
    )


def _check_approvals(answers: Mapping[str, bool], graphs: Iterable[Graph]) -> None:
    specs = (spec for graph in graphs for spec in graph.specs.values())
    approvals = [spec.id for spec in specs if isinstance(spec, ApprovalSpec)]
    unknown = next((name for name in answers if name not in approvals), None)
    if unknown is not None:
        hint = did_you_mean(str(unknown), approvals) if approvals else "it has none"
        sentence = f"answers= has {unknown!r:.100}, and the workflow has no approval of that name"
        raise ValueError(f"{sentence}: {hint}" if hint else sentence)
