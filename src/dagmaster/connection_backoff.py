"""An outage of something that comes back: told once when it starts and once when it is over, with growing pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import logging

FIRST_SECONDS: Final = 0.1


class ConnectionBackoff:
    """Whether the other side is away, and how long to rest until the next try."""

    def __init__(self, logger: logging.Logger, *, most_seconds: float = 5.0) -> None:
        self._logger = logger
        self._most_seconds = most_seconds
        self._rest = 0.0

    def away(self, error: Exception) -> float:
        """It did not answer. Gives the seconds to rest."""
        if not self._rest:
            self._logger.warning("%s; trying again until it is there", error)
        self._rest = min(max(self._rest * 2, FIRST_SECONDS), self._most_seconds)
        return self._rest

    def lost(self) -> None:
        """A connection broke off. The next call may find it again before anybody notices: it is told nevertheless."""
        if not self._rest:
            self._logger.warning("the connection to the database was lost; trying again until it is there")
            self._rest = FIRST_SECONDS

    def over(self) -> None:
        """It answered."""
        if self._rest:
            self._logger.warning("the database is there again")
        self._rest = 0.0
