"""One node of a file becomes a Spec: templates compiled, defaults of its handler filled in, limits read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from pydantic import ValidationError

from dagmaster.authoring import problems as says
from dagmaster.authoring import schema
from dagmaster.authoring.names import did_you_mean, nearest
from dagmaster.engine.conditions import compile_condition
from dagmaster.engine.graph import (
    Aggregation,
    ApprovalSpec,
    Branch,
    ConditionalSpec,
    EndSpec,
    FanInSpec,
    FanOutSpec,
    Kind,
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
from dagmaster.engine.templates import Template, compile_template_all
from dagmaster.errors import ExpressionInvalid

if TYPE_CHECKING:
    from dagmaster.authoring.document import Document, Path
    from dagmaster.authoring.handlers import HandlerSpec, Registry
    from dagmaster.authoring.links import Links
    from dagmaster.engine.expressions import Expression, PathUse
    from dagmaster.errors import Problem

MAX_NESTING: Final = 3
DEFAULT_TIMEOUT_SECONDS: Final = 3600.0
_PERCENT: Final = re.compile(r"^(\d{1,3}(?:\.\d+)?)%$")
_CHILD_KINDS: Final = ("task", "fan_out", "workflow")


class Use(NamedTuple):
    """A path that an expression uses: where it stands, which node uses it, how deep inside fan-outs."""

    use: PathUse
    path: Path
    node_id: str | None
    nesting: int


class SpecMaker:
    """Makes the specs of one document, and notes every path that their expressions use."""

    # What expressions may start with, by place.
    OUTPUTS: ClassVar[frozenset[str]] = frozenset({"inputs", "nodes", "job", "env"})
    DECISION: ClassVar[frozenset[str]] = OUTPUTS | {"upstream"}
    PARAMS: ClassVar[frozenset[str]] = DECISION | {"secrets"}

    def __init__(
        self, document: Document, links: Links, handlers: Registry | None, *, allow_missing_handlers: bool
    ) -> None:
        self.document = document
        self.links = links
        self.handlers = handlers
        self.allow_missing_handlers = allow_missing_handlers
        self.problems: list[Problem] = []
        self.uses: list[Use] = []
        self.specs: dict[str, Spec] = {}
        self.definitions: dict[str, dict[str, Any]] = {}
        self._node_id: str | None = None
        self._nesting = 0

    def make(self, node_id: str, model: schema.AnyNodeModel) -> Spec | None:
        """Make the spec of a node, and its complete definition."""
        self._node_id, self._nesting = node_id, 0
        definition = _plain(model)
        spec = self._spec(node_id, model, ("nodes", node_id), definition)
        self._node_id = None
        if spec is not None:
            self.specs[node_id] = spec
            self.definitions[node_id] = definition
        return spec

    def template(self, value: Any, path: Path, roots: frozenset[str]) -> Template | None:
        """Compile a value; its mistakes become problems, its references are noted."""
        if self._nesting:
            roots |= {"item", "index", "outer"} if self._nesting > 1 else {"item", "index"}
        template, mistakes = compile_template_all(value, roots)
        for mistake in mistakes:
            self._mistake(mistake, (*path, *mistake.path))
        if template is not None:
            for inside, use in template.uses:
                self.uses.append(Use(use, (*path, *inside), self._node_id, self._nesting))
        return template

    def _spec(self, node_id: str, model: schema.AnyNodeModel, path: Path, definition: dict[str, Any]) -> Spec | None:
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
        make = StartSpec if isinstance(model, schema.StartModel) else EndSpec
        return make(**self._common(node_id, model))

    def _common(self, node_id: str, model: schema.AnyNodeModel) -> dict[str, Any]:
        is_child = self._nesting > 0
        return {
            "id": node_id,
            "description": model.description,
            "requires": None if is_child else self.links.requires.get(node_id),
            "next": () if is_child else self.links.next.get(node_id, ()),
        }

    # ── Tasks ──

    def _task(self, node_id: str, model: schema.TaskModel, path: Path, definition: dict[str, Any]) -> TaskSpec | None:
        params = self.template(model.params, (*path, "params"), self.PARAMS)
        handler = self._handler(model.handler, path)
        if handler is not None:
            self._check_params(handler, model, path)
        queue = model.queue or (handler.queue if handler is not None else None)
        if queue is None:
            hint = "a queue has no default: name the one that the workers of this task serve"
            self._problem("missing key 'queue'", path, at_key=True, hint=hint)
        retry = self._retry(model.retry, handler, (*path, "retry"))
        timeout = model.timeout_seconds or (handler.timeout_seconds if handler is not None else None)
        if params is None or queue is None or retry is None:
            return None
        timeout = DEFAULT_TIMEOUT_SECONDS if timeout is None else timeout
        definition |= {"queue": queue, "timeout_seconds": timeout, "retry": _definition_of(retry)}
        return TaskSpec(
            **self._common(node_id, model),
            handler=model.handler,
            queue=queue,
            params=params,
            timeout_seconds=timeout,
            dispatch_timeout_seconds=model.dispatch_timeout_seconds,
            retry=retry,
            allow_failure=model.allow_failure,
            pool=model.pool,
        )

    def _handler(self, name: str, path: Path) -> HandlerSpec | None:
        if self.handlers is None:
            return None
        handler = self.handlers.find(name)
        if handler is None:
            severity = "warning" if self.allow_missing_handlers else "error"
            near = nearest(name, self.handlers.names())
            hint = f"did you mean {near!r}?" if near else "name the module that has it with --handlers"
            self.problems.append(
                self.document.problem(f"unknown handler {name!r}", (*path, "handler"), hint=hint, severity=severity)
            )
        return handler

    def _check_params(self, handler: HandlerSpec, model: schema.TaskModel, path: Path) -> None:
        known = handler.known_params()
        if known is None:
            return
        for name in model.params:
            if name not in known:
                message = f"handler {handler.name!r} has no param {name!r}"
                where = (*path, "params", name)
                self._problem(message, where, at_key=True, hint=did_you_mean(name, known))
        missing = sorted(handler.required_params() - model.params.keys())
        if missing:
            named = ", ".join(repr(name) for name in missing)
            self._problem(f"handler {handler.name!r} needs {named}", (*path, "params"))

    def _retry(self, value: Any, handler: HandlerSpec | None, path: Path) -> RetryPolicy | None:
        if value is None:
            return (handler.retry if handler is not None else None) or RetryPolicy()
        if value == "none":
            return NO_RETRY
        if not isinstance(value, dict):
            self._problem("retry is a mapping (max_attempts, backoff …) or none", path)
            return None
        try:
            model = schema.RetryModel.model_validate(value)
        except ValidationError as error:
            self.problems += says.of_validation(self.document, error, schema.RetryModel, path)
            return None
        return RetryPolicy(**{**model.model_dump(), "backoff": Backoff(model.backoff)})

    # ── Deciding nodes ──

    def _conditional(self, node_id: str, model: schema.ConditionalModel, path: Path) -> ConditionalSpec | None:
        field: Template | None = None
        roots = set(self.DECISION)
        if model.condition_field is not None:
            text = model.condition_field if "{{" in model.condition_field else "{{ " + model.condition_field + " }}"
            field = self.template(text, (*path, "condition_field"), self.DECISION)
            roots.add("value")
        name = _last_key(field)
        branches: list[Branch] = []
        conditions: list[Expression] = []
        for place, branch in enumerate(model.branches):
            where: Path = (*path, "branches", place, "condition")
            condition = None
            if branch.condition is not None:
                condition = self._condition(branch.condition, where, frozenset(roots), name)
                if condition is None:
                    continue
                conditions.append(condition)
            targets = self.links.branch_next[node_id][place]
            branches.append(Branch(self.links.branch_names[node_id][place], condition, targets))
        if len(branches) < len(model.branches) or (model.condition_field is not None and field is None):
            return None
        branches.sort(key=lambda branch: branch.condition is None)
        refs = dict.fromkeys(() if field is None else field.refs)
        refs |= dict.fromkeys(ref for condition in conditions for ref in condition.refs if ref != ("value",))
        common = self._common(node_id, model)
        return ConditionalSpec(**common, condition_field=field, branches=tuple(branches), refs=tuple(refs))

    def _condition(self, text: str, path: Path, roots: frozenset[str], name: str) -> Expression | None:
        try:
            condition = compile_condition(text, roots=roots, field_name=name)
        except ExpressionInvalid as mistake:
            hint = "" if "value" in roots else "add condition_field, which is `value` in the conditions"
            self._mistake(mistake, path, hint=hint)
            return None
        for use in condition.uses:
            if use.keys[0] != "value":
                self.uses.append(Use(use, path, self._node_id, self._nesting))
        return condition

    def _workflow(self, node_id: str, model: schema.WorkflowNodeModel, path: Path) -> WorkflowSpec | None:
        inputs = self.template(model.inputs, (*path, "inputs"), self.DECISION)
        if inputs is None:
            return None
        common = self._common(node_id, model)
        return WorkflowSpec(**common, workflow_id=model.workflow_id, version=model.version, inputs=inputs)

    def _approval(self, node_id: str, model: schema.ApprovalModel, path: Path) -> ApprovalSpec | None:
        message = self.template(model.message, (*path, "message"), self.DECISION)
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
            seconds = self.template(model.seconds, (*path, "seconds"), self.DECISION)
        if model.until is not None:
            until = self.template(model.until, (*path, "until"), self.DECISION)
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
        self, node_id: str, model: schema.FanOutModel, path: Path, definition: dict[str, Any]
    ) -> FanOutSpec | None:
        source = self._source(model.source, (*path, "source"))
        tolerance = self._tolerance(model.tolerate_failures, (*path, "tolerate_failures"))
        common = self._common(node_id, model)
        self._nesting += 1
        child = self._child(node_id, model.task, (*path, "task"), definition)
        self._nesting -= 1
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

    def _source(self, value: Any, path: Path) -> Template | None:
        if not isinstance(value, str | list):
            self._problem("source is an expression that gives a list, or a list", path)
            return None
        if isinstance(value, str) and "{{" not in value:
            self._problem("source is an expression that gives a list", path, hint=f"write '{{{{ {value} }}}}'")
            return None
        return self.template(value, path, self.DECISION)

    def _child(
        self, node_id: str, raw: dict[str, Any], path: Path, definition: dict[str, Any]
    ) -> TaskSpec | FanOutSpec | WorkflowSpec | None:
        kind = raw.get("type", "task")
        if kind not in _CHILD_KINDS:
            hint = did_you_mean(str(kind), _CHILD_KINDS)
            self._problem(f"a fan-out runs a task, a fan_out or a workflow, not {kind!r}", (*path, "type"), hint=hint)
            return None
        if self._nesting > MAX_NESTING:
            self._problem(f"fan-outs nest at most {MAX_NESTING} deep", path)
            return None
        for key in ("depends_on", "next"):
            if key in raw:
                self._problem(f"a fan-out's task has no {key!r}: the fan-out has", (*path, key), at_key=True)
                return None
        try:
            model = schema.NODE_MODELS[kind].model_validate(raw)
        except ValidationError as error:
            self.problems += says.of_validation(self.document, error, schema.NODE_MODELS[kind], path)
            return None
        definition["task"] = _plain(model)
        spec = self._spec(node_id, model, path, definition["task"])
        return spec if isinstance(spec, TaskSpec | FanOutSpec | WorkflowSpec) else None

    def _tolerance(self, value: int | str, path: Path) -> Tolerance | None:
        if isinstance(value, int) and value >= 0:
            return Tolerance(count=value)
        found = _PERCENT.match(value) if isinstance(value, str) else None
        if found is None or float(found[1]) > 100:  # noqa: PLR2004 - percent
            self._problem("tolerate_failures is a count, or a share from '0%' to '100%'", path)
            return None
        return Tolerance(percent=float(found[1]))

    def _fan_in(self, node_id: str, model: schema.FanInModel, path: Path) -> FanInSpec | None:
        gate = self.links.requires.get(node_id)
        if gate is None:
            if not self.links.problems:
                hint = "lead an edge to it (next), or give it depends_on"
                self._problem("a fan_in aggregates what comes before it, and nothing does", path, hint=hint)
            return None
        before = {leaf.node for leaf in gate.leaves()}
        sources = tuple(each for each in self.links.ids if each in before)
        fan_outs = [each for each in sources if isinstance(self.links.models.get(each), schema.FanOutModel)]
        return FanInSpec(
            **self._common(node_id, model),
            aggregation=Aggregation(model.aggregation),
            over=fan_outs[0] if len(sources) == len(fan_outs) == 1 else None,
            sources=sources,
        )

    def _mistake(self, mistake: ExpressionInvalid, path: Path, hint: str = "") -> None:
        found = self.document.problem(str(mistake), path, hint=mistake.hint or hint, offset=mistake.offset)
        self.problems.append(found)

    def _problem(self, message: str, path: Path, *, at_key: bool = False, hint: str = "") -> None:
        self.problems.append(self.document.problem(message, path, at_key=at_key, hint=hint))


def output_keys_of(model: schema.AnyNodeModel, handlers: Registry | None) -> frozenset[str] | None:
    """Give the keys that a node's output can have; None when nobody knows."""
    if isinstance(model, schema.TaskModel):
        handler = None if handlers is None else handlers.find(model.handler)
        return None if handler is None else handler.output_keys()
    if isinstance(model, schema.FanInModel):
        return _FAN_IN_KEYS[model.aggregation]
    if isinstance(model, schema.WaitModel):
        return None if model.signal is not None else frozenset({"waited_until"})
    return _OUTPUT_KEYS.get(Kind(model.type))


_FAN_IN_KEYS: Final[dict[str, frozenset[str]]] = {
    "collect": frozenset({"results", "count", "failed"}),
    "concat": frozenset({"results", "count"}),
    "sum": frozenset({"total", "count"}),
    "first": frozenset({"result", "count"}),
    "last": frozenset({"result", "count"}),
}
_OUTPUT_KEYS: Final[dict[Kind, frozenset[str]]] = {
    Kind.START: frozenset(),
    Kind.END: frozenset(),
    Kind.CONDITIONAL: frozenset({"branch_taken", "branch", "value"}),
    Kind.FAN_OUT: frozenset({"fan_out_count"}),
    Kind.APPROVAL: frozenset({"approved_by", "at", "comment"}),
}


def _plain(model: schema.AnyNodeModel) -> dict[str, Any]:
    return {"type": model.type, **model.model_dump(exclude_defaults=True)}


def _definition_of(retry: RetryPolicy) -> Any:
    return {
        "max_attempts": retry.max_attempts,
        "backoff": retry.backoff.value,
        "initial_delay_seconds": retry.initial_delay_seconds,
        "max_delay_seconds": retry.max_delay_seconds,
        "jitter": retry.jitter,
        "max_lost": retry.max_lost,
    }


def _last_key(field: Template | None) -> str:
    """Give the name of the field that a conditional looks at, when it is a plain path."""
    if field is None or len(field.uses) != 1:
        return ""
    return str(field.uses[0][1].keys[-1])
