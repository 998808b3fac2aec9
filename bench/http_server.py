"""A `dagmaster server` of its own, for benchmarks of the API."""

from __future__ import annotations

import asyncio
import subprocess
import time
from typing import Any, Self

from bench.dev_stack import DAGMASTER, ROOT, environment
from bench.http_connection import HttpConnection


class Server:
    """A `dagmaster server` of its own; a context manager that starts and stops it."""

    command = "server"

    def __init__(self, *arguments: str, **settings: str) -> None:
        self._command = [DAGMASTER, self.command, "--port=0", *arguments]
        self._settings = settings

    def __enter__(self) -> Self:
        started = time.perf_counter()
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            self._command,
            cwd=ROOT,
            env=environment() | self._settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if " is ready " in line:
                self.url = line[line.index("http://") :].split()[0]
                break
        else:
            raise RuntimeError(f"dagmaster {self.command} did not start")
        asyncio.run(get(self.url, "", "/livez"))
        self.ready_seconds = time.perf_counter() - started
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=30)


class Gateway(Server):
    """A `dagmaster gateway` of its own."""

    command = "gateway"


async def get(url: str, key: str, path: str) -> Any:
    """Send one request on a connection of its own."""
    async with HttpConnection(url, key) as connection:
        return await connection.get(path)
