"""The clock of a run in memory, which knows when only time can move a job."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from dagmaster.host.clocks import SystemClock

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from dagmaster.ports.clock import Clock


class IdleClock:
    """A clock for an orchestrator that is alone with its store.

    The orchestrator waits on the clock of its store whenever it has nothing to do. If nothing else is under
    way then (no task, result, command or approval), only time can move the job: a virtual clock may jump. If
    no timer is set either, nothing can.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.has_work: Callable[[], bool] = lambda: False
        self._is_waiting: Callable[[], bool] = lambda: False
        self._on_idle: Callable[[bool], None] = lambda _has_timer: None

    def attach(self, *, is_waiting: Callable[[], bool], on_idle: Callable[[bool], None]) -> None:
        """Set what else the run waits for, and what is called when only time is left.

        The call tells whether a timer is set.
        """
        self._is_waiting = is_waiting
        self._on_idle = on_idle

    def now(self) -> float:
        return self._clock.now()

    async def wait(
        self,
        event: asyncio.Event,
        until: float | None,
        *,
        idle: bool,  # noqa: ARG002 - the port
    ) -> None:
        is_idle = not self.has_work() and not self._is_waiting()
        if is_idle:
            self._on_idle(until not in (None, inf))
        await self._clock.wait(event, None if until == inf else until, idle=is_idle)
