"""What processes use, from /proc: CPU, memory, children."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int, *, reaped: bool = False) -> float:
    """The CPU time of a process and its threads; `reaped`: of its children that are over instead."""
    fields = _stat(pid)
    if fields is None:
        return 0.0
    first = 13 if reaped else 11
    return (int(fields[first]) + int(fields[first + 1])) / _TICKS


def fine_cpu_seconds(pid: int) -> float:
    """The same of the threads that live, to the nanosecond: ticks of 10 ms say little about a process that sleeps."""
    total = 0
    with contextlib.suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def children(pid: int) -> list[int]:
    """The processes that this one started and that live."""
    found = []
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            fields = _stat(int(folder.name))
            if fields is not None and int(fields[1]) == pid:
                found.append(int(folder.name))
    return found


def memory(pid: int) -> dict[str, int]:
    """Bytes: Rss; Pss, where pages that several share are divided; and VmHWM, the most Rss there ever was."""
    found: dict[str, int] = {}
    for name in ("status", "smaps_rollup"):
        with contextlib.suppress(OSError):
            for line in (_PROC / str(pid) / name).read_text().splitlines():
                key, _, rest = line.partition(":")
                if key in ("VmRSS", "VmHWM", "Rss", "Pss"):
                    found[key] = int(rest.split()[0]) * 1024
    found.setdefault("Rss", found.get("VmRSS", 0))
    return found


def _stat(pid: int) -> list[str] | None:
    """The fields after the name, which may hold spaces: state, parent and so on."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
