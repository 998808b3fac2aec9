"""Params that are written out, checked before anything runs against what their handler takes.

What has an expression in it is known in the run only, and nothing is said about it. Which params there are, and which
are missing, is not looked at: see `specs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ValidationError

from dagmaster.authoring import validation_messages as says

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.errors import Problem

# Rules that people write can look at other params, which may be unknown yet.
_RULES: Final = frozenset({"value_error", "assertion_error"})
# The files that count are those of the worker.
_FILES: Final = frozenset({"path_not_file", "path_not_directory", "path_exists"})


def of_constants(
    document: Document, model: type[BaseModel] | None, params: Mapping[str, Any], path: Path
) -> list[Problem]:
    """Give a problem for each constant param that does not fit, at its place."""
    constant = {name for name, value in params.items() if not _has_expression(value)}
    if model is None or not constant:
        return []
    try:
        model.__pydantic_validator__.validate_python(dict(params))
    except ValidationError as error:
        ignored = _FILES if len(constant) == len(params) else _FILES | _RULES
        items = [
            item
            for item in error.errors(include_url=False)[: says.MAX_PROBLEMS + 1]
            if item["loc"] and item["loc"][0] in constant and item["type"] not in ignored
        ]
    except Exception:  # noqa: BLE001 - a validator of the handler stumbled over an expression, or is wrong itself
        return []
    else:
        return []
    by_place: dict[Path, list[ErrorDetails]] = {}
    for item in items:
        if len(item["loc"]) > 1 or item["type"] not in ("missing", "extra_forbidden"):
            by_place.setdefault(_written(params, item["loc"]), []).append(item)
    return [_problem(document, found, (*path, *place)) for place, found in by_place.items()]


def _problem(document: Document, items: list[ErrorDetails], path: Path) -> Problem:
    """Say what is wrong with one value. Of a choice of types, each says why it is not that."""
    if len(items) > 1:
        reasons = dict.fromkeys(item["msg"][:1].lower() + item["msg"][1:] for item in items)
        return document.problem(f"{path[-1]} does not fit: {'; '.join(reasons)}", path)
    (item,) = items
    if item["type"] == "missing":
        return document.problem(f"missing key {str(item['loc'][-1])!r}", path)
    if item["type"] == "extra_forbidden":
        return document.problem(f"unknown key {str(item['loc'][-1])!r}", path, at_key=True)
    message, hint = says.said({**item, "loc": path})
    return document.problem(message, path, hint=hint)


def _written(params: Any, loc: Path) -> Path:
    """Give the part of a place that is in the file: pydantic names the types of a choice too."""
    value, place = params, 0
    for key in loc:
        inside = isinstance(value, dict) and key in value
        if not inside and not (isinstance(value, list) and isinstance(key, int) and key < len(value)):
            break
        value, place = value[key], place + 1
    return loc[:place]


def _has_expression(value: Any) -> bool:
    if isinstance(value, str):
        return "{{" in value or "{%" in value or "{#" in value
    if isinstance(value, dict):
        return any(map(_has_expression, value)) or any(map(_has_expression, value.values()))
    return isinstance(value, list) and any(map(_has_expression, value))
