"""What is done to a fleet, and what is promised nevertheless. Each scenario takes counts, and tells what was done.

`make test` runs each once with the counts of the house; `make soak` again and again with new seeds.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dagmaster.errors import DatabaseUnavailable
from dagmaster.ports.command_kinds import CommandKind
from tests.acceptance.chaos.fleet import LOOK_SECONDS, Fleet
from tests.acceptance.chaos.proxy import MODES, Fault, Proxy

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
LONG: Final = {"DAGMASTER_WORKER_LEASE_SECONDS": "60", "DAGMASTER_ORCHESTRATOR_LEASE_SECONDS": "60"}


@dataclass(slots=True)
class Done:
    """What was done, by name; and how long it took until things moved again, in seconds."""

    counts: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def took(self, what: str, seconds: float) -> None:
        self.counts[what] += 1
        self.seconds[what].append(round(seconds, 3))

    async def after(self, what: str, began: float, event: Awaitable[object]) -> None:
        """Wait for something, and tell how long after the fault it came."""
        await event
        self.took(what, time.monotonic() - began)


def fan_out(nodes: int, *, parallel: int, gates: int = 1, retry: str = "{max_lost: 1000}") -> str:
    """Return a workflow of this many tasks, all in the ledger, in as many portions as there are gates.

    The first gate is open. So a job that is not to be over yet is not, however fast the machine is.
    """
    task = f"{{handler: work, queue: work, retry: {retry}, params: {{behind: '{{{{ item }}}}'}}}}"
    return f"""{{workflow_id: fan, version: 1, nodes: {{
        p: {{handler: plan, queue: work, retry: {retry}, params: {{count: {nodes}, gates: {gates}}}, next: f}},
        f: {{type: fan_out, source: '{{{{ nodes.p.output["items"] }}}}', max_parallel: {parallel}, task: {task}, next: s}},
        s: {{handler: work, queue: work, retry: {retry}}}}}}}"""


async def in_portion(fleet: Fleet, job: str, number: int, *, of: int, nodes: int, chance: random.Random) -> None:
    """Wait until a job is in the midst of a portion. After the fault the next gate is opened, so that there is work."""
    # A task is told twice: when it is dispatched, and when it is completed.
    await fleet.until_events(job, int(2 * nodes * (number + chance.uniform(0.1, 0.9)) / of))
    await fleet.look()


WAITS: Final = """{workflow_id: waits, version: 1, nodes: {
    w: {type: wait, signal: go, next: a}, a: {handler: work, queue: work, retry: {max_lost: 1000}}}}"""


# ── Death ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def kill_services(kills: int, nodes: int, chance: random.Random) -> Done:
    """Kill the owner of a job and a worker with SIGKILL, again and again, while the job runs."""
    done = Done()
    async with Fleet() as fleet:
        await fleet.start("orchestrator", "orchestrator", "worker", "worker")
        job = await fleet.job(fan_out(nodes, parallel=500, gates=kills + 1))
        for number in range(kills):
            await in_portion(fleet, job, number, of=kills + 1, nodes=nodes, chance=chance)
            owner, owner_id = await fleet.owner(job)
            worker, worker_id = await fleet.busy_worker(chance)
            seq = await fleet.events(job)
            for victim in chance.sample([owner, worker], 2):
                victim.signal(signal.SIGKILL)
            began = time.monotonic()
            fleet.ledger.open_gate(job, number + 1)
            replaced = asyncio.create_task(fleet.start("orchestrator", "worker"))
            await asyncio.gather(
                done.after("kill orchestrator", began, _moves(fleet, job, owner_id, seq)),
                done.after("kill worker", began, _is_given_up(fleet, worker_id)),
            )
            await replaced
        await fleet.over(job)
        await fleet.check()
    return done


async def _moves(fleet: Fleet, job: str, owner_id: int, seq: int) -> None:
    """Wait until another owner has done something with a job, or it is over."""
    await fleet.until(
        """SELECT finished_at IS NOT NULL OR EXISTS (
               SELECT FROM dag_job_events e WHERE e.job_id = j.id AND e.seq > $2 AND e.type <> 'JobClaimed' AND e.by <> $3)
           FROM dag_jobs j WHERE id = $1""",
        int(job), seq, f"orchestrator {owner_id}",
    )  # fmt: skip


async def _is_given_up(fleet: Fleet, worker_id: int) -> None:
    """Wait until nothing is held by a worker any more."""
    await fleet.until("SELECT count(*) = 0 FROM dag_task_queue WHERE worker_id = $1", worker_id)


async def kill_server(kills: int, nodes: int, chance: random.Random) -> Done:
    """PostgreSQL is killed with -9, while jobs run, are submitted and are told something."""
    done = Done()
    async with Fleet() as fleet:
        await fleet.start("orchestrator", "orchestrator", "worker", "worker")
        waiting = [each.job_id for each in await fleet.submit(WAITS, times=20)]
        job = await fleet.job(fan_out(nodes, parallel=200, gates=kills + 1))
        over = asyncio.Event()
        crowd = [asyncio.create_task(_submit_on(fleet, over)), asyncio.create_task(_signal_on(fleet, waiting, over))]
        for number in range(kills):
            await in_portion(fleet, job, number, of=kills + 1, nodes=nodes, chance=chance)
            fleet.kill_server()
            began = time.monotonic()
            fleet.ledger.open_gate(job, number + 1)
            await fleet.restart_server()
            seq = await fleet.events(job)
            await fleet.until_events(job, seq + 1)
            done.took("kill PostgreSQL", time.monotonic() - began)
            await fleet.look()
        over.set()
        submitted, told = await asyncio.gather(*crowd)
        assert submitted > 0
        await fleet.over(job, *waiting)
        await fleet.check()
        # What was accepted was not lost: each of these waits for one word.
        assert told == len(waiting)
    return done


async def _submit_on(fleet: Fleet, over: asyncio.Event) -> int:
    """Submit one job after the other, each until it is accepted, and once more: its key makes it one."""
    client, number, text = await fleet.new_client(), 0, fan_out(3, parallel=3)
    while not over.is_set():
        number += 1
        key = f"key {number}"
        said = [await _patiently(fleet.submit, text, key=key, client=client) for _ in range(2)]
        assert len({accepted.job_id for (accepted,) in said}) == 1
    return number


async def _signal_on(fleet: Fleet, jobs: list[str], over: asyncio.Event) -> int:
    """Send each job its word, until it is accepted; half of them after the last fault."""
    client = await fleet.new_client()
    for number, job in enumerate(jobs):
        if number >= len(jobs) // 2:
            await over.wait()
        assert await _patiently(client.send, job, "signal", {"name": "go", "payload": {}}, "chaos")
    return len(jobs)


async def _patiently(work: Callable[..., Awaitable[T]], *given: Any, **named: Any) -> T:
    """Do something again until the server was there to hear it."""
    while True:
        try:
            return await work(*given, **named)
        except DatabaseUnavailable:
            await asyncio.sleep(LOOK_SECONDS)


async def kill_owner_of_many(jobs: int) -> Done:
    """One orchestrator owns many jobs, and is killed: another owns all of them, and they go on."""
    done = Done()
    async with Fleet() as fleet:
        (owner, _) = await fleet.start("orchestrator", "worker")
        waiting = [each.job_id for each in await fleet.submit(WAITS, times=jobs)]
        await fleet.until("SELECT count(*) = $1 FROM dag_node_states WHERE status = 'WAITING'", jobs)
        await fleet.start("orchestrator")
        owner.signal(signal.SIGKILL)
        began = time.monotonic()
        sql = """SELECT count(*) = $1 FROM dag_jobs j JOIN dag_orchestrators o USING (owner_id) WHERE o.pid <> $2"""
        await fleet.until(sql, jobs, owner.pid)
        done.took("owner of many jobs", time.monotonic() - began)
        done.counts["owner of many jobs"] = jobs
        for job in waiting:
            assert await fleet.client.send(job, CommandKind.SIGNAL, {"name": "go", "payload": {}}, "chaos")
        await fleet.over(*waiting)
        await fleet.check()
    return done


# ── Sleep ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def stop_owner(times: int, chance: random.Random) -> Done:
    """Pause the owner of a job past its lease and wake it: it changes nothing.

    By turns it is paused itself, and its turn is held up on the way: it arrives when another owns the job.
    """
    done = Done()
    async with (
        Fleet() as fleet,
        Proxy(fleet.folder / "one", fleet.server.socket_dir) as one,
        Proxy(fleet.folder / "two", fleet.server.socket_dir) as two,
    ):
        proxies = {(await fleet.start("orchestrator", dsn=each.dsn))[0]: each for each in (one, two)}
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
            began = time.monotonic()
            await _moves(fleet, job, owner_id, await fleet.events(job))
            if is_held:
                proxy.let_go()
            else:
                owner.signal(signal.SIGCONT)
            # It finds out, and is somebody else from then on.
            sql = "SELECT count(*) > 0 FROM dag_orchestrators WHERE pid = $1 AND owner_id > $2 AND stopped_at IS NULL"
            await fleet.until(sql, owner.pid, owner_id)
            done.took("stop owner", time.monotonic() - began)
            await fleet.over(job)
            await fleet.look()
        await fleet.check()
    return done


# ── Loss ────────────────────────────────────────────────────────────────────────────────────────────────────────────

SESSIONS: Final = (
    "dagmaster orchestrator", "dagmaster worker, reports", "dagmaster client", "dagmaster orchestrator",
    "dagmaster worker", "dagmaster orchestrator, reads", "dagmaster worker, reports", "dagmaster orchestrator, side",
    "dagmaster orchestrator", "dagmaster worker, side",
)  # fmt: skip


async def lose_answers(times: int, chance: random.Random) -> Done:
    """Cut connections: before a statement arrives, while it runs, and after it was committed but not answered."""
    done = Done()
    async with Fleet() as fleet, Proxy(fleet.folder / "proxy", fleet.server.socket_dir) as proxy:
        await fleet.start("orchestrator", "worker", dsn=proxy.dsn)
        client, text = await fleet.new_client(proxy.dsn), fan_out(60, parallel=8)
        for number in range(times):
            # By turns each session; the first ones lose what was committed, the worst case.
            mode = "after" if number < len(SESSIONS) // 2 else chance.choice(MODES)
            fault = Fault(SESSIONS[number % len(SESSIONS)], mode, chance.randrange(3))
            lost, key = proxy.lose(fault), f"key {number}"
            began = time.monotonic()
            while True:
                (accepted,) = await _patiently(fleet.submit, text, key=key, client=client)
                await fleet.over(accepted.job_id)
                if lost.is_set():
                    break
                # What was to be lost has not been said yet.
                key += "+"
            done.took("cut connection", time.monotonic() - began)
            await fleet.look()
        assert proxy.lost == times
        await fleet.check()
    return done


# ── Load ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def share_keys(keys: int, clients: int) -> Done:
    """Many clients submit the same key at the same moment: one job comes of it, and all are told the same."""
    done = Done()
    async with Fleet() as fleet:
        await fleet.start("orchestrator", "worker")
        crowd = await asyncio.gather(*(fleet.new_client() for _ in range(clients)))
        text = fan_out(2, parallel=2)
        for number in range(keys):
            answers = await asyncio.gather(
                *(fleet.submit(text, key=f"key {number}", client=client) for client in crowd)
            )
            said = Counter(accepted.job_id for (accepted,) in answers)
            assert len(said) == 1, f"one key has several jobs: {said}"
            assert sum(accepted.is_new for (accepted,) in answers) == 1
            done.counts["same key"] += 1
        assert await fleet.value("SELECT count(*) FROM dag_jobs") == keys
        await fleet.check()
    return done


async def terminate_services(times: int, nodes: int, chance: random.Random) -> Done:
    """Ask the owner and a worker to stop under load: they stop, others continue, and no retry is used up."""
    done = Done()
    # Nobody is believed dead here, so that all that comes back was handed back.
    async with Fleet(**LONG) as fleet:
        await fleet.start("orchestrator", "worker")
        job = await fleet.job(fan_out(nodes, parallel=200, gates=times + 1, retry="none"))
        for number in range(times):
            owner, owner_id = await fleet.owner(job)
            (worker,) = fleet.alive("worker")
            await fleet.start("orchestrator", "worker")
            await in_portion(fleet, job, number, of=times + 1, nodes=nodes, chance=chance)
            seq = await fleet.events(job)
            for each in (owner, worker):
                each.signal(signal.SIGTERM)
            began = time.monotonic()
            fleet.ledger.open_gate(job, number + 1)
            codes = asyncio.gather(*(done.after("SIGTERM", began, each.over()) for each in (owner, worker)))
            await done.after("hand over", began, _moves(fleet, job, owner_id, seq))
            await codes
            assert (owner.code, worker.code) == (0, 0), "who is told to stop ends in peace"
        await fleet.over(job)
        used = await fleet.value("SELECT count(*) FROM dag_node_states WHERE failed_attempts > 0 OR lost_attempts > 0")
        assert used == 0, f"{used} nodes used up a try or a loss"
        await fleet.check()
    return done
