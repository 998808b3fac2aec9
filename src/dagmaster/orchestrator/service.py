"""An orchestrator: it owns jobs, and takes turns with them until it is told to stop.

One loop decides: wait until woken, gather what happened, advance the engine, write everything in one transaction. Two
duties beside it keep the owner alive and look after the dead. On any doubt jobs are dropped and loaded again: the rows
are the truth, memory is only fast.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

from dagmaster.connection_backoff import ConnectionBackoff
from dagmaster.engine.events import JobStarted, TimerFired
from dagmaster.errors import DatabaseUnavailable, OwnershipLost, StatementFailed
from dagmaster.orchestrator.audit_log import events_of
from dagmaster.orchestrator.child_jobs import ChildJobs
from dagmaster.orchestrator.graph_cache import GraphCache
from dagmaster.orchestrator.owned_job import OwnedJob
from dagmaster.orchestrator.pending_events import PendingEvents
from dagmaster.orchestrator.poll_schedule import PollSchedule
from dagmaster.orchestrator.result_reader import MANY_RESULTS, ResultReader
from dagmaster.orchestrator.turn import TurnResult, recover, run_turn
from dagmaster.orchestrator.turn_commit import redact_secret_inputs, to_commit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from dagmaster.engine.model import Job
    from dagmaster.ports.job_records import ClaimedJob, NewJob
    from dagmaster.ports.orchestrator_store import OrchestratorStore
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.turn_records import TurnCommit

_LOGGER = logging.getLogger("dagmaster.orchestrator")

MAX_COMMANDS: Final = 500
MAX_CLAIMS: Final = 500
MAX_REPORTED: Final = 100
QUARANTINE_SECONDS: Final = 30.0
"""How long a job rests that could not be advanced, which is our mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How often an orchestrator looks."""

    poll_seconds: float = 1.0
    heartbeat_seconds: float = 5.0
    scan_seconds: float = 5.0
    worker_scan_seconds: float = 1.0
    most_backoff_seconds: float = 5.0


class TurnObserver(Protocol):
    """Who watches turns. Called after the commit, in the loop: it must be quick."""

    def turn(self, job: Job, writes: TurnResult) -> None:
        """A turn was written."""


class Orchestrator:
    """Owns jobs. `queue`: only jobs of this queue, for a process that serves one job."""

    def __init__(
        self,
        store: OrchestratorStore,
        *,
        blobs: OutputBlobs,
        redact: Callable[[Any, Collection[str]], Any],
        timing: Timing | None = None,
        queue: str | None = None,
        observer: TurnObserver | None = None,
    ) -> None:
        self.store = store
        self.timing = timing or Timing()
        self.queue = queue
        self.observer = observer
        self.jobs: dict[str, OwnedJob] = {}
        self.counters = {"turns": 0, "results": 0, "jobs_claimed": 0, "jobs_finished": 0}
        self.ready = asyncio.Event()
        self._blobs = blobs
        self._redact = redact
        self._graphs = GraphCache(store)
        self._children = ChildJobs(store, self._graphs.get)
        self._timers: list[tuple[float, str, str]] = []
        # Jobs that could not be advanced (until when they rest, and over what), and those that are to be tried again.
        self._quarantined: dict[str, tuple[float, str]] = {}
        self._again: set[str] = set()
        self._strange: set[str] = set()
        self._reports = ResultReader(store)
        self._lookout = PollSchedule(store, self.timing.poll_seconds)
        self._stopping = asyncio.Event()
        self._outage = ConnectionBackoff(_LOGGER, max_seconds=self.timing.most_backoff_seconds)
        store.on_disconnect = self._outage.disconnected

    @property
    def quarantined(self) -> dict[str, str]:
        """Jobs that could not be advanced and wait for a retry, each with the type of its error."""
        return {job_id: reason for job_id, (_, reason) in self._quarantined.items()}

    # ── Living ──

    def stop(self) -> None:
        """Stop after the turn that is under way."""
        self._stopping.set()
        self.store.wakeup.set()

    async def run(self) -> None:
        """Live until stopped; then release every job. An outage of the database is waited for."""
        outage = self._outage
        registered = False
        while not self._stopping.is_set():
            try:
                if not registered:
                    await self.store.register()
                    registered = True
                await self._live()
            except OwnershipLost as error:
                _LOGGER.warning("%s: starting anew", error)
                registered = False
            except (DatabaseUnavailable, StatementFailed) as error:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), outage.failed(error))
            finally:
                self._forget()
        if registered:
            try:
                await self.store.deregister()
            except DatabaseUnavailable as error:
                _LOGGER.warning("%s; its jobs are claimed by others when its lease is over", error)

    async def _live(self) -> None:
        """Take turns, with the duties beside; until stopped, or until one of them fails."""
        await self._beat()
        for claimed in await self.store.load_owned():
            await self._hold(claimed)
        self._outage.recovered()
        self.store.pending_kinds.update(("results", "commands", "jobs"))
        fresh = self._take_all_up()
        work = [
            asyncio.create_task(self._turns(fresh)),
            asyncio.create_task(self._duty(self.timing.heartbeat_seconds, self._stay)),
            asyncio.create_task(self._duty(self.timing.scan_seconds, self._reclaim)),
            asyncio.create_task(self._duty(self.timing.worker_scan_seconds, self._bury_workers)),
        ]
        self.ready.set()
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in work:
                each.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        for each in work:
            if each in done:
                each.result()

    async def _duty(self, seconds: float, once: Callable[[], Any]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await once()

    async def _stay(self) -> None:
        await self._beat()
        self._outage.recovered()

    async def _beat(self) -> None:
        # Why a job stands still is asked of the database, not of this process.
        told = dict(islice(self._quarantined.items(), MAX_REPORTED))
        await self.store.heartbeat({**self.counters, "jobs": len(self.jobs), "quarantined": told})

    async def _reclaim(self) -> None:
        count = await self.store.reclaim()
        if count:
            _LOGGER.warning("jobs of dead orchestrators that can be claimed: %d", count)
            self._wake("jobs")
        # The answer to a claim may have been lost: a job that is ours and unknown twice in a row is loaded.
        strange = await self.store.owned_job_ids() - self.jobs.keys() - self._quarantined.keys()
        self._again |= strange & self._strange
        self._strange = strange
        if self._again:
            self._wake("jobs")

    async def _bury_workers(self) -> None:
        count = await self.store.mark_lost_tasks()
        if count:
            _LOGGER.warning("tasks of dead workers that are lost, and tried again: %d", count)
        await self.store.release_stopped()

    def _wake(self, what: str) -> None:
        self.store.pending_kinds.add(what)
        self.store.wakeup.set()

    # ── Turns ──

    async def _turns(self, gathered: dict[str, PendingEvents]) -> None:
        while not self._stopping.is_set():
            waiting = self._lookout.waiting()
            claimed = "jobs" in waiting and await self._claim(gathered)
            full = False
            if self._reports.is_due(waiting):
                full = await self._gather_results(waiting, gathered)
            if "commands" in waiting or claimed:
                await self._gather_commands(gathered)
            self._gather_timers(gathered)
            if self._again:
                await self._load_again(gathered)
            if gathered:
                turn, gathered = gathered, {}
                await self._take_turns(turn)
                if full:
                    self._wake("results")
                # Duties, handlers and the screen may be waiting.
                await asyncio.sleep(0)
            if not self.store.wakeup.is_set():
                await self._sleep()

    async def _sleep(self) -> None:
        """Wait until woken, or a timer is due; the poll is the net."""
        clock = self.store.clock
        until = min(self._lookout.until(), self._timers[0][0] if self._timers else inf)
        if until > clock.now():
            await clock.wait(self.store.wakeup, until, idle=not self.jobs)

    async def _take_turns(self, gathered: dict[str, PendingEvents]) -> None:
        now = self.store.clock.now()
        turns: list[tuple[TurnCommit, OwnedJob, TurnResult]] = []
        for job_id, what in gathered.items():
            held = self.jobs.get(job_id)
            if held is None:
                continue
            try:
                turns.append(await self._advance(held, what, now))
            except DatabaseUnavailable:
                raise
            except Exception as error:
                # One job that cannot be advanced must not hold up the others; its rows are as they were.
                _LOGGER.exception("job %s could not be advanced; it is tried again in %g s", job_id, QUARANTINE_SECONDS)
                self._rest(job_id, error)
        if not turns:
            return
        work = [turn for turn, _, _ in turns]
        written = await (self._write_and_read if self._reports.are_more(work) else self._write)(work, now)
        self.counters["turns"] += 1
        swept = False
        for turn, held, writes in turns:
            job_id = held.job.id
            if job_id not in written:
                if self.jobs.pop(job_id, None) is not None:
                    self._refused(turn)
                continue
            swept = swept or bool(turn.stops or turn.stopped_at_dispatch)
            if turn.withdrawals:
                self._wake("results")
            self._settle(turn, held, writes)
        if swept:
            await self.store.release_stopped()
            self._wake("results")

    def _refused(self, turn: TurnCommit) -> None:
        job_id = turn.job.id
        if turn.notified_results:
            # Taken already, or never said. What the rows say counts, if the job is still ours.
            _LOGGER.warning("what was pushed of job %s is not what is stored: it is loaded again", job_id)
            self._again.add(job_id)
            self._wake("jobs")
        else:
            _LOGGER.warning("job %s is not ours any more", job_id)

    async def _write_and_read(self, turns: list[TurnCommit], now: float) -> set[str]:
        """Write turns, and read the results of the next meanwhile."""
        reading = asyncio.create_task(self._reports.read_on(turns, self._quarantined))
        try:
            written = await self._write(turns, now)
            if await reading:
                self._wake("results")
        finally:
            # Nothing is read on when this turn was not written.
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        return written

    async def _write(self, turns: list[TurnCommit], now: float) -> set[str]:
        """Write turns together; if the database refuses that, one by one, so that one bad job does not hold up all."""
        try:
            return await self.store.commit_turns(turns, now)
        except StatementFailed as error:
            if len(turns) > 1:
                return {job_id for turn in turns for job_id in await self._write([turn], now)}
            job_id = turns[0].job.id
            _LOGGER.exception("a turn of job %s was refused; it is tried again in %g s", job_id, QUARANTINE_SECONDS)
            if not turns[0].notified_results:
                self._rest(job_id, error)
            return set()

    async def _advance(
        self, held: OwnedJob, what: PendingEvents, now: float
    ) -> tuple[TurnCommit, OwnedJob, TurnResult]:
        job, scopes, values, recall = held.job, held.scopes, held.values, held.recall
        writes = TurnResult()
        if what.takes_up:
            writes = await recover(job, scopes=scopes, values=values, now=now, recall=recall)
        if what.happenings:
            more = await run_turn(
                job, what.happenings, reported=what.reported, scopes=scopes, values=values, now=now, recall=recall
            )
            writes = writes.then(more)
        jobs: list[NewJob] = []
        while writes.child_jobs:
            made, over = await self._children.start(held, writes)
            jobs += made
            more = await run_turn(job, over, reported={}, scopes=scopes, values=values, now=now, recall=recall)
            writes = writes.then(more)
        children = {child.parent.node_id: child.id for child in jobs if child.parent is not None}
        redact_secret_inputs(held, writes, self._redact)
        turn = await to_commit(held, writes, ids=self.store.ids, blobs=self._blobs, now=now)
        turn.children = jobs
        turn.results, turn.notified_results, turn.commands = what.results, what.notified_results, what.commands
        turn.started |= what.started
        turn.events = [*what.events, *events_of(job, writes, children, what.people)]
        held.event_seq += len(turn.events)
        turn.event_seq = held.event_seq
        held.keep_sources(writes.sources)
        return turn, held, writes

    def _settle(self, turn: TurnCommit, held: OwnedJob, writes: TurnResult) -> None:
        """The turn is written: set its timers, and let go of a job that is over."""
        job_id = held.job.id
        if held.job.status.value in ("COMPLETED", "FAILED", "CANCELLED"):
            self.jobs.pop(job_id, None)
            self.counters["jobs_finished"] += turn.finished is not None
        else:
            for node in writes.changed:
                if node.wake_at is not None:
                    heapq.heappush(self._timers, (node.wake_at, job_id, node.id))
            if held.is_fresh and held.job.deadline_at is not None:
                heapq.heappush(self._timers, (held.job.deadline_at, job_id, ""))
            held.is_fresh = False
        if self.observer is not None:
            self.observer.turn(held.job, writes)

    # ── Gathering ──

    async def _claim(self, gathered: dict[str, PendingEvents]) -> bool:
        claimed = await self.store.claim(MAX_CLAIMS, self.queue)
        self.counters["jobs_claimed"] += len(claimed)
        for each in claimed:
            held = await self._hold(each)
            if held is not None:
                self._begin(held, gathered)
        self._lookout.has_claimed(some=bool(claimed))
        if claimed:
            self._wake("jobs")
        return bool(claimed)

    async def _load_again(self, gathered: dict[str, PendingEvents]) -> None:
        again, self._again = self._again, set()
        for claimed in await self.store.load_owned(again):
            held = await self._hold(claimed)
            if held is not None:
                self._begin(held, gathered)

    def _take_all_up(self) -> dict[str, PendingEvents]:
        gathered: dict[str, PendingEvents] = {}
        for held in self.jobs.values():
            self._begin(held, gathered)
        return gathered

    def _begin(self, held: OwnedJob, gathered: dict[str, PendingEvents]) -> None:
        what = gathered.setdefault(held.job.id, PendingEvents())
        if held.is_fresh:
            what.happenings.append(JobStarted())
        else:
            what.takes_up = True
            for at, node_id in held.timers():
                heapq.heappush(self._timers, (at, held.job.id, node_id))
            # It may have results and commands that came while nobody owned it.
            self._wake("results")
            self._wake("commands")

    async def _hold(self, claimed: ClaimedJob) -> OwnedJob | None:
        job_id = claimed.row.id
        try:
            graph = await self._graphs.get(claimed.content_hash)
            # Only the first run looks back: who opens another says what is to be made anew.
            looks_back = claimed.resumed_from is not None and claimed.row.run == 1
            past = await self.store.load_source_job(claimed.resumed_from or "") if looks_back else None
            held = self.jobs[job_id] = OwnedJob(claimed, graph, self.store, past=past, pasts=self.store)
        except DatabaseUnavailable:
            raise
        except Exception as error:
            # One job whose rows make no sense must not keep this owner, and the next, from all others.
            _LOGGER.exception("job %s cannot be read; it is tried again in %g s", job_id, QUARANTINE_SECONDS)
            self._rest(job_id, error)
            return None
        return held

    def _rest(self, job_id: str, error: Exception) -> None:
        """Leave a job alone for a while."""
        self.jobs.pop(job_id, None)
        until = self.store.clock.now() + QUARANTINE_SECONDS
        # What it says may be secret.
        self._quarantined[job_id] = (until, type(error).__name__)
        heapq.heappush(self._timers, (until, job_id, ""))

    async def _gather_results(self, waiting: set[str], gathered: dict[str, PendingEvents]) -> bool:
        read = await self._reports.read(waiting, self._quarantined)
        for result in read:
            if result.job_id in self.jobs:
                what = gathered.get(result.job_id)
                if what is None:
                    what = gathered[result.job_id] = PendingEvents()
                what.take_result(result)
        pushed = self._reports.take_notified()
        for result in pushed:
            held = self.jobs.get(result.job_id)
            if held is not None and result.node_id in held.job.nodes:
                gathered.setdefault(result.job_id, PendingEvents()).take_pushed(result)
        self.counters["results"] += len(read) + len(pushed)
        return len(read) >= MANY_RESULTS

    async def _gather_commands(self, gathered: dict[str, PendingEvents]) -> None:
        for command in await self.store.read_commands(MAX_COMMANDS, self._quarantined):
            held = self.jobs.get(command.job_id)
            if held is not None:
                gathered.setdefault(command.job_id, PendingEvents()).take_command(command, held.job)

    def _gather_timers(self, gathered: dict[str, PendingEvents]) -> None:
        now = self.store.clock.now()
        while self._timers and self._timers[0][0] <= now:
            _, job_id, node_id = heapq.heappop(self._timers)
            held = self.jobs.get(job_id)
            if held is None:
                if self._quarantined.get(job_id, (now + 1,))[0] <= now:
                    del self._quarantined[job_id]
                    self._again.add(job_id)
                continue
            if held.is_due(node_id, now):
                what = gathered.setdefault(job_id, PendingEvents())
                what.happenings.append(TimerFired(node_id or None))

    def _forget(self) -> None:
        """Drop every job: memory may not be what the rows are."""
        self.jobs.clear()
        self._timers.clear()
        self._reports.forget()
        self._quarantined.clear()
        self._again.clear()
        self.ready.clear()
