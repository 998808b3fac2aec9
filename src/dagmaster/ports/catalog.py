"""The STAC catalog: collections and items as plain JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dagmaster.json_types import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """How many items were created, updated, or already stored unchanged."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The conditions of a search. Empty or None: any."""

    collections: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    bbox: tuple[float, float, float, float] | None = None
    """West, south, east, north. West greater than east: across the antimeridian."""
    datetime: str | None = None
    """As in STAC: a time, or `from/to`; each end may be `..`."""
    limit: int = 100


class Catalog(Protocol):
    """Collections and items. Its methods block.

    Items are identified by collection and id; registering is idempotent.

    Many workers may register concurrently without loss or duplicates. Items are returned as they were
    registered. Methods raise `CatalogUnavailable` if it does not respond, and `PermanentError` of kind
    `invalid_input` if an item is invalid (`geo/stac_items.py`) or its collection does not exist.
    """

    def ensure_collection(self, collection: JsonObject) -> bool:
        """Create a collection, unless it exists; return whether it was created.

        An existing one is not changed.

        Its extent grows with registered items, and does not shrink when items are removed.
        """

    def collection(self, collection_id: str) -> dict[str, Any] | None:
        """Return one collection."""

    def collections(self) -> list[dict[str, Any]]:
        """Return all collections, by id."""

    def counts(self) -> dict[str, int]:
        """Return the number of items by collection; empty collections may be missing."""

    def register(self, items: Sequence[JsonObject]) -> Registered:
        """Create or replace items by id, all or none."""

    def item(self, collection_id: str, item_id: str) -> dict[str, Any] | None:
        """Return one item."""

    def search(self, search: Search) -> list[dict[str, Any]]:
        """Return items that intersect the box and the time range, newest first, then by id."""

    def items(self, collection_id: str) -> Iterator[dict[str, Any]]:
        """Yield all items of a collection by id."""

    def remove(self, collection_id: str, item_ids: Sequence[str]) -> int:
        """Remove items; return how many existed."""
