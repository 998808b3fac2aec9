"""The worker service: claims tasks, runs them, and reports their outcomes.

It knows nothing of graphs. It holds little more than it runs (`held_tasks`, `prefetch`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from dagmaster.errors import DagmasterError, DatabaseUnavailable, StatementFailed
from dagmaster.host.clocks import loop_time, wait_at_most
from dagmaster.host.connection_backoff import ConnectionBackoff
from dagmaster.telemetry.logs import task_fields
from dagmaster.worker.drain import Drain
from dagmaster.worker.entrypoint_imports import EntrypointImports
from dagmaster.worker.execution_mode import ExecutionMode
from dagmaster.worker.executor import Executor
from dagmaster.worker.handler_publication import HandlerPublication
from dagmaster.worker.held_tasks import HeldTasks
from dagmaster.worker.loop_watchdog import LoopWatchdog
from dagmaster.worker.memory_limit import watch_memory
from dagmaster.worker.node_adder import NodeAdder
from dagmaster.worker.options import ExecutorLimits
from dagmaster.worker.recycling import Recycling
from dagmaster.worker.report_delivery import ReportDelivery, heartbeat_counters
from dagmaster.worker.shutdown import ShutdownBudget
from dagmaster.worker.task_lines import log_blocked, log_unfinished
from dagmaster.worker.task_log_capture import capture
from dagmaster.worker.task_pools import TaskPool, ThreadedTaskPool
from dagmaster.worker.task_runner import TaskRunner
from dagmaster.worker.telemetry_buffer import TelemetryBuffer
from dagmaster.worker.telemetry_flush import TelemetryFlush

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dagmaster.json_types import JsonObject
    from dagmaster.ports.handler_services import WorkerServices
    from dagmaster.ports.task_messages import TaskMessage
    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.sdk.handler_registry import Registry
    from dagmaster.worker.options import WorkerOptions, WorkerPorts
    from dagmaster.worker.process_pool import HandlerProcesses

_LOGGER = logging.getLogger("dagmaster.worker")

CLAIM_SECONDS: Final = 1.0
"""How long a stopping worker waits for the answer to a claim."""

EXCLUSIVE_DRAIN_SECONDS: Final = 60.0
"""How long a worker claims nothing so that an exclusive task can run.

Then it claims again next to its long tasks, and another worker may take the exclusive one."""


class Worker:
    """Claims tasks, runs their handlers and reports the outcomes. It owns its process pool."""

    def __init__(
        self,
        ports: WorkerPorts,
        registry: Registry,
        *,
        options: WorkerOptions,
        processes: HandlerProcesses | None = None,
        services: WorkerServices | None = None,
    ) -> None:
        self.source, self.ledger, self.journal = ports.source, ports.ledger, ports.journal
        self.options = options
        self.telemetry = TelemetryBuffer()
        self.held = HeldTasks(options.concurrency, None if processes is None else processes.limit)
        self.counters = {"claimed": 0, "completed": 0, "failed": 0, "stopped": 0, "released": 0, "dropped": 0}
        self.ready = asyncio.Event()
        self._ports = ports
        self._registry = registry
        self._processes = processes
        self._services = services
        self._publication = HandlerPublication(self.ledger, registry) if options.publishes_handlers else None
        self._stopping = asyncio.Event()
        self._has_capacity = asyncio.Event()
        self._has_tasks = asyncio.Event()
        self._backoff = ConnectionBackoff(_LOGGER, max_seconds=1.0)
        self.ledger.on_disconnect = self._backoff.on_disconnect
        self._flush = TelemetryFlush(
            self.telemetry, self.journal, self.held, options.log_dir,
            logs_silent_tasks=options.logs_silent_tasks,
        )  # fmt: skip
        # A claim may have left tasks that need a process in the queue: claim again when a task finishes.
        self._has_more = False
        # An exclusive task waits for this worker.
        self._has_exclusive = False
        self._drain = Drain()
        # The tasks that had not ended when this worker last waited for that. It does not wait for them again.
        self._outlasting: frozenset[str] = frozenset()
        # A heartbeat that is answered after the deregistration finds no lease.
        self._is_deregistering = False
        self.recycling = Recycling(self.stop, self._stopping.is_set, lambda: self._drain.is_requested)
        self._imports = EntrypointImports(registry, self.held, self._enqueue)
        self._delivery = ReportDelivery(
            self.ledger, self.held, self.telemetry, self._flush, self.counters,
            back_off=self._back_off, enqueue=self._enqueue, on_delivery=self._on_delivery,
        )  # fmt: skip
        self._delivery.judge = self.recycling.judge

    def stop(self) -> None:
        """Stop claiming; let running tasks finish and release the others."""
        self._stopping.set()
        self.source.wakeup.set()
        self._has_capacity.set()

    async def run(self) -> None:
        """Run until stopped. During a database outage tasks keep running; they are reported afterwards."""
        concurrency, stall_seconds = self.options.concurrency, self.options.stall_seconds
        adder = self._adder = NodeAdder(self.journal, self.held, self._back_off)
        executor = self._executor = Executor(
            self._registry, reports=self.telemetry, processes=self._processes, services=self._services,
            limits=ExecutorLimits(threads=concurrency, abandons_threads=not self.options.shares_loop),
            adder=adder, on_abandon=self._on_abandon(),
        )  # fmt: skip
        runner = self._runner(executor)
        pool = TaskPool(runner, concurrency, self._delivery.add_one, stall_seconds)
        self._pools: dict[ExecutionMode, TaskPool | ThreadedTaskPool] = {
            ExecutionMode.LOOP: pool if self.options.shares_loop else self._new_loop_pool(),
            ExecutionMode.THREAD: pool,
        }
        if self._processes is not None:
            self._pools[ExecutionMode.PROCESS] = TaskPool(
                runner, self._processes.limit, self._delivery.add_one, stall_seconds
            )
            self.held.process_bound = self._registry.names_matching(
                lambda spec: executor.execution_mode(spec) is ExecutionMode.PROCESS
            )
        with capture(echoes=self.options.echoes) if self.options.captures else contextlib.nullcontext():
            await self._run_registered()

    async def _run_registered(self) -> None:
        loops = [self._delivery.run(), self._flush.run(self.held, self._has_tasks, self._running_seconds)]
        if not self.options.shares_loop:
            loops.append(self._watch_loop())
        if self.options.recycles and self.options.memory_limit_mb:
            loops.append(watch_memory(self.options.memory_limit_mb, self._processes, self.recycling))
        background = self._background = [asyncio.create_task(loop) for loop in loops]
        try:
            while not self._stopping.is_set():
                if not await self._retry_until_stopped(self._register):
                    break
                self.ready.set()
                await self._serve()
            await self._shut_down()
        finally:
            if self._publication is not None:
                self._publication.stop()
            self._imports.stop()
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)

    def _new_loop_pool(self) -> ThreadedTaskPool:
        # The runner is created on the pool's own loop.
        make = partial(
            Executor, self._registry, reports=self.telemetry, services=self._services,
            adder=self._adder, on_abandon=self._on_abandon(),
        )  # fmt: skip
        return ThreadedTaskPool(
            lambda: self._runner(make()),
            self.options.concurrency, self._delivery.add, self.options.stall_seconds,
        )  # fmt: skip

    def _on_abandon(self) -> Callable[[TaskMessage, float], object] | None:
        """Return what executors call, on any loop, with a handler that could not be stopped."""
        if not self.options.recycles:
            return None
        call_on_loop: Callable[..., object] = asyncio.get_running_loop().call_soon_threadsafe
        return partial(call_on_loop, self.recycling.on_unstoppable)

    def _runner(self, executor: Executor) -> TaskRunner:
        return TaskRunner(
            executor,
            telemetry=self.telemetry,
            blobs=self._ports.blobs,
            secrets=self._ports.secrets,
            vault=self._ports.vault,
            other_worker_has_handler=self.ledger.other_worker_has_handler,
        )

    async def _register(self) -> None:
        await self.ledger.register(
            tuple(self.options.queues), self.options.concurrency, self._registry.served_names()
        )
        if self._publication is not None:
            self._publication.start()

    async def _serve(self) -> None:
        """Claim and renew the lease until stopped or expired."""
        claiming = asyncio.create_task(self._claim_loop())
        heartbeat = asyncio.create_task(self._heartbeat_loop())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait(
                [claiming, heartbeat, stopping, *self._background], return_when=asyncio.FIRST_COMPLETED
            )
            if self._stopping.is_set():
                # Tasks of a claim in flight are released at the end. An unresponsive database is not waited
                # for.
                await asyncio.wait([claiming], timeout=CLAIM_SECONDS)
        finally:
            for task in (claiming, heartbeat, stopping):
                task.cancel()
            await asyncio.gather(claiming, heartbeat, stopping, return_exceptions=True)
        # A worker that cannot report must not claim: other workers should get the tasks.
        for task in (claiming, heartbeat, *self._background):
            if task.done() and not task.cancelled() and task.exception() is not None:
                task.result()

    async def _shut_down(self) -> None:
        """Let running tasks finish; ask the rest to stop and release them. One time budget for all steps."""
        budget = ShutdownBudget(self.options.drain_seconds, loop_time())
        # The lease must not expire meanwhile.
        heartbeat = asyncio.create_task(self._heartbeat_loop())
        pools = list(dict.fromkeys(self._pools.values()))
        for pool in pools:
            pool.release_waiting()
        await self._until_empty(budget.until_cancel(loop_time()))
        self.recycling.suspect(self.held.in_this_process(self._running_seconds()))
        kill_seconds = budget.until_kill(loop_time())
        closing = [asyncio.create_task(pool.close(kill_seconds)) for pool in pools]
        await asyncio.wait(closing, timeout=budget.until_deregister(loop_time()))
        await self._until_empty(budget.until_deregister(loop_time()))
        self._is_deregistering = True
        leaving = asyncio.create_task(self._deregister())
        await asyncio.wait([leaving], timeout=budget.until_exit(loop_time()))
        late = [task for task in (*closing, leaving) if not task.done()]
        if late:
            log_unfinished(list(self.held.values()), self.options.drain_seconds)
        for task in (heartbeat, *late):
            task.cancel()
        await asyncio.gather(heartbeat, *closing, leaving, return_exceptions=True)

    async def _until_empty(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.held:
                    self._has_capacity.clear()
                    await self._has_capacity.wait()

    async def _deregister(self) -> None:
        with contextlib.suppress(DatabaseUnavailable):
            await self.ledger.deregister()

    # ── Claiming ──

    async def _claim_loop(self) -> None:
        while not self._stopping.is_set():
            if self._drain.is_requested:
                await self._until_undrained()
                continue
            if self._has_exclusive and self._outlasting.isdisjoint(self.held):
                await self._run_exclusive()
            self._has_capacity.clear()
            capacity, process_slots = self.held.capacity()
            if capacity <= 0:
                await self._has_capacity.wait()
                continue
            self.source.wakeup.clear()
            try:
                claimed = await self.source.claim(capacity, self.held.process_bound, process_slots)
            except (DatabaseUnavailable, StatementFailed) as error:
                await self._back_off(error)
                continue
            if claimed:
                self._accept(claimed)
            if len(claimed) < capacity:
                # The queue is empty, except perhaps for tasks that need a process. Claiming again at once
                # would only delay the reports.
                if process_slots is not None:
                    self._has_more = sum(map(self.held.needs_process, claimed)) >= process_slots
                await self._sleep()

    async def _run_exclusive(self) -> None:
        """Let the held tasks finish, for a while; then run exclusive tasks, one after the other."""
        self._has_exclusive = False
        if self.held:
            _LOGGER.info(
                "a task waits that must run alone; claiming nothing for up to %g s", EXCLUSIVE_DRAIN_SECONDS
            )
            for pool in dict.fromkeys(self._pools.values()):
                pool.release_waiting()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EXCLUSIVE_DRAIN_SECONDS):
                    await self._until_held(0)
            self._outlasting = frozenset(self.held)
        while not self.held and not self._stopping.is_set():
            try:
                task = await self.source.claim_exclusive()
            except (DatabaseUnavailable, StatementFailed) as error:
                await self._back_off(error)
                return
            if task is None:
                return
            _LOGGER.warning(
                "node %s of job %s runs alone on this worker: workers died that ran it next to other tasks",
                task.node_id, task.job_id, extra=task_fields(task),
            )  # fmt: skip
            self._accept([task])
            await self._until_held(0)

    async def _until_held(self, count: int) -> None:
        """Wait until this worker holds no more than so many tasks, or stops."""
        while len(self.held) > count and not self._stopping.is_set():
            self._has_capacity.clear()
            await self._has_capacity.wait()

    async def _until_undrained(self) -> None:
        while self._drain.is_requested and not self._stopping.is_set():
            self._has_capacity.clear()
            await self._has_capacity.wait()

    async def _sleep(self) -> None:
        if not await wait_at_most(self.source.wakeup, self.options.poll_seconds):
            # No notification arrived: check every queue.
            self.source.rescan_queues()

    def _accept(self, claimed: list[ClaimedTask]) -> None:
        """Hold claimed tasks, and run those that do not run here already."""
        self._has_tasks.set()
        self.counters["claimed"] += len(claimed)
        fresh: list[ClaimedTask] = []
        for task in claimed:
            before = self.held.get(task.task_id)
            if before is not None:
                # It runs here already: the database lost the claim in a crash, and this claim replaces it; or
                # it was released.
                before.token, before.claimed_at = task.token, task.claimed_at
                self.telemetry.renew(task.task_id, task.token)
                continue
            fresh.append(task)
        self.held.add(fresh)
        self._enqueue(fresh)

    def _enqueue(self, tasks: list[ClaimedTask]) -> None:
        by_mode: dict[ExecutionMode, list[ClaimedTask]] = {}
        for task in tasks:
            spec = self._registry.find(task.handler, imports=False)
            if spec is None and self._registry.needs_import(task.handler):
                self._imports.add(task)
                continue
            # A task with an unknown handler is not run; the store is asked for it, on this loop.
            mode = (
                ExecutionMode.THREAD if spec is None else self._executor.execution_mode(spec, task.isolation)
            )
            if mode is ExecutionMode.PROCESS and not self.held.needs_process(task):
                # An entrypoint that was not known when the worker started.
                self.held.bind_to_process(task.handler)
            by_mode.setdefault(mode, []).append(task)
        for mode, group in by_mode.items():
            self._pools[mode].add(group)

    def _on_delivery(self) -> None:
        self._has_capacity.set()
        if self._has_more:
            self.source.wakeup.set()

    def _running_seconds(self) -> dict[str, float]:
        running: dict[str, float] = {}
        for pool in self._pools.values():
            running |= pool.running_seconds()
        return running

    # ── Heartbeat ──

    async def _heartbeat_loop(self) -> None:
        """Renew the lease until it has expired: then other workers have the tasks."""
        while True:
            self.ledger.stops.clear()
            failures = self._backoff.failures
            try:
                answer = await self.ledger.heartbeat(list(self.held), self._heartbeat_counters())
            except (DatabaseUnavailable, StatementFailed) as error:
                await self._back_off(error)
                continue
            self._backoff.on_success(since=failures)
            for pool in self._pools.values():
                pool.stop(list(self.held) if answer is None else sorted(answer.stops), answer is None)
            if answer is None:
                if not self._is_deregistering:
                    _LOGGER.warning(
                        "the lease of this worker expired (paused, or the database was unreachable);"
                        " registering again"
                    )
                return
            self._has_exclusive = self._has_exclusive or answer.has_exclusive
            has_changed = self._drain.follow(answer.drain, self.held, dict.fromkeys(self._pools.values()))
            self.recycling.resume()
            if has_changed or answer.has_exclusive:
                # The claim loop waits for a slot or for a notification.
                self._has_capacity.set()
                self.source.wakeup.set()
            await wait_at_most(self.ledger.stops, self._drain.limit_wait(self.options.heartbeat_seconds))

    async def _watch_loop(self) -> None:
        """Abandon a handler that blocks the loop of the async handlers, and release the other tasks."""
        while True:
            pool = self._pools[ExecutionMode.LOOP]
            assert isinstance(pool, ThreadedTaskPool)  # noqa: S101 - for mypy
            watch = LoopWatchdog(
                pool,
                self.telemetry,
                blocked_seconds=self.options.blocked_seconds,
                task_timeout_seconds=self.options.task_timeout_seconds,
                restarts=self.options.recycles,
            )
            blocker = None
            while blocker is None:
                await asyncio.sleep(watch.interval_seconds)
                blocker = watch.check(loop_time())
            self._pools[ExecutionMode.LOOP] = self._new_loop_pool()
            running, tasks = pool.running_seconds(), pool.abandon()
            log_blocked(tasks, blocker.task_id)
            self._delivery.add(blocker.reports(tasks, running))
            if self.options.recycles:
                self.recycling.on_blocked(blocker.task)

    def _heartbeat_counters(self) -> JsonObject:
        limit = 0 if self._processes is None else self._processes.limit
        return heartbeat_counters(
            self.counters | self.recycling.counters() | self._backoff.counters(),
            len(self._running_seconds()),
            limit,
            self.held.in_processes,
            draining=self._stopping.is_set(),
            last_minute=self._delivery.throughput.last_minute(loop_time()),
        )

    async def _back_off(self, error: DagmasterError) -> None:
        await asyncio.sleep(self._backoff.on_failure(error))

    async def _retry_until_stopped(self, work: Callable[[], Awaitable[None]]) -> bool:
        while not self._stopping.is_set():
            try:
                await work()
            except DatabaseUnavailable as error:
                await self._back_off(error)
            else:
                return True
        return False
