"""The clock as its users see it: the only way in which time enters.

`dagmaster.host.clocks` has the implementations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio


class Clock(Protocol):
    """A source of time, in seconds since the epoch."""

    def now(self) -> float:
        """Return the current time."""

    async def wait(self, event: asyncio.Event, until: float | None, *, idle: bool) -> None:
        """Wait for the event, at most until this time. `idle`: only the clock can set it."""
