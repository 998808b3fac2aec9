"""Complete the definition of a node: check what no schema can, and add what its handler says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring import schema
from dagmaster.authoring.compiler.edges import MAX_HINTS
from dagmaster.authoring.compiler.literal_params import check_literal_params
from dagmaster.authoring.compiler.node_templates import CheckedValues, TemplateCompiler
from dagmaster.authoring.model_reader import UNREADABLE, read_model
from dagmaster.authoring.node_reader import read_node, read_retry
from dagmaster.authoring.validation_messages import describe_actual
from dagmaster.engine.expressions.secret_parts import SecretInputs
from dagmaster.engine.retry import NO_RETRY
from dagmaster.errors.source_map import truncate
from dagmaster.errors.suggestions import did_you_mean, nearest, similar_handlers
from dagmaster.ports.queue_names import QUEUE_RULE, is_queue_name
from dagmaster.sdk.retry_options import RetryModel

if TYPE_CHECKING:
    from dagmaster.authoring.compiler.edges import Edges
    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.engine.graph import DefaultLimits, Spec
    from dagmaster.engine.retry import RetryPolicy
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.sdk.handler_catalog import HandlerCatalog, HandlerFacts

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
        secret_inputs: frozenset[str] = frozenset(),
        is_stored: bool = False,
    ) -> None:
        self.document = document
        self.limits = limits
        self.is_stored = is_stored
        self.edges = edges
        self.handlers = handlers
        self.allow_missing_handlers = allow_missing_handlers
        self.values = TemplateCompiler(document, SecretInputs(secret_inputs, is_stored=is_stored))
        self.problems = self.values.problems
        self.specs: dict[str, Spec] = {}
        self.definitions: dict[str, JsonObject] = {}

    def make(self, node_id: str, model: schema.AnyNodeModel) -> Spec | None:
        self.values.node_id = node_id
        definition = _definition(model)
        path: Path = ("nodes", node_id)
        is_right = self._complete(node_id, model, path, definition, nesting=0)
        # Its values are read all the same: each mistake is reported.
        spec = read_node(
            node_id,
            definition,
            CheckedValues(self.values, path),
            limits=self.limits,
            targets=self.edges.known,
            requires=self.edges.requires.get(node_id),
            group=self.edges.groups.group_of.get(node_id),
            **self._graph_fields(node_id, model),
        )
        self.values.node_id = None
        if not is_right:
            return None
        self.specs[node_id] = spec
        self.definitions[node_id] = definition
        return spec

    def _graph_fields(self, node_id: str, model: schema.AnyNodeModel) -> dict[str, Any]:
        if isinstance(model, schema.GroupModel):
            return {"entry": getattr(self.edges.linked[node_id], "entry", None)}
        if not isinstance(model, schema.FanInModel):
            return {}
        before = set(self.edges.sources(node_id))
        sources = tuple(source for source in self.edges.ids if source in before)
        is_of_fan_out = len(sources) == 1 and isinstance(
            self.edges.models.get(sources[0]), schema.FanOutModel
        )
        return {"sources": sources, "over": sources[0] if is_of_fan_out else None}

    def _complete(
        self, node_id: str, model: schema.AnyNodeModel, path: Path, definition: JsonObject, *, nesting: int
    ) -> bool:
        """Complete a definition from its handler, remove what is wrong in it; return whether it is right."""
        if isinstance(model, schema.TaskModel):
            return self._complete_task(model, path, definition)
        if isinstance(model, schema.FanOutModel):
            return self._complete_fan_out(node_id, model, path, definition, nesting)
        if isinstance(model, schema.FanInModel):
            return self._check_fan_in(node_id, path)
        return True

    # ── Tasks ──

    def _complete_task(self, model: schema.TaskModel, path: Path, definition: JsonObject) -> bool:
        handler = self._handler(model.handler, path)
        queue, timeout, retry = model.queue, model.timeout_seconds, None
        if handler is not None:
            self._check_params(handler, model, path)
            queue, timeout, retry = queue or handler.queue, timeout or handler.timeout_seconds, handler.retry
        queue = queue or self._default_queue()
        self._check_queue(model, handler, queue, path)
        definition["queue"] = queue or ""
        if timeout is not None:
            definition["timeout_seconds"] = float(timeout)
        definition.pop("retry", None)
        if model.retry is not None:
            retry = self._retry(model.retry, (*path, "retry"))
        if retry is not None:
            definition["retry"] = retry_definition(retry)
        return queue is not None and (retry is not None or model.retry is None)

    def _check_queue(
        self, model: schema.TaskModel, handler: HandlerFacts | None, queue: str | None, path: Path
    ) -> None:
        if queue is None and (handler is not None or not self._is_wrong(model.handler)):
            message, hint = _missing_queue(model.handler, handler, is_python=self.document.is_python)
            self.values.problem(message, path, at_key=True, hint=hint)
        if model.queue is not None and not is_queue_name(model.queue) and not self.is_stored:
            message = f"queue is {QUEUE_RULE}, not {truncate(model.queue, 100)!r}"
            self.values.problem(message, (*path, "queue"))

    def _default_queue(self) -> str | None:
        if self.handlers is None:
            return None
        if self.document.is_python and self.handlers.python_queue:
            return self.handlers.python_queue
        return self.handlers.default_queue

    def _is_wrong(self, handler: str) -> bool:
        """Return whether the missing handler is reported: the right one may have the other values."""
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

    def _retry(self, value: JsonValue, path: Path) -> RetryPolicy | None:
        if value == "none":
            return NO_RETRY
        if not isinstance(value, dict):
            hint = "for example: {max_attempts: 3}"
            self.values.problem(
                f"retry is a mapping (key: value) or none{describe_actual(value)}", path, hint=hint
            )
            return None
        model, problems = read_model(self.document, RetryModel, value, path)
        self.problems.extend(problems)
        return None if model is None else read_retry(model.model_dump())

    # ── Fan-outs and fan-ins ──

    def _complete_fan_out(
        self, node_id: str, model: schema.FanOutModel, path: Path, definition: JsonObject, nesting: int
    ) -> bool:
        is_tolerance_right = self._is_tolerance(model.tolerate_failures, (*path, "tolerate_failures"))
        if not is_tolerance_right:
            definition.pop("tolerate_failures", None)
        child, is_child_right = self._child(node_id, model.task, (*path, "task"), nesting + 1)
        definition["task"] = child
        return is_tolerance_right and is_child_right

    def _child(
        self, node_id: str, raw: dict[str, Any], path: Path, nesting: int
    ) -> tuple[JsonObject | None, bool]:
        """Return the complete definition of what runs for each item, and whether it is right."""
        kind = raw.get("type", "task")
        if nesting > MAX_NESTING:
            self.values.problem(f"fan-outs nest at most {MAX_NESTING} deep", path, at_key=True)
            return None, False
        if kind not in _CHILD_KINDS:
            message = f"a fan-out runs a task, a fan_out or a workflow{describe_actual(kind)}"
            near = nearest(str(kind), _CHILD_KINDS) if str(kind) not in schema.NODE_MODELS else None
            self.values.problem(message, (*path, "type"), hint=f"did you mean {near!r}?" if near else "")
            if near is None:
                return None, False
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
            return None, False
        definition = _definition(model)
        return definition, self._complete(node_id, model, path, definition, nesting=nesting)

    def _is_tolerance(self, value: JsonValue, path: Path) -> bool:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= schema.MAX_COUNT:
            return True
        match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
        if match is not None and float(match[1]) <= 100:  # noqa: PLR2004 - percent
            return True
        if value is not None:
            message = f"tolerate_failures is a count, or a share from '0%' to '100%'{describe_actual(value)}"
            self.values.problem(message, path)
        return False

    def _check_fan_in(self, node_id: str, path: Path) -> bool:
        if self.edges.sources(node_id):
            return True
        if node_id not in self.edges.unresolved:
            hint = "add an edge to it (next), or give it depends_on"
            self.values.problem(
                "a fan_in aggregates the nodes before it, and there are none", path, hint=hint
            )
        return False


def _definition(model: schema.AnyNodeModel) -> JsonObject:
    return {"type": model.type, **model.model_dump(exclude_defaults=True)}


def retry_definition(retry: RetryPolicy) -> JsonValue:
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
    from dagmaster.sdk.handler_decorator import HandlerSpec

    label = name.rpartition(".")[2]
    ways = [f"call {label}.with_options(queue=…)", "or set DAGMASTER_PYTHON_QUEUE"]
    if isinstance(handler, HandlerSpec):
        ways.insert(
            0, f"write {'@task' if handler.returns_json else '@handler'}(queue=…) at {handler.line() or name}"
        )
    return f"task {label} ({name}) has no queue", ", ".join(ways)
