"""Ends a worker in which native code holds the interpreter's lock for good.

Then no Python code of the process runs: no heartbeat, no other watchdog and no signal handler. Its lease
expires, and other workers get its tasks; but the process stays, and a supervisor sees nothing wrong. A thread
that needs no lock prints all stacks and ends the process.
"""

from __future__ import annotations

import asyncio
import faulthandler
import sys
from typing import Final

INTERVAL_SECONDS: Final = 1.0
EXIT_CODE: Final = 1
"""Of the process: faulthandler chooses it."""


async def watch_lock(seconds: float) -> None:
    """End this process if its event loop does not get to run for so long; until cancelled."""
    stream = sys.__stderr__
    try:
        if stream is None or stream.fileno() < 0:
            return
    except (OSError, ValueError):
        # The stacks could not be printed anywhere.
        return
    try:
        while True:
            faulthandler.dump_traceback_later(seconds, exit=True, file=stream)
            await asyncio.sleep(min(INTERVAL_SECONDS, seconds / 4))
    finally:
        faulthandler.cancel_dump_traceback_later()
