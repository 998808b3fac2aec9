"""Read one part of the file with its model, and report every mistake once.

Obvious mistakes are corrected (`hanlder` is `handler`), so that the rest can be checked too and a mistake in
one place causes no problems elsewhere. What could not be read is UNREADABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from dagmaster.authoring import schema
from dagmaster.authoring import validation_messages as messages
from dagmaster.authoring.source_document import entries

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.errors import Problem

# No document has this character.
UNREADABLE: Final = "\0"

_Model = TypeVar("_Model", bound=BaseModel)
_ROUNDS: Final = 4
_UNREAD_QUEUE: Final = "unread"
_STAND_INS: Final[dict[str, Any]] = {
    "handler": UNREADABLE,
    "workflow_id": "unread",
    "branches": [{"condition": UNREADABLE}],
    "source": [],
    "task": {"handler": UNREADABLE, "queue": _UNREAD_QUEUE},
    "nodes": {},
}


def read_model(
    document: Document, model: type[_Model], raw: dict[str, Any], path: Path
) -> tuple[_Model | None, list[Problem]]:
    """Read a part of the file; return None if it cannot be read at all."""
    problems: list[Problem] = []
    for turn in range(_ROUNDS):
        try:
            read = model.model_validate(raw)
        except ValidationError as error:
            if not turn:
                # Only the first round reports problems: later rounds check our own corrections.
                problems = messages.problems_from(document, error, model, path)
                raw = _copy(raw)
            if len(problems) > messages.MAX_PROBLEMS:
                break
            for item in error.errors(include_url=False):
                _drop_mistake(raw, item, model, document, path)
        else:
            return read, problems + _empty_keys(document, read, path)
    return None, problems


def _copy(value: Any) -> Any:
    """Copy the data once, so that mistakes can be corrected in place."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _drop_mistake(
    raw: dict[str, Any], item: ErrorDetails, model: type[BaseModel], document: Document, path: Path
) -> None:
    """Remove one mistake from the data."""
    loc = item["loc"]
    if item["type"] == "missing":
        raw.setdefault(str(loc[0]), _STAND_INS[str(loc[0])])
    elif item["type"] == "extra_forbidden":
        meant = messages.intended_key(str(loc[-1]), model, loc[:-1])
        if meant is not None:
            document.rename((*path, *loc), meant)
        _drop_key(_inside(raw, loc[:-1]), loc[-1], meant)
    elif item["type"] == "value_error":
        _drop_contradiction(raw, loc, model)
    elif model is schema.WorkflowModel and loc[0] == "inputs" and len(loc) == len(("inputs", "name")):
        part = _inside(raw, loc[:-1])
        if isinstance(part, dict):
            part[loc[-1]] = {}
    else:
        _remove(raw, loc)


def _drop_key(part: Any, key: str | int, meant: str | None) -> None:
    """Remove an unknown key; keep its value under the key that was meant."""
    if isinstance(part, dict) and key in part:
        value = part.pop(key)
        if meant is not None:
            part.setdefault(meant, value)


def _drop_contradiction(raw: dict[str, Any], loc: Path, model: type[BaseModel]) -> None:
    """Replace keys that do not go together, in a wait or a branch."""
    if model is schema.WaitModel:
        for key in ("seconds", "until", "timeout_seconds"):
            raw.pop(key, None)
        raw["signal"] = UNREADABLE
        return
    part = _inside(raw, loc)
    if isinstance(part, dict):
        part.update(condition=UNREADABLE, default=False)


def _step(part: Any, key: str | int) -> Any:
    if isinstance(part, dict):
        return part.get(key)
    return part[key] if isinstance(part, list) and isinstance(key, int) and key < len(part) else None


def _inside(part: Any, loc: Path) -> Any:
    for key in loc:
        part = _step(part, key)
    return part


def _remove(part: Any, loc: Path) -> None:
    """Remove the value at `loc`; a list with a wrong entry is removed whole."""
    holder, held = part, loc[0]
    for key in loc:
        if isinstance(part, dict):
            holder, held = part, key
        part = _step(part, key)
    if held == "queue":
        # Without it, the task would have a second problem: that it has no queue.
        holder[held] = _UNREAD_QUEUE
    else:
        holder.pop(held, None)


def _empty_keys(document: Document, model: BaseModel, path: Path) -> list[Problem]:
    """Report keys without a value: they were written for a reason."""
    problems: list[Problem] = []
    for name in type(model).model_fields:
        if name not in model.model_fields_set:
            continue
        value = getattr(model, name)
        where = (*path, name)
        if value is None and not (name == "default" and isinstance(model, schema.InputModel)):
            problems.append(document.problem(f"{name} is empty", where, hint=messages.FILL_OR_REMOVE))
        for key, part in entries(value):
            if isinstance(part, BaseModel):
                problems += _empty_keys(document, part, (*where, key))
    return problems
