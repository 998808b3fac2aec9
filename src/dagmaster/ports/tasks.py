"""A task at every stage: dispatched by a turn, stored, claimed by a worker, sent to its executor."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

from dagmaster.engine.status import Isolation


@dataclass(slots=True)
class Task:
    """One attempt at a node, for a worker."""

    task_id: str
    job_id: str
    node_id: str
    handler: str


@dataclass(slots=True)
class QueuedTask(Task):
    """A task from a queue. `isolation`: whether it needs a separate process."""

    queue: str = field(default="", kw_only=True)
    isolation: Isolation = field(default=Isolation.SHARED, kw_only=True)


@dataclass(slots=True)
class NewTask(QueuedTask):
    """A task that a turn dispatches.

    `secrets`: the places of secrets in the params, the values to redact, the fingerprint of the submitter's
    code, and the id of the `Task` in code; None if there is nothing of these, as for most tasks.
    """

    attempt: int
    params: str
    secrets: str | None
    timeout_seconds: float

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _NAMES}


_NAMES: Final = tuple(one.name for one in fields(NewTask))
