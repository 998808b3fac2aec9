"""The source of new ids. `dagmaster.snowflakes` has the implementation."""

from __future__ import annotations

from typing import Protocol


class Ids(Protocol):
    """Generates ids that no other process generates."""

    def new(self) -> str:
        """Return a new id, greater than all before it."""
