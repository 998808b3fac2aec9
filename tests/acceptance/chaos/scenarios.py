"""Scenarios of faults in a fleet, each followed by a check of the guarantees; each returns the counts of its faults.

`make test` runs each scenario once; `make soak` runs them repeatedly with new seeds.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dagmaster.errors import DatabaseUnavailable
from dagmaster.ports.command_kinds import CommandKind
from tests.acceptance.chaos.fleet import POLL_SECONDS, Fleet
from tests.acceptance.chaos.proxy import MODES, Fault, Proxy

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
LONG_LEASES: Final = {"DAGMASTER_WORKER_LEASE_SECONDS": "60", "DAGMASTER_ORCHESTRATOR_LEASE_SECONDS": "60"}


@dataclass(slots=True)
class Done:
    """The number of faults by name, the seconds until recovery, and how often handlers were executed."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    work: Counter[str] = field(default_factory=Counter)

    def record(self, fault: str, seconds: float) -> None:
        self.counts[fault] += 1
        self.seconds[fault].append(round(seconds, 3))

    async def record_after(self, fault: str, started: float, recovery: Awaitable[object]) -> None:
        """Wait for the recovery, and record how long after the fault it came."""
        await recovery
        self.record(fault, time.monotonic() - started)


def fan_out(nodes: int, *, parallel: int, gates: int = 1, retry: str = "{max_lost: 1000}") -> str:
    """Return a workflow of this many tasks, all recorded in the ledger, in one portion per gate.

    The first gate is open. A closed gate keeps the job from finishing, however fast the machine is.
    """
    task = f"{{handler: work, queue: work, retry: {retry}, params: {{behind: '{{{{ item }}}}'}}}}"
    return f"""{{workflow_id: fan, version: 1, nodes: {{
        p: {{handler: plan, queue: work, retry: {retry}, params: {{count: {nodes}, gates: {gates}}}, next: f}},
        f: {{type: fan_out, source: '{{{{ nodes.p.output["items"] }}}}', max_parallel: {parallel}, task: {task}, next: s}},
        s: {{handler: work, queue: work, retry: {retry}}}}}}}"""


async def in_portion(
    fleet: Fleet, job: str, number: int, *, of: int, nodes: int, chance: random.Random
) -> None:
    """Wait until a job is within a portion. After the fault the next gate is opened, so that there is work."""
    # A task has two events: dispatched and completed.
    await fleet.until_events(job, int(2 * nodes * (number + chance.uniform(0.1, 0.9)) / of))
    await fleet.record_finished()


WAITS: Final = """{workflow_id: waits, version: 1, nodes: {
    w: {type: wait, signal: go, next: a}, a: {handler: work, queue: work, retry: {max_lost: 1000}}}}"""


# ── Crashes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def kill_services(kills: int, nodes: int, chance: random.Random) -> Done:
    """Kill the owner of a job and a worker with SIGKILL, again and again, while the job runs."""
    done = Done()
    async with Fleet() as fleet:
        await fleet.start("orchestrator", "orchestrator", "worker", "worker")
        job = await fleet.job(fan_out(nodes, parallel=500, gates=kills + 1))
        for number in range(kills):
            await in_portion(fleet, job, number, of=kills + 1, nodes=nodes, chance=chance)
            await _kill_owner_and_worker(fleet, job, number + 1, done, chance)
        await fleet.wait_finished(job)
        done.work += await fleet.check()
    return done


async def kill_growing_jobs(kills: int, tasks: int, chance: random.Random) -> Done:
    """Kill the owner and the worker of a job whose running task has added tasks, again and again."""
    done = Done()
    growing = ", ".join(
        f"g{number}: {{handler: grow, queue: work, retry: {{max_lost: 1000}}, params: {{count: {tasks}, behind: {number}}},"
        f" next: {f'g{number + 1}' if number < kills else 'last'}}}"
        for number in range(1, kills + 1)
    )
    last = "last: {handler: work, queue: work, retry: {max_lost: 1000}}"
    async with Fleet() as fleet:
        await fleet.start("orchestrator", "orchestrator", "worker", "worker")
        job = await fleet.job(f"{{workflow_id: growing, version: 1, nodes: {{{growing}, {last}}}}}")
        accepted = (
            "SELECT count(*) >= $2 FROM dag_node_batches WHERE job_id = $1 AND accepted_order IS NOT NULL"
        )
        for number in range(kills):
            # Of each task before it two batches are accepted, of this one the first.
            await fleet.until(accepted, int(job), 2 * number + 1)
            await _kill_owner_and_worker(fleet, job, number + 1, done, chance)
        await fleet.wait_finished(job)
        done.work += await fleet.check()
        added = await fleet.value(
            "SELECT count(*) FROM dag_node_states WHERE job_id = $1 AND node_id LIKE 'work%'", int(job)
        )
        assert added == kills * tasks, f"{added} tasks were added, not {kills * tasks}"
    return done


async def _kill_owner_and_worker(
    fleet: Fleet, job: str, gate: int, done: Done, chance: random.Random
) -> None:
    """Kill the owner of a job and a busy worker, open a gate, and wait for the recovery."""
    owner, owner_id = await fleet.owner(job)
    worker, worker_id = await fleet.busy_worker(chance)
    seq = await fleet.events(job)
    for victim in chance.sample([owner, worker], 2):
        victim.signal(signal.SIGKILL)
    started = time.monotonic()
    fleet.ledger.open_gate(job, gate)
    replaced = asyncio.create_task(fleet.start("orchestrator", "worker"))
    await asyncio.gather(
        done.record_after("kill orchestrator", started, _has_new_owner_acted(fleet, job, owner_id, seq)),
        done.record_after("kill worker", started, _is_reclaimed(fleet, worker_id)),
    )
    await replaced


async def _has_new_owner_acted(fleet: Fleet, job: str, owner_id: int, seq: int) -> None:
    """Wait until another owner has changed a job, or it has finished."""
    await fleet.until(
        """SELECT finished_at IS NOT NULL OR EXISTS (
               SELECT FROM dag_job_events e WHERE e.job_id = j.id AND e.seq > $2 AND e.type <> 'JobClaimed' AND e.by <> $3)
           FROM dag_jobs j WHERE id = $1""",
        int(job), seq, f"orchestrator {owner_id}",
    )  # fmt: skip


async def _is_reclaimed(fleet: Fleet, worker_id: int) -> None:
    """Wait until all tasks of a worker are reclaimed."""
    await fleet.until("SELECT count(*) = 0 FROM dag_task_queue WHERE worker_id = $1", worker_id)


async def poison_workers(*, kills_worker: bool) -> Done:
    """Run a task that kills its worker next to 30 healthy ones, which may not be lost once; restart what dies.

    `kills_worker`: it kills the worker even from a child process.
    """
    done = Done()
    strict = "{max_attempts: 1, max_lost: 0}"
    poison = f"""{{workflow_id: poison, version: 1, nodes: {{
        bad: {{handler: poison, queue: work, params: {{kills_worker: {str(kills_worker).lower()}}},
              retry: {{max_attempts: 2, initial_delay_seconds: 0.1, max_lost: 1}}}}}}}}"""
    healthy = f"""{{workflow_id: healthy, version: 1, nodes: {{
        f: {{type: fan_out, source: {list(range(30))}, task: {{handler: work, queue: work, params: {{seconds: 0.3}}, retry: {strict}}}}}}}}}"""
    async with Fleet() as fleet:
        await fleet.start("orchestrator", "worker")
        supervisor = asyncio.create_task(_restart_workers(fleet, done))
        jobs = [await fleet.job(healthy), await fleet.job(poison)]
        await fleet.wait_finished(*jobs)
        supervisor.cancel()
        await fleet.check(failed=jobs[1:])
        charged = "SELECT count(*) FROM dag_node_states WHERE job_id = $1 AND (failed_attempts > 0 OR lost_attempts > 0)"
        assert await fleet.value(charged, int(jobs[0])) == 0
        error = json.loads(
            await fleet.value("SELECT error FROM dag_node_states WHERE job_id = $1", int(jobs[1]))
        )
        assert error["kind"] == ("lost" if kills_worker else "crashed")
    return done


async def _restart_workers(fleet: Fleet, done: Done) -> None:
    """Start a new worker whenever one has died, as a supervisor does."""
    while True:
        if not fleet.alive("worker"):
            done.record("poison", 0.0)
            await fleet.start("worker")
        await asyncio.sleep(POLL_SECONDS)


async def kill_server(kills: int, nodes: int, chance: random.Random) -> Done:
    """Kill PostgreSQL with SIGKILL, while jobs run, are submitted and receive signals."""
    done = Done()
    async with Fleet() as fleet:
        await fleet.start("orchestrator", "orchestrator", "worker", "worker")
        waiting = [accepted.job_id for accepted in await fleet.submit(WAITS, times=20)]
        job = await fleet.job(fan_out(nodes, parallel=200, gates=kills + 1))
        finished = asyncio.Event()
        clients = [
            asyncio.create_task(_submit_until(fleet, finished)),
            asyncio.create_task(_send_signals(fleet, waiting, finished)),
        ]
        for number in range(kills):
            await in_portion(fleet, job, number, of=kills + 1, nodes=nodes, chance=chance)
            fleet.kill_server()
            started = time.monotonic()
            fleet.ledger.open_gate(job, number + 1)
            await fleet.restart_server()
            seq = await fleet.events(job)
            await fleet.until_events(job, seq + 1)
            done.record("kill PostgreSQL", time.monotonic() - started)
            await fleet.record_finished()
        finished.set()
        submitted, signalled = await asyncio.gather(*clients)
        assert submitted > 0
        await fleet.wait_finished(job, *waiting)
        done.work += await fleet.check()
        # No accepted signal was lost: each of these jobs waits for one.
        assert signalled == len(waiting)
    return done


async def _submit_until(fleet: Fleet, finished: asyncio.Event) -> int:
    """Submit jobs, each twice with the same idempotency key, until `finished`."""
    client, number, text = await fleet.new_client(), 0, fan_out(3, parallel=3)
    while not finished.is_set():
        number += 1
        key = f"key {number}"
        results = [
            await _retry_while_unavailable(fleet.submit, text, key=key, client=client) for _ in range(2)
        ]
        assert len({accepted.job_id for (accepted,) in results}) == 1
    return number


async def _send_signals(fleet: Fleet, jobs: list[str], finished: asyncio.Event) -> int:
    """Send a signal to each job, to half of them after the last fault."""
    client = await fleet.new_client()
    for number, job in enumerate(jobs):
        if number >= len(jobs) // 2:
            await finished.wait()
        assert await _retry_while_unavailable(
            client.send, job, "signal", {"name": "go", "payload": {}}, "chaos"
        )
    return len(jobs)


async def _retry_while_unavailable(work: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
    """Retry something while the server is unavailable."""
    while True:
        try:
            return await work(*args, **kwargs)
        except DatabaseUnavailable:
            await asyncio.sleep(POLL_SECONDS)


async def kill_owner_of_many(jobs: int) -> Done:
    """Kill an orchestrator that owns many jobs: another one reclaims all of them, and they continue."""
    done = Done()
    async with Fleet() as fleet:
        (owner, _) = await fleet.start("orchestrator", "worker")
        waiting = [accepted.job_id for accepted in await fleet.submit(WAITS, times=jobs)]
        await fleet.until("SELECT count(*) = $1 FROM dag_node_states WHERE status = 'WAITING'", jobs)
        await fleet.start("orchestrator")
        owner.signal(signal.SIGKILL)
        started = time.monotonic()
        sql = """SELECT count(*) = $1 FROM dag_jobs j JOIN dag_orchestrators o USING (owner_id) WHERE o.pid <> $2"""
        await fleet.until(sql, jobs, owner.pid)
        done.record("owner of many jobs", time.monotonic() - started)
        done.counts["owner of many jobs"] = jobs
        for job in waiting:
            assert await fleet.client.send(job, CommandKind.SIGNAL, {"name": "go", "payload": {}}, "chaos")
        await fleet.wait_finished(*waiting)
        done.work += await fleet.check()
    return done


# ── Pauses ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def stop_owner(times: int, chance: random.Random) -> Done:
    """Pause the owner of a job past its lease and resume it: it changes nothing.

    Alternately, its process is paused, or its turn is delayed in the network until another one owns the job.
    """
    done = Done()
    async with (
        Fleet() as fleet,
        Proxy(fleet.folder / "one", fleet.server.socket_dir) as one,
        Proxy(fleet.folder / "two", fleet.server.socket_dir) as two,
    ):
        proxies = {(await fleet.start("orchestrator", dsn=proxy.dsn))[0]: proxy for proxy in (one, two)}
        await fleet.start("worker")
        for number in range(times):
            job = await fleet.job(fan_out(300, parallel=20, gates=2))
            await in_portion(fleet, job, 0, of=2, nodes=300, chance=chance)
            owner, owner_id = await fleet.owner(job)
            proxy = proxies[owner]
            is_held = number % 2 == 0
            if is_held:
                held = proxy.hold("dagmaster orchestrator")
                fleet.ledger.open_gate(job, 1)
                await held.wait()
            else:
                owner.signal(signal.SIGSTOP)
                fleet.ledger.open_gate(job, 1)
            started = time.monotonic()
            await _has_new_owner_acted(fleet, job, owner_id, await fleet.events(job))
            if is_held:
                proxy.release()
            else:
                owner.signal(signal.SIGCONT)
            # It notices, and registers again with a new owner id.
            sql = "SELECT count(*) > 0 FROM dag_orchestrators WHERE pid = $1 AND owner_id > $2 AND stopped_at IS NULL"
            await fleet.until(sql, owner.pid, owner_id)
            done.record("stop owner", time.monotonic() - started)
            await fleet.wait_finished(job)
            await fleet.record_finished()
        done.work += await fleet.check()
    return done


async def stop_worker(times: int, chance: random.Random) -> Done:
    """Pause a worker past its lease and resume it: what it held runs elsewhere, and its own reports are dropped."""
    done = Done()
    async with Fleet() as fleet:
        await fleet.start("orchestrator", "worker", "worker")
        for _ in range(times):
            job = await fleet.job(fan_out(300, parallel=100, gates=2))
            await in_portion(fleet, job, 0, of=2, nodes=300, chance=chance)
            worker, worker_id = await fleet.busy_worker(chance)
            await fleet.until_executing(worker_id, first=150)
            worker.signal(signal.SIGSTOP)
            started = time.monotonic()
            await fleet.until(
                "SELECT stopped_at IS NOT NULL FROM dag_workers WHERE worker_id = $1", worker_id
            )
            await _is_reclaimed(fleet, worker_id)
            # Both go on: the worker with what it has lost, and its successor.
            fleet.ledger.open_gate(job, 1)
            worker.signal(signal.SIGCONT)
            sql = "SELECT count(*) > 0 FROM dag_workers WHERE pid = $1 AND worker_id > $2 AND stopped_at IS NULL"
            await fleet.until(sql, worker.pid, worker_id)
            done.record("stop worker", time.monotonic() - started)
            await fleet.wait_finished(job)
            await fleet.record_finished()
        done.work += await fleet.check()
    return done


async def no_fault(jobs: int, nodes: int) -> Done:
    """Run jobs while nothing happens: no handler is executed twice."""
    done = Done()
    async with Fleet() as fleet:
        await fleet.start("orchestrator", "orchestrator", "worker", "worker")
        for _ in range(jobs):
            await fleet.wait_finished(await fleet.job(fan_out(nodes, parallel=500)))
        done.work += await fleet.check()
        done.counts["no fault"] += jobs
    return done


# ── Lost messages ────────────────────────────────────────────────────────────────────────────────────────────────────────────

SESSIONS: Final = (
    "dagmaster orchestrator", "dagmaster worker, reports", "dagmaster client", "dagmaster orchestrator",
    "dagmaster worker", "dagmaster orchestrator, reads", "dagmaster worker, reports", "dagmaster orchestrator, side",
    "dagmaster orchestrator", "dagmaster worker, side",
)  # fmt: skip


async def lose_answers(times: int, chance: random.Random) -> Done:
    """Cut connections: before a statement arrives, while it runs, and after the commit but before the response."""
    done = Done()
    async with Fleet() as fleet, Proxy(fleet.folder / "proxy", fleet.server.socket_dir) as proxy:
        await fleet.start("orchestrator", "worker", dsn=proxy.dsn)
        client, text = await fleet.new_client(proxy.dsn), fan_out(60, parallel=8)
        for number in range(times):
            # Each session in turn; the first faults lose the response of a commit, the worst case.
            mode = "after" if number < len(SESSIONS) // 2 else chance.choice(MODES)
            fault = Fault(SESSIONS[number % len(SESSIONS)], mode, chance.randrange(3))
            lost, key = proxy.inject(fault), f"key {number}"
            started = time.monotonic()
            while True:
                (accepted,) = await _retry_while_unavailable(fleet.submit, text, key=key, client=client)
                await fleet.wait_finished(accepted.job_id)
                if lost.is_set():
                    break
                # The fault has not happened yet.
                key += "+"
            done.record("cut connection", time.monotonic() - started)
            await fleet.record_finished()
        assert proxy.lost == times
        done.work += await fleet.check()
    return done


# ── Load ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def share_keys(keys: int, clients: int) -> Done:
    """Submit the same key from many clients at once: one job is created, and all get its id."""
    done = Done()
    async with Fleet() as fleet:
        await fleet.start("orchestrator", "worker")
        stores = await asyncio.gather(*(fleet.new_client() for _ in range(clients)))
        text = fan_out(2, parallel=2)
        for number in range(keys):
            answers = await asyncio.gather(
                *(fleet.submit(text, key=f"key {number}", client=client) for client in stores)
            )
            job_ids = Counter(accepted.job_id for (accepted,) in answers)
            assert len(job_ids) == 1, f"one key has several jobs: {job_ids}"
            assert sum(accepted.is_new for (accepted,) in answers) == 1
            done.counts["same key"] += 1
        assert await fleet.value("SELECT count(*) FROM dag_jobs") == keys
        done.work += await fleet.check()
    return done


async def terminate_services(times: int, nodes: int, chance: random.Random) -> Done:
    """Ask the owner and a worker to stop under load: they stop, others continue, and no retry is used up."""
    done = Done()
    # The leases are long: what becomes free was released, not reclaimed.
    async with Fleet(**LONG_LEASES) as fleet:
        await fleet.start("orchestrator", "worker")
        job = await fleet.job(fan_out(nodes, parallel=200, gates=times + 1, retry="none"))
        for number in range(times):
            owner, owner_id = await fleet.owner(job)
            (worker,) = fleet.alive("worker")
            await fleet.start("orchestrator", "worker")
            await in_portion(fleet, job, number, of=times + 1, nodes=nodes, chance=chance)
            seq = await fleet.events(job)
            for service in (owner, worker):
                service.signal(signal.SIGTERM)
            started = time.monotonic()
            fleet.ledger.open_gate(job, number + 1)
            codes = asyncio.gather(
                *(done.record_after("SIGTERM", started, service.wait()) for service in (owner, worker))
            )
            await done.record_after("release", started, _has_new_owner_acted(fleet, job, owner_id, seq))
            await codes
            assert (owner.code, worker.code) == (0, 0), "a graceful shutdown exits with 0"
        await fleet.wait_finished(job)
        used = await fleet.value(
            "SELECT count(*) FROM dag_node_states WHERE failed_attempts > 0 OR lost_attempts > 0"
        )
        assert used == 0, f"{used} nodes used up an attempt"
        done.work += await fleet.check()
    return done
