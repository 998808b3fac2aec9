"""The orchestrator service: it owns jobs, and runs turns on them until it is stopped.

One loop decides: wait for a wake-up, collect events, advance the engine, commit everything in one
transaction. Periodic tasks next to it renew the owner's lease, reclaim the jobs of dead orchestrators, expire
dead workers and count finished jobs in the metrics. On any doubt jobs are dropped and loaded again: the
database is the source of truth, memory is a cache.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from functools import partial
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.events import JobStarted
from dagmaster.engine.status import TERMINAL_JOB
from dagmaster.errors import DatabaseUnavailable, OwnershipLost, StatementFailed
from dagmaster.host.clocks import wait_at_most
from dagmaster.host.connection_backoff import ConnectionBackoff
from dagmaster.orchestrator import added_nodes, chores, job_log, turn_traces
from dagmaster.orchestrator.child_jobs import ChildJobs
from dagmaster.orchestrator.drain import Drain
from dagmaster.orchestrator.graph_cache import GraphCache
from dagmaster.orchestrator.inbox import PendingEvents, add_commands, add_results, may_follow_batch
from dagmaster.orchestrator.job_advancer import JobAdvancer
from dagmaster.orchestrator.owned_job import OwnedJob
from dagmaster.orchestrator.poll_schedule import ClaimScope, PollSchedule, Timing
from dagmaster.orchestrator.result_reader import PREFETCH_THRESHOLD, ResultReader
from dagmaster.orchestrator.sealed_inputs import with_current_seals
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.secret_vault import ClosedVault

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.engine.graph import DefaultLimits
    from dagmaster.orchestrator.turn import TurnObserver, TurnResult
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.ports.orchestrator_store import OrchestratorStore
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.secret_vault import SecretVault
    from dagmaster.ports.turn_records import TurnCommit

_LOGGER = logging.getLogger("dagmaster.orchestrator")

MAX_COMMANDS: Final = 500
MAX_CLAIMS: Final = 500
MAX_REPORTED: Final = 100
QUARANTINE_SECONDS: Final = 30.0
"""How long a job that could not be advanced, which is a bug, is quarantined before the next try."""


class Orchestrator:
    """Owns jobs and advances them."""

    def __init__(
        self,
        store: OrchestratorStore,
        *,
        blobs: OutputBlobs,
        timing: Timing | None = None,
        claims: ClaimScope = ClaimScope(),  # noqa: B008 - it never changes
        limits: DefaultLimits | None = None,
        observer: TurnObserver | None = None,
        vault: SecretVault | None = None,
    ) -> None:
        self.store, self.timing, self.claims, self.observer = store, timing or Timing(), claims, observer
        self.jobs: dict[str, OwnedJob] = {}
        self.counters = {"turns": 0, "results": 0, "jobs_claimed": 0, "jobs_reclaimed": 0, "jobs_finished": 0}
        self.ready = asyncio.Event()
        self._vault = vault or ClosedVault()
        self._graphs = GraphCache(store, limits)
        children = ChildJobs(store, self._graphs.get, self._new_id, self._vault)
        self._advancer = JobAdvancer(store, children=children, limits=self._graphs.limits, blobs=blobs)
        self._timers: list[tuple[float, str, str]] = []
        # Jobs that could not be advanced: until when they are quarantined, and the error's type.
        self._quarantined: dict[str, tuple[float, str]] = {}
        self._to_reload, self._owned_but_unloaded = set[str](), set[str]()
        self._results = ResultReader(store)
        self._handlers = chores.HandlerCollector(store)
        self._metrics = chores.MetricRollup(store, self.timing.metric_retention_seconds)
        self._schedule = PollSchedule(store, self.timing.poll_seconds)
        self._drain = Drain(store)
        self._stopping = asyncio.Event()
        self._backoff = ConnectionBackoff(_LOGGER, max_seconds=self.timing.max_backoff_seconds)
        store.on_disconnect = self._backoff.on_disconnect

    @property
    def quarantined(self) -> dict[str, str]:
        """Jobs that could not be advanced and wait for a retry, each with the type of its error."""
        return {job_id: reason for job_id, (_, reason) in self._quarantined.items()}

    # ── Lifecycle ──

    def stop(self) -> None:
        """Stop after the current turn."""
        self._stopping.set()
        self.store.wakeup.set()

    def _new_id(self) -> str:
        # Asked each time: a lease that was lost and taken again has another source of ids.
        return self.store.ids.new()

    async def run(self) -> None:
        """Run until stopped, then release every job.

        Reconnect with backoff when the database is unavailable.
        """
        backoff = self._backoff
        registered = False
        while not self._stopping.is_set():
            try:
                if not registered:
                    await self.store.register()
                    registered = True
                await self._run_registered()
            except OwnershipLost as error:
                _LOGGER.warning("%s; registering again", error)
                registered = False
            except (DatabaseUnavailable, StatementFailed) as error:
                await wait_at_most(self._stopping, backoff.on_failure(error))
            finally:
                self._drop_all()
                self.ready.clear()
        if registered:
            try:
                await self.store.deregister()
            except DatabaseUnavailable as error:
                _LOGGER.warning("%s; other orchestrators claim its jobs when its lease expires", error)

    async def _run_registered(self) -> None:
        """Run turns and the periodic tasks until stopped, or until one of them fails."""
        failures = self._backoff.failures
        await self._heartbeat()
        for claimed in await self.store.load_owned():
            await self._load_owned(claimed)
        self._backoff.on_success(since=failures)
        self.store.pending_kinds.update(("results", "commands", "jobs"))
        initial = self._enqueue_all()
        expire_workers = partial(chores.expire_workers, self.store)
        tasks = [
            asyncio.create_task(self._turn_loop(initial)),
            asyncio.create_task(self._every(self.timing.heartbeat_seconds, self._renew)),
            asyncio.create_task(self._every(self.timing.scan_seconds, self._reclaim)),
            asyncio.create_task(self._every(self.timing.worker_scan_seconds, expire_workers)),
            asyncio.create_task(self._every(self.timing.scan_seconds, self._metrics.run_once)),
            asyncio.create_task(self._every(self.timing.scan_seconds, self._handlers.run_once)),
        ]
        self.ready.set()
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if task in done:
                task.result()

    async def _every(self, seconds: float, run_once: Callable[[], Any]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await run_once()

    async def _renew(self) -> None:
        failures = self._backoff.failures
        await self._heartbeat()
        self._backoff.on_success(since=failures)

    async def _heartbeat(self) -> None:
        # `jobs why` reads the quarantined jobs from the database, not from this process.
        quarantined = dict(islice(self._quarantined.items(), MAX_REPORTED))
        state = self._backoff.counters()
        counters = {**self.counters, **state, "jobs": len(self.jobs), "quarantined": quarantined}
        if self._drain.follow(is_requested=await self.store.heartbeat(counters)):
            self._wake("jobs")

    async def _reclaim(self) -> None:
        if released := await self.store.reclaim():
            self.counters["jobs_reclaimed"] += len(released)
            job_log.log_reclaimed(released)
            self._wake("jobs")
        # The response to a claim may have been lost: a job that is owned but not loaded in two scans is
        # loaded.
        unloaded = await self.store.owned_job_ids() - self.jobs.keys() - self._quarantined.keys()
        self._to_reload |= unloaded & self._owned_but_unloaded
        self._owned_but_unloaded = unloaded
        if self._to_reload:
            self._wake("jobs")

    def _wake(self, kind: str) -> None:
        self.store.pending_kinds.add(kind)
        self.store.wakeup.set()

    # ── Turns ──

    async def _turn_loop(self, pending: dict[str, PendingEvents]) -> None:
        while not self._stopping.is_set():
            waiting = self._schedule.due()
            if "drain" in waiting:
                await self._heartbeat()
            if await self._drain.release_jobs(self.jobs or self._quarantined):
                self._drop_all()
            claimed = "jobs" in waiting and await self._claim(pending)
            more = await self._collect_reported(waiting | {"commands"} if claimed else waiting, pending)
            self._collect_timers(pending)
            if self._to_reload:
                await self._reload(pending)
            if pending:
                turn, pending = pending, {}
                await self._run_turns(turn)
                for kind in more:
                    self._wake(kind)
                # Yield to the periodic tasks, and to handlers and displays in the same process.
                await asyncio.sleep(0)
            if not self.store.wakeup.is_set():
                await self._sleep()

    async def _sleep(self) -> None:
        """Wait until woken or until a timer is due; polling is the fallback."""
        clock = self.store.clock
        until = min(self._schedule.next_poll_at(), self._timers[0][0] if self._timers else inf)
        if until > clock.now():
            await clock.wait(self.store.wakeup, until, idle=not self.jobs)

    async def _run_turns(self, pending: dict[str, PendingEvents]) -> None:
        now = self.store.clock.now()
        turns: list[tuple[TurnCommit, OwnedJob, TurnResult]] = []
        for job_id, job_events in pending.items():
            owned = self.jobs.get(job_id)
            if owned is None:
                continue
            try:
                with added_nodes.gc_pause(job_events):
                    turns.append(await self._advancer.advance(owned, job_events, now))
            except DatabaseUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - logged with its traceback
                # One job that cannot be advanced must not block the others; its rows are unchanged.
                job_log.log_quarantined("could not advance", job_id, error, QUARANTINE_SECONDS)
                self._quarantine(job_id, error)
        if not turns:
            return
        commits = [commit for commit, _, _ in turns]
        commit_turns = self._commit_and_prefetch if self._results.should_prefetch(commits) else self._commit
        committed = await commit_turns(commits, now)
        self.counters["turns"] += 1
        has_stops = False
        for commit, owned, result in turns:
            job_id = owned.job.id
            if job_id not in committed:
                if self.jobs.pop(job_id, None) is not None:
                    self._on_fenced(commit)
                continue
            has_stops = has_stops or bool(commit.stops or commit.stopped_at_dispatch)
            if commit.withdrawals:
                self._wake("results")
            self._after_commit(commit, owned, result)
            pending[job_id].log_lost(job_id, result.decisions)
        if has_stops:
            await self.store.release_stopped()
            self._wake("results")

    def _on_fenced(self, commit: TurnCommit) -> None:
        job_id = commit.job.id
        if commit.notified_results:
            # A notified result was processed already, or never stored. The rows decide, if the job is still
            # owned.
            job_log.log_stale_results(job_id)
            self._to_reload.add(job_id)
            self._wake("jobs")
        else:
            job_log.log_fenced(job_id)

    async def _commit_and_prefetch(self, turns: list[TurnCommit], now: float) -> set[str]:
        """Commit turns, and meanwhile read the results of the next ones."""
        async with self._results.prefetching(turns, self._quarantined) as prefetch:
            committed = await self._commit(turns, now)
            if await prefetch:
                self._wake("results")
        return committed

    async def _commit(self, turns: list[TurnCommit], now: float) -> set[str]:
        """Commit turns together; if the database rejects that, one by one: one bad job blocks no other."""
        try:
            return await turn_traces.commit_turns(self.store, turns, self.jobs, now)
        except StatementFailed as error:
            if len(turns) > 1:
                return {job_id for turn in turns for job_id in await self._commit([turn], now)}
            job_id = turns[0].job.id
            job_log.log_quarantined("the database rejected a turn of", job_id, error, QUARANTINE_SECONDS)
            if not turns[0].notified_results:
                self._quarantine(job_id, error)
            return set()

    def _after_commit(self, commit: TurnCommit, owned: OwnedJob, result: TurnResult) -> None:
        """Set the timers of a committed turn, and drop a finished job."""
        job_id = owned.job.id
        if owned.job.status in TERMINAL_JOB:
            self.jobs.pop(job_id, None)
            self._schedule.on_finish()
            self.counters["jobs_finished"] += commit.finished is not None
            job_log.log_finished(job_id, owned.job.status)
        else:
            for at, name in owned.timers_after(result.changed, has_deadline=owned.is_fresh):
                heapq.heappush(self._timers, (at, job_id, name))
            owned.is_fresh = False
        if self.observer is not None:
            self.observer.turn(owned.job, result)

    # ── Collecting events ──

    async def _claim(self, pending: dict[str, PendingEvents]) -> bool:
        if self.claims.job_id is None:
            claimed = await self.store.claim(MAX_CLAIMS, self.claims.queue)
        else:
            claimed = await self.store.claim_job(self.claims.job_id)
        self.counters["jobs_claimed"] += len(claimed)
        job_log.log_taken_over(claimed)
        for claimed_job in claimed:
            owned = await self._load_owned(claimed_job)
            if owned is not None:
                self._enqueue_initial(owned, pending)
        self._schedule.on_claim(has_jobs=bool(claimed))
        return bool(claimed)

    async def _reload(self, pending: dict[str, PendingEvents]) -> None:
        job_ids, self._to_reload = self._to_reload, set()
        for claimed in await self.store.load_owned(job_ids):
            owned = await self._load_owned(claimed)
            if owned is not None:
                self._enqueue_initial(owned, pending)

    def _enqueue_all(self) -> dict[str, PendingEvents]:
        pending: dict[str, PendingEvents] = {}
        for owned in self.jobs.values():
            self._enqueue_initial(owned, pending)
        return pending

    def _enqueue_initial(self, owned: OwnedJob, pending: dict[str, PendingEvents]) -> None:
        job_events = pending.setdefault(owned.job.id, PendingEvents())
        if owned.is_fresh:
            job_events.events.append(JobStarted())
        else:
            job_events.needs_recovery = True
            for at, name in owned.timers():
                heapq.heappush(self._timers, (at, owned.job.id, name))
            # Results and commands may have arrived while the job had no owner.
            self._wake("results")
            self._wake("commands")

    async def _load_owned(self, claimed: ClaimedJob) -> OwnedJob | None:
        job_id = claimed.row.id
        try:
            graph = await added_nodes.graph_of(claimed, self._graphs)
            # Only the first run reuses results: a later run is opened with the nodes to redo.
            reuses = claimed.new.resumed_from is not None and claimed.row.run == 1
            source = await self.store.load_source_job(claimed.new.resumed_from or "") if reuses else None
            claimed = await with_current_seals(self._vault, graph, claimed)
            owned = self.jobs[job_id] = OwnedJob(
                claimed, graph, self.store, source=source, reusable=self.store
            )
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - logged with its traceback
            # One job with invalid rows must not keep this owner, and the next, from all others.
            job_log.log_quarantined("could not load", job_id, error, QUARANTINE_SECONDS)
            self._quarantine(job_id, error)
            return None
        return owned

    def _quarantine(self, job_id: str, error: Exception) -> None:
        """Drop a job, and load it again after `QUARANTINE_SECONDS`."""
        self.jobs.pop(job_id, None)
        until = self.store.clock.now() + QUARANTINE_SECONDS
        # Only the type: the message may contain a secret.
        self._quarantined[job_id] = (until, type(error).__name__)
        heapq.heappush(self._timers, (until, job_id, ""))

    async def _collect_reported(self, waiting: set[str], pending: dict[str, PendingEvents]) -> list[str]:
        """Add results and commands to the pending events; return the kinds of which there may be more.

        What a task added at once is part of its job before its result counts. The command was sent before the
        result, so it is there if it is read after the result.
        """
        more, commands = [], []
        stored = await self._results.read(waiting, self._quarantined)
        if len(stored) >= PREFETCH_THRESHOLD:
            more.append("results")
        is_after_batch = may_follow_batch(stored)
        if is_after_batch or "commands" in waiting:
            commands = await self.store.read_commands(
                None if is_after_batch else MAX_COMMANDS, self._quarantined
            )
            more += ["commands"] if len(commands) == MAX_COMMANDS else []
        notified = self._results.take_notified()
        self.counters["results"] += len(stored) + len(notified)
        add_commands(
            pending, [command for command in commands if command.kind == CommandKind.ADD_NODES], self.jobs
        )
        add_results(pending, stored, notified, self.jobs)
        add_commands(
            pending, [command for command in commands if command.kind != CommandKind.ADD_NODES], self.jobs
        )
        return more

    def _collect_timers(self, pending: dict[str, PendingEvents]) -> None:
        now = self.store.clock.now()
        while self._timers and self._timers[0][0] <= now:
            _, job_id, name = heapq.heappop(self._timers)
            owned = self.jobs.get(job_id)
            if owned is None:
                if self._quarantined.get(job_id, (now + 1,))[0] <= now:
                    del self._quarantined[job_id]
                    self._to_reload.add(job_id)
                continue
            if owned.is_due(name, now):
                pending.setdefault(job_id, PendingEvents()).events.append(owned.timer_event(name))

    def _drop_all(self) -> None:
        """Drop every job: memory may differ from the rows, or others get them."""
        self.jobs.clear()
        self._timers.clear()
        self._results.clear()
        self._quarantined.clear()
        self._to_reload.clear()
