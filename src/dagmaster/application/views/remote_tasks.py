"""Answers to workers that speak HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dagmaster.engine.status import AttemptStatus
from dagmaster.json_types import JsonObject
from dagmaster.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationView(Record):
    """A registered worker. It is silent for at most `lease_seconds`, and renews every `heartbeat_seconds`.

    `untrusted_handlers`: it gets no tasks of these until an administrator trusts its key with them.
    """

    worker_id: str
    lease_seconds: float
    heartbeat_seconds: float
    untrusted_handlers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeregistrationView(Record):
    """A worker that is no longer registered. Its tasks go to others."""

    worker_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTasksView(Record):
    """Tasks to run now, each a TaskMessage; and the held tasks to stop, whose results would be refused.

    `drain`: an operator asked the worker to drain. It gets no tasks; when it holds none any more, it may
    deregister.
    """

    worker_id: str
    tasks: tuple[JsonObject, ...]
    stop: tuple[str, ...]
    lease_seconds: float
    drain: bool

    @classmethod
    def complete_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        schema["properties"]["tasks"]["items"] = {"$ref": "#/$defs/TaskMessage"}
        return schema


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatView(Record):
    """The lease is renewed. `stop`: held tasks to stop, whose results would be refused.

    `drain`: an operator asked the worker to drain. It gets no tasks; when it holds none any more, it may
    deregister.
    """

    worker_id: str
    stop: tuple[str, ...]
    lease_seconds: float
    drain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgressView(Record):
    """The progress is stored. `stop`: the task has to stop."""

    task_id: str
    stop: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResultView(Record):
    """The result is stored. Delivered again under the same lease token, it gets the same answer."""

    task_id: str
    lease_token: str
    status: AttemptStatus
