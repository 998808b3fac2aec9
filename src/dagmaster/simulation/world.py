"""A simulated world: real orchestrators and workers, a database in memory, and faults.

One seed is one schedule: the hosts, the commands, the order in which hosts run, and the faults: lost
messages, crashes, pauses. The same seed always yields the same schedule. After the storm comes a calm in
which every job must finish. The oracle checks every operation.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.adapters.secret_vault import memory_vault
from dagmaster.application.submission import JobRequest, JobSubmitter
from dagmaster.engine.status import JobStatus, NodeStatus
from dagmaster.errors import DatabaseUnavailable
from dagmaster.orchestrator.poll_schedule import Timing
from dagmaster.orchestrator.service import Orchestrator
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.job_records import StoredWorkflow
from dagmaster.simulation.final_state import Violation
from dagmaster.simulation.loop import HOST, SERVER, START, SimulatedLoop, Stuck
from dagmaster.simulation.mock_handlers import MockHandlers
from dagmaster.simulation.network import Faults, Network, RemoteStore
from dagmaster.simulation.oracle import Oracle
from dagmaster.store.memory.client_store import MemoryClientStore
from dagmaster.store.memory.orchestrator_store import MemoryOrchestratorStore
from dagmaster.store.memory.worker_store import MemoryWorkerStore
from dagmaster.text_format import format_count
from dagmaster.worker.options import WorkerOptions, WorkerPorts
from dagmaster.worker.service import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.engine.graph import Graph
    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.ports.json_text import JsonText
    from dagmaster.simulation.case import Case
    from dagmaster.simulation.loop import Host
    from dagmaster.store.memory.database import MemoryDatabase, StoredJob

LEASE_SECONDS: Final = 3.0
WORKER_LEASE_SECONDS: Final = 3.0
POLL_SECONDS: Final = 4.0
SCAN_SECONDS: Final = 4.0
"""Most operations of a schedule are polls and scans that find nothing: a fifth more of them at half of this
(2026-11)."""

STORM_SECONDS: Final = 25.0
CALM_SECONDS: Final = 600.0
"""Longer than every lease, every retry and every poll together."""

UNDRAIN_SHARE: Final = 0.7
CALM_SHARE: Final = 0.15
COMPARED_EVERY: Final = 3
"""One of so many schedules is compared with a calm one, which doubles its time."""

_ATTEMPT: Final = re.compile(r'"attempt": \d+')
PROMPT_SECONDS: Final = 900.0
"""The poll interval without faults: so long that a missing notification is noticed."""


@dataclass(slots=True, kw_only=True)
class StoreFactories:
    """Factories of the hosts' stores. A planted bug is a store with a defect."""

    orchestrator: Callable[..., MemoryOrchestratorStore] = MemoryOrchestratorStore
    worker: Callable[..., MemoryWorkerStore] = MemoryWorkerStore


class Reason(NamedTuple):
    """Why a job did not complete: the node that failed first, if one did, and its error."""

    node: str | None
    error: JsonObject


class SimulationReport(NamedTuple):
    """One event of a schedule, with its time and workflow."""

    at: float
    workflow_id: str
    event: StoredEvent


@dataclass(slots=True)
class Outcome:
    """The outcome of one schedule."""

    seed: int
    violation: str | None
    steps: int
    seconds: float
    operations: int
    statuses: dict[str, str]
    ends: dict[str, dict[str, Any]] = field(repr=False)
    trace: list[tuple[float, str, str]] = field(repr=False)
    reasons: dict[str, Reason] = field(repr=False)
    story: list[SimulationReport] = field(repr=False)


def simulate(
    seed: int, case: Case, *, faults: Faults | None = None, stores: StoreFactories | None = None
) -> Outcome:
    """Run one schedule. By default its faults are drawn from the seed, and some seeds have none.

    What completes without faults must complete with the same outputs with them.
    """
    rng = random.Random(seed)  # noqa: S311 - a schedule must be reproducible
    if faults is None:
        faults = Faults() if rng.random() < CALM_SHARE else Faults.drawn(rng)
    outcome = _schedule(seed, rng, case, faults, stores or StoreFactories())
    if outcome.violation is None and outcome.steps and case.is_deterministic and seed % COMPARED_EVERY == 0:
        undisturbed = calm(seed, case)
        outcome.violation = undisturbed.violation or _difference(undisturbed, outcome)
    return outcome


def _schedule(seed: int, rng: random.Random, case: Case, faults: Faults, stores: StoreFactories) -> Outcome:
    loop = SimulatedLoop(rng)
    world = World(loop, rng, case=case, faults=faults, stores=stores, seed=seed)
    violation: str | None = None
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        loop.run_until_complete(world.run())
    except (Violation, Stuck) as error:
        violation = str(error)
    finally:
        world.network.is_closed = True
        loop.end()
        logging.disable(disabled)
    if violation is None and loop.problems:
        violation = f"an error was not awaited: {loop.problems[0]}"
    network = world.network
    statuses = {job_id: job.row.status.value for job_id, job in network.database.jobs.items()}
    ends = {
        job.new.idempotency_key: {
            node_id: (node.row.status.value, node.output) for node_id, node in job.nodes.items()
        }
        for job in network.database.jobs.values()
        if job.new.idempotency_key is not None
    }
    jobs = network.database.jobs
    reasons = {job_id: _reason(job) for job_id, job in jobs.items() if job.row.status is JobStatus.FAILED}
    story = [
        SimulationReport(event.at - START, job.new.workflow_id, event)
        for job in jobs.values()
        for event in job.events
    ]
    story.sort(key=lambda report: report.at)
    trace = network.trace
    return Outcome(
        seed, violation, network.steps, loop.time(), len(trace), statuses, ends, trace, reasons, story
    )


def calm(seed: int, case: Case) -> Outcome:
    """Run a schedule without faults; only handlers may fail."""
    return _schedule(seed, random.Random(seed), case, Faults(), StoreFactories())  # noqa: S311 - reproducible


def _reason(job: StoredJob) -> Reason:
    """Return the first node that failed permanently; else the error of the job."""
    failed = [event for event in job.events if event.type == EventType.NODE_FAILED]
    if failed:
        return Reason(failed[0].node_id, failed[0].data.get("error") or {})
    return Reason(None, job.error or {})


def _difference(calm: Outcome, stormy: Outcome) -> str | None:
    """Describe a job that completed without faults and ended differently with them, if there is one."""
    for key, nodes in calm.ends.items():
        if any(status in (NodeStatus.FAILED, NodeStatus.CANCELLED) for status, _ in nodes.values()):
            continue
        for node_id, end in nodes.items():
            other = stormy.ends[key].get(node_id)
            if other is None or _without_attempts(other) != _without_attempts(end):
                return f"{key}: without faults node {node_id} ends as {end}, with them as {other}"
    return None


def _without_attempts(end: tuple[str, JsonText | None]) -> tuple[str, JsonValue]:
    status, output = end
    return status, None if output is None else _ATTEMPT.sub("", output.text or "")


class World:
    """The hosts of one schedule."""

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: random.Random,
        *,
        case: Case,
        faults: Faults,
        stores: StoreFactories,
        seed: int,
    ) -> None:
        self.network = Network(loop, rng, faults)
        self.network.crashed = self._crashed
        self.database: MemoryDatabase = self.network.database
        self.oracle = Oracle(
            self.database, lease_seconds=LEASE_SECONDS, worker_lease_seconds=WORKER_LEASE_SECONDS
        )
        self._loop = loop
        self._rng = rng
        self._case = case
        self._stores = stores
        graphs = [*case.graphs, *case.children]
        self._mocks = MockHandlers(
            graphs, seed, self.oracle.failures, failing=case.failing, shapes=case.shapes, poison=case.poison,
            kill_host=self._kill_current_host, growing=case.growing,
        )  # fmt: skip
        self._count = 0
        self._starts: dict[Host, Callable[[], None]] = {}
        self._services: dict[Host, Orchestrator | Worker] = {}
        self._clients: dict[int, asyncio.Task[None]] = {}
        # Without faults, a service that waits for its poll missed a notification.
        self._vault = memory_vault()
        self._poll_seconds = PROMPT_SECONDS if faults.limit == 0 else POLL_SECONDS
        self._is_prompt = faults.limit == 0

    async def run(self) -> None:
        """Run the storm, then the calm, then check everything."""
        for graph in (*self._case.graphs, *self._case.children):
            await self._publish(graph)
        for _ in range(self._rng.randint(1, 3)):
            self._start_orchestrator()
        for _ in range(self._rng.randint(1, 3)):
            self._start_worker()
        for number, graph in enumerate(self._case.graphs):
            self._start_client(graph, number)
        if self._case.drains:
            operator = self._host("operator", lambda: None)
            self._loop.create_task(self._drain_services(operator), context=operator.context())
        if self.network.faults.stop:
            self._loop.call_later(self._rng.uniform(0.1, 8.0), self._stop_service)
        await self._until_finished(STORM_SECONDS)
        self._calm()
        limit = PROMPT_SECONDS * 0.7 if self._is_prompt else CALM_SECONDS
        if not await self._until_finished(limit):
            raise Violation(self._describe_open_jobs())
        for client in self._clients.values():
            await client
        self.oracle.check_final_state()

    async def _until_finished(self, seconds: float) -> bool:
        end = self._loop.time() + seconds
        while not self._is_finished():
            if self._loop.time() >= end:
                # A workflow with long waits takes long.
                end = self._last_timer() + seconds
                if self._loop.time() >= end:
                    return False
            await asyncio.sleep(0.5)
        return True

    def _last_timer(self) -> float:
        """Return when the last timer in the future is due; minus infinity without one."""
        jobs = [job for job in self.database.jobs.values() if job.is_open]
        timers = [
            node.row.wake_at for job in jobs for node in job.nodes.values() if node.row.wake_at is not None
        ]
        now = self.database.clock.now()
        return max((at - START for at in timers if at > now), default=-inf)

    def _is_finished(self) -> bool:
        """Return whether all clients are done, all rows are processed, and no job is open."""
        database = self.database
        if database.inbox or database.queue or database.results:
            return False
        return all(client.done() for client in self._clients.values()) and not any(
            job.is_open for job in database.jobs.values()
        )

    def _describe_open_jobs(self) -> str:
        lines = [
            f"job {job_id} ({job.new.workflow_id}) is {job.row.status.value}, owner {job.owner_id}: "
            + ", ".join(f"{node_id} {node.row.status.value}" for node_id, node in job.nodes.items())
            for job_id, job in self.database.jobs.items()
            if job.is_open
        ]
        database = self.database
        left = f"{format_count(len(database.queue), 'task')},"
        f" {format_count(len(database.results), 'result')} and {format_count(len(database.inbox), 'command')}"
        return f"not finished in time, with {left} waiting. " + " | ".join(lines)

    # ── Hosts ──

    def _host(self, kind: str, start: Callable[[], None]) -> Host:
        self._count += 1
        host = self._loop.host(f"{kind} {self._count}")
        self._starts[host] = start
        return host

    def _start_orchestrator(self) -> None:
        host = self._host("orchestrator", self._start_orchestrator)
        store = self._stores.orchestrator(
            self.database, lease_seconds=LEASE_SECONDS, worker_lease_seconds=WORKER_LEASE_SECONDS
        )
        timing = Timing(
            poll_seconds=self._poll_seconds,
            heartbeat_seconds=1.0,
            scan_seconds=SCAN_SECONDS,
            worker_scan_seconds=SCAN_SECONDS,
        )
        remote: Any = RemoteStore(self.network, host, store, self.oracle)
        service = Orchestrator(remote, blobs=self.database.blobs, timing=timing, vault=self._vault)
        self._run_service(host, service)

    def _start_worker(self) -> None:
        host = self._host("worker", self._start_worker)
        remote: Any = RemoteStore(self.network, host, self._stores.worker(self.database), self.oracle)
        ports = WorkerPorts(
            source=remote,
            ledger=remote,
            journal=remote,
            blobs=self.database.blobs,
            secrets=lambda _name: "secret",
            vault=self._vault,
        )
        options = WorkerOptions(
            concurrency=self._rng.choice((1, 2, 8)),
            poll_seconds=self._poll_seconds,
            heartbeat_seconds=1.0,
            shares_loop=True,
        )
        self._run_service(host, Worker(ports, self._mocks.registry, options=options))

    def _run_service(self, host: Host, service: Orchestrator | Worker) -> None:
        self._services[host] = service
        self._loop.create_task(service.run(), context=host.context())

    def _stop_service(self) -> None:
        """Stop a service as an operator does, and start another in its place."""
        if not self.network.is_stormy or not self._services:
            return
        host = self._rng.choice(list(self._services))
        self.network.note(host.name, "is asked to stop")
        self.network.steps += 1
        host.context().run(self._services.pop(host).stop)
        start = self._starts.pop(host, None)
        if start is not None:
            self._loop.call_later(self._rng.uniform(0.0, 3.0), start)
        self._loop.call_later(self._rng.uniform(0.1, 8.0), self._stop_service)

    async def _drain_services(self, host: Host) -> None:
        """Drain services as an operator does, one after the other; most of them claim again later."""
        remote: Any = RemoteStore(self.network, host, MemoryClientStore(self.database), self.oracle)
        while self.network.is_stormy:
            await asyncio.sleep(self._rng.uniform(0.1, 3.0))
            services = sorted((*self.database.orchestrators, *self.database.workers))
            if not services:
                continue
            service_id = self._rng.choice(services)
            grace_seconds = self._rng.choice((None, 0.0, 2.0))
            await self._retry(partial(remote.drain, service_id, grace_seconds=grace_seconds))
            await asyncio.sleep(self._rng.uniform(0.1, 6.0))
            if self._rng.random() < UNDRAIN_SHARE:
                await self._retry(partial(remote.undrain, service_id))
        # Later than every request that is still on its way.
        await asyncio.sleep(CALM_SECONDS / 10)
        for service_id in sorted((*self.database.orchestrators, *self.database.workers)):
            await remote.undrain(service_id)

    def _kill_current_host(self) -> None:
        host = HOST.get()
        self.network.note(host.name, "is killed by its task")
        # Its replacement is not started by the dead.
        SERVER.context().run(self._crashed, host)

    def _crashed(self, host: Host) -> None:
        self._loop.kill(host)
        self._services.pop(host, None)
        start = self._starts.pop(host, None)
        if start is not None:
            self._loop.call_later(self._rng.uniform(0.0, 6.0), start)

    def _calm(self) -> None:
        self.network.note("network", "calm")
        self.network.calm()
        for host in self._loop.hosts:
            self._loop.wake(host)

    # ── Clients ──

    async def _publish(self, graph: Graph) -> None:
        store = MemoryClientStore(self.database)
        await JobSubmitter(store, store.ids).store_graph(graph)
        await store.publish(StoredWorkflow(graph.workflow_id, graph.version, graph.content_hash))

    def _start_client(self, graph: Graph, number: int) -> None:
        host = self._host("client", lambda: self._start_client(graph, number))
        self._clients[number] = self._loop.create_task(
            self._client(graph, number, host), context=host.context()
        )

    async def _client(self, graph: Graph, number: int, host: Host) -> None:
        """Submit a job, with retries; then send the commands of the case."""
        store = MemoryClientStore(self.database)
        remote: Any = RemoteStore(self.network, host, store, self.oracle)
        inputs = {name: value for name, value in self._case.inputs.items() if name in graph.inputs}
        request = JobRequest(inputs=inputs, idempotency_key=f"job-{number}")
        submitter = JobSubmitter(remote, store.ids, vault=self._vault)
        accepted = await self._retry(lambda: submitter.submit(graph, request))
        job_id = accepted[0].job_id
        self.oracle.accepted.add(job_id)
        commands = self._case.commands
        while commands:
            for command in commands:
                await asyncio.sleep(command.after_seconds * self._rng.uniform(0.1, 2.0))
                for target_id in self._with_children(job_id):
                    await self._retry(partial(remote.send, target_id, command.kind, command.body, command.by))
            commands = [
                command for command in commands if command.repeats and self.database.jobs[job_id].is_open
            ]

    def _with_children(self, job_id: str) -> list[str]:
        job_ids = [job_id]
        for child_id, job in self.database.jobs.items():
            if job.new.parent is not None and job.new.parent.job_id in job_ids and job.is_open:
                job_ids.append(child_id)
        return job_ids

    async def _retry(self, work: Callable[[], Any]) -> Any:
        while True:
            try:
                return await work()
            except DatabaseUnavailable:
                await asyncio.sleep(0.2)
