"""The operators and filters of the expression language, over JSON values.

Each checks its arguments and rejects others with a sentence. None creates a value beyond the bounds in
`json_values`. This module does not know Jinja, paths or scopes.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagmaster.engine.expressions.json_values import (
    ABSENT,
    MAX_ITEMS,
    MAX_TEXT,
    NUMBERS,
    Missing,
    bounded,
    check_limit,
    equal,
    identity,
    json_text,
    json_type,
    missing,
    pick,
    text_of,
)
from dagmaster.errors import EvaluationFailed

if TYPE_CHECKING:
    from dagmaster.json_types import JsonValue

MAX_INDENT = 8
"""Spaces per level in `tojson(indent)`."""

MAX_PRECISION = 20
"""Digits before or after the point in `round`: a float has 17."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,309}")
_FLOAT = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?")
_UNSET: Any = object()


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter: its function, and the names of its arguments after the value, the required ones first.

    `by_name`: they are given by name, since Jinja takes something else by position.
    """

    run: Callable[..., Any]
    parameters: tuple[str, ...] = ()
    required: int = 0
    by_name: bool = False


# ── operators ───────────────────────────────────────────────────────────────────────────────────────────────


def _arithmetic(sign: str, compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def run(left: Any, right: Any) -> Any:
        if left.__class__ in NUMBERS and right.__class__ in NUMBERS:
            return bounded(compute(left, right))
        raise EvaluationFailed(f"`{sign}` needs two numbers, not {json_type(left)} and {json_type(right)}")

    return run


def _add(left: Any, right: Any) -> Any:
    if left.__class__ in NUMBERS and right.__class__ in NUMBERS:
        return bounded(left + right)
    if isinstance(left, str) and isinstance(right, str):
        check_limit(len(left) + len(right), MAX_TEXT, "characters")
        return left + right
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        check_limit(len(left) + len(right), MAX_ITEMS, "items")
        return [*left, *right]
    raise EvaluationFailed(
        f"`+` needs two numbers, two strings or two arrays, not {json_type(left)} and {json_type(right)}"
    )


def _ordering(sign: str, compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def run(left: Any, right: Any) -> Any:
        if (left.__class__ in NUMBERS and right.__class__ in NUMBERS) or (
            isinstance(left, str) and isinstance(right, str)
        ):
            return compare(left, right)
        raise EvaluationFailed(
            f"`{sign}` needs two numbers or two strings, not {json_type(left)} and {json_type(right)}"
        )

    return run


def contains(item: JsonValue, container: JsonValue) -> bool:
    """Return `item in container`: an item of an array, a part of a string, a key of an object."""
    if isinstance(container, list | tuple):
        return any(equal(item, other) for other in container) if item in container else False
    if isinstance(container, Mapping):
        return isinstance(item, str) and item in container
    if isinstance(container, str) and isinstance(item, str):
        return item in container
    raise EvaluationFailed(f"`in` cannot search for {json_type(item)} in {json_type(container)}")


def negative(value: Any) -> Any:
    return -number_for("-", value)


def positive(value: Any) -> Any:
    return number_for("+", value)


ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": _add,
    "-": _arithmetic("-", operator.sub),
    "*": _arithmetic("*", operator.mul),
    "/": _arithmetic("/", operator.truediv),
    "//": _arithmetic("//", operator.floordiv),
    "%": _arithmetic("%", operator.mod),
}

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": equal,
    "ne": lambda left, right: not equal(left, right),
    "lt": _ordering("<", operator.lt),
    "lteq": _ordering("<=", operator.le),
    "gt": _ordering(">", operator.gt),
    "gteq": _ordering(">=", operator.ge),
    "in": contains,
    "notin": lambda left, right: not contains(left, right),
}


# ── filters ─────────────────────────────────────────────────────────────────────────────────────────────────


def string_for(name: str, value: JsonValue) -> str:
    """Return the value if it is a string within the size limit, else raise."""
    if not isinstance(value, str):
        raise EvaluationFailed(f"`{name}` needs a string, not {json_type(value)}")
    check_limit(len(value), MAX_TEXT, "characters")
    return value


def number_for(name: str, value: Any) -> Any:
    """Return the value if it is a number, else raise. A boolean is not a number."""
    if value.__class__ not in NUMBERS:
        raise EvaluationFailed(f"`{name}` needs a number, not {json_type(value)}")
    return bounded(value)


def _list(name: str, value: JsonValue) -> list[JsonValue] | tuple[JsonValue, ...]:
    if not isinstance(value, list | tuple):
        raise EvaluationFailed(f"`{name}` needs an array, not {json_type(value)}")
    check_limit(len(value), MAX_ITEMS, "items")
    return value


def _integer(name: str, value: JsonValue) -> int:
    if value.__class__ is not int:
        raise EvaluationFailed(f"`{name}` needs an integer, not {json_type(value)}")
    return int(value)


def _boolean(name: str, value: JsonValue) -> bool:
    if not isinstance(value, bool):
        raise EvaluationFailed(f"`{name}` needs true or false, not {json_type(value)}")
    return value


def _sortable(name: str, value: Any) -> list[Any] | tuple[Any, ...]:
    """Return the value if it is an array of only numbers or only strings, else raise."""
    items = _list(name, value)
    if not all(item.__class__ in NUMBERS for item in items) and not all(
        isinstance(item, str) for item in items
    ):
        kinds = ", ".join(sorted({json_type(item) for item in items}))
        raise EvaluationFailed(
            f"`{name}` needs an array of numbers or an array of strings; this one has {kinds}"
        )
    return items


def _length(value: JsonValue) -> int:
    if isinstance(value, str | list | tuple | Mapping):
        return len(value)
    raise EvaluationFailed(f"`length` needs a string, an array or an object, not {json_type(value)}")


def _first(value: Any) -> Any:
    items = _list("first", value)
    return items[0] if items else Missing("`first` of an empty array is missing")


def _last(value: Any) -> Any:
    items = _list("last", value)
    return items[-1] if items else Missing("`last` of an empty array is missing")


def _min(value: Any) -> Any:
    items = _sortable("min", value)
    return min(items) if items else Missing("`min` of an empty array is missing")


def _max(value: Any) -> Any:
    items = _sortable("max", value)
    return max(items) if items else Missing("`max` of an empty array is missing")


def _sum(value: Any) -> Any:
    items = [number_for("sum", item) for item in _list("sum", value)]
    return bounded(sum(items) if all(item.__class__ is int for item in items) else math.fsum(items))


def _join(value: JsonValue, separator: JsonValue = "") -> str:
    between = string_for("join", separator)
    texts: list[str] = []
    size = 0
    for item in _list("join", value):
        texts.append(text_of(item))
        size += len(texts[-1]) + len(between)
        check_limit(size - len(between), MAX_TEXT, "characters")
    return between.join(texts)


def _trim(value: JsonValue, chars: JsonValue = None) -> str:
    return string_for("trim", value).strip(None if chars is None else string_for("trim", chars))


def _replace(value: JsonValue, old: JsonValue, new: JsonValue, count: JsonValue = -1) -> str:
    text, before, after = (string_for("replace", part) for part in (value, old, new))
    limit = -1 if count is None else _integer("replace", count)
    occurrences = text.count(before)
    times = occurrences if limit < 0 else min(limit, occurrences)
    check_limit(len(text) + times * (len(after) - len(before)), MAX_TEXT, "characters")
    return text.replace(before, after, times)


def _cased(name: str, change: Callable[[str], str]) -> Callable[[Any], str]:
    def run(value: JsonValue) -> str:
        changed = change(string_for(name, value))
        check_limit(len(changed), MAX_TEXT, "characters")
        return changed

    return run


def _int(value: Any, default: Any = _UNSET) -> Any:
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return bounded(int(value))
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return bounded(int(value))
    return _convert_or_default("int", "an integer", value, default)


def _float(value: Any, default: Any = _UNSET) -> Any:
    if isinstance(value, bool | int | float):
        return bounded(float(value))
    if isinstance(value, str) and _FLOAT.fullmatch(value.strip()):
        return bounded(float(value))
    return _convert_or_default("float", "a number", value, default)


def _convert_or_default(name: str, target: str, value: Any, default: Any) -> Any:
    if default is not _UNSET:
        return default
    shown = f"the string {value[:40]!r}" if isinstance(value, str) else json_type(value)
    raise EvaluationFailed(f"`{name}` cannot convert {shown} to {target}")


def _round(value: Any, precision: Any = 0, method: Any = "common") -> Any:
    number, digits = number_for("round", value), _integer("round", precision)
    if abs(digits) > MAX_PRECISION:
        raise EvaluationFailed(f"`round` takes a precision from -{MAX_PRECISION} to {MAX_PRECISION}")
    if method == "common":
        return bounded(round(number, digits))
    if method not in ("ceil", "floor"):
        raise EvaluationFailed("`round` takes the method 'common', 'ceil' or 'floor'")
    scale = 10**digits
    return bounded((math.ceil if method == "ceil" else math.floor)(number * scale) / scale)


def _sort(value: JsonValue, reverse: JsonValue = False) -> list[JsonValue]:  # noqa: FBT002 - as in Jinja
    return sorted(_sortable("sort", value), reverse=_boolean("sort", reverse))


def _unique(value: JsonValue) -> list[JsonValue]:
    seen: dict[JsonValue, JsonValue] = {}
    for item in _list("unique", value):
        seen.setdefault(identity(item), item)
    return list(seen.values())


def _map(value: Any, attribute: Any) -> list[JsonValue] | Missing:
    if value.__class__ is Missing:
        return value
    if attribute.__class__ not in (str, int):
        raise EvaluationFailed(f"`map` needs a key or an index, not {json_type(attribute)}")
    return [_part_of(item, attribute, index) for index, item in enumerate(_list("map", value))]


def _part_of(item: Any, key: str | int, index: int) -> Any:
    """Return a part of an item. Null, which a failed child of a fan-out has for its output, stays null."""
    part = None if item is None else pick(item, key)
    if part is ABSENT:
        raise EvaluationFailed(f"`map`: {missing(item, ['item', index, key]).sentence}")
    return part


def _tojson(value: Any, indent: Any = None) -> str:
    if indent is None:
        return json_text(value)
    if not 0 <= _integer("tojson", indent) <= MAX_INDENT:
        raise EvaluationFailed(f"`tojson` takes an indent from 0 to {MAX_INDENT}")
    return json_text(value, indent)


def _basename(value: JsonValue) -> str:
    return string_for("basename", value).rstrip("/").rpartition("/")[2]


def _compiled(value: JsonValue) -> JsonValue:
    """Stand in for `default`, which is compiled so that its argument is evaluated only when needed."""
    return value


FILTERS: Mapping[str, Filter] = {
    "default": Filter(_compiled, ("value", "boolean"), 1),
    "length": Filter(_length),
    "first": Filter(_first),
    "last": Filter(_last),
    "min": Filter(_min),
    "max": Filter(_max),
    "sum": Filter(_sum),
    "join": Filter(_join, ("separator",)),
    "lower": Filter(_cased("lower", str.lower)),
    "upper": Filter(_cased("upper", str.upper)),
    "trim": Filter(_trim, ("chars",)),
    "replace": Filter(_replace, ("old", "new", "count"), 2),
    "int": Filter(_int, ("default",)),
    "float": Filter(_float, ("default",)),
    "string": Filter(text_of),
    "round": Filter(_round, ("precision", "method")),
    "abs": Filter(lambda value: abs(number_for("abs", value))),
    "sort": Filter(_sort, ("reverse",)),
    "unique": Filter(_unique),
    "map": Filter(_map, ("attribute",), 1, by_name=True),
    "tojson": Filter(_tojson, ("indent",)),
    "basename": Filter(_basename),
}

JINJA_NAMES: Mapping[str, str] = {"default_value": "value", "d": "separator"}
"""Our names of filter arguments, by the names that Jinja gives them."""
