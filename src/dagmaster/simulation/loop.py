"""A simulated event loop: its time is a number, its order comes from a seed, its hosts may crash or pause.

Every callback belongs to the host in whose context it was created. One host runs its callbacks in their
order, as a process does; which host runs next is drawn. Callbacks of a dead host never run, callbacks of a
paused host run after it is woken, while time passes. Nothing here uses the real clock, a thread or a socket.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from asyncio import _set_running_loop as set_running_loop  # documented for implementations of a loop
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine

START: Final = 1_790_000_000.0
"""The time at which every simulation starts."""

MAX_CALLBACKS: Final = 3_000_000


class Host:
    """A process: callbacks of its context pause and end with it."""

    __slots__ = ("is_dead", "is_paused", "name", "ready")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.ready: deque[_Call] = deque()

    def context(self) -> contextvars.Context:
        context = contextvars.copy_context()
        context.run(HOST.set, self)
        return context


class _Call:
    """A scheduled callback, and its handle, of which asyncio only needs `cancel`."""

    __slots__ = ("args", "callback", "context", "host", "is_cancelled")

    def __init__(self, callback: Any, args: Any, context: contextvars.Context) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.host = context.get(HOST, SERVER)
        self.is_cancelled = False

    def cancel(self) -> None:
        # Its callback is released at once: it may be scheduled for much later.
        self.is_cancelled = True
        self.callback = self.args = None


SERVER: Final = Host("server")
"""The host of everything else: the database, the network, the simulation itself."""

HOST: Final[contextvars.ContextVar[Host]] = contextvars.ContextVar("host", default=SERVER)


class Stuck(AssertionError):
    """No callback is scheduled, and the awaited future is not done."""


class SimulatedLoop:
    """Runs one simulation. It implements what asyncio needs of a loop for tasks, timers and events."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        # Typed as asyncio expects it.
        self._loop: Any = self
        self._now = 0.0
        self._order = count()
        self._timers: list[tuple[float, int, _Call]] = []
        self._server = Host("server")
        self._ready: list[Host] = []
        self.hosts: list[Host] = []
        self._calls = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._next_removal = 50
        self.problems: list[str] = []

    # ── Time and callbacks ──

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> _Call:
        call = _Call(callback, args, contextvars.copy_context() if context is None else context)
        self._add(call)
        return call

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> _Call:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> _Call:
        call = _Call(callback, args, contextvars.copy_context() if context is None else context)
        heapq.heappush(self._timers, (when, next(self._order), call))
        return call

    def _add(self, call: _Call) -> None:
        host = self._server if call.host is SERVER else call.host
        if not host.ready and not host.is_paused and not host.is_dead:
            self._ready.append(host)
        host.ready.append(call)

    def wake(self, host: Host) -> None:
        if host.is_paused:
            host.is_paused = False
            if host.ready and not host.is_dead:
                self._ready.append(host)

    def pause(self, host: Host) -> None:
        host.is_paused = True
        if host in self._ready:
            self._ready.remove(host)

    def kill(self, host: Host) -> None:
        host.is_dead = True
        if host in self._ready:
            self._ready.remove(host)

    def host(self, name: str) -> Host:
        host = Host(name)
        self.hosts.append(host)
        return host

    # ── Running ──

    def run_until_complete(self, future: Any) -> Any:
        set_running_loop(self._loop)
        try:
            task = asyncio.ensure_future(future, loop=self._loop)
            while not task.done():
                self._step()
            return task.result()
        finally:
            set_running_loop(None)

    def _step(self) -> None:
        ready = self._ready
        if not ready:
            self._pass_time()
            return
        index = int(self._rng.random() * len(ready)) if len(ready) > 1 else 0
        host = ready[index]
        call = host.ready.popleft()
        if not host.ready:
            del ready[index]
        self._calls += 1
        if self._calls > MAX_CALLBACKS:
            raise Stuck(f"{MAX_CALLBACKS} callbacks ran without an end: there is an endless loop")
        if not call.is_cancelled:
            call.context.run(call.callback, *call.args)

    def _pass_time(self) -> None:
        while self._timers:
            when, _, call = heapq.heappop(self._timers)
            if call.is_cancelled or call.host.is_dead:
                continue
            self._now = max(self._now, when)
            self._add(call)
            # Timers that are due at the same time are ready together: their order is drawn.
            while self._timers and self._timers[0][0] <= self._now:
                _, _, more = heapq.heappop(self._timers)
                if not more.is_cancelled:
                    self._add(more)
            if self._ready:
                return
        raise Stuck("no callback is ready and no timer is set")

    def end(self) -> None:
        """Cancel all remaining tasks, also of dead hosts, and run them to their end."""
        for host in self.hosts:
            host.is_dead = host.is_paused = False
        self._ready = [host for host in (self._server, *self.hosts) if host.ready]
        set_running_loop(self._loop)
        try:
            for _ in range(20):
                left = [task for task in self._tasks if not task.done()]
                if not left:
                    return
                for task in left:
                    task.cancel()
                while self._ready:
                    self._step()
        finally:
            set_running_loop(None)

    # ── The interface that asyncio uses ──

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._loop)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **_: Any,
    ) -> asyncio.Task[Any]:
        """Create a task of this loop.

        It is referenced until it is done: tasks of dead hosts must not be collected.
        """
        task = asyncio.Task(coro, loop=self._loop, name=name, context=context)
        if len(self._tasks) >= self._next_removal:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._next_removal = 2 * len(self._tasks) + 50
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an error that no task awaits."""
        error = context.get("exception")
        self.problems.append(f"{context.get('message')}: {error!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False
