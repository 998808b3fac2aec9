"""One part of the file, read by its model: as its author meant it, with everything that is wrong said once.

What is wrong is mended as far as it can be guessed (`hanlder` is `handler`), so that the rest can be checked too and a
mistake in one place makes no problems in others. What could not be read is UNREAD.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from dagmaster.authoring import schema
from dagmaster.authoring import validation_messages as says

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.errors import Problem

# No document has this character, so nobody wrote it.
UNREAD: Final = "\0"

_Model = TypeVar("_Model", bound=BaseModel)
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
    for turn in range(_ROUNDS):
        try:
            read = model.model_validate(raw)
        except ValidationError as error:
            if not turn:
                # Only what was written is wrong: later rounds judge our own guesses.
                problems = says.of_validation(document, error, model, path)
                raw = _copied(raw)
            if len(problems) > says.MAX_PROBLEMS:
                break
            for item in error.errors(include_url=False):
                _mend(raw, item, model, document, path)
        else:
            return read, problems + _empty_keys(document, read, path)
    return None, problems


def _copied(value: Any) -> Any:
    """Copy the data once, so that each mistake can be mended where it stands."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def _mend(raw: dict[str, Any], item: ErrorDetails, model: type[BaseModel], document: Document, path: Path) -> None:
    """Take one of its mistakes out of the data."""
    loc = item["loc"]
    if item["type"] == "missing":
        raw.setdefault(str(loc[0]), _STAND_INS[str(loc[0])])
    elif item["type"] == "extra_forbidden":
        meant = says.meant_by(str(loc[-1]), model, loc[:-1])
        if meant is not None:
            document.rename((*path, *loc), meant)
        part = _inside(raw, loc[:-1])
        if isinstance(part, dict) and loc[-1] in part:
            value = part.pop(loc[-1])
            if meant is not None:
                part.setdefault(meant, value)
    elif item["type"] == "value_error" and model is schema.WaitModel:
        for key in ("seconds", "until", "timeout_seconds"):
            raw.pop(key, None)
        raw["signal"] = UNREAD
    elif item["type"] == "value_error":
        part = _inside(raw, loc)
        if isinstance(part, dict):
            part.update(condition=UNREAD, default=False)
    elif model is schema.WorkflowModel and loc[0] == "inputs" and len(loc) == len(("inputs", "name")):
        part = _inside(raw, loc[:-1])
        if isinstance(part, dict):
            part[loc[-1]] = {}
    else:
        _remove(raw, loc)


def _step(part: Any, key: str | int) -> Any:
    if isinstance(part, dict):
        return part.get(key)
    return part[key] if isinstance(part, list) and isinstance(key, int) and key < len(part) else None


def _inside(part: Any, loc: Path) -> Any:
    for key in loc:
        part = _step(part, key)
    return part


def _remove(part: Any, loc: Path) -> None:
    """Take away what stands at `loc`; a list with a wrong entry goes as a whole."""
    holder, held = part, loc[0]
    for key in loc:
        if isinstance(part, dict):
            holder, held = part, key
        part = _step(part, key)
    holder.pop(held, None)


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
