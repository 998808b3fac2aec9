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

    OUTPUTS = "outputs"
    ITEMS = "items"


class ValueKey(NamedTuple):
    """A value of a fan-out: the outputs of its children, or the items of its frozen source."""

    kind: ValueKind
    node: str


class Values(Protocol):
    """Loads many values of a job at once."""

    async def load_outputs(self, job_id: str, node_ids: Collection[str]) -> Mapping[str, JsonValue]:
        """Return the stored outputs of completed nodes by node; missing ones are left out."""

    async def load(self, job_id: str, keys: Collection[ValueKey]) -> Mapping[ValueKey, JsonValue]:
        """Return the stored values of fan-outs; missing ones are left out.

        Outputs of children come in index order, with None for a child that has none; outputs of nested
        fan-outs are lists of lists.
        """

    async def resolve_value(self, value: JsonText) -> JsonValue:
        """Return the value of a reported output that is not committed yet."""

    async def blob_bytes(
        self, job_id: str, node_ids: Collection[str], reported: Collection[JsonText] = ()
    ) -> int:
        """Return the size of the stored and reported outputs of nodes that are blobs; others are short."""
