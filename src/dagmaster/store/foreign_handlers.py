"""Handlers that only other workers have, and whose tasks this worker leaves to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

FOREIGN_SECONDS: Final = 10.0
"""How long a worker claims no tasks of a handler that another one has. If the other has gone, they wait so
long."""
_NONE: Final[frozenset[str]] = frozenset()


class ForeignHandlers:
    """The handlers of tasks that a worker released to another one, each for some seconds.

    A worker that claims such a task again as soon as it is queued wins every time against one that asks a
    server.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._until: dict[str, float] = {}

    def add(self, handler: str) -> None:
        """Leave tasks of a handler to others for some seconds."""
        self._until[handler] = self._now() + FOREIGN_SECONDS

    def names(self) -> frozenset[str]:
        """Return the handlers whose tasks are left to others now."""
        if not self._until:
            return _NONE
        now = self._now()
        self._until = {handler: until for handler, until in self._until.items() if until > now}
        return frozenset(self._until)
