"""The memory of a worker and of its child processes, and the limit that it keeps before the kernel acts."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psutil

from dagmaster.errors import SettingsInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from dagmaster.worker.process_pool import HandlerProcesses
    from dagmaster.worker.recycling import Recycling

INTERVAL_SECONDS: Final = 1.0
CGROUP_SHARE: Final = 0.9
"""The share of its control group's limit that a worker uses by default."""

IDLE_SHARE: Final = 0.9
"""The share of its limit that a worker may use before its first task: connections take the rest."""

_MEGABYTE: Final = 1024 * 1024
_LIMIT_FILES: Final = {"": "memory.max", "memory": "memory.limit_in_bytes"}
"""By controller, as /proc/self/cgroup names it: empty for version 2."""


class MemoryUse(NamedTuple):
    """Memory in bytes: of this process, and of each handler process with its descendants."""

    own: int
    children: Mapping[int, int]

    @property
    def total(self) -> int:
        return self.own + sum(self.children.values())

    def culprit(self) -> int | None:
        """Return the child process that uses more than all others and this one; None: this one does."""
        largest = max(self.children, key=self.children.__getitem__, default=None)
        return None if largest is None or self.children[largest] <= self.own else largest


def default_limit_mb(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int:
    """Return 90 % of the smallest limit of the control groups of this process; 0 if there is none."""
    limits = [limit for file in _limit_files(groups, root) if (limit := _read_limit(file)) is not None]
    return int(min(limits) * CGROUP_SHARE) // _MEGABYTE if limits else 0


def check_memory_limit(limit_mb: int) -> None:
    """Raise `SettingsInvalid` if this process, before its first task, has no room below its limit."""
    baseline = memory_use_above(int(limit_mb * _MEGABYTE * IDLE_SHARE)) if limit_mb else None
    if baseline is not None:
        used_mb = baseline.total // _MEGABYTE
        raise SettingsInvalid(
            f"DAGMASTER_WORKER_MEMORY_MB is {limit_mb} MB (by default {CGROUP_SHARE:.0%} of the limit of the"
            f" control group), and this worker uses {used_mb} MB before its first task: it would end and"
            f" restart again and again. Give it at least {2 * used_mb} MB, or 0 for no limit"
        )


async def watch_memory(limit_mb: int, processes: HandlerProcesses | None, recycling: Recycling) -> None:
    """Kill the handler process that uses up the memory of this worker, or recycle the worker."""
    limit = limit_mb * _MEGABYTE
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        use = await asyncio.to_thread(memory_use_above, limit)
        if use is not None:
            relieve(use, limit, processes, recycling)


def relieve(use: MemoryUse, limit: int, processes: HandlerProcesses | None, recycling: Recycling) -> None:
    """Decide what ends: a child process with its task, or this one."""
    culprit = use.culprit()
    if culprit is not None and processes is not None and culprit in processes.pids():
        processes.end_for_memory(culprit, use.children[culprit] // _MEGABYTE, limit // _MEGABYTE)
    else:
        recycling.on_memory(use.total // _MEGABYTE, limit // _MEGABYTE)


def memory_use_above(limit: int) -> MemoryUse | None:
    """Return the memory of this process and its children if they use so much, else None.

    Resident memory is cheap to read, and counts a page in every process that has it: forked processes share
    most of theirs. So a sum above the limit is confirmed with shares of pages.
    """
    if _measure(_resident).total < limit:
        return None
    use = _measure(_proportional)
    return use if use.total >= limit else None


def _measure(size: Callable[[psutil.Process], int]) -> MemoryUse:
    process = psutil.Process()
    children = {}
    for child in process.children():
        with contextlib.suppress(psutil.Error):
            family = [child, *child.children(recursive=True)]
            children[child.pid] = sum(map(size, family))
    return MemoryUse(size(process), children)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        # It has ended.
        return 0


def _proportional(process: psutil.Process) -> int:
    """Return the memory with its share of each page; where the system tells neither, the resident one."""
    try:
        full: Any = process.memory_full_info()
    except psutil.Error:
        return _resident(process)
    return int(getattr(full, "pss", full.uss))


def _limit_files(groups: Path, root: Path) -> Iterator[Path]:
    """Yield the limits of the groups of this process, and of the groups above them."""
    try:
        lines = groups.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            file = _LIMIT_FILES.get(controller)
            if file is not None:
                base = root / controller
                # In a container the path may be the one outside, which does not exist here.
                place = base / path.lstrip("/")
                yield from (
                    folder / file for folder in (place, *place.parents) if folder.is_relative_to(base)
                )


def _read_limit(file: Path) -> int | None:
    try:
        text = file.read_text(encoding="ascii").strip()
    except OSError:
        return None
    # Version 1 writes a number near 2**63 where there is no limit.
    return int(text) if text.isdigit() and int(text) < 1 << 60 else None
