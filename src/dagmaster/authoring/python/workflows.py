"""`@workflow`: a function that is called once to build a graph.

Its parameters are the inputs of a job, the calls in it are nodes, and what it returns is the result. The
document is the one that YAML writes, and it is compiled by the same compiler.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, overload

import dagmaster
from dagmaster.authoring.python.document_writer import DocumentWriter, PythonDocument
from dagmaster.authoring.python.graph_export import write_nodes
from dagmaster.authoring.python.graph_nodes import OTHER_THREADS, GraphBuilder, Node, require_builder
from dagmaster.authoring.python.places import calling_place, place_of, place_of_input, place_of_output, reject
from dagmaster.authoring.python.tasks import TaskFunction
from dagmaster.authoring.python.workflow_inputs import read_inputs
from dagmaster.authoring.yaml.writer import write_yaml
from dagmaster.errors.suggestions import did_you_mean
from dagmaster.sdk.handler_decorator import entrypoint_spec, local_names_of
from dagmaster.sdk.handler_registry import HandlerSpec, Registry
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Literal, Self

    from dagmaster.authoring.compiler.compile import Compiled
    from dagmaster.authoring.python.futures import Dependency, Future
    from dagmaster.authoring.python.places import Place
    from dagmaster.authoring.source_document import Document
    from dagmaster.sdk.handler_catalog import HandlerCatalog

P = ParamSpec("P")
R = TypeVar("R")

RESULT: Final = "result"
"""The key of the job's result for a workflow that returns one value and not a mapping."""

DEFAULT_QUEUE: Final = "default"
"""The queue of tasks that name none, where it does not matter: in one process, and in a diagram."""


class Workflow(Generic[P, R]):
    """A workflow in Python: a decorated function, or a loaded file."""

    __dagmaster_workflow__ = True

    def __init__(
        self,
        workflow_id: str,
        build: Callable[[Workflow[Any, Any]], Document],
        *,
        returns_mapping: bool | None = None,
    ) -> None:
        self.workflow_id = self.__name__ = workflow_id
        self.tasks: dict[str, TaskFunction[Any, Any, Any] | HandlerSpec] = {}
        self.children: dict[str, Workflow[Any, Any]] = {}
        self._build = build
        self._is_building = False
        self.options: Mapping[str, Any] = {}
        # Whether the result is a mapping of outputs, or one value; None: no result.
        self.returns_mapping = returns_mapping

    @classmethod
    def from_tasks(
        cls, workflow_id: str, items: Any, *, version: int = 1, description: str = ""
    ) -> Workflow[[], Any]:
        """Return a workflow of tasks and groups that code has connected, to export, publish or run it.

        It has the nodes of `create_job(workflow_id, items)`: everything that the items are connected to with
        `>>`, and what they take as arguments; name a task that takes one of them itself. Its result is that
        of the tasks in it that nothing waits for; tasks that running ones add are part of the result of a job
        of `create_job` only. A function that is named by text is run if its module is imported.
        """
        frame = sys._getframe(1)  # noqa: SLF001 - the module that the workflow belongs to
        head = {
            "workflow_id": workflow_id,
            "version": version if version != 1 else None,
            "description": description,
        }
        kept = {key: value for key, value in head.items() if value not in (None, "")}
        place = calling_place()
        made = cls(workflow_id, lambda target: _write_items(target, kept, items, place), returns_mapping=True)
        made.__module__ = frame.f_globals["__name__"]
        return made  # type: ignore[return-value]

    @functools.cached_property
    def document(self) -> Document:
        """Return the source document. The function is called once."""
        if self._is_building:
            hint = (
                f"run it by its id: child_workflow({self.workflow_id!r}, …); child jobs nest at most 8 deep"
            )
            raise reject(f"the workflow {self.workflow_id} calls itself", hint)
        self._is_building = True
        try:
            return self._build(self)
        finally:
            self._is_building = False

    def compile(
        self, handlers: HandlerCatalog | None = None, *, allow_missing_handlers: bool = False
    ) -> Compiled:
        """Compile the graph, by default with its own tasks; raise `WorkflowInvalid` with every problem."""
        # Here: a worker that imports the module of a workflow never compiles it.
        from dagmaster.authoring.compiler.compile import compile_document
        from dagmaster.authoring.python.child_inputs import check_child_inputs

        compiled = compile_document(
            self.document,
            handlers=self.handlers(DEFAULT_QUEUE) if handlers is None else handlers,
            allow_missing_handlers=allow_missing_handlers,
        )
        check_child_inputs(self.document, {key: child.document for key, child in self.children.items()})
        return compiled

    def handlers(self, default_queue: str | None = None) -> Registry:
        """Return the tasks of this workflow and of its children as handlers."""
        return Registry(
            [task for one in self.family() for task in one.tasks.values()], default_queue=default_queue
        )

    def family(self) -> list[Workflow[Any, Any]]:
        """Return this workflow and those that it calls, at any depth."""
        members: dict[str, Workflow[Any, Any]] = {}
        pending: list[Workflow[Any, Any]] = [self]
        while pending:
            one = pending.pop()
            known = members.setdefault(one.workflow_id, one)
            if known is one:
                _ = one.document
                pending += one.children.values()
            one._check_same(known)  # noqa: SLF001 - of this class
        return list(members.values())

    def _check_same(self, other: Workflow[Any, Any]) -> None:
        """Raise if another workflow has the same id."""
        if other._build is not self._build:
            hint = "give one of them another id: @workflow(workflow_id=…)"
            raise reject(f"two workflows have the id {self.workflow_id!r}", hint)

    def to_yaml(self) -> str:
        """Return the workflow as the text of a workflow file."""
        return write_yaml(self.document.data)

    def run(self, **inputs: Any) -> R:
        """Run a job in this process until it has finished, and return its result: see `dagmaster.run`."""
        result: R = dagmaster.run(self, **inputs)
        return result

    async def run_async(self, **inputs: Any) -> R:
        """Run a job as `run` does, on the running loop."""
        result: R = await dagmaster.run_async(self, **inputs)
        return result

    def _repr_svg_(self) -> str:
        from dagmaster.authoring.diagram.diagram import svg

        return svg(self.compile(allow_missing_handlers=True).graph)

    def __repr__(self) -> str:
        return f"<Workflow {self.workflow_id}>"

    # ── In another workflow ──

    def __call__(self, *args: Any, **inputs: Any) -> Future[R]:
        """Run the workflow as a child job of the workflow that calls it."""
        builder = require_builder(
            f"a call of the workflow {self.workflow_id}; run it with {self.workflow_id}.run(): it"
        )
        return self._unwrap(
            builder.add("workflow", self.workflow_id, self._keys(args, inputs), **self._node_options())
        )

    def with_options(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        depends_on: Dependency | list[Dependency] | None = None,
        version: int | None = None,
    ) -> Self:
        """Return the workflow with these keys for the nodes that call it."""
        options = {key: value for key, value in locals().items() if key != "self" and value is not None}
        changed = copy.copy(self)
        changed.options = {**self.options, **options}
        return changed

    def _keys(self, args: tuple[Any, ...], inputs: dict[str, Any]) -> dict[str, Any]:
        names = list(self.document.data.get("inputs", {}))
        if len(args) > len(names):
            raise reject(f"{self.workflow_id} has {format_count(len(names), 'input')}, and gets {len(args)}")
        unknown = [name for name in inputs if name not in names]
        if unknown:
            raise reject(f"{self.workflow_id} has no input {unknown[0]!r}", did_you_mean(unknown[0], names))
        values = dict(zip(names, args, strict=False)) | inputs
        known = require_builder(self.workflow_id).children.setdefault(self.workflow_id, self)
        self._check_same(known)
        keys: dict[str, Any] = {"workflow_id": self.workflow_id, **({"inputs": values} if values else {})}
        return keys | {key: self.options[key] for key in ("version", "description") if key in self.options}

    def _node_options(self) -> dict[str, Any]:
        return {key: self.options[key] for key in ("name", "depends_on") if key in self.options}

    def _unwrap(self, node: Node) -> Future[Any]:
        future = node.result()
        return future if self.returns_mapping is not False else future[RESULT]


@overload
def workflow(function: Callable[P, Future[R]], /) -> Workflow[P, R]: ...


@overload
def workflow(function: Callable[P, dict[str, Future[R]]], /) -> Workflow[P, dict[str, R]]: ...


@overload
def workflow(function: Callable[P, R], /) -> Workflow[P, R]: ...


@overload
def workflow(
    *,
    workflow_id: str | None = None,
    name: str | None = None,
    version: int = 1,
    description: str | None = None,
    on_failure: Literal["finish_running", "cancel_running", "continue"] | None = None,
    deadline_seconds: float | None = None,
    tags: Iterable[str] = (),
) -> _WorkflowDecorator: ...


def workflow(
    function: Callable[..., Any] | None = None,
    /,
    *,
    workflow_id: str | None = None,
    name: str | None = None,
    version: int = 1,
    description: str | None = None,
    on_failure: str | None = None,
    deadline_seconds: float | None = None,
    tags: Iterable[str] = (),
) -> Any:
    """Make a function a workflow: `@workflow` or `@workflow(version=2, on_failure="continue")`.

    It has the keys of a workflow file. The id is the name of the function, the description its docstring.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - local names of postponed annotations

    def decorate(function: Callable[..., Any]) -> Workflow[Any, Any]:
        if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
            raise reject("a workflow is a plain function: its calls build the graph, and nothing runs in it")
        identity = workflow_id or function.__name__
        head: dict[str, Any] = {
            "workflow_id": identity,
            "name": name,
            "version": version if version != 1 else None,
            "description": _description(function) if description is None else description,
            "on_failure": on_failure,
            "deadline_seconds": deadline_seconds,
            "tags": list(tags),
        }
        names = local_names_of(function, frame)
        kept = {key: value for key, value in head.items() if value not in (None, "", [])}
        made: Workflow[Any, Any] = Workflow(identity, functools.partial(_trace, function, kept, names))
        functools.update_wrapper(made, function, updated=())
        return made

    return decorate if function is None else decorate(function)


if TYPE_CHECKING:

    class _WorkflowDecorator:
        """The type of `workflow(…)`: the same overloads."""

        @overload
        def __call__(self, function: Callable[P, Future[R]], /) -> Workflow[P, R]: ...
        @overload
        def __call__(self, function: Callable[P, dict[str, Future[R]]], /) -> Workflow[P, dict[str, R]]: ...
        @overload
        def __call__(self, function: Callable[P, R], /) -> Workflow[P, R]: ...
        def __call__(self, function: Any, /) -> Any: ...


def _trace(
    function: Callable[..., Any],
    head: dict[str, Any],
    local_names: Mapping[str, Any],
    target: Workflow[Any, Any],
) -> PythonDocument:
    """Call the function with futures, and write what it did as a document."""
    inputs, futures = read_inputs(function, local_names)
    builder = GraphBuilder()
    with builder.active():
        result = function(**futures)
    place = place_of(function)
    if not builder.nodes:
        hint = OTHER_THREADS if builder.has_missed_call else ""
        raise reject(
            f"the workflow {head['workflow_id']!r} has no nodes: call a task in it", hint, place=place
        )
    writer = DocumentWriter(builder.nodes)
    data = {**head, **({"inputs": inputs} if inputs else {}), "nodes": writer.write_nodes()}
    if isinstance(result, dict) and list(result) == [RESULT]:
        # In YAML it would be the same as the value alone.
        hint = "return the value itself: it is the result of the job"
        raise reject(
            f"the workflow {head['workflow_id']!r} returns a mapping of {RESULT!r} alone", hint, place=place
        )
    if result is not None:
        target.returns_mapping = isinstance(result, dict)
        outputs = result if isinstance(result, dict) else {RESULT: result}
        data["outputs"] = writer.value(outputs, "the result", place=place)
    target.tasks = {key: task for key, task in builder.tasks.items() if isinstance(task, TaskFunction)}
    target.children = builder.children
    part_places = {
        "inputs": functools.partial(place_of_input, function),
        "outputs": functools.partial(place_of_output, function),
    }
    return PythonDocument(data, place, writer.places(), part_places)


def _write_items(
    target: Workflow[Any, Any], head: dict[str, Any], items: Any, place: Place
) -> PythonDocument:
    nodes, functions = write_nodes(items)
    target.tasks = {
        name: function if isinstance(function, TaskFunction) else entrypoint_spec(function, name)
        for name, function in functions.items()
    }
    return PythonDocument({**head, "nodes": nodes}, place, {})


def _description(function: Callable[..., Any]) -> str:
    return inspect.cleandoc(function.__doc__ or "")
