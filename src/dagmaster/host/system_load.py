"""How loaded this machine is: processors, memory, and the disk of one directory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import psutil

from dagmaster.records.system import SystemRecord

if TYPE_CHECKING:
    from pathlib import Path

ANSWER_SECONDS: Final = 1.0
"""How long the disk may take to answer: that of a network file system may never do so."""


class SystemProbe:
    """Measures the machine, with the disk of a directory, in a thread; never twice at a time."""

    def __init__(self, directory: Path | None = None, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._directory = directory
        self._answer_seconds = answer_seconds
        self._measuring: asyncio.Future[SystemRecord] | None = None

    async def measure(self) -> SystemRecord | None:
        """Return the load; None if the machine does not say in time."""
        if self._measuring is None or self._measuring.done():
            self._measuring = asyncio.ensure_future(asyncio.to_thread(measure, self._directory))
        done, _ = await asyncio.wait([self._measuring], timeout=self._answer_seconds)
        if not done or self._measuring.exception() is not None:
            return None
        return self._measuring.result()


def measure(directory: Path | None) -> SystemRecord:
    """Measure the machine, and the disk of a directory or of its nearest parent that exists."""
    memory = psutil.virtual_memory()
    disk = None
    if directory is not None:
        place = next(path for path in (directory, *directory.absolute().parents) if path.exists())
        disk = psutil.disk_usage(str(place))
    return SystemRecord(
        cpu_count=psutil.cpu_count() or 1,
        load_average=round(psutil.getloadavg()[0], 2),
        memory_bytes=memory.total,
        memory_free_bytes=memory.available,
        disk_bytes=None if disk is None else disk.total,
        disk_free_bytes=None if disk is None else disk.free,
    )
