"""A page of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dagmaster.records.record import Record

Position = tuple[int | float | str, ...]
"""Where a page ended: the key of its last record."""
T = TypeVar("T", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some items of a list, and the cursor of the next page; None on the last page."""

    items: tuple[T, ...]
    next_cursor: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"items": [item.to_dict() for item in self.items], "next_cursor": self.next_cursor}
