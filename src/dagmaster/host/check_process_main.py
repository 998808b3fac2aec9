"""A check process: it calls functions by name, within its limits, until its server closes the pipe.

python -m dagmaster.host.check_process_main CPU_SECONDS MEMORY_MB
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import traceback
from importlib import import_module
from typing import IO, Any, Final

from dagmaster.host.length_frames import read_frame, write_frame

MAX_CALLS: Final = 500
"""After so many calls a process is replaced, whatever they left behind."""


def main() -> None:
    """Answer calls until the pipe is closed."""
    cpu_seconds, memory_mb = float(sys.argv[1]), int(sys.argv[2])
    # What a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # SIGINT of a terminal is for the server, which closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit_memory(memory_mb)
    for calls_left in reversed(range(MAX_CALLS)):
        try:
            name, arguments = json.loads(read_frame(sys.stdin.buffer))
        except EOFError:
            return
        _answer(answers, _call(name, arguments, cpu_seconds), is_last=calls_left == 0)


def _call(name: str, arguments: dict[str, Any], cpu_seconds: float) -> dict[str, Any]:
    module, _, function = name.partition(":")
    try:
        # Once, and not at the cost of the first call.
        called = getattr(import_module(module), function)
        # Its default action ends the process: native code cannot delay it.
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        return {"result": called(**arguments)}
    except MemoryError:
        return {"stopped": "memory", "is_last": True}
    except Exception:  # noqa: BLE001 - it is raised in the server
        return {"error": traceback.format_exc(limit=-20)}


def _answer(answers: IO[bytes], answer: dict[str, Any], *, is_last: bool) -> None:
    try:
        message = json.dumps(answer | ({"is_last": True} if is_last else {})).encode()
    except MemoryError:
        message = b'{"stopped": "memory", "is_last": true}'
    signal.setitimer(signal.ITIMER_PROF, 0)
    write_frame(answers, message)


def _limit_memory(memory_mb: int) -> None:
    limit = memory_mb * 1024 * 1024
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


if __name__ == "__main__":
    main()
