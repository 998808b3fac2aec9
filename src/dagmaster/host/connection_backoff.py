"""Backoff while a remote side is unavailable, with one log line when the outage starts and ends.

A full disk or a standby fails some calls and not others: that is one condition, which is logged when it
starts and when no call has met it for a while, however often calls succeed in between.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.errors import DagmasterError
from dagmaster.ports.database_conditions import CONDITION_SENTENCES
from dagmaster.ports.default_settings import RECONNECT_MAX_SECONDS

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

FIRST_SECONDS: Final = 0.1
QUIET_SECONDS: Final = 60.0
"""How long no call must have met a condition until it is over."""


class _Condition(NamedTuple):
    """A condition of the database that fails some calls, and when a call met it last."""

    kind: type[Exception]
    code: str
    message: str
    met_at: float
    delay: float


class ConnectionBackoff:
    """Tracks an outage and the delay until the next try."""

    def __init__(
        self,
        logger: logging.Logger,
        *,
        max_seconds: float = RECONNECT_MAX_SECONDS,
        remote: str = "database",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._condition: _Condition | None = None
        self._remote = remote
        self._max_seconds = max_seconds
        self._delay = 0.0
        self.failures = 0
        """How many failures and lost connections were recorded."""

    def on_failure(self, error: Exception) -> float:
        """Record a failed call; return the seconds to wait before the next try."""
        self.failures += 1
        if isinstance(error, DagmasterError) and error.code in CONDITION_SENTENCES:
            return self._on_condition(error)
        if not self._delay:
            self._logger.warning("%s; retrying with backoff", error)
        self._delay = min(max(self._delay * 2, FIRST_SECONDS), self._max_seconds)
        return self._delay

    def counters(self) -> dict[str, Any]:
        """Return what heartbeats say of a condition that calls have met lately."""
        condition = self._condition
        if condition is None or self._clock() - condition.met_at >= QUIET_SECONDS:
            return {}
        return {"database_condition": condition.code}

    def _on_condition(self, error: DagmasterError) -> float:
        """Record a call that met a condition; the delay grows until it is over."""
        known, now = self._condition, self._clock()
        is_new = known is None or known.kind is not type(error) or now - known.met_at >= QUIET_SECONDS
        if is_new:
            self._logger.warning("%s; retrying with backoff", error)
        last = 0.0 if known is None or is_new else known.delay
        delay = min(max(last * 2, FIRST_SECONDS), self._max_seconds)
        self._condition = _Condition(type(error), error.code, str(error), now, delay)
        return delay

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
        condition = self._condition
        if condition is not None and self._clock() - condition.met_at >= QUIET_SECONDS:
            self._logger.warning("no call has failed for %g s since: %s", QUIET_SECONDS, condition.message)
            self._condition = None
