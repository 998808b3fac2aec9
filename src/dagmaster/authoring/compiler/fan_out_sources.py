"""Check that a fan-out over an input runs over a list: the declared type of the input says so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring import schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dagmaster.authoring.source_document import Document, Path
    from dagmaster.errors import Problem

_WHOLE_INPUT: Final = re.compile(r"\s*\{\{\s*inputs\.(\w+)\s*\}\}\s*")


def check_fan_out_sources(
    document: Document, types: Mapping[str, str], models: Mapping[str, schema.AnyNodeModel]
) -> list[Problem]:
    """Return a problem for each fan-out whose source is an input of another type than array."""
    problems = []
    for node_id, model in models.items():
        if not isinstance(model, schema.FanOutModel):
            continue
        for source, path in _sources(model, ("nodes", node_id)):
            match = _WHOLE_INPUT.fullmatch(source) if isinstance(source, str) else None
            kind = None if match is None else types.get(match[1])
            if match is not None and kind not in (None, "array"):
                message = f"a fan-out runs over a list, and the input {match[1]!r} is of type {kind}"
                problems.append(document.problem(message, path, hint="declare it as a list (type: array)"))
    return problems


def _sources(model: schema.FanOutModel, path: Path) -> Iterator[tuple[Any, Path]]:
    """Yield the source of a fan-out and of each fan-out in it."""
    yield model.source, (*path, "source")
    task: Any = model.task
    while isinstance(task, dict) and task.get("type") == "fan_out":
        path = (*path, "task")
        yield task.get("source"), (*path, "source")
        task = task.get("task")
