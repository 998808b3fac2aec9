"""Turn validation errors of the file's models into problems of the document, in the terms of YAML authors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring import schema
from dagmaster.errors.source_map import truncate
from dagmaster.errors.suggestions import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.errors import Problem

# Beyond this many, the file is wrong as a whole.
MAX_PROBLEMS: Final = 1000
FILL_OR_REMOVE: Final = "fill it in, or remove the key"

_EXPECTED_TYPES: Final = {
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
    "list_type": "a list",
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}
_LIMITS: Final = {
    "greater_than_equal": ("ge", "is at least"),
    "greater_than": ("gt", "is more than"),
    "less_than_equal": ("le", "is at most"),
}
_LENGTHS: Final = {
    "too_short": "needs at least one entry",
    "too_long": "has at most {:,} entries",
    "string_too_short": "is empty",
    "string_too_long": "has at most {:,} characters",
}
_SPELLINGS: Final = {
    schema.ID_PATTERN: ("is made of letters, digits and _, and starts with no digit", r"[^A-Za-z0-9_]"),
    schema.WORKFLOW_ID_PATTERN: (
        "is made of letters, digits and _ . -, and starts with a letter or _",
        r"[^A-Za-z0-9_.-]",
    ),
}
_SHAPES: Final = {
    "nodes": "write each node under its id: my_node: {handler: …}",
    "inputs": "write each input under its name: size: {type: integer}",
    "outputs": "write each result value under its name: total: '{{ … }}'",
    "params": "write each param under its name: size: '{{ … }}'",
    "branches": "start each branch with a dash: - {name: small, condition: '< 10', next: …}",
    "task": "name the task for each item: task: {handler: …}",
}
_TRUTHS: Final = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_NUMBER: Final = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")


def problems_from(
    document: Document, error: ValidationError, model: type[BaseModel], path: Path
) -> list[Problem]:
    items = error.errors(include_url=False)[: MAX_PROBLEMS + 1]
    unknown = [str(item["loc"][-1]) for item in items if item["type"] == "extra_forbidden"]
    problems: list[Problem] = []
    for item in items:
        loc: Path = (*path, *item["loc"])
        name = str(item["loc"][-1]) if item["loc"] else ""
        if item["type"] == "extra_forbidden":
            hint = _hint_at_key(name, model, item["loc"][:-1], item["input"])
            problems.append(document.problem(f"unknown key {name!r}", loc, at_key=True, hint=hint))
        elif item["type"] != "missing":
            message, hint = describe_error(item)
            problems.append(document.problem(message, loc, hint=hint))
        elif not any(nearest(key, [name]) or (name == "nodes" and key in _STEPS) for key in unknown):
            hint = _MISSING.get(name, "")
            problems.append(
                document.problem(f"missing key {name!r}", loc[:-1], at_key=bool(loc[:-1]), hint=hint)
            )
    return problems


# What other tools call nodes.
_STEPS: Final = frozenset({"tasks", "steps", "jobs"})
_MISSING: Final = {
    "handler": "name the handler that this task runs, or give the node another type",
    "nodes": "write the steps under nodes:",
    "branches": "a conditional has branches: [{name, condition, next}, …]",
    "source": "name the list: source: '{{ … }}'",
    "task": "name the task for each item: task: {handler: …}",
}


def keys_at(model: type[BaseModel], loc: Path) -> list[str]:
    """Return the valid keys at a location, of the model or a nested one."""
    inside: dict[str, type[BaseModel]] = {"branches": schema.BranchModel, "inputs": schema.InputModel}
    return list(inside.get(str(loc[0]) if loc else "", model).model_fields)


def intended_key(wrong: str, model: type[BaseModel], loc: Path) -> str | None:
    if model is schema.WorkflowModel and not loc and wrong in _STEPS:
        return "nodes"
    return nearest(wrong, keys_at(model, loc))


def describe_value(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}" if len(str(value)) < 20 else "a number"  # noqa: PLR2004 - at a glance
    if isinstance(value, str):
        return f"the text {truncate(value)!r}"
    return "a list" if isinstance(value, list) else "a mapping"


def describe_actual(value: Any) -> str:
    """Complete the sentence `x is …` with the actual value."""
    return ", but it is empty" if value is None else f", not {describe_value(value)}"


def _hint_at_key(name: str, model: type[BaseModel], loc: Path, value: Any) -> str:
    """Return a hint for an unknown key: the node type it belongs to, or the nearest key."""
    if model is schema.WorkflowModel and not loc:
        if name in _STEPS:
            return "write the steps under nodes:"
        if isinstance(value, dict) and ("handler" in value or value.get("type") in tuple(schema.NODE_MODELS)):
            return "if it is a node, indent it under nodes:"
    kind = next((kind for kind, owner in schema.NODE_MODELS.items() if owner is model), None)
    hint = _hint_at_node_key(name, kind) if kind is not None and not loc else ""
    return hint or did_you_mean(name, keys_at(model, loc))


def _hint_at_node_key(name: str, kind: str) -> str:
    if name == "next" and kind == "conditional":
        return "the next of a conditional belongs in its branches"
    if name == "next":
        return "nothing follows it"
    if name == "depends_on":
        return "a start node has no dependencies"
    if kind == "fan_out" and name in schema.TaskModel.model_fields:
        return f"{name!r} goes into the task of the fan-out"
    owners = [other for other, owner in schema.NODE_MODELS.items() if name in owner.model_fields]
    return f"{name!r} goes with type: {', '.join(owners)}" if owners else ""


def describe_error(item: ErrorDetails) -> tuple[str, str]:
    kind, value, context = item["type"], item["input"], item.get("ctx", {})
    name = _format_location(item["loc"])
    if kind in _EXPECTED_TYPES:
        hint = FILL_OR_REMOVE if value is None else _hint_at_type(kind, name, value)
        return f"{name} is {_EXPECTED_TYPES[kind]}{describe_actual(value)}", hint
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return f"{name} {words} {_number(context[key])}", ""
    if kind == "too_short" and context["min_length"] > 1:
        return f"{name} needs at least {context['min_length']:,} entries", ""
    if kind in _LENGTHS:
        return f"{name} {_LENGTHS[kind].format(context.get('max_length', 0))}", ""
    if kind == "string_pattern_mismatch" and context["pattern"] in _SPELLINGS:
        words, others = _SPELLINGS[context["pattern"]]
        like = re.sub(others, "_", value)
        return (
            f"{name} {words}",
            f"for example: {truncate(like if re.match('[A-Za-z_]', like) else '_' + like)}",
        )
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"])
        near = nearest(str(value), choices)
        shown = f", not {truncate(value)!r}" if isinstance(value, str) else describe_actual(value)
        message = f"{name} is one of {', '.join(choices)}{shown}"
        return message, f"did you mean {near!r}?" if near else ""
    message = item["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return (message if kind == "value_error" else f"{name}: {message}"), ""


def _hint_at_type(kind: str, name: str, value: Any) -> str:
    if kind == "string_type" and isinstance(value, int | float):
        return f'put it in quotes: "{str(value).lower()}"'
    if name in _SHAPES or name.startswith("input "):
        return _SHAPES.get(name, "for example: {type: string}")
    if not isinstance(value, str):
        return ""
    if kind == "bool_type":
        word = _TRUTHS.get(value.casefold(), "")
        return f"write {word}: in YAML 1.2 {value!r} is text" if word else ""
    if kind == "list_type":
        return f"write [{truncate(value)}]"
    if kind in ("int_type", "float_type"):
        if _NUMBER.fullmatch(value):
            return "remove the quotes"
        return "write the number of seconds" if name.endswith("_seconds") and value[:1].isdigit() else ""
    return ""


def _format_location(loc: Iterable[str | int]) -> str:
    """Name a value by its key and its position in a list."""
    *outer, last = loc or ("it",)
    if isinstance(last, int):
        return f"{_format_location(outer)}[{last}]"
    return f"input {last!r}" if outer == ["inputs"] else str(last)


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else str(value)
