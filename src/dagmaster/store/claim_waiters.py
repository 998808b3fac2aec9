"""The workers of one server that wait for tasks, and which of them is woken. Shared by the stores."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from dagmaster.ports.run_queues import is_served

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Kind = tuple[frozenset[str], frozenset[str]]
"""Queues and handlers: workers that have both in common wait for the same tasks."""


class ClaimWaiters:
    """Wakes one worker of each kind for a notification: all of them would ask for the same few tasks."""

    def __init__(self) -> None:
        # In the order in which they began to wait.
        self._waiting: dict[Kind, dict[asyncio.Event, None]] = {}

    @contextlib.contextmanager
    def waiting(self, kind: Kind) -> Iterator[asyncio.Event]:
        """Provide the wake-up of a worker while it waits. One that it leaves set is passed on to the next."""
        wakeup = asyncio.Event()
        self._waiting.setdefault(kind, {})[wakeup] = None
        try:
            yield wakeup
        finally:
            del self._waiting[kind][wakeup]
            if not self._waiting[kind]:
                del self._waiting[kind]
            elif wakeup.is_set():
                self._wake([kind])

    def on_tasks(self, queue: str) -> None:
        """Wake one worker of each kind that serves a queue with new tasks."""
        self._wake([kind for kind in self._waiting if is_served(queue, kind[0])])

    def _wake(self, kinds: Iterable[Kind]) -> None:
        for kind in kinds:
            wakeup = next((event for event in self._waiting[kind] if not event.is_set()), None)
            if wakeup is not None:
                wakeup.set()
