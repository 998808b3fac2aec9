"""Live streams: a thousand of them on one server, each of another job, while their jobs move."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bench import process_usage
from bench.clients import client, timers_of
from bench.dev_stack import DAGMASTER, ROOT, Stack, environment, folder
from bench.rows import Row
from dagmaster.application.submission import JobRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAMS, EVENTS_PER_SECOND = 1_000, 100
# The end of a timer is one turn with two events: its node completed, the next one waits.
PERIOD_SECONDS = STREAMS * 2 // EVENTS_PER_SECOND
TIMERS = 12
SETTLE_SECONDS, WINDOW_SECONDS = 5.0, 30.0
KEY = "the-admin-key-of-a-benchmark-0123456789"
MB = 1_000_000


def measure() -> Iterator[Row]:
    """Measure how long an event takes to its client, and what the server needs."""
    with folder() as place, Stack(place / "streams") as stack, _server(stack) as (pid, url):
        yield from asyncio.run(_measure(stack, pid, url))


@contextmanager
def _server(stack: Stack) -> Iterator[tuple[int, str]]:
    """Run a server of its own; give its process and address."""
    process = subprocess.Popen(  # noqa: S603 - our own command
        [DAGMASTER, "server", "--port=0", f"--data-dir={stack.data_dir}"],
        cwd=ROOT,
        env=environment() | {"DAGMASTER_ADMIN_KEY": KEY, "DAGMASTER_STREAMS_PER_KEY": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if " is ready " in line)
        yield process.pid, line[line.index("http://") :].split()[0]
    finally:
        process.terminate()
        process.communicate(timeout=30)


async def _measure(stack: Stack, pid: int, url: str) -> list[Row]:
    rest = process_usage.memory(pid)["Rss"]
    job_ids = await _submit(stack)
    followers = [Follower(url, job_id) for job_id in job_ids]
    began = time.perf_counter()
    tasks = [asyncio.create_task(follower.run()) for follower in followers]
    async with asyncio.timeout(120):
        await asyncio.gather(*(follower.is_open.wait() for follower in followers))
    connected = time.perf_counter() - began
    await asyncio.sleep(SETTLE_SECONDS)
    for follower in followers:
        follower.milliseconds.clear()
    cpu = process_usage.fine_cpu_seconds(pid)
    await asyncio.sleep(WINDOW_SECONDS)
    cpu = (process_usage.fine_cpu_seconds(pid) - cpu) / WINDOW_SECONDS
    memory = process_usage.memory(pid)["Rss"]
    for task in tasks:
        task.cancel()
    ended = [
        task for task in await asyncio.gather(*tasks, return_exceptions=True) if isinstance(task, EOFError)
    ]
    assert not ended, f"{len(ended)} streams ended"
    delays = sorted(delay for follower in followers for delay in follower.milliseconds)
    rate = len(delays) / WINDOW_SECONDS
    name = f"{STREAMS:,} live streams"
    return [
        Row(
            f"{name}, {rate:.0f} events/s: event to client, p95",
            delays[len(delays) * 95 // 100],
            "ms",
            at_most=200,
        ),
        Row(f"{name}: event to client, median", delays[len(delays) // 2], "ms"),
        Row(f"{name}: memory of the server, RSS", memory / MB, "MB", at_most=200),
        Row(f"{name}: memory of a stream", (memory - rest) / STREAMS / 1_000, "KB"),
        Row(f"{name}: CPU of the server", cpu * 100, "% of a core"),
        Row(f"{name}: all opened, each with its snapshot", connected, "s"),
    ]


async def _submit(stack: Stack) -> list[str]:
    """Submit the jobs, spread over a period: then as many timers end in each second."""
    graph, job_ids = timers_of(TIMERS, PERIOD_SECONDS), list[str]()
    async with client(stack.dsn) as submitting:
        for _ in range(PERIOD_SECONDS):
            began = time.perf_counter()
            batch = [JobRequest()] * (STREAMS // PERIOD_SECONDS)
            job_ids += [accepted.job_id for accepted in await submitting.submitter.submit(graph, *batch)]
            await asyncio.sleep(max(1.0 - (time.perf_counter() - began), 0.0))
    return job_ids


class Follower:
    """One stream, read by a client that costs little: it shares two cores with the server."""

    def __init__(self, url: str, job_id: str) -> None:
        self._address = urlsplit(url)
        self._job_id = job_id
        self.is_open = asyncio.Event()
        self.milliseconds: list[float] = []
        """From the time of each event, when its turn was decided, to its arrival."""

    async def run(self) -> None:
        """Read until cancelled."""
        reader, writer = await asyncio.open_connection(
            self._address.hostname, self._address.port, limit=2**24
        )
        head = f"GET /api/v1/jobs/{self._job_id}/stream HTTP/1.1\r\nHost: {self._address.netloc}\r\n"
        writer.write(f"{head}Authorization: Bearer {KEY}\r\nAccept-Encoding: gzip\r\n\r\n".encode())
        try:
            is_delta = False
            while line := await reader.readline():
                if line.startswith(b"event: "):
                    self.is_open.set()
                    is_delta = line == b"event: delta\n"
                elif is_delta and line.startswith(b"data: "):
                    now = time.time()
                    events = json.loads(line[6:])["events"]
                    self.milliseconds += [
                        (now - datetime.fromisoformat(event["at"]).timestamp()) * 1_000 for event in events
                    ]
            raise EOFError
        finally:
            writer.close()
