"""Reads the values of a job: outputs, and the frozen sources of fan-outs."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.json_text import JsonText


class ValueKind(StrEnum):
    """The kinds of values."""

    OUTPUT = "output"
    OUTPUTS = "outputs"
    ITEMS = "items"

    # That of the text: an enum is hashed in Python, and each key of 100,000 values is hashed several times.
    __hash__ = str.__hash__


class ValueKey(NamedTuple):
    """One value: the output of a node, the outputs of a fan-out's children, or the items of its frozen source."""

    kind: ValueKind
    node: str


class Values(Protocol):
    """Loads many values of a job at once."""

    async def load(self, job_id: str, keys: Collection[ValueKey]) -> Mapping[ValueKey, JsonValue]:
        """Return the stored values; missing ones are left out.

        Outputs of children come in index order, with None for a child that has none; those of nested fan-outs are
        lists of lists.
        """

    async def resolve_value(self, value: JsonText) -> JsonValue:
        """Return the value of a reported output that is not committed yet."""

    async def blob_bytes(self, job_id: str, node_ids: Collection[str], reported: Collection[JsonText] = ()) -> int:
        """Return the size of the outputs of nodes, and of reported ones, that are blobs; the others are short."""
