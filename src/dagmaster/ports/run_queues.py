"""The queue of a local run: only the worker in the process of `dagmaster run` serves it while it is alive.

The SQL of claims has the same prefix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

PREFIX: Final = "run:"


def run_queue(run_id: str) -> str:
    """Return the name of the queue of a run."""
    return f"{PREFIX}{run_id}"


def is_run_queue(queue: str) -> bool:
    """Return whether a queue belongs to a run."""
    return queue.startswith(PREFIX)


def is_served(queue: str, worker_queues: Collection[str]) -> bool:
    """Return whether a worker with these queues serves a queue. One without queues serves all but those of runs."""
    return queue in worker_queues or (not worker_queues and not is_run_queue(queue))
