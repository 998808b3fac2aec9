"""The network between hosts and the database, with faults.

Every operation of a store is a request and a response. Either may be lost, and a request whose sender has
timed out may still be executed much later: a server may continue a statement after its client has
disconnected.
"""

from __future__ import annotations

import asyncio
import contextvars
import pickle
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import DagmasterError, DatabaseUnavailable, StatementFailed
from dagmaster.host.clocks import SystemClock
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.simulation.final_state import Violation
from dagmaster.simulation.loop import START
from dagmaster.store.memory.database import MemoryDatabase

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Generator

    from dagmaster.simulation.loop import Host, SimulatedLoop
    from dagmaster.simulation.oracle import Oracle

UNREACHABLE: Final = "the database cannot be reached"
LOSES_UNFLUSHED_SHARE: Final = 0.15
STOP_SHARE: Final = 0.3
FLUSHED: Final = frozenset(
    {"commit_turns", "load_owned", "claim", "release_stopped", "deregister", "submit", "send"}
)
"""Operations of orchestrators and clients that return when they, and all before them, are on disk. Other
writes may be lost in a crash of the database, which repeats work."""


@dataclass(slots=True, kw_only=True)
class Faults:
    """The faults of a schedule: a probability for each operation, and `limit`, the number of all faults.

    `loses_unflushed`: in an outage the server loses what it had not flushed. `stop`: services are stopped, as
    an operator does.
    """

    refused: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0
    crash: float = 0.0
    pause: float = 0.0
    slow: float = 0.0
    lost_notification: float = 0.0
    repeated_notification: float = 0.0
    outage: float = 0.0
    loses_unflushed: bool = False
    stop: bool = False
    limit: int = 0

    @classmethod
    def drawn(cls, rng: random.Random) -> Faults:
        """Draw some kinds of faults, not all: a fault in every schedule would hide the effects of others."""
        rate = rng.choice((0.005, 0.02, 0.06))
        kinds = (
            "refused",
            "unanswered",
            "late",
            "crash",
            "pause",
            "slow",
            "lost_notification",
            "repeated_notification",
            "outage",
        )
        weights: dict[str, Any] = {kind: rate * rng.choice((0, 0.5, 1, 2)) for kind in kinds}
        weights["lost_notification"] *= 5
        weights["repeated_notification"] *= 5
        weights["outage"] *= 0.1
        faults = cls(**weights, limit=rng.randint(1, 40))
        faults.stop = rng.random() < STOP_SHARE
        if rng.random() < LOSES_UNFLUSHED_SHARE:
            faults.loses_unflushed, faults.outage, faults.limit = True, 0.04, max(faults.limit, 20)
        return faults


class SimulatedClock(SystemClock):
    """The time of the simulation, which is the database's."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return START + self._loop.time()


TABLES: Final = (
    "graphs", "workflows", "active", "jobs", "keys", "queue", "results", "inbox", "attempts", "logs",
    "checkpoints", "orchestrators", "workers",
)  # fmt: skip


class SimulatedDatabase(MemoryDatabase):
    """The database. Its notifications are delayed, arrive in any order, and may be lost."""

    def __init__(self, network: Network) -> None:
        super().__init__(SimulatedClock(network.loop))
        self._network = network
        self._disk: bytes | None = None

    def flush(self, oracle: Oracle) -> None:
        """Save the current state as the state on disk."""
        self._disk = pickle.dumps(([getattr(self, name) for name in TABLES], oracle.state()))

    def crash(self, oracle: Oracle) -> None:
        """Restore the state on disk. So does the oracle: what is lost was not guaranteed."""
        if self._disk is not None:
            tables, state = pickle.loads(self._disk)  # noqa: S301 - our own
            for name, table in zip(TABLES, tables, strict=True):
                setattr(self, name, table)
            self.is_queue_sorted = False
            oracle.restore(state)

    def notify(self, channel: str, payload: str = "") -> None:
        """Call the listeners of a channel later."""
        for callback in tuple(self._listeners.get(channel, ())):
            self._network.deliver_notification(callback, payload)


class Network:
    """Executes operations, with faults until `calm` is called."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random, faults: Faults) -> None:
        self.loop = loop
        self.faults = faults
        self.is_stormy = True
        self.is_closed = False
        self.steps = 0
        self.trace: list[tuple[float, str, str]] = []
        self.crashed: Callable[[Host], None] = lambda _host: None
        self.database = SimulatedDatabase(self)
        self._rng = rng
        self._server = contextvars.copy_context()
        self._down_until = 0.0
        self._incarnation = 0
        self._read_in: dict[str, int] = {}

    # ── Faults ──

    def _happens(self, probability: float) -> bool:
        if not self.is_stormy or self.faults.limit <= 0 or self._rng.random() >= probability:
            return False
        self.faults.limit -= 1
        self.steps += 1
        return True

    def _delay(self) -> float:
        if self.is_stormy and self.faults.slow and self._rng.random() < self.faults.slow:
            return self._rng.uniform(0.01, 4.0)
        return 0.0002 + 0.002 * self._rng.random() ** 3

    def note(self, host: str, text: str) -> None:
        """Add an entry to the trace, which is printed for a violation."""
        self.trace.append((self.loop.time(), host, text))

    def calm(self) -> None:
        self.is_stormy = False
        self._down_until = 0.0

    # ── Operations and notifications ──

    def deliver_notification(self, callback: Callable[[str], None], payload: str) -> None:
        """Deliver a notification after a delay; it may be lost or repeated."""
        if self.loop.time() < self._down_until or self._happens(self.faults.lost_notification):
            self.note("network", f"a notification is lost: {payload}")
            return
        times = 2 if self._happens(self.faults.repeated_notification) else 1
        for _ in range(times):
            self.loop.call_later(self._delay(), callback, payload, context=self._server)

    def _start_outage(self, oracle: Oracle) -> None:
        """Stop the server for a while. Operations in flight are aborted."""
        loop = self.loop
        self._incarnation += 1
        self._down_until = loop.time() + self._rng.random() * self._rng.choice((0.5, 2.0, 15.0))
        # No service could renew its lease, so none expires within one lease.
        self.database.up_since = START + self._down_until
        forgets = self.faults.loses_unflushed and self._coin_flip()
        if forgets:
            self.database.crash(oracle)
        suffix = ", and loses data" if forgets else ""
        self.note("network", f"the database is down for {self._down_until - loop.time():.1f} s{suffix}")

    async def call(self, request: Request) -> Any:
        if self.is_closed:
            raise asyncio.CancelledError
        loop, faults, host = self.loop, self.faults, request.host
        if self._happens(faults.outage):
            self._start_outage(request.oracle)
        if loop.time() < self._down_until or self._happens(faults.refused):
            await asyncio.sleep(self._delay())
            self.note(host.name, f"{request.name}: refused")
            raise DatabaseUnavailable(UNREACHABLE)
        if not self._is_still_connected(request):
            self.note(host.name, f"{request.name}: the connection was lost since its data were read")
            raise DatabaseUnavailable(UNREACHABLE)
        if self._happens(faults.crash):
            is_sent = self._coin_flip()
            self.note(host.name, f"{request.name}: crashes {'after' if is_sent else 'before'} it is sent")
            if is_sent:
                self._send(request)
            loop.call_soon(self.crashed, host, context=self._server)
            return await loop.create_future()
        if self._happens(faults.pause):
            seconds = self._rng.uniform(0.5, 12.0)
            self.note(host.name, f"{request.name}: paused for {seconds:.1f} s")
            loop.call_soon(self._pause, host, seconds, context=self._server)
            if self._coin_flip():
                await asyncio.sleep(0)
        # A registration has a new id each time: a late one would belong to no service.
        if request.name != "register" and self._happens(faults.late):
            self._send(request, after=self._rng.choice((0.05, 1.0, 5.0, 20.0)))
            await asyncio.sleep(self._delay())
            self.note(host.name, f"{request.name}: timed out, and executed later")
            raise DatabaseUnavailable(UNREACHABLE)
        if self._happens(faults.unanswered):
            self._send(request)
            await asyncio.sleep(self._rng.uniform(0.005, 0.5))
            self.note(host.name, f"{request.name}: its response is lost")
            raise DatabaseUnavailable(UNREACHABLE)
        request.response = loop.create_future()
        self._send(request)
        return await request.response

    def _is_still_connected(self, request: Request) -> bool:
        """Return False for a turn with results that were read before the last outage: they may be lost."""
        if request.name == "read_results":
            self._read_in[request.host.name] = self._incarnation
        if request.name != "commit_turns":
            return True
        has_read = any(turn.has_read_results for turn in request.args[0])
        return not has_read or self._read_in[request.host.name] == self._incarnation

    def _coin_flip(self) -> bool:
        return self._rng.getrandbits(1) == 1

    def _pause(self, host: Host, seconds: float) -> None:
        self.loop.pause(host)
        self.loop.call_later(seconds, self.loop.wake, host, context=self._server)

    def _send(self, request: Request, *, after: float = 0.0) -> None:
        delay = self._delay() + after * self._rng.random()
        self.loop.call_later(delay, self._execute, request, self._incarnation, context=self._server)

    def _execute(self, request: Request, incarnation: int) -> None:
        if incarnation == self._incarnation:
            self._continue(request, request.begin())
        else:
            # The server went down meanwhile: operations in flight are aborted.
            self._respond(request, None, DatabaseUnavailable(UNREACHABLE))

    def _continue(self, request: Request, work: Coroutine[Any, Any, Any]) -> None:
        """Execute an operation: atomically, unless it yields."""
        value, problem = None, None
        try:
            seconds = work.send(None)
        except StopIteration as end:
            value = end.value
        except Violation:
            raise
        except Exception as error:  # noqa: BLE001 - every error is sent to the host
            problem = (
                error if isinstance(error, DagmasterError) else StatementFailed(f"{request.name}: {error!r}")
            )
        else:
            self.loop.call_later(seconds, self._continue, request, work, context=self._server)
            return
        self.note(
            request.host.name, request.name if problem is None else f"{request.name} was rejected: {problem}"
        )
        if problem is None:
            request.oracle.after(request.name, request.store, request.args, value)
            if self.faults.loses_unflushed and request.is_flushed:
                self.database.flush(request.oracle)
        self._respond(request, value, problem)

    def _respond(self, request: Request, value: Any, problem: Exception | None) -> None:
        if request.response is not None:
            self.loop.call_later(
                self._delay(), _set_response, request.response, value, problem, context=self._server
            )


class Request:
    """An operation of a store with a copy of its arguments: what was sent does not change any more."""

    __slots__ = ("args", "host", "name", "options", "oracle", "response", "store")

    def __init__(
        self, remote: RemoteStore, name: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        self.host = remote.host
        self.oracle = remote.oracle
        self.name = name
        # A copy, so that later changes of the sender have no effect, not even a new id.
        self.store = remote.store if name == "register" else _snapshot(remote.store)
        self.args = tuple(_copied(argument) for argument in args)
        self.options = options
        self.response: asyncio.Future[Any] | None = None

    @property
    def is_flushed(self) -> bool:
        """Return whether it is on disk when it returns."""
        return self.name in FLUSHED and not hasattr(self.store, "worker_id")

    def begin(self) -> Coroutine[Any, Any, Any]:
        self.oracle.before(self.name, self.args)
        work: Coroutine[Any, Any, Any] = getattr(self.store, self.name)(*self.args, **self.options)
        return work


class Yield:
    """A pause inside an operation, in which others are executed. No correct operation has one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __await__(self) -> Generator[float, None, None]:
        yield self._seconds


def _set_response(response: asyncio.Future[Any], value: Any, problem: Exception | None) -> None:
    if response.done():
        return
    if problem is None:
        response.set_result(value)
    else:
        response.set_exception(problem)


class RemoteStore:
    """A store as a host sees it: its operations cross the network; its events and its clock are local."""

    def __init__(self, network: Network, host: Host, store: Any, oracle: Oracle) -> None:
        self.host = host
        self.store = store
        self.oracle = oracle
        self._network = network
        self._class: Any = type(store)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.store, name)
        if not _is_operation(self._class, name):
            return attribute

        async def call(*args: Any, **options: Any) -> Any:
            return await self._network.call(Request(self, name, args, options))

        self.__dict__[name] = call
        return call


@cache
def _is_operation(store_class: type, name: str) -> bool:
    return asyncio.iscoroutinefunction(getattr(store_class, name, None))


def _snapshot(store: Any) -> Any:
    """Return a shallow copy of a store. `copy.copy` takes five times as long, for each request."""
    copied = object.__new__(type(store))
    copied.__dict__.update(store.__dict__)
    return copied


def _copied(argument: Any) -> Any:
    if not isinstance(argument, list):
        return argument
    return [replace(item) if isinstance(item, TaskReport) else item for item in argument]
