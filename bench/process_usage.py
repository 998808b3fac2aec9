"""Resource usage of processes, read from /proc: CPU time, memory, children."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int, *, reaped: bool = False) -> float:
    """Return the CPU time of a process and its threads; with `reaped`, that of its finished children instead."""
    fields = _stat(pid)
    if fields is None:
        return 0.0
    first = 13 if reaped else 11
    return (int(fields[first]) + int(fields[first + 1])) / _TICKS


def fine_cpu_seconds(pid: int) -> float:
    """Return the CPU time of the live threads, to the nanosecond.

    The kernel's ticks of 10 ms are too coarse for a process that is nearly idle.
    """
    total = 0
    with contextlib.suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def children(pid: int) -> list[int]:
    """Return the live children of a process."""
    pids = []
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            fields = _stat(int(folder.name))
            if fields is not None and int(fields[1]) == pid:
                pids.append(int(folder.name))
    return pids


def memory(pid: int) -> dict[str, int]:
    """Return bytes of memory: Rss; Pss, which divides shared pages by their users; VmHWM, the peak of Rss."""
    sizes: dict[str, int] = {}
    for name in ("status", "smaps_rollup"):
        with contextlib.suppress(OSError):
            for line in (_PROC / str(pid) / name).read_text().splitlines():
                key, _, rest = line.partition(":")
                if key in ("VmRSS", "VmHWM", "Rss", "Pss"):
                    sizes[key] = int(rest.split()[0]) * 1024
    sizes.setdefault("Rss", sizes.get("VmRSS", 0))
    return sizes


def reset_peak(pid: int) -> None:
    """Let VmHWM of a process count from its memory of now."""
    with contextlib.suppress(OSError):
        (_PROC / str(pid) / "clear_refs").write_text("5")


def _stat(pid: int) -> list[str] | None:
    """Return the fields after the process name, which may contain spaces: state, parent and so on."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
