"""The queue of a local run: only the worker in the process of `dagmaster run` serves it.

When that worker has stopped, or was expired after it died, the workers that serve all queues serve this one,
too. The SQL of claims asks the same (`dag_is_served`, `queues_with_tasks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

PREFIX: Final = "run:"


def run_queue(run_id: str) -> str:
    return f"{PREFIX}{run_id}"


def is_run_queue(queue: str) -> bool:
    return queue.startswith(PREFIX)


def is_served(queue: str, worker_queues: Collection[str], *, is_orphaned: bool = False) -> bool:
    """Return whether a worker with these queues serves a queue.

    One without queues serves all queues except run queues.

    `is_orphaned`: no registered worker names the queue, see `is_orphaned_queue`.
    """
    return queue in worker_queues or (not worker_queues and (is_orphaned or not is_run_queue(queue)))


def is_orphaned_queue(queue: str, registered: Iterable[Collection[str]]) -> bool:
    """Return whether a queue belongs to a run of which no worker is registered.

    `registered`: the workers' queues.
    """
    return is_run_queue(queue) and not any(queue in queues for queues in registered)
