"""A worker: it holds tasks, runs them, and reports what became of them.

It knows nothing of graphs. It holds little more than it runs (`rooms`). Plain functions have a room of their own: there
are fewer processes than seats, and what waits for one is better left to another worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import TYPE_CHECKING, Any, Final

from dagmaster.clocks import loop_time
from dagmaster.connection_backoff import ConnectionBackoff
from dagmaster.errors import DagmasterError, DatabaseUnavailable, StatementFailed
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.worker.executor import Executor, Place
from dagmaster.worker.loop_watchdog import LoopWatchdog
from dagmaster.worker.prefetch import PrefetchBudget
from dagmaster.worker.report_delivery import end_of, refuse, said, send, tell_dropped
from dagmaster.worker.shutdown import ShutdownBudget
from dagmaster.worker.task_log_capture import capture
from dagmaster.worker.task_pools import STALL_SECONDS, TaskPool, ThreadLane
from dagmaster.worker.task_runner import TaskRunner
from dagmaster.worker.telemetry_buffer import TelemetryBuffer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from dagmaster.authoring.handler_registry import Registry
    from dagmaster.ports.handler_services import Services
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.task_journal import CheckpointWrite, LogChunk, TaskJournal
    from dagmaster.ports.task_ledger import TaskLedger
    from dagmaster.ports.task_source import ClaimedTask, TaskSource
    from dagmaster.worker.process_pool import HandlerProcesses

_LOGGER = logging.getLogger("dagmaster.worker")

CLAIM_SECONDS: Final = 1.0
"""How long a worker that is told to stop waits for the answer to a claim."""

BUSY: Final = 1_000.0
GATHER_SECONDS: Final = 0.003
"""With so many tasks a second, a report waits so long for others, unless nothing else runs."""

NOTES_SECONDS: Final = 0.25
"""How long a line of a log or a progress may wait until it is stored with others."""

CHECKPOINT_SECONDS: Final = 0.02
"""How long a checkpoint may wait if another was stored just now. Else it is stored at once: it is for those who die."""


class Worker:
    """Serves queues; every queue if none is named.

    `shares_loop`: async handlers run on the loop of the service, their output is not captured, and a plain function
    that timed out is waited for, not abandoned. For tests and simulations, which have no other worker.
    """

    def __init__(  # noqa: PLR0913 - what is wired together stands in one place
        self,
        source: TaskSource,
        ledger: TaskLedger,
        journal: TaskJournal,
        registry: Registry,
        *,
        blobs: OutputBlobs,
        secrets: Callable[[str], str | None],
        queues: Sequence[str] = (),
        concurrency: int = 32,
        processes: HandlerProcesses | None = None,
        services: Services | None = None,
        poll_seconds: float = 1.0,
        heartbeat_seconds: float = 2.0,
        drain_seconds: float = 30.0,
        blocked_seconds: float = 60.0,
        patience_seconds: float = STALL_SECONDS,
        shares_loop: bool = False,
    ) -> None:
        self.source = source
        self.ledger = ledger
        self.journal = journal
        self.notes = TelemetryBuffer()
        self.held: dict[str, ClaimedTask] = {}
        self.counters = {"claimed": 0, "completed": 0, "failed": 0, "stopped": 0, "released": 0, "dropped": 0}
        self.ready = asyncio.Event()
        self._registry = registry
        self._blobs = blobs
        self._secrets = secrets
        self._queues = tuple(queues)
        self._concurrency = concurrency
        self._processes = processes
        self._services = services
        self._poll_seconds = poll_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._drain_seconds = drain_seconds
        self._blocked_seconds = blocked_seconds
        self._patience_seconds = patience_seconds
        self._shares_loop = shares_loop
        self._stopping = asyncio.Event()
        self._finished: list[TaskReport] = []
        self._has_finished = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_tasks = asyncio.Event()
        self._outage = ConnectionBackoff(_LOGGER, most_seconds=1.0)
        ledger.on_disconnect = self._outage.lost
        self._noting = asyncio.Lock()
        self._checkpoints: list[CheckpointWrite] = []
        self._logs: list[LogChunk] = []
        self._budget = PrefetchBudget(concurrency)
        # Of the tasks whose handlers run in processes, and the names of these.
        self._process_budget = PrefetchBudget(0 if processes is None else processes.limit)
        self._process_bound: frozenset[str] = frozenset()
        # A claim brought less than there may be: what ends makes room for more.
        self._has_more = False

    def stop(self) -> None:
        """Claim no more; let what runs end, and hand back the rest."""
        self._stopping.set()
        self.source.wakeup.set()
        self._has_room.set()

    async def run(self) -> None:
        """Live until stopped. An outage of the database is waited for; what runs meanwhile is reported afterwards."""
        executor = self._executor = Executor(
            self._registry,
            reports=self.notes,
            processes=self._processes,
            services=self._services,
            threads=self._concurrency,
            abandons_threads=not self._shares_loop,
        )
        runner = self._runner(executor)
        pool = TaskPool(runner, self._concurrency, self._one_done, self._patience_seconds)
        self._lanes: dict[Place, TaskPool | ThreadLane] = {
            Place.LOOP: pool if self._shares_loop else self._loop_lane(),
            Place.THREAD: pool,
        }
        if self._processes is not None:
            self._lanes[Place.PROCESS] = TaskPool(runner, self._processes.limit, self._one_done, self._patience_seconds)
            self._process_bound = self._registry.names_matching(lambda spec: executor.place(spec) is Place.PROCESS)
        with contextlib.nullcontext() if self._shares_loop else capture():
            await self._live()

    async def _live(self) -> None:
        duties = [self._report_loop(), self._notes_loop()]
        if not self._shares_loop:
            duties.append(self._watch_loop())
        beside = self._beside = [asyncio.create_task(each) for each in duties]
        try:
            while not self._stopping.is_set():
                if not await self._patiently(self._register):
                    break
                self.ready.set()
                await self._serve()
            await self._drain()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    def _loop_lane(self) -> ThreadLane:
        # Made on the lane's own loop.
        return ThreadLane(
            lambda: self._runner(Executor(self._registry, reports=self.notes, services=self._services)),
            self._concurrency, self._done, self._patience_seconds,
        )  # fmt: skip

    def _runner(self, executor: Executor) -> TaskRunner:
        return TaskRunner(
            executor,
            notes=self.notes,
            blobs=self._blobs,
            secrets=self._secrets,
            other_worker_has_handler=self.ledger.other_worker_has_handler,
        )

    async def _register(self) -> None:
        await self.ledger.register(self._queues, self._concurrency, self._registry.versions())

    async def _serve(self) -> None:
        """Claim and stay alive, until stopped or given up."""
        claiming = asyncio.create_task(self._claim_loop())
        beating = asyncio.create_task(self._beat_loop())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([claiming, beating, stopping, *self._beside], return_when=asyncio.FIRST_COMPLETED)
            if self._stopping.is_set():
                # What is claimed just now is handed back at the end. A database that does not answer is not waited for.
                await asyncio.wait([claiming], timeout=CLAIM_SECONDS)
        finally:
            for task in (claiming, beating, stopping):
                task.cancel()
            await asyncio.gather(claiming, beating, stopping, return_exceptions=True)
        # Who cannot report any more must not go on claiming: others are to have its tasks.
        for task in (claiming, beating, *self._beside):
            if task.done() and not task.cancelled() and task.exception() is not None:
                task.result()

    async def _drain(self) -> None:
        """Let what runs end; ask the rest to stop, and hand it back. One grace for all of it."""
        grace = ShutdownBudget(self._drain_seconds, loop_time())
        # Others must not believe this worker dead while it drains.
        beating = asyncio.create_task(self._beat_loop())
        lanes = list(dict.fromkeys(self._lanes.values()))
        for lane in lanes:
            lane.hand_back_waiting()
        await self._until_empty(grace.until_cancel(loop_time()))
        give_up = grace.until_kill(loop_time())
        closing = [asyncio.create_task(lane.close(give_up)) for lane in lanes]
        await asyncio.wait(closing, timeout=grace.until_deregister(loop_time()))
        await self._until_empty(grace.until_deregister(loop_time()))
        leaving = asyncio.create_task(self._leave())
        await asyncio.wait([leaving], timeout=grace.until_exit(loop_time()))
        late = [task for task in (*closing, leaving) if not task.done()]
        if late:
            _LOGGER.warning("the grace of %g s is over: what is left is left to others", self._drain_seconds)
        for task in (beating, *late):
            task.cancel()
        await asyncio.gather(beating, *closing, leaving, return_exceptions=True)

    async def _until_empty(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.held:
                    self._has_room.clear()
                    await self._has_room.wait()

    async def _leave(self) -> None:
        with contextlib.suppress(DatabaseUnavailable):
            await self.ledger.deregister()

    # ── Claiming ──

    async def _claim_loop(self) -> None:
        while not self._stopping.is_set():
            self._has_room.clear()
            room = self._budget.free()
            if room <= 0:
                await self._has_room.wait()
                continue
            process_slots = min(self._process_budget.free(), room)
            self.source.wakeup.clear()
            try:
                claimed = await self.source.claim(room, self._process_bound, process_slots)
            except (DatabaseUnavailable, StatementFailed) as error:
                await self._rest(error)
                continue
            if claimed:
                self._start(claimed)
            if len(claimed) < room:
                # There are no more, but perhaps for processes that are busy. Asking again at once would only keep the
                # reports waiting.
                if self._process_bound:
                    self._has_more = sum(task.handler in self._process_bound for task in claimed) >= process_slots
                await self._sleep()

    async def _sleep(self) -> None:
        try:
            # Not wait_for: in Python 3.11 it makes a task of what it waits for, which is two rounds of the loop more.
            async with asyncio.timeout(self._poll_seconds):
                await self.source.wakeup.wait()
        except TimeoutError:
            # Nobody woke us: look everywhere.
            self.source.rescan_queues()

    def _start(self, claimed: list[ClaimedTask]) -> None:
        self._has_tasks.set()
        self.counters["claimed"] += len(claimed)
        fresh: list[ClaimedTask] = []
        for task in claimed:
            before = self.held.get(task.task_id)
            if before is not None:
                # It runs here: the database lost the claim in a crash, and this one takes its place. Or it was let go.
                before.token = task.token
                self.notes.renew(task.task_id, task.token)
                continue
            self.held[task.task_id] = task
            self._budget.take()
            if task.handler in self._process_bound:
                self._process_budget.take()
            fresh.append(task)
        self._queue(fresh)

    def _queue(self, tasks: list[ClaimedTask]) -> None:
        places: dict[Place, list[ClaimedTask]] = {}
        for task in tasks:
            spec = self._registry.find(task.handler)
            # One that is unknown here runs nowhere: it is asked for in the store, whose loop is this one.
            place = Place.THREAD if spec is None else self._executor.place(spec)
            places.setdefault(place, []).append(task)
        for place, group in places.items():
            self._lanes[place].add(group)

    # ── Reporting ──

    def _done(self, reports: list[TaskReport]) -> None:
        self._finished += reports
        self._has_finished.set()

    def _one_done(self, report: TaskReport) -> None:
        self._done([report])

    async def _report_loop(self) -> None:
        while True:
            await self._has_finished.wait()
            if self._budget.speed > BUSY and len(self.held) > len(self._finished):
                # Others end in a moment: a report of many costs hardly more than a report of one.
                await asyncio.sleep(GATHER_SECONDS)
            self._has_finished.clear()
            reports, self._finished = self._finished, []
            if reports:
                await self._patiently_report(reports)

    async def _patiently_report(self, reports: list[TaskReport]) -> None:
        accepted: set[str] | None = None
        is_refused = is_unanswered = False
        while accepted is None:
            try:
                for report in reports:
                    held = self.held.get(report.task_id)
                    report.token = report.token if held is None else held.token
                if self.notes or self._checkpoints or self._logs:
                    await self._store_notes({report.task_id for report in reports})
                accepted = await send(self.ledger, reports)
            except DatabaseUnavailable as error:
                is_unanswered = True
                await self._rest(error)
            except StatementFailed as error:
                if len(reports) > 1:
                    # The others must not wait for the one that is refused.
                    for report in reports:
                        await self._patiently_report([report])
                    return
                # One that is refused again is dropped: its task comes back when this worker does not know of it.
                accepted = set() if is_refused else None
                is_refused = True
                refuse(reports[0], error)
        self._answered(reports, accepted, is_unanswered=is_unanswered)

    def _answered(self, reports: list[TaskReport], accepted: set[str], *, is_unanswered: bool) -> None:
        dropped: list[str] = []
        for report in reports:
            held = self.held.get(report.task_id)
            if held is not None and held.token != report.token and not (report.begun and report.task_id in accepted):
                # Another claim took the place of this one meanwhile. What never began is to run, then.
                self._done([report]) if report.begun else self._queue([held])
                continue
            self._let_go(report)
            self.notes.end(report.task_id)
            what = end_of(report) if report.task_id in accepted else "dropped"
            self.counters[what] += 1
            dropped += [report.task_id] if what == "dropped" else []
        if dropped:
            tell_dropped(dropped, is_unanswered=is_unanswered)
        self._has_room.set()
        if self._has_more:
            self.source.wakeup.set()

    def _let_go(self, report: TaskReport) -> None:
        if (task := self.held.pop(report.task_id, None)) is None:
            return
        for room in (self._budget, self._process_budget) if task.handler in self._process_bound else (self._budget,):
            room.take_back() if report.status == "RELEASED" else room.leave()

    # ── TelemetryBuffer ──

    async def _notes_loop(self) -> None:
        loop, is_due = asyncio.get_running_loop(), asyncio.Event()
        self.notes.on_checkpoint = lambda: loop.call_soon_threadsafe(is_due.set)
        while True:
            if not (self.held or self.notes or self._checkpoints or self._logs):
                # Nobody has anything to say.
                self._has_tasks.clear()
                await self._has_tasks.wait()
            await asyncio.sleep(CHECKPOINT_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(is_due.wait(), NOTES_SECONDS)
            is_due.clear()
            if self.notes or self._checkpoints or self._logs:
                with contextlib.suppress(DatabaseUnavailable):
                    await self._store_notes()

    async def _store_notes(self, over: Collection[str] = ()) -> None:
        # What could not be stored is kept for the next time.
        async with self._noting:
            self._checkpoints += self.notes.take_checkpoints()
            self._logs += self.notes.take_logs(over)
            progress = self.notes.take_progress()
            try:
                if self._checkpoints:
                    await self.journal.checkpoint(self._checkpoints)
                self._checkpoints = []
                if self._logs:
                    await self.journal.append_logs(self._logs)
                self._logs = []
                if progress:
                    await self.journal.progress(progress)
            except StatementFailed:
                _LOGGER.exception("notes of tasks were refused, and are dropped")
                self._checkpoints, self._logs = [], []

    # ── Staying alive ──

    async def _beat_loop(self) -> None:
        """Until this worker was given up: then its tasks are others' by now."""
        while True:
            self.ledger.stops.clear()
            try:
                stops = await self.ledger.heartbeat(list(self.held), self._said())
            except (DatabaseUnavailable, StatementFailed) as error:
                await self._rest(error)
                continue
            self._outage.over()
            for task_id in list(self.held) if stops is None else sorted(stops):
                for lane in self._lanes.values():
                    lane.stop(task_id)
            if stops is None:
                _LOGGER.warning("this worker was given up: it was paused, or the database was away. Starting anew")
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ledger.stops.wait(), self._heartbeat_seconds)

    async def _watch_loop(self) -> None:
        """Look after the async handlers: one that blocks their loop is left behind, and the others are handed back."""
        while True:
            lane = self._lanes[Place.LOOP]
            assert isinstance(lane, ThreadLane)  # noqa: S101 - for mypy
            watch = LoopWatchdog(lane, self.notes, blocked_seconds=self._blocked_seconds)
            found = None
            while found is None:
                await asyncio.sleep(watch.look_seconds)
                found = watch.look(loop_time())
            self._lanes[Place.LOOP] = self._loop_lane()
            left = lane.leave()
            _LOGGER.error(
                "task %s %s. Its thread is left behind; %d other tasks are handed back",
                found.task_id, found.outcome.error["message"], len(left) - 1,
            )  # fmt: skip
            error = json.dumps(found.outcome.error)
            self._done([
                TaskReport(task.task_id, task.token, "FAILED", error=error) if task.task_id == found.task_id
                else TaskReport(task.task_id, task.token, "RELEASED")
                for task in left
            ])  # fmt: skip

    def _said(self) -> dict[str, Any]:
        limit = 0 if self._processes is None else self._processes.limit
        begun = {task_id: seconds for lane in self._lanes.values() for task_id, seconds in lane.begun().items()}
        return said(self.counters, begun, limit, self._process_budget.held, draining=self._stopping.is_set())

    async def _rest(self, error: DagmasterError) -> None:
        await asyncio.sleep(self._outage.away(error))

    async def _patiently(self, work: Callable[[], Awaitable[None]]) -> bool:
        while not self._stopping.is_set():
            try:
                await work()
            except DatabaseUnavailable as error:
                await self._rest(error)
            else:
                return True
        return False
