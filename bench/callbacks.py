"""Callbacks: a receiver that fails at random while relay and database are killed, a dead endpoint, the cost of turns.

The receiver is in this process, the relay and the server are processes of their own. Jobs change by SQL: what stores
a callback is a trigger, whatever changes the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import asyncpg

from bench.dev_stack import DAGMASTER, ROOT, environment, folder
from bench.rows import Row
from dagmaster.store.embedded.server import EmbeddedPostgres
from dagmaster.store.postgres import schema_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

JOBS = 500
"""Each is told that it runs and that it completed: 1,000 callbacks."""
FAILS = 0.3
RELAY_KILLS, SERVER_KILLS = 4, 2
WAITING = 10_000
PROBES = 100
TURNS, ROUNDS = 2_000, 9
PATIENCE = 600.0
_JOBS = (
    "INSERT INTO dag_jobs (id, workflow_id, version, content_hash, inputs, callback_url, created_at, updated_at)"
    " SELECT n, 'w', 1, 'h', '{}', $3, now(), now() FROM generate_series($1::bigint, $2::bigint) n"
)
_RUN = "UPDATE dag_jobs SET status = 'RUNNING', started_at = now() WHERE id BETWEEN $1 AND $2"
_END = "UPDATE dag_jobs SET status = 'COMPLETED', finished_at = now() WHERE id BETWEEN $1 AND $2"
_OPEN = "SELECT EXISTS (SELECT FROM dag_callbacks WHERE delivered_at IS NULL AND dead_at IS NULL AND endpoint = $1)"


def measure() -> Iterator[Row]:
    """Yield the figures."""
    with folder() as place:
        data = place / "data"
        with EmbeddedPostgres(data) as server:
            schema_version.upgrade(server.dsn)
            yield from asyncio.run(_turns(server.dsn))
            yield from asyncio.run(_kills(server.dsn, data))
        with EmbeddedPostgres(data) as server:
            yield from asyncio.run(_dead_endpoint(server.dsn, data))


# ── What a turn pays ──


async def _turns(dsn: str) -> list[Row]:
    """Compare changes of jobs without callbacks with and without the trigger, in alternating rounds."""
    connection = await _connect(dsn)
    await connection.execute(_JOBS, 1, TURNS, None)
    seconds: dict[bool, list[float]] = defaultdict(list)
    for number in range(2 * ROUNDS):
        is_on = number % 2 == 0
        await connection.execute(
            f"ALTER TABLE dag_jobs {'ENABLE' if is_on else 'DISABLE'} TRIGGER dag_jobs_tell"
        )
        transaction = connection.transaction()
        await transaction.start()
        started = time.perf_counter()
        await connection.execute(_RUN, 1, TURNS)
        await connection.execute(_END, 1, TURNS)
        seconds[is_on].append(time.perf_counter() - started)
        await transaction.rollback()
        await connection.execute("VACUUM dag_jobs")
    await connection.execute("ALTER TABLE dag_jobs ENABLE TRIGGER dag_jobs_tell; TRUNCATE dag_jobs CASCADE")
    await connection.close()
    microseconds = {is_on: statistics.median(times) / (2 * TURNS) * 1e6 for is_on, times in seconds.items()}
    return [
        Row(
            "callbacks: a change of a job without one, against no trigger",
            microseconds[True], "µs", floor=microseconds[False],
        )
    ]  # fmt: skip


# ── Nothing is lost ──


async def _kills(dsn: str, data: Path) -> list[Row]:
    chance = random.Random(27)
    received: dict[tuple[str, str], set[str]] = defaultdict(set)
    accepted: set[tuple[str, str]] = set()
    order: dict[str, list[str]] = defaultdict(list)

    def answer(callback_id: str, body: dict[str, Any]) -> int:
        state = body["job_id"], body["status"]
        received[state].add(callback_id)
        if chance.random() < FAILS:
            return 500
        if state not in accepted:
            accepted.add(state)
            order[state[0]].append(state[1])
        return 200

    async with _receiver(answer) as port:
        endpoint = f"http://127.0.0.1:{port}"
        connection = await _connect(dsn)
        await connection.execute(_JOBS, 1, JOBS, f"{endpoint}/x")
        await connection.close()
        started = time.perf_counter()
        await _change_under_kills(dsn, data, chance)
        relay = _start_relay(data)
        try:
            async with asyncio.timeout(PATIENCE):
                while await _is_open(dsn, endpoint):  # noqa: ASYNC110 - the database is polled
                    await asyncio.sleep(0.2)
        finally:
            relay.terminate()
            relay.wait()
    workload = f"callbacks: 1,000 at {FAILS:.0%} failures, {RELAY_KILLS + SERVER_KILLS + 1} kills of the relay, {SERVER_KILLS} of the database"
    several = sum(len(ids) > 1 for ids in received.values())
    disordered = sum(states != ["running", "completed"] for states in order.values())
    return [
        Row(f"{workload}: lost", 2 * JOBS - len(accepted), "callbacks", at_most=0),
        Row(f"{workload}: states with more than one id", several, "states", at_most=0),
        Row(f"{workload}: jobs out of order", disordered, "jobs", at_most=0),
        Row(f"{workload}: all delivered after", time.perf_counter() - started, "s"),
    ]


async def _change_under_kills(dsn: str, data: Path, chance: random.Random) -> None:
    """Let all jobs run and complete, while relays deliver and die, and the server does."""
    victims = ["relay"] * RELAY_KILLS + ["server"] * SERVER_KILLS
    chance.shuffle(victims)
    size = JOBS // (len(victims) + 1)
    for number, victim in enumerate([*victims, "relay"]):
        relay = _start_relay(data)
        first = number * size + 1
        await _change(dsn, first, JOBS if number == len(victims) else first + size - 1)
        # Some are being sent.
        await asyncio.sleep(2)
        if victim == "server":
            _kill_server(data)
            await asyncio.sleep(2)
        relay.kill()
        relay.wait()


async def _change(dsn: str, first: int, last: int) -> None:
    """Let jobs run and complete, however often the server is away."""
    for statement in (_RUN, _END):
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                    connection = await _connect(dsn)
                    await connection.execute(statement, first, last)
                    await connection.close()
                    break
                await asyncio.sleep(0.2)


async def _is_open(dsn: str, endpoint: str) -> bool:
    """Return whether callbacks wait still."""
    try:
        connection = await _connect(dsn)
        is_open = await connection.fetchval(_OPEN, endpoint)
        await connection.close()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return True
    return bool(is_open)


def _kill_server(data: Path) -> None:
    """Kill the server as a power cut would. The relay starts it again, as every service of an embedded one does."""
    pid = int((data / "cluster" / "postmaster.pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)


# ── A dead endpoint ──


async def _dead_endpoint(dsn: str, data: Path) -> list[Row]:
    """Measure from the change of a job to the receiver, alone and with callbacks of an endpoint that hangs."""
    arrivals: dict[str, float] = {}
    waiters: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def answer(_callback_id: str, body: dict[str, Any]) -> int:
        arrivals[body["job_id"]] = time.perf_counter()
        waiters[body["job_id"]].set()
        return 200

    async with _receiver(answer) as port, _hanging() as dead_port:
        relay = _start_relay(data)
        connection = await _connect(dsn)
        await connection.execute("TRUNCATE dag_jobs, dag_callbacks, dag_external_services CASCADE")

        async def probe(first: int) -> list[float]:
            await connection.execute(_JOBS, first, first + PROBES, f"http://127.0.0.1:{port}/x")
            times = []
            for job_id in range(first, first + PROBES + 1):
                started = time.perf_counter()
                await connection.execute(_RUN, job_id, job_id)
                async with asyncio.timeout(PATIENCE):
                    await waiters[str(job_id)].wait()
                times.append(arrivals[str(job_id)] - started)
                await asyncio.sleep(0.02)
            # The first one makes the key pair.
            return times[1:]

        try:
            alone = await probe(1)
            await connection.execute(_JOBS, 100_001, 100_000 + WAITING, f"http://127.0.0.1:{dead_port}/x")
            await connection.execute(_RUN, 100_001, 100_000 + WAITING)
            crowded = await probe(1_001)
        finally:
            relay.terminate()
            relay.wait()
            await connection.close()
    p95 = {
        name: statistics.quantiles(times, n=20)[-1] * 1e3
        for name, times in (("alone", alone), ("crowded", crowded))
    }
    return [
        Row("callbacks: change of a job to its receiver, p95", p95["alone"], "ms"),
        Row(
            f"callbacks: the same with {WAITING:,} waiting for an endpoint that hangs, p95",
            p95["crowded"], "ms", at_most=2 * p95["alone"], floor=p95["alone"], target="2x of that without",
        ),
    ]  # fmt: skip


# ── Processes ──


async def _connect(dsn: str) -> asyncpg.Connection[asyncpg.Record]:
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "dagapp"})
    await connection.execute(
        "INSERT INTO dag_graphs (content_hash, definition) VALUES ('h', '{}') ON CONFLICT DO NOTHING"
    )
    return connection


def _start_relay(data: Path) -> subprocess.Popen[bytes]:
    env = environment() | {
        "DAGMASTER_CALLBACK_LOOPBACK": "true",
        # A receiver that fails at random is asked again soon, and as often as it takes.
        "DAGMASTER_CALLBACK_RETRY_SECONDS": ",".join(["0.2"] * 40),
    }
    command = [DAGMASTER, "relay", "--data-dir", str(data)]
    return subprocess.Popen(  # noqa: S603 - our own command
        command,
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@contextlib.asynccontextmanager
async def _receiver(answer: Any) -> AsyncIterator[int]:

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
            body = json.loads(await reader.readexactly(int(headers["content-length"])))
            status = answer(headers["webhook-id"], body)
            writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1_000)
    async with server:
        yield server.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def _hanging() -> AsyncIterator[int]:
    """Accept connections, and never answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
