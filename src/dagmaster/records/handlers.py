"""Records of the handlers that workers have published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from dagmaster.json_types import JsonObject
from dagmaster.records.record import INTERNAL, Record, Timestamp

_OF_DEFINITION: Final = ("description", "module", "queue", "timeout_seconds", "retry", "params", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerRecord(Record):
    """A handler in the version that live workers have, else in the last published one.

    `params` and `output` are JSON Schemas; null: not declared. `workers`: how many live workers have this
    version.
    """

    name: str
    version: str
    aliases: tuple[str, ...]
    description: str
    module: str
    queue: str | None
    timeout_seconds: float | None
    retry: JsonObject | None
    params: JsonObject | None
    output: JsonObject | None
    workers: int
    other_versions: tuple[str, ...]
    """Newest first."""
    published_at: Timestamp
    definition: Mapping[str, Any] = field(default_factory=dict, metadata=INTERNAL)
    """What its worker published, made by `authoring.handler_definitions`."""

    @classmethod
    def of_definition(cls, definition: Mapping[str, Any], **stored: Any) -> Self:
        """Return the record of what a worker published. `stored`: the fields that are not part of it."""
        shown: dict[str, Any] = {name: definition.get(name) for name in _OF_DEFINITION}
        return cls(definition=definition, aliases=tuple(definition.get("aliases") or ()), **shown, **stored)
