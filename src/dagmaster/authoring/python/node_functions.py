"""The nodes of a workflow that are not tasks, named as in YAML: conditional, fan_out, wait and others."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from dagmaster.authoring.python.futures import (
    FirstOrigin,
    Future,
    Gate,
    NodeOrigin,
    Origin,
    PartsOrigin,
    origin_of,
    part_of,
    write_text,
)
from dagmaster.authoring.python.graph_nodes import Conditional, NodeGroup, require_builder
from dagmaster.authoring.python.places import reject
from dagmaster.engine.expressions.parser import names_in
from dagmaster.engine.expressions.paths import PARAMS
from dagmaster.engine.expressions.templates import compile_template_all, split_template
from dagmaster.sdk.json_forms import short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dagmaster.authoring.python.futures import Dependency, Requirement, Scope
    from dagmaster.authoring.python.graph_nodes import Branch

T = TypeVar("T")

_ONE_NODE: Final = (
    "return the call of one task, one workflow or one fan-out; several steps are a separate workflow"
)
_ROOTS: Final = PARAMS | {"item", "index", "outer"}


def start(*, name: str | None = None, description: str | None = None) -> Future[dict[str, Any]]:
    """Make the entry of a workflow, which everything else comes after. A workflow without one needs none."""
    keys = _written({}, description=description)
    return require_builder("a start").add("start", "start", keys, name=name).result()


def end(
    *,
    name: str | None = None,
    description: str | None = None,
    depends_on: Dependency | list[Dependency] | None = None,
) -> Future[dict[str, Any]]:
    """Make an exit of a workflow: if its function returns nothing, the nodes before it give the result."""
    keys = _written({}, description=description)
    return require_builder("an end").add("end", "end", keys, name=name, depends_on=depends_on).result()


def conditional(
    value: Any,
    branches: Mapping[str, str],
    *,
    default: str | None = None,
    name: str | None = None,
    description: str | None = None,
    depends_on: Dependency | list[Dependency] | None = None,
) -> Conditional:
    """Choose one branch by a value: `conditional(size, {"small": "< 100MB"}, default="large")`.

    Conditions are tried in order: `"< 100"`, or an expression with `value`. `default` is the branch that is
    taken when none holds; without it the node fails then.
    """
    builder = require_builder("a conditional")
    listed: list[dict[str, Any]] = [{"name": branch, "condition": text} for branch, text in branches.items()]
    if default is not None:
        if default in branches:
            raise reject(f"the branch {default!r} has a condition and is the default")
        listed.append({"name": default, "default": True})
    keys = {"condition_field": value if isinstance(value, Future) else _constant(value), "branches": listed}
    node = builder.add(
        "conditional",
        "conditional",
        _written(keys, description=description),
        name=name,
        depends_on=depends_on,
    )
    return Conditional(node, tuple(branch["name"] for branch in listed))


def approval(
    message: str | Future[Any] | None = None,
    *,
    approvers: Sequence[str] = (),
    timeout_seconds: float | None = None,
    on_timeout: Literal["approve", "reject"] | None = None,
    name: str | None = None,
    description: str | None = None,
    depends_on: Dependency | list[Dependency] | None = None,
) -> Future[dict[str, Any]]:
    """Pause for a person. The result is `approved_by`, `at` and `comment`."""
    if isinstance(approvers, str):
        raise reject(
            f"approvers is a list, not the text {short_repr(approvers)}", f"write approvers=[{approvers!r}]"
        )
    keys = _written(
        {},
        message=message,
        approvers=list(approvers) or None,
        timeout_seconds=timeout_seconds,
        on_timeout=on_timeout,
        description=description,
    )
    return (
        require_builder("an approval")
        .add("approval", "approval", keys, name=name, depends_on=depends_on)
        .result()
    )


def wait(
    *,
    seconds: float | timedelta | Future[Any] | None = None,
    until: str | datetime | Future[Any] | None = None,
    signal: str | None = None,
    timeout_seconds: float | None = None,
    on_timeout: Literal["go_on", "fail"] | None = None,
    name: str | None = None,
    description: str | None = None,
    depends_on: Dependency | list[Dependency] | None = None,
) -> Future[Any]:
    """Pause for a time or for a signal, whose payload is the result."""
    keys = _written(
        {},
        seconds=seconds.total_seconds() if isinstance(seconds, timedelta) else seconds,
        until=until.isoformat() if isinstance(until, date) else until,
        signal=signal,
        timeout_seconds=timeout_seconds,
        on_timeout=on_timeout,
        description=description,
    )
    return require_builder("a wait").add("wait", "wait", keys, name=name, depends_on=depends_on).result()


def fan_out(  # noqa: PLR0913 - the keys of a fan-out
    items: Sequence[Any] | Future[Any],
    each: Callable[[Future[Any]], Future[T]],
    *,
    max_parallel: int | None = None,
    tolerate_failures: int | str | None = None,
    on_item_error: Literal["fail", "tolerate"] | None = None,
    fail_fast: bool | None = None,
    name: str | None = None,
    description: str | None = None,
    depends_on: Dependency | list[Dependency] | None = None,
) -> Future[list[T]]:
    """Run what `each` makes of an item for all items: one task, one workflow, or a fan-out again.

    The result is a list of what `each` returns: a result, or a part of it, such as `lambda row:
    measure(row)["size"]`.

    `task.map(items)` is the short form of a fan-out of one task:
    `fan_out(rows, lambda row: double.map(row))`.
    """
    builder = require_builder("a fan-out")
    with builder.for_each_item() as (item, children):
        made: Any = each(item)
    if not isinstance(made, Future):
        raise reject("the function of a fan-out returns no future", _ONE_NODE)
    origin, part = origin_of(made), part_of(made)
    if isinstance(origin, PartsOrigin):
        message = "a fan-out in a fan-out gives whole results, not a part of each"
        raise reject(message, "take the parts in a @task; a workflow that returns a dict is a whole result")
    if len(children) != 1 or not isinstance(origin, NodeOrigin) or origin.node is not children[0]:
        raise reject(f"the function of a fan-out makes one node for an item, not {len(children)}", _ONE_NODE)
    keys = _written(
        {"source": items if isinstance(items, Future) else list(items), "task": children[0]},
        max_parallel=max_parallel,
        tolerate_failures=tolerate_failures,
        on_item_error=on_item_error,
        fail_fast=fail_fast,
        description=description,
    )
    node = builder.add("fan_out", children[0].label, keys, name=name, depends_on=depends_on)
    return Future(PartsOrigin(node, "outputs", part)) if part else node.result()


def group(
    name: str | None = None,
    *,
    description: str | None = None,
    depends_on: Dependency | list[Dependency] | None = None,
) -> NodeGroup:
    """Make a group of nodes, which others can wait for as one.

    What is made in `with group("clean") as clean:` is in the group, also other groups. It is complete when
    everything in it is: `extract >> clean >> load`.
    """
    builder = require_builder("a group")
    keys = _written({}, description=description)
    return NodeGroup(builder.add("group", "group", keys, name=name, depends_on=depends_on))


def fan_in(
    *sources: Future[Any] | NodeGroup,
    aggregation: Literal["collect", "collect_all", "concat", "sum", "first", "last"] = "collect",
    name: str | None = None,
    description: str | None = None,
) -> Future[dict[str, Any]]:
    """Aggregate the results of a fan-out, of several nodes, or of those in a group.

    `collect` gives `results`, `count` and, of a fan-out, `failed`; what failed or was skipped has no result.
    `collect_all` has null in its place. `concat` and `sum` look into results that are mappings.

    A task takes the results of `task.map(…)` as a list without it.
    """
    keys = _written({}, aggregation=aggregation, description=description)
    builder = require_builder("a fan-in")
    for source in sources:
        if isinstance(source, Future) and (part_of(source) or isinstance(origin_of(source), PartsOrigin)):
            message = "a fan-in aggregates whole results, not a part of them, as the value of a workflow is"
            raise reject(message, "pass the futures to a @task: total([one, two])")
    return builder.add("fan_in", "fan_in", keys, name=name, depends_on=list(sources)).result()


def child_workflow(
    workflow_id: str,
    inputs: Mapping[str, Any] | None = None,
    *,
    version: int | None = None,
    name: str | None = None,
    description: str | None = None,
    depends_on: Dependency | list[Dependency] | None = None,
) -> Future[Any]:
    """Run a published workflow as a child job, by its id. A workflow of Python code is simply called."""
    keys = _written(
        {"workflow_id": workflow_id},
        inputs=dict(inputs or {}) or None,
        version=version,
        description=description,
    )
    builder = require_builder("a child workflow")
    return builder.add("workflow", workflow_id, keys, name=name, depends_on=depends_on).result()


def any_of(*dependencies: Future[T] | NodeGroup | Branch | Gate) -> Future[T]:
    """Wait for any of several nodes or branches.

    As a value it is the first of them, in order, that has one.
    """
    return Future(FirstOrigin("any_of", _members(dependencies)))


def join(*dependencies: Future[T] | NodeGroup | Branch) -> Future[T]:
    """Wait for the nodes or branches, of several, that are taken: at least one.

    As a value it is like `any_of`.

    It is what edges (`next`) are in a workflow file, and the only dependency of its node.
    """
    return Future(FirstOrigin("join", _members(dependencies)))


def all_of(*dependencies: Dependency) -> Gate:
    """Wait for all of several nodes or branches, inside `any_of`; a list of dependencies means the same."""
    return Gate("all_of", _members(dependencies))


def expression(text: str, **values: Future[Any]) -> Future[Any]:
    """Return the value of an expression of workflow files: `expression("{{ x }}.tif", x=name)`.

    Names are the futures that are passed, else the roots of workflow files: `secrets.TOKEN`, `env.REGION`,
    `job.id`.
    """
    template = text if "{{" in text else f"{{{{ {text} }}}}"
    compiled, mistakes = compile_template_all(template, _ROOTS | values.keys())
    if compiled is None:
        raise reject(str(mistakes[0]), mistakes[0].hint)
    roots = {use.keys[0] for _, use in compiled.uses}
    for name, value in values.items():
        if name not in roots or not isinstance(value, Future):
            problem = "is not used in the text" if name not in roots else "is a value: write it into the text"
            raise reject(f"{name} {problem}")
    nodes = tuple(dict.fromkeys(str(use.keys[1]) for _, use in compiled.uses if use.keys[0] == "nodes"))
    return Future(TextOrigin(template, values, nodes))


@dataclass(frozen=True, slots=True)
class TextOrigin(Origin):
    """A template of the workflow file's language; some of its names are futures."""

    source: str
    values: Mapping[str, Future[Any]]
    nodes: tuple[str, ...] = ()

    def text(self, scope: Scope) -> str:
        template = self.template(scope)
        pieces = split_template(template)
        if len(pieces) != 1 or pieces[0][2]:
            message = "this expression is text with expressions in it: it has no keys and no default"
            raise reject(message, place=scope.place)
        return f"({template[2:-2].strip()})"

    def template(self, scope: Scope) -> str:
        return "".join(
            piece if is_text else self._fill(piece, scope)
            for _, piece, is_text in split_template(self.source)
        )

    def requirement(self) -> Requirement | None:
        """Return the nodes that the values come from, and those that are named in the text."""
        members: tuple[Dependency, ...] = (*self.values.values(), *self.nodes)
        return Gate("all_of", members) if members else None

    def _fill(self, piece: str, scope: Scope) -> str:
        for name, start in reversed(list(names_in(piece))):
            if name in self.values:
                piece = (
                    piece[:start]
                    + _in_place(write_text(self.values[name], scope))
                    + piece[start + len(name) :]
                )
        return piece


def _in_place(text: str) -> str:
    """Put an expression that is no plain path into brackets."""
    return text if all(sign.isalnum() or sign in "_.[]" for sign in text) else f"({text})"


def _members(dependencies: Sequence[Any]) -> tuple[Any, ...]:
    if not dependencies:
        raise reject("any_of and all_of have at least one member")
    return tuple(dependencies)


def _constant(value: Any) -> Any:
    raise reject(
        f"a conditional decides by a future, not by {value!r}",
        "a value that is known here needs no conditional: write `if`",
    )


def _written(keys: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return keys | {key: value for key, value in optional.items() if value is not None}
