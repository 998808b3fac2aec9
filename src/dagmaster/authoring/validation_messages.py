"""What a model of the file found wrong, said as problems of the document, in the words of people who write YAML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring import schema
from dagmaster.authoring.source_map import shortened
from dagmaster.authoring.suggestions import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.errors import Problem

# Past this many, nobody reads on; the file is wrong as a whole.
MAX_PROBLEMS: Final = 1000
FILL_OR_REMOVE: Final = "fill it in, or remove the key"

_WANTED: Final = {
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
    "nodes": "each node stands under its id: my_node: {handler: …}",
    "inputs": "each input stands under its name: size: {type: integer}",
    "outputs": "each value of the result stands under its name: total: '{{ … }}'",
    "params": "each param stands under its name: size: '{{ … }}'",
    "branches": "each branch begins with a dash: - {name: small, condition: '< 10', next: …}",
    "task": "say what runs for each item: task: {handler: …}",
}
_TRUTHS: Final = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
_NUMBER: Final = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")


def of_validation(document: Document, error: ValidationError, model: type[BaseModel], path: Path) -> list[Problem]:
    """Give a problem for each error, at its place in the document; no more than say that there are too many."""
    items = error.errors(include_url=False)[: MAX_PROBLEMS + 1]
    unknown = [str(item["loc"][-1]) for item in items if item["type"] == "extra_forbidden"]
    found: list[Problem] = []
    for item in items:
        loc: Path = (*path, *item["loc"])
        name = str(item["loc"][-1]) if item["loc"] else ""
        if item["type"] == "extra_forbidden":
            hint = _hint_at_key(name, model, item["loc"][:-1], item["input"])
            found.append(document.problem(f"unknown key {name!r}", loc, at_key=True, hint=hint))
        elif item["type"] != "missing":
            message, hint = said(item)
            found.append(document.problem(message, loc, hint=hint))
        elif not any(nearest(key, [name]) or (name == "nodes" and key in _STEPS) for key in unknown):
            hint = _MISSING.get(name, "")
            found.append(document.problem(f"missing key {name!r}", loc[:-1], at_key=bool(loc[:-1]), hint=hint))
    return found


# What other tools call nodes.
_STEPS: Final = frozenset({"tasks", "steps", "jobs"})
_MISSING: Final = {
    "handler": "name the handler that this task runs, or give the node another type",
    "nodes": "write the steps under nodes:",
    "branches": "a conditional has branches: [{name, condition, next}, …]",
    "source": "name the list: source: '{{ … }}'",
    "task": "say what runs for each item: task: {handler: …}",
}


def keys_at(model: type[BaseModel], loc: Path) -> list[str]:
    """Give the keys that are right at a place: the model's, or those of a model inside it."""
    inside: dict[str, type[BaseModel]] = {"branches": schema.BranchModel, "inputs": schema.InputModel}
    return list(inside.get(str(loc[0]) if loc else "", model).model_fields)


def meant_by(wrong: str, model: type[BaseModel], loc: Path) -> str | None:
    """Give the key that was meant by an unknown one."""
    if model is schema.WorkflowModel and not loc and wrong in _STEPS:
        return "nodes"
    return nearest(wrong, keys_at(model, loc))


def kind_of(value: Any) -> str:
    """Say what was written, in a word."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}" if len(str(value)) < 20 else "a number"  # noqa: PLR2004 - what is read at a glance
    if isinstance(value, str):
        return f"the text {shortened(value)!r}"
    return "a list" if isinstance(value, list) else "a mapping"


def unlike(value: Any) -> str:
    """End the sentence `x is …` with what was written instead."""
    return ", and here it is empty" if value is None else f", not {kind_of(value)}"


def _hint_at_key(name: str, model: type[BaseModel], loc: Path, value: Any) -> str:
    """Say what was meant by an unknown key: a key of another kind of node, or the nearest of this one."""
    if model is schema.WorkflowModel and not loc:
        if name in _STEPS:
            return "the steps stand under nodes:"
        if isinstance(value, dict) and ("handler" in value or value.get("type") in tuple(schema.NODE_MODELS)):
            return "if it is a node, indent it under nodes:"
    kind = next((kind for kind, each in schema.NODE_MODELS.items() if each is model), None)
    if kind is not None and not loc:
        if name == "next":
            return "the next of a conditional stands in its branches" if kind == "conditional" else "nothing follows it"
        if name == "depends_on":
            return "it comes first, and waits for nothing"
        if kind == "fan_out" and name in schema.TaskModel.model_fields:
            return f"{name!r} goes into the task of the fan-out"
        owners = [other for other, each in schema.NODE_MODELS.items() if name in each.model_fields]
        if owners:
            return f"{name!r} goes with type: {', '.join(owners)}"
    return did_you_mean(name, keys_at(model, loc))


def said(item: ErrorDetails) -> tuple[str, str]:
    """Say one error, and what to do."""
    kind, given, context = item["type"], item["input"], item.get("ctx", {})
    name = _spelled(item["loc"])
    if kind in _WANTED:
        hint = FILL_OR_REMOVE if given is None else _hint_at_type(kind, name, given)
        return f"{name} is {_WANTED[kind]}{unlike(given)}", hint
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return f"{name} {words} {_number(context[key])}", ""
    if kind in _LENGTHS:
        return f"{name} {_LENGTHS[kind].format(context.get('max_length', 0))}", ""
    if kind == "string_pattern_mismatch" and context["pattern"] in _SPELLINGS:
        words, others = _SPELLINGS[context["pattern"]]
        like = re.sub(others, "_", given)
        return f"{name} {words}", f"for example: {shortened(like if re.match('[A-Za-z_]', like) else '_' + like)}"
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"])
        near = nearest(str(given), choices)
        shown = f", not {shortened(given)!r}" if isinstance(given, str) else unlike(given)
        message = f"{name} is one of {', '.join(choices)}{shown}"
        return message, f"did you mean {near!r}?" if near else ""
    message = item["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return (message if kind == "value_error" else f"{name}: {message}"), ""


def _hint_at_type(kind: str, name: str, given: Any) -> str:
    if kind == "string_type" and isinstance(given, int | float):
        return f'put it in quotes: "{str(given).lower()}"'
    if name in _SHAPES or name.startswith("input "):
        return _SHAPES.get(name, "for example: {type: string}")
    if not isinstance(given, str):
        return ""
    if kind == "bool_type":
        word = _TRUTHS.get(given.casefold(), "")
        return f"write {word}: in YAML 1.2 {given!r} is text" if word else ""
    if kind == "list_type":
        return f"write [{shortened(given)}]"
    if kind in ("int_type", "float_type"):
        if _NUMBER.fullmatch(given):
            return "remove the quotes"
        return "write the number of seconds" if name.endswith("_seconds") and given[:1].isdigit() else ""
    return ""


def _spelled(loc: Iterable[str | int]) -> str:
    """Name a value by its key, and by its place in a list."""
    *outer, last = loc or ("it",)
    if isinstance(last, int):
        return f"{_spelled(outer)}[{last}]"
    return f"input {last!r}" if outer == ["inputs"] else str(last)


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else str(value)
