"""The source of new ids. `dagmaster.host.snowflakes` has the implementation."""

from __future__ import annotations

from typing import Final, Protocol

EPOCH_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z, where the milliseconds in ids begin. 41 bits of them reach into 2095."""


class Ids(Protocol):
    """Generates ids that no other process generates."""

    def new(self) -> str:
        """Return a new id, greater than all before it."""
