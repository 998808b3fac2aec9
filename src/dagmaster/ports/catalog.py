"""The catalog of what was made: STAC collections and items, as plain JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What became of items: made, changed, or there already as they were."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is looked for. Empty or None: anything."""

    collections: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    bbox: tuple[float, float, float, float] | None = None
    """West, south, east, north. West beyond east: across the antimeridian."""
    datetime: str | None = None
    """As STAC writes it: a moment, or `from/to`, each end may be `..`."""
    limit: int = 100


class Catalog(Protocol):
    """Collections and items. It blocks. An item is known by its collection and id: registered twice, it is there once.

    Many workers register at once, and nothing is lost or there twice. What comes out equals what went in, JSON for
    JSON. `CatalogUnavailable`: it does not answer. `PermanentError` of kind `invalid_input`: a catalog cannot take
    this (`geo/stac_items.py`), or its collection is not there.
    """

    def ensure_collection(self, collection: dict[str, Any]) -> bool:
        """Have this collection. True: it was made. One that is there stays as it is.

        Its extent grows with the items that come, and does not shrink when they go.
        """

    def collection(self, collection_id: str) -> dict[str, Any] | None:
        """Return one collection."""

    def collections(self) -> list[dict[str, Any]]:
        """Return all collections, by id."""

    def counts(self) -> dict[str, int]:
        """Return how many items each collection has; those that have none may be left out."""

    def register(self, items: Sequence[dict[str, Any]]) -> Registered:
        """Have these items, all or none. The same id again replaces what was there."""

    def item(self, collection_id: str, item_id: str) -> dict[str, Any] | None:
        """Return one item."""

    def search(self, wanted: Search) -> list[dict[str, Any]]:
        """Items whose geometry meets the box and whose time meets the span: the newest first, then by id."""

    def items(self, collection_id: str) -> Iterator[dict[str, Any]]:
        """Return all items of a collection, however many, by id."""

    def remove(self, collection_id: str, item_ids: Sequence[str]) -> int:
        """Take items away; how many were there."""
