"""Backoff while a remote side is unavailable, with one log line when the outage starts and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.ports.default_settings import RECONNECT_MAX_SECONDS

if TYPE_CHECKING:
    import logging

FIRST_SECONDS: Final = 0.1


class ConnectionBackoff:
    """Tracks an outage and the delay until the next try."""

    def __init__(
        self, logger: logging.Logger, *, max_seconds: float = RECONNECT_MAX_SECONDS, remote: str = "database"
    ) -> None:
        self._logger = logger
        self._remote = remote
        self._max_seconds = max_seconds
        self._delay = 0.0
        self.failures = 0
        """How many failures and lost connections were recorded."""

    def on_failure(self, error: Exception) -> float:
        """Record a failed call; return the seconds to wait before the next try."""
        if not self._delay:
            self._logger.warning("%s; retrying with backoff", error)
        self.failures += 1
        self._delay = min(max(self._delay * 2, FIRST_SECONDS), self._max_seconds)
        return self._delay

    def on_disconnect(self) -> None:
        """Record a lost connection.

        It is logged even if the next call reconnects before any caller notices.
        """
        self.failures += 1
        if not self._delay:
            self._logger.warning("the connection to the %s was lost; reconnecting with backoff", self._remote)
            self._delay = FIRST_SECONDS

    def on_success(self, since: int | None = None) -> None:
        """Record a successful call.

        `since`: `failures` when the call began. A call that was under way when a connection was lost does not
        end the outage: its answer may have come from the server that has died since.
        """
        if since is not None and since != self.failures:
            return
        if self._delay:
            self._logger.warning("the connection to the %s was restored", self._remote)
        self._delay = 0.0
