"""Ends what handlers started and left: child processes that outlived their task, its process, or the worker.

Every handler process has a mark in its environment, which all that it starts inherits, also what leaves its
process group. As a program (`python process_sweeper.py MARK PID`) it waits for the end of a worker, also by
SIGKILL, and ends what carries its mark. It imports the standard library alone, so that it stays small.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
from pathlib import Path

MARK_VARIABLE = "_DAGMASTER_PROCESS_MARK"
"""Not the name of a setting."""

_PR_SET_CHILD_SUBREAPER = 36
_MAX_ROUNDS = 10
"""What forks faster than it is killed is not waited for."""


def kill_marked(mark: str) -> int:
    """Kill the processes with this mark, or with one that continues it after a dot; return their number."""
    # What they started in the meantime is found by the next round.
    killed: set[int] = set()
    for _ in range(_MAX_ROUNDS):
        pids = _marked(mark) - killed
        if not pids:
            break
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed |= pids
    return len(killed)


def adopt_orphans() -> None:
    """Make this process the parent of whatever loses its own below it. Linux only."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def child_pids() -> frozenset[int]:
    """Return all processes below this one. Without any it costs one system call."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return frozenset()
    import psutil

    return frozenset(child.pid for child in psutil.Process().children(recursive=True))


def end_children(spared: frozenset[int]) -> int:
    """Kill the processes below this one that are not spared, and reap them; return how many still ran."""
    ended: set[int] = set()
    for _ in range(_MAX_ROUNDS):
        pids = child_pids() - spared - _of_multiprocessing()
        if not pids:
            break
        import psutil

        for pid in pids:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    ended.add(pid)
                    process.kill()
                process.wait(timeout=1)
    return len(ended)


def _of_multiprocessing() -> frozenset[int]:
    """Return the processes that `multiprocessing` keeps for its next use; they end with this one."""
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    pids = (getattr(tracker, "_pid", None), getattr(server, "_forkserver_pid", None))
    return frozenset(pid for pid in pids if pid is not None)


def _marked(mark: str) -> set[int]:
    ends = tuple(f"\0{MARK_VARIABLE}={mark}{end}".encode() for end in "\0.")
    pids = set()
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc"):  # noqa: PTH208 - names are what is needed
            if name.isdigit() and int(name) != os.getpid():
                with contextlib.suppress(OSError):
                    environment = b"\0" + Path("/proc", name, "environ").read_bytes()
                    if any(end in environment for end in ends):
                        pids.add(int(name))
    return pids


def main() -> None:
    """Wait until the worker has ended or closes the standard input; then kill what carries its mark."""
    mark, worker_pid = sys.argv[1], int(sys.argv[2])
    poll = select.poll()
    poll.register(sys.stdin, select.POLLIN)
    with contextlib.suppress(OSError, AttributeError):
        # A child that the worker forked may hold the pipe open.
        poll.register(os.pidfd_open(worker_pid), select.POLLIN)
    # Otherwise the worker had died before this program started, and its pid may be another process.
    if os.getppid() == worker_pid:
        poll.poll()
    kill_marked(mark)


if __name__ == "__main__":
    main()
