"""Check literal params against their handler's model before anything runs.

A value with an expression is known only at run time and is not checked. Unknown and missing params are
checked in `node_specs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ValidationError

from dagmaster.authoring import validation_messages as messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.errors import Problem

# Custom validators may look at other params, which may be unknown yet.
_RULES: Final = frozenset({"value_error", "assertion_error"})
# File paths are checked on the worker.
_FILES: Final = frozenset({"path_not_file", "path_not_directory", "path_exists"})


def check_literal_params(
    document: Document, model: type[BaseModel] | None, params: Mapping[str, Any], path: Path
) -> list[Problem]:
    constant = {name for name, value in params.items() if not has_expression(value)}
    if model is None or not constant:
        return []
    ignored = _FILES if len(constant) == len(params) else _FILES | _RULES
    by_place: dict[Path, list[ErrorDetails]] = {}
    for item in _errors(model, params):
        loc, kind = item["loc"], item["type"]
        is_unknown_or_missing = len(loc) == 1 and kind in ("missing", "extra_forbidden")
        if loc and loc[0] in constant and kind not in ignored and not is_unknown_or_missing:
            by_place.setdefault(_location_in_file(params, loc), []).append(item)
    return [_problem(document, errors, (*path, *place)) for place, errors in by_place.items()]


def _errors(model: type[BaseModel], params: Mapping[str, Any]) -> list[ErrorDetails]:
    try:
        model.__pydantic_validator__.validate_python(dict(params))
    except ValidationError as error:
        return error.errors(include_url=False)[: messages.MAX_PROBLEMS + 1]
    except Exception:  # noqa: BLE001 - a custom validator may raise anything
        return []
    return []


def _problem(document: Document, items: list[ErrorDetails], path: Path) -> Problem:
    """Describe what is wrong with one value; for a union, why it matches no member."""
    if len(items) > 1:
        reasons = dict.fromkeys(item["msg"][:1].lower() + item["msg"][1:] for item in items)
        return document.problem(f"{path[-1]} does not fit: {'; '.join(reasons)}", path)
    (item,) = items
    if item["type"] == "missing":
        return document.problem(f"missing key {str(item['loc'][-1])!r}", path)
    if item["type"] == "extra_forbidden":
        return document.problem(f"unknown key {str(item['loc'][-1])!r}", path, at_key=True)
    message, hint = messages.describe_error({**item, "loc": path})
    return document.problem(message, path, hint=hint)


def _location_in_file(params: Any, loc: Path) -> Path:
    """Return the part of a location that is in the file: pydantic adds the members of a union."""
    value, place = params, 0
    for key in loc:
        inside = isinstance(value, dict) and key in value
        if not inside and not (isinstance(value, list) and isinstance(key, int) and key < len(value)):
            break
        value, place = value[key], place + 1
    return loc[:place]


def has_expression(value: Any) -> bool:
    """Return whether a value, or one inside it, is known at run time only."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value or "{#" in value
    if isinstance(value, dict):
        return any(map(has_expression, value)) or any(map(has_expression, value.values()))
    return isinstance(value, list) and any(map(has_expression, value))
