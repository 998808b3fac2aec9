"""Build the Spec of a node: compile its templates, apply its handler's defaults, read its limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring import schema
from dagmaster.authoring.compiler.edges import MAX_HINTS
from dagmaster.authoring.compiler.literal_params import check_literal_params
from dagmaster.authoring.compiler.node_templates import TemplateCompiler, last_key
from dagmaster.authoring.model_reader import UNREADABLE, read_model
from dagmaster.authoring.source_map import truncate
from dagmaster.authoring.suggestions import did_you_mean, nearest, similar_handlers
from dagmaster.authoring.validation_messages import describe_actual
from dagmaster.engine.expressions.paths import DECISION, PARAMS
from dagmaster.engine.graph import (
    Aggregation,
    ApprovalSpec,
    Branch,
    ConditionalSpec,
    EndSpec,
    FanInSpec,
    FanOutSpec,
    GroupSpec,
    OnItemError,
    OnTimeout,
    Spec,
    StartSpec,
    TaskSpec,
    Tolerance,
    WaitSpec,
    WorkflowSpec,
)
from dagmaster.engine.retry import NO_RETRY, Backoff, RetryPolicy
from dagmaster.ports.queue_names import QUEUE_RULE, is_queue_name

if TYPE_CHECKING:
    from dagmaster.authoring.compiler.edges import Edges
    from dagmaster.authoring.handler_catalog import HandlerCatalog, HandlerFacts
    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.engine.expressions.expression import Expression
    from dagmaster.engine.expressions.templates import Template
    from dagmaster.engine.graph import DefaultLimits
    from dagmaster.json_types import JsonObject, JsonValue

MAX_NESTING: Final = 3
_PERCENT: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?)%")
_CHILD_KINDS: Final = ("task", "fan_out", "workflow")
# A fan-out's task has none of these: they belong to the fan-out.
_OF_TOP_LEVEL: Final = ("depends_on", "next", "group")


class NodeSpecBuilder:
    """Build the specs of one document, and record every path that their expressions use."""

    def __init__(
        self,
        document: Document,
        edges: Edges,
        handlers: HandlerCatalog | None,
        *,
        allow_missing_handlers: bool,
        limits: DefaultLimits,
        is_stored: bool = False,
    ) -> None:
        self.document = document
        self.limits = limits
        self.is_stored = is_stored
        self.edges = edges
        self.handlers = handlers
        self.allow_missing_handlers = allow_missing_handlers
        self.values = TemplateCompiler(document)
        self.problems = self.values.problems
        self.specs: dict[str, Spec] = {}
        self.definitions: dict[str, JsonObject] = {}

    def make(self, node_id: str, model: schema.AnyNodeModel) -> Spec | None:
        """Build the spec of a node and its complete definition."""
        self.values.node_id = node_id
        definition = _definition(model)
        spec = self._spec(node_id, model, ("nodes", node_id), definition)
        self.values.node_id = None
        if spec is not None:
            self.specs[node_id] = spec
            self.definitions[node_id] = definition
        return spec

    def _spec(  # noqa: PLR0911 - one case a kind of node
        self, node_id: str, model: schema.AnyNodeModel, path: Path, definition: JsonObject
    ) -> Spec | None:
        if isinstance(model, schema.TaskModel):
            return self._task(node_id, model, path, definition)
        if isinstance(model, schema.ConditionalModel):
            return self._conditional(node_id, model, path)
        if isinstance(model, schema.FanOutModel):
            return self._fan_out(node_id, model, path, definition)
        if isinstance(model, schema.FanInModel):
            return self._fan_in(node_id, model, path)
        if isinstance(model, schema.WorkflowNodeModel):
            return self._workflow(node_id, model, path)
        if isinstance(model, schema.ApprovalModel):
            return self._approval(node_id, model, path)
        if isinstance(model, schema.WaitModel):
            return self._wait(node_id, model, path)
        if isinstance(model, schema.GroupModel):
            linked = self.edges.linked[node_id]
            return GroupSpec(**self._common(node_id, model), entry=getattr(linked, "entry", None))
        make = StartSpec if isinstance(model, schema.StartModel) else EndSpec
        return make(**self._common(node_id, model))

    def _common(self, node_id: str, model: schema.AnyNodeModel) -> dict[str, Any]:
        is_child = self.values.nesting > 0
        return {
            "id": node_id,
            "description": model.description,
            "requires": None if is_child else self.edges.requires.get(node_id),
            "group": None if is_child else self.edges.groups.group_of.get(node_id),
            "next": () if is_child else self.edges.next.get(node_id, ()),
        }

    # ── Tasks ──

    def _task(
        self, node_id: str, model: schema.TaskModel, path: Path, definition: JsonObject
    ) -> TaskSpec | None:
        params = self.values.template(model.params, (*path, "params"), PARAMS)
        handler = self._handler(model.handler, path)
        if handler is not None:
            self._check_params(handler, model, path)
        queue = model.queue or (handler.queue if handler is not None else None) or self._default_queue()
        if queue is None and (handler is not None or not self._is_wrong(model.handler)):
            message, hint = _missing_queue(model.handler, handler, is_python=self.document.is_python)
            self.values.problem(message, path, at_key=True, hint=hint)
        if model.queue is not None and not is_queue_name(model.queue) and not self.is_stored:
            self.values.problem(
                f"queue is {QUEUE_RULE}, not {truncate(model.queue, 100)!r}", (*path, "queue")
            )
        retry = self._retry(model, handler, (*path, "retry"))
        timeout = model.timeout_seconds or (handler.timeout_seconds if handler is not None else None)
        if params is None or queue is None or retry is None:
            return None
        definition["queue"] = queue
        if model.retry is not None or (handler is not None and handler.retry is not None):
            definition["retry"] = retry_definition(retry)
        if timeout is not None:
            definition["timeout_seconds"] = float(timeout)
        return TaskSpec(
            **self._common(node_id, model),
            handler=model.handler,
            queue=queue,
            params=params,
            timeout_seconds=self.limits.task_timeout_seconds if timeout is None else float(timeout),
            dispatch_timeout_seconds=model.dispatch_timeout_seconds,
            retry=retry,
            allow_failure=model.allow_failure,
            pool=model.pool,
            code_fingerprint=model.code_fingerprint,
        )

    def _default_queue(self) -> str | None:
        if self.handlers is None:
            return None
        return (
            self.handlers.python_queue if self.document.is_python else None
        ) or self.handlers.default_queue

    def _is_wrong(self, handler: str) -> bool:
        """Return whether a missing handler is an error of its own: the right one may have the other values."""
        return handler == UNREADABLE or (self.handlers is not None and not self.allow_missing_handlers)

    def _handler(self, name: str, path: Path) -> HandlerFacts | None:
        if self.handlers is None or name == UNREADABLE:
            return None
        handler = self.handlers.find(name)
        if handler is None:
            severity = "warning" if self.allow_missing_handlers else "error"
            near = (
                nearest(name, similar_handlers(name, self.handlers.names()))
                if len(self.problems) < MAX_HINTS
                else None
            )
            hint = f"did you mean {near!r}?" if near else self.handlers.missing_hint
            self.problems.append(
                self.document.problem(
                    f"unknown handler {name!r}", (*path, "handler"), hint=hint, severity=severity
                )
            )
        return handler

    def _check_params(self, handler: HandlerFacts, model: schema.TaskModel, path: Path) -> None:
        self.problems.extend(
            check_literal_params(self.document, handler.params_model, model.params, (*path, "params"))
        )
        known = handler.known_params()
        if known is None:
            return
        unknown = [name for name in model.params if name not in known]
        for name in unknown:
            message = f"handler {handler.name!r} has no param {name!r}"
            hint = did_you_mean(name, known) or ("" if known else "it has no params")
            self.values.problem(message, (*path, "params", name), at_key=True, hint=hint)
        missing = sorted(handler.required_params() - model.params.keys())
        missing = [name for name in missing if not any(nearest(wrong, [name]) for wrong in unknown)]
        if missing:
            named = ", ".join(repr(name) for name in missing)
            where = (*path, "params") if "params" in model.model_fields_set else path
            hint = f"add under params: {', '.join(f'{name}: …' for name in missing)}"
            self.values.problem(f"handler {handler.name!r} needs {named}", where, at_key=True, hint=hint)

    def _retry(self, task: schema.TaskModel, handler: HandlerFacts | None, path: Path) -> RetryPolicy | None:
        value = task.retry
        if value is None:
            named = None if handler is None else handler.retry
            return named or RetryPolicy(max_attempts=self.limits.task_max_attempts)
        if value == "none":
            return NO_RETRY
        if not isinstance(value, dict):
            hint = "for example: {max_attempts: 3}"
            self.values.problem(
                f"retry is a mapping (key: value) or none{describe_actual(value)}", path, hint=hint
            )
            return None
        model, problems = read_model(self.document, schema.RetryModel, value, path)
        self.problems.extend(problems)
        if model is None:
            return None
        return RetryPolicy(**{**model.model_dump(), "backoff": Backoff(model.backoff)})

    # ── Deciding nodes ──

    def _conditional(
        self, node_id: str, model: schema.ConditionalModel, path: Path
    ) -> ConditionalSpec | None:
        field: Template | None = None
        roots = set(DECISION)
        if model.condition_field is not None:
            field = self.values.condition_field(model.condition_field, (*path, "condition_field"))
            roots.add("value")
        name = last_key(field)
        branches: list[Branch] = []
        conditions: list[Expression] = []
        for index, branch in enumerate(model.branches):
            where: Path = (*path, "branches", index, "condition")
            condition = None
            if branch.condition == UNREADABLE:
                continue
            if branch.condition is not None:
                condition = self.values.condition(branch.condition, where, frozenset(roots), name)
                if condition is None:
                    continue
                conditions.append(condition)
            targets = self.edges.branch_next[node_id][index]
            branches.append(Branch(self.edges.branch_names[node_id][index], condition, targets))
        if len(branches) < len(model.branches) or (model.condition_field is not None and field is None):
            return None
        branches.sort(key=lambda branch: branch.condition is None)
        refs = dict.fromkeys(() if field is None else field.refs)
        refs |= dict.fromkeys(ref for condition in conditions for ref in condition.refs if ref != ("value",))
        common = self._common(node_id, model)
        return ConditionalSpec(**common, condition_field=field, branches=tuple(branches), refs=tuple(refs))

    def _workflow(self, node_id: str, model: schema.WorkflowNodeModel, path: Path) -> WorkflowSpec | None:
        inputs = self.values.template(model.inputs, (*path, "inputs"), DECISION)
        if inputs is None:
            return None
        common = self._common(node_id, model)
        return WorkflowSpec(**common, workflow_id=model.workflow_id, version=model.version, inputs=inputs)

    def _approval(self, node_id: str, model: schema.ApprovalModel, path: Path) -> ApprovalSpec | None:
        message = self.values.template(model.message, (*path, "message"), DECISION)
        if message is None:
            return None
        return ApprovalSpec(
            **self._common(node_id, model),
            approvers=tuple(model.approvers),
            message=message,
            timeout_seconds=model.timeout_seconds,
            on_timeout=OnTimeout(model.on_timeout),
        )

    def _wait(self, node_id: str, model: schema.WaitModel, path: Path) -> WaitSpec | None:
        seconds = until = None
        if model.seconds is not None:
            seconds = self.values.seconds(model.seconds, (*path, "seconds"))
        if model.until is not None:
            until = self.values.until(model.until, (*path, "until"))
        if (seconds, until, model.signal) == (None, None, None):
            return None
        return WaitSpec(
            **self._common(node_id, model),
            seconds=seconds,
            until=until,
            signal=model.signal,
            timeout_seconds=model.timeout_seconds,
            on_timeout=OnTimeout(model.on_timeout),
        )

    # ── Fan-outs and fan-ins ──

    def _fan_out(
        self, node_id: str, model: schema.FanOutModel, path: Path, definition: JsonObject
    ) -> FanOutSpec | None:
        source = self.values.source(model.source, (*path, "source"))
        tolerance = self._tolerance(model.tolerate_failures, (*path, "tolerate_failures"))
        common = self._common(node_id, model)
        self.values.nesting += 1
        child = self._child(node_id, model.task, (*path, "task"), definition)
        self.values.nesting -= 1
        if source is None or tolerance is None or child is None:
            return None
        return FanOutSpec(
            **common,
            source=source,
            child=child,
            max_parallel=model.max_parallel,
            tolerance=tolerance,
            on_item_error=OnItemError(model.on_item_error),
            fail_fast=model.fail_fast,
        )

    def _child(
        self, node_id: str, raw: dict[str, Any], path: Path, definition: dict[str, Any]
    ) -> TaskSpec | FanOutSpec | WorkflowSpec | None:
        kind = raw.get("type", "task")
        if self.values.nesting > MAX_NESTING:
            self.values.problem(f"fan-outs nest at most {MAX_NESTING} deep", path, at_key=True)
            return None
        if kind not in _CHILD_KINDS:
            message = f"a fan-out runs a task, a fan_out or a workflow{describe_actual(kind)}"
            near = nearest(str(kind), _CHILD_KINDS) if str(kind) not in schema.NODE_MODELS else None
            self.values.problem(message, (*path, "type"), hint=f"did you mean {near!r}?" if near else "")
            if near is None:
                return None
            kind = near
        for key in _OF_TOP_LEVEL:
            if key in raw:
                hint = "move it to the fan-out"
                self.values.problem(f"a fan-out's task has no {key!r}", (*path, key), at_key=True, hint=hint)
        if kind == "task" and raw.get("allow_failure") is True:
            hint = (
                "its failures count for the fan-out: give that tolerate_failures, or on_item_error: tolerate"
            )
            where = (*path, "allow_failure")
            self.values.problem("a fan-out's task has no 'allow_failure'", where, at_key=True, hint=hint)
        raw = {key: value for key, value in raw.items() if key not in _OF_TOP_LEVEL} | {"type": kind}
        model, problems = read_model(self.document, schema.NODE_MODELS[kind], raw, path)
        self.problems.extend(problems)
        if model is None:
            return None
        definition["task"] = _definition(model)
        spec = self._spec(node_id, model, path, definition["task"])
        return spec if isinstance(spec, TaskSpec | FanOutSpec | WorkflowSpec) else None

    def _tolerance(self, value: JsonValue, path: Path) -> Tolerance | None:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= schema.MAX_COUNT:
            return Tolerance(count=value)
        match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
        if match is not None and float(match[1]) <= 100:  # noqa: PLR2004 - percent
            return Tolerance(percent=float(match[1]))
        if value is not None:
            message = f"tolerate_failures is a count, or a share from '0%' to '100%'{describe_actual(value)}"
            self.values.problem(message, path)
        return None

    def _fan_in(self, node_id: str, model: schema.FanInModel, path: Path) -> FanInSpec | None:
        before = set(self.edges.sources(node_id))
        if not before:
            if node_id not in self.edges.unresolved:
                hint = "add an edge to it (next), or give it depends_on"
                self.values.problem(
                    "a fan_in aggregates the nodes before it, and there are none", path, hint=hint
                )
            return None
        sources = tuple(source for source in self.edges.ids if source in before)
        fan_outs = [
            source for source in sources if isinstance(self.edges.models.get(source), schema.FanOutModel)
        ]
        return FanInSpec(
            **self._common(node_id, model),
            aggregation=Aggregation(model.aggregation),
            over=fan_outs[0] if len(sources) == len(fan_outs) == 1 else None,
            sources=sources,
        )


def _definition(model: schema.AnyNodeModel) -> JsonObject:
    return {"type": model.type, **model.model_dump(exclude_defaults=True)}


def retry_definition(retry: RetryPolicy) -> JsonValue:
    """Return a retry policy as a definition has it."""
    return {
        "max_attempts": retry.max_attempts,
        "backoff": retry.backoff.value,
        "initial_delay_seconds": float(retry.initial_delay_seconds),
        "max_delay_seconds": float(retry.max_delay_seconds),
        "jitter": retry.jitter,
        "max_lost": retry.max_lost,
    }


def _missing_queue(name: str, handler: HandlerFacts | None, *, is_python: bool) -> tuple[str, str]:
    """Return the problem of a task without a queue, and what its author does about it."""
    if not is_python:
        hint = "name the queue that the workers of this task serve (or set DAGMASTER_DEFAULT_QUEUE)"
        return "missing key 'queue'", hint
    from dagmaster.authoring.handler_decorator import HandlerSpec

    label = name.rpartition(".")[2]
    ways = [f"call {label}.with_options(queue=…)", "or set DAGMASTER_PYTHON_QUEUE"]
    if isinstance(handler, HandlerSpec):
        ways.insert(
            0, f"write {'@task' if handler.returns_json else '@handler'}(queue=…) at {handler.line() or name}"
        )
    return f"task {label} ({name}) has no queue", ", ".join(ways)
