"""One part of the file, read by its model: as its author meant it, with everything that is wrong said once.

What is wrong is mended as far as it can be guessed (`hanlder` is `handler`), so that the rest can be checked too and a
mistake in one place makes no problems in others. What could not be read is UNREAD.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from dagmaster.authoring import problems as says
from dagmaster.authoring import schema
from dagmaster.authoring.names import nearest

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from dagmaster.authoring.document import Document, Path
    from dagmaster.errors import Problem

# No document has this character, so nobody wrote it.
UNREAD: Final = "\0"

_Model = TypeVar("_Model", bound=BaseModel)
_GONE: Final = object()
_ROUNDS: Final = 4
_STAND_INS: Final[dict[str, Any]] = {
    "handler": UNREAD,
    "workflow_id": "unread",
    "branches": [{"condition": UNREAD}],
    "source": [],
    "task": {"handler": UNREAD, "queue": "unread"},
    "nodes": {},
}


def read_part(
    document: Document, model: type[_Model], raw: dict[str, Any], path: Path
) -> tuple[_Model | None, list[Problem]]:
    """Read a part of the file. None if not even a guess can be made of it."""
    problems: list[Problem] = []
    for _ in range(_ROUNDS):
        try:
            read = model.model_validate(raw)
        except ValidationError as error:
            # Only what was written is wrong: later rounds judge our own guesses.
            problems = problems or says.of_validation(document, error, model, path)
            for item in error.errors(include_url=False):
                raw = _mended(raw, item, model, document, path)
        else:
            return read, problems + _empty_keys(document, read, path)
    return None, problems


def _mended(raw: Any, item: ErrorDetails, model: type[BaseModel], document: Document, path: Path) -> Any:
    """Give the data without one of its mistakes."""
    loc = item["loc"]
    if item["type"] == "missing":
        return raw if loc[0] in raw else {**raw, str(loc[0]): _STAND_INS[str(loc[0])]}
    if item["type"] == "extra_forbidden":
        meant = nearest(str(loc[-1]), says.keys_at(model, loc[:-1]))
        if meant is not None:
            document.rename((*path, *loc), meant)
        return _changed(raw, loc, lambda part: _renamed(part, str(loc[-1]), meant))
    if item["type"] == "value_error" and model is schema.WaitModel:
        kept = {key: value for key, value in raw.items() if key not in ("seconds", "until", "timeout_seconds")}
        return {**kept, "signal": UNREAD}
    if item["type"] == "value_error":
        return _changed(raw, (*loc, ""), lambda part: {**part, "condition": UNREAD, "default": False})
    if model is schema.WorkflowModel and loc[0] == "inputs" and len(loc) == len(("inputs", "name")):
        return _changed(raw, loc, lambda part: {**part, loc[-1]: {}})
    return _without(raw, loc)


def _changed(part: Any, loc: Path, change: Any) -> Any:
    """Give the data with the mapping that holds `loc` changed."""
    if len(loc) == 1:
        return change(part)
    if isinstance(part, list):
        return [_changed(each, loc[1:], change) if place == loc[0] else each for place, each in enumerate(part)]
    return {key: _changed(each, loc[1:], change) if key == loc[0] else each for key, each in part.items()}


def _renamed(part: dict[str, Any], wrong: str, meant: str | None) -> dict[str, Any]:
    kept = {key: value for key, value in part.items() if key != wrong}
    return kept if meant is None or meant in kept else {**kept, meant: part[wrong]}


def _without(part: Any, loc: Path) -> Any:
    """Give the data without what stands at `loc`; a list with a wrong entry goes as a whole."""
    key, rest = loc[0], loc[1:]
    if not rest or not isinstance(part, dict | list):
        inner: Any = _GONE
    else:
        inside = part.get(key) if isinstance(part, dict) else part[key] if isinstance(key, int) else None
        inner = _without(inside, rest)
    if isinstance(part, dict):
        kept = {name: value for name, value in part.items() if name != key}
        return kept if inner is _GONE else {**part, key: inner}
    if inner is _GONE or not isinstance(part, list):
        return _GONE
    return [inner if place == key else value for place, value in enumerate(part)]


def _empty_keys(document: Document, model: BaseModel, path: Path) -> list[Problem]:
    """Find keys that have no value: whoever wrote them wanted something."""
    found: list[Problem] = []
    for name in type(model).model_fields:
        if name not in model.model_fields_set:
            continue
        value = getattr(model, name)
        where = (*path, name)
        if value is None and not (name == "default" and isinstance(model, schema.InputModel)):
            found.append(document.problem(f"{name} is empty", where, hint=says.FILL_OR_REMOVE))
        parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, part in parts:
            if isinstance(part, BaseModel):
                found += _empty_keys(document, part, (*where, key))
    return found
