"""The way between hosts and the database, which loses, delays, repeats nothing and promises nothing.

Every operation of a store is a request and an answer. Either may be lost, and a request that its sender has given up
may still be carried out, much later: so it is with a server that goes on with a statement when the client is gone.
"""

from __future__ import annotations

import asyncio
import contextvars
import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from dagmaster.clocks import SystemClock
from dagmaster.errors import DagmasterError, DatabaseUnavailable, StatementFailed
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.simulation.loop import START
from dagmaster.simulation.oracle import Violation
from dagmaster.store.memory.database import MemoryDatabase

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Generator

    from dagmaster.simulation.loop import Host, SimulatedLoop
    from dagmaster.simulation.oracle import Oracle

AWAY: Final = "the database cannot be reached"
AMNESIACS: Final = 0.15
STOPPERS: Final = 0.3
FLUSHED: Final = frozenset({"commit_turns", "load_owned", "claim", "release_stopped", "deregister", "submit", "send"})
"""What an orchestrator or a client writes and waits for until it is on the disk, with all before it. What else is
written may be taken back by a crash, and work is repeated."""


@dataclass(slots=True, kw_only=True)
class Faults:
    """What goes wrong, and how often: a probability for each operation. `most`: so many times in all.

    `amnesia`: in an outage the server forgets what it had not flushed. `stop`: services are stopped as operators do.
    """

    refused: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0
    crash: float = 0.0
    pause: float = 0.0
    slow: float = 0.0
    deaf: float = 0.0
    echo: float = 0.0
    outage: float = 0.0
    amnesia: bool = False
    stop: bool = False
    most: int = 0

    @classmethod
    def drawn(cls, chance: random.Random) -> Faults:
        """Draw some kinds of faults, not all: a fault that is always there hides what the others would show."""
        rate = chance.choice((0.005, 0.02, 0.06))
        kinds = ("refused", "unanswered", "late", "crash", "pause", "slow", "deaf", "echo", "outage")
        weights: dict[str, Any] = {kind: rate * chance.choice((0, 0.5, 1, 2)) for kind in kinds}
        weights["deaf"] *= 5
        weights["echo"] *= 5
        weights["outage"] *= 0.1
        faults = cls(**weights, most=chance.randint(1, 40))
        faults.stop = chance.random() < STOPPERS
        if chance.random() < AMNESIACS:
            faults.amnesia, faults.outage, faults.most = True, 0.04, max(faults.most, 20)
        return faults


class SimulatedClock(SystemClock):
    """The time of the simulation, which is the database's."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        """Give the time."""
        return START + self._loop.time()


TABLES: Final = (
    "graphs", "workflows", "active", "jobs", "keys", "queue", "results", "inbox", "attempts", "logs", "checkpoints",
    "orchestrators", "workers",
)  # fmt: skip


class SimulatedDatabase(MemoryDatabase):
    """The tables, with notifications that take a while, come in any order, and may be lost."""

    def __init__(self, network: Network) -> None:
        super().__init__(SimulatedClock(network.loop))
        self._network = network
        self._disk: bytes | None = None

    def flush(self, oracle: Oracle) -> None:
        """Everything so far is on the disk."""
        self._disk = pickle.dumps(([getattr(self, name) for name in TABLES], oracle.books()))

    def crash(self, oracle: Oracle) -> None:
        """Forget what is not on the disk. The oracle forgets with it: nobody was promised that."""
        if self._disk is not None:
            tables, books = pickle.loads(self._disk)  # noqa: S301 - our own
            for name, table in zip(TABLES, tables, strict=True):
                setattr(self, name, table)
            self.is_queue_sorted = False
            oracle.open_books(books)

    def tell(self, channel: str, payload: str = "") -> None:
        """Tell those who listen, later."""
        for heard in tuple(self._listeners.get(channel, ())):
            self._network.carry(heard, payload)


class Network:
    """Carries operations, and has them fail as the faults say, for as long as the storm lasts."""

    def __init__(self, loop: SimulatedLoop, chance: random.Random, faults: Faults) -> None:
        self.loop = loop
        self.faults = faults
        self.is_stormy = True
        self.is_over = False
        self.steps = 0
        self.trace: list[tuple[float, str, str]] = []
        self.crashed: Callable[[Host], None] = lambda _host: None
        self.database = SimulatedDatabase(self)
        self._chance = chance
        self._server = contextvars.copy_context()
        self._away_until = 0.0
        self._life = 0

    # ── Faults ──

    def _happens(self, probability: float) -> bool:
        if not self.is_stormy or self.faults.most <= 0 or self._chance.random() >= probability:
            return False
        self.faults.most -= 1
        self.steps += 1
        return True

    def _delay(self) -> float:
        if self.is_stormy and self.faults.slow and self._chance.random() < self.faults.slow:
            return self._chance.uniform(0.01, 4.0)
        return 0.0002 + 0.002 * self._chance.random() ** 3

    def note(self, who: str, what: str) -> None:
        """Remember what happened, for whoever looks into a broken promise."""
        self.trace.append((self.loop.time(), who, what))

    def calm(self) -> None:
        """From here on nothing goes wrong."""
        self.is_stormy = False
        self._away_until = 0.0

    # ── Carrying ──

    def carry(self, heard: Callable[[str], None], payload: str) -> None:
        """Carry a notification."""
        if self.loop.time() < self._away_until or self._happens(self.faults.deaf):
            self.note("network", f"a notification is lost: {payload}")
            return
        times = 2 if self._happens(self.faults.echo) else 1
        for _ in range(times):
            self.loop.call_later(self._delay(), heard, payload, context=self._server)

    def _go_away(self, oracle: Oracle) -> None:
        """Take the server down, with everything that was under way, and bring it back after a while."""
        loop = self.loop
        self._life += 1
        self._away_until = loop.time() + self._chance.random() * self._chance.choice((0.5, 2.0, 15.0))
        # Nobody could renew, so nobody is dead for one lease.
        self.database.up_since = START + self._away_until
        forgets = self.faults.amnesia and self._is_heads()
        if forgets:
            self.database.crash(oracle)
        how = ", and forgets" if forgets else ""
        self.note("network", f"the database is away for {self._away_until - loop.time():.1f} s{how}")

    async def call(self, request: Request) -> Any:
        """Carry one operation there, and its answer back."""
        if self.is_over:
            raise asyncio.CancelledError
        loop, faults, host = self.loop, self.faults, request.host
        if self._happens(faults.outage):
            self._go_away(request.oracle)
        if loop.time() < self._away_until or self._happens(faults.refused):
            await asyncio.sleep(self._delay())
            self.note(host.name, f"{request.name}: refused")
            raise DatabaseUnavailable(AWAY)
        if self._happens(faults.crash):
            is_sent = self._is_heads()
            self.note(host.name, f"{request.name}: crashes {'after' if is_sent else 'before'} it is sent")
            if is_sent:
                self._send(request)
            loop.call_soon(self.crashed, host, context=self._server)
            return await loop.create_future()
        if self._happens(faults.pause):
            seconds = self._chance.uniform(0.5, 12.0)
            self.note(host.name, f"{request.name}: paused for {seconds:.1f} s")
            loop.call_soon(self._pause, host, seconds, context=self._server)
            if self._is_heads():
                await asyncio.sleep(0)
        # Who registers has a new name each time: a late one would be nobody's.
        if request.name != "register" and self._happens(faults.late):
            self._send(request, after=self._chance.choice((0.05, 1.0, 5.0, 20.0)))
            await asyncio.sleep(self._delay())
            self.note(host.name, f"{request.name}: given up, and carried out later")
            raise DatabaseUnavailable(AWAY)
        if self._happens(faults.unanswered):
            self._send(request)
            await asyncio.sleep(self._chance.uniform(0.005, 0.5))
            self.note(host.name, f"{request.name}: its answer is lost")
            raise DatabaseUnavailable(AWAY)
        request.answer = loop.create_future()
        self._send(request)
        return await request.answer

    def _is_heads(self) -> bool:
        return self._chance.getrandbits(1) == 1

    def _pause(self, host: Host, seconds: float) -> None:
        self.loop.pause(host)
        self.loop.call_later(seconds, self.loop.wake, host, context=self._server)

    def _send(self, request: Request, *, after: float = 0.0) -> None:
        delay = self._delay() + after * self._chance.random()
        self.loop.call_later(delay, self._carry_out, request, self._life, context=self._server)

    def _carry_out(self, request: Request, life: int) -> None:
        if life == self._life:
            self._go_on(request, request.begin())
        else:
            # The server went down meanwhile: what was under way is not carried out.
            self._answer(request, None, DatabaseUnavailable(AWAY))

    def _go_on(self, request: Request, work: Coroutine[Any, Any, Any]) -> None:
        """Carry out an operation: whole, unless it breathes."""
        value, problem = None, None
        try:
            seconds = work.send(None)
        except StopIteration as end:
            value = end.value
        except Violation:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the host hears of it
            problem = error if isinstance(error, DagmasterError) else StatementFailed(f"{request.name}: {error!r}")
        else:
            self.loop.call_later(seconds, self._go_on, request, work, context=self._server)
            return
        self.note(request.host.name, request.name if problem is None else f"{request.name} was refused: {problem}")
        if problem is None:
            request.oracle.after(request.name, request.store, request.args, value)
            if self.faults.amnesia and request.is_flushed:
                self.database.flush(request.oracle)
        self._answer(request, value, problem)

    def _answer(self, request: Request, value: Any, problem: Exception | None) -> None:
        if request.answer is not None:
            self.loop.call_later(self._delay(), _settle, request.answer, value, problem, context=self._server)


class Request:
    """An operation of a store that somebody asked for. What was sent does not change any more."""

    __slots__ = ("answer", "args", "host", "name", "options", "oracle", "store")

    def __init__(self, remote: RemoteStore, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.host = remote.host
        self.oracle = remote.oracle
        self.name = name
        # Whatever becomes of the sender: neither its words nor its name.
        self.store = remote.store if name == "register" else _as_it_is(remote.store)
        self.args = tuple(_copied(each) for each in args)
        self.options = options
        self.answer: asyncio.Future[Any] | None = None

    @property
    def is_flushed(self) -> bool:
        """Return whether it is on the disk when it is answered."""
        return self.name in FLUSHED and not hasattr(self.store, "worker_id")

    def begin(self) -> Coroutine[Any, Any, Any]:
        """Begin to carry it out."""
        self.oracle.before(self.name, self.args)
        work: Coroutine[Any, Any, Any] = getattr(self.store, self.name)(*self.args, **self.options)
        return work


class Breath:
    """A pause inside an operation, in which others are served. No operation that is right has one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __await__(self) -> Generator[float, None, None]:
        yield self._seconds


def _settle(answer: asyncio.Future[Any], value: Any, problem: Exception | None) -> None:
    if answer.done():
        return
    if problem is None:
        answer.set_result(value)
    else:
        answer.set_exception(problem)


class RemoteStore:
    """A store as a host sees it: its operations cross the network, its events and its clock are at hand."""

    def __init__(self, network: Network, host: Host, store: Any, oracle: Oracle) -> None:
        self.host = host
        self.store = store
        self.oracle = oracle
        self._network = network

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not callable(found) or not asyncio.iscoroutinefunction(found):
            return found

        async def cross(*args: Any, **options: Any) -> Any:
            return await self._network.call(Request(self, name, args, options))

        self.__dict__[name] = cross
        return cross


def _as_it_is(store: Any) -> Any:
    """Return a shallow copy of a store. `copy.copy` takes five times as long, for each request."""
    same = object.__new__(type(store))
    same.__dict__.update(store.__dict__)
    return same


def _copied(argument: Any) -> Any:
    if not isinstance(argument, list):
        return argument
    return [replace(each) if isinstance(each, TaskReport) else each for each in argument]
