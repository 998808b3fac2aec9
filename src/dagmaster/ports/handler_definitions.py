"""What workers publish about their handlers, so that others can validate workflows without the code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.json_types import JsonValue


class HandlerDefinition(NamedTuple):
    """A version of a handler as it is published.

    `document` is JSON, made by `authoring.handler_definitions`.
    """

    name: str
    version: str
    content_hash: str
    document: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerRecord:
    """A published handler: the version that live workers have, else the one that was published last.

    `workers`: how many live workers have this version. `other_versions`: the other published ones, newest first.
    """

    name: str
    version: str
    definition: Mapping[str, JsonValue]
    published_at: float
    workers: int
    other_versions: tuple[str, ...]
