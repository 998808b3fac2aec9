"""Claim and report tasks in code, as workers that speak HTTP do: every report is fenced by a lease token.

The lease tokens are kept here, in the process that claimed the tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dagmaster.application.queries.graph_tasks import list_graph_tasks
from dagmaster.application.remote_tasks import MAX_WAIT_SECONDS
from dagmaster.authoring.python.graph_items import GraphItem, Task
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import CommandInvalid, LeaseLost, QueryInvalid, WorkerExpired
from dagmaster.ports.task_messages import Failed, Released, Succeeded
from dagmaster.sdk.json_forms import short_repr
from dagmaster.session.current_context import a_context
from dagmaster.session.job import id_digits
from dagmaster.text_format import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.ports.task_messages import Outcome
    from dagmaster.session.context import OrchContext


class _Claim(NamedTuple):
    """A task that a worker of this process holds. `attempt_id`: the id of its attempt, which is reported."""

    worker_id: str
    attempt_id: str
    lease_token: int
    takes_any_result: bool
    """Whether the task was made in Python: the result of others is a mapping."""


_CLAIMS: Final[dict[int, _Claim]] = {}
_WITHOUT_HANDLERS: Final[set[str]] = set()
"""Workers of this process that get no tasks."""


def note_worker(worker_id: int | str, *, has_handlers: bool) -> None:
    """Remember a worker that was registered here."""
    if not has_handlers:
        _WITHOUT_HANDLERS.add(str(worker_id))


def forget_worker(worker_id: int | str) -> None:
    """Forget a worker, and what it claimed."""
    _WITHOUT_HANDLERS.discard(str(worker_id))
    for number in [number for number, claim in _CLAIMS.items() if claim.worker_id == str(worker_id)]:
        del _CLAIMS[number]


def held_by(worker_id: int | str) -> list[str]:
    """Return the attempts that a worker claimed here and has not reported."""
    return [claim.attempt_id for claim in _CLAIMS.values() if claim.worker_id == str(worker_id)]


async def claim_next_task(
    worker_id: int | str,
    *,
    wait_seconds: float = 0.0,
    url: str | None = None,
    key: str | None = None,
) -> Task | None:
    """Claim a task of the handlers with which a worker was registered; None without one.

    `wait_seconds`: how long to wait for one, at most 30. The highest priority first, then the oldest. Its
    `kwargs` are what its function takes, with the results of other tasks filled in; its status is CLAIMED.
    Report it with `update_task_status` from this process, within the lease of the worker, which a claim
    renews as `worker_heartbeat` does. A task that was not made in Python has the id of this attempt. Raise
    `WorkerExpired` if the worker is not registered any more, and `CommandInvalid` if it has no handlers.
    """
    if type(wait_seconds) not in (int, float) or not 0 <= wait_seconds <= MAX_WAIT_SECONDS:
        raise ValueError(
            f"wait_seconds is from 0 to {format_seconds(MAX_WAIT_SECONDS)}, not {short_repr(wait_seconds)}"
        )
    if str(worker_id) in _WITHOUT_HANDLERS:
        raise CommandInvalid(
            f"worker {worker_id} was registered without handlers, so it gets no tasks: write"
            ' register_worker(handlers=["module.function"], queues=["default"])'
        )
    async with a_context(url, key) as context:
        claimed = await context.backend.claim_task(str(worker_id), held_by(worker_id), wait_seconds)
        if not claimed.tasks:
            return None
        message = claimed.tasks[0]
        task = await _task_of(context, message)
    attempt_id, token = str(message["task_id"]), int(str(message["lease_token"]))
    _CLAIMS[task.id] = _Claim(str(worker_id), attempt_id, token, str(task.id) != attempt_id)
    return task


async def update_task_status(
    task_id: int | str,
    status: NodeStatus | str,
    result: Any = None,
    error: str | BaseException | None = None,
    *,
    url: str | None = None,
    key: str | None = None,
) -> NodeStatus:
    """Report a task that `claim_next_task` returned in this process; return its status.

    "running": it has started, which changes nothing, since a claim starts a task. "completed", with what its
    function returned, as JSON; a server takes a dict. "failed", with the error: it is retried as its options
    say. "pending": it is released for another worker, and no retry is used up. Raise `LeaseLost` if the task
    is not held, as after a report, or when the lease of its worker has ended: then its job goes on without
    this report.
    """
    chosen = _parse_status(status)
    number = int(id_digits(task_id) or 0)
    claim = _CLAIMS.get(number)
    if claim is None:
        raise LeaseLost(
            f"task {short_repr(task_id)} is not held in this process: claim_next_task returns the tasks to"
            " report"
        )
    if chosen is NodeStatus.RUNNING:
        return chosen
    if chosen is NodeStatus.COMPLETED and not claim.takes_any_result and not isinstance(result, dict):
        raise CommandInvalid(
            f"task {task_id} was not made in Python: its result is a dict, not {short_repr(result)}"
        )
    async with a_context(url, key) as context:
        if chosen is NodeStatus.COMPLETED and context.backend.server and not isinstance(result, dict):
            raise CommandInvalid(f"a server takes a result that is a dict, not {short_repr(result)}")
        try:
            await context.backend.report_task(*claim[:3], _outcome(chosen, result, error))
        except (LeaseLost, WorkerExpired):
            _CLAIMS.pop(number, None)
            raise
    _CLAIMS.pop(number, None)
    return chosen


def _parse_status(status: object) -> NodeStatus:
    reported = (NodeStatus.RUNNING, NodeStatus.COMPLETED, NodeStatus.FAILED, NodeStatus.PENDING)
    for one in reported:
        if str(status).upper() == one.value:
            return one
    names = ", ".join(one.value.lower() for one in reported)
    raise QueryInvalid(f"{short_repr(status)} is not a status that is reported: {names}", field="status")


def _outcome(status: NodeStatus, result: Any, error: str | BaseException | None) -> Outcome:
    if status is NodeStatus.PENDING:
        return Released("the code that claimed the task released it")
    if status is NodeStatus.COMPLETED:
        return Succeeded(result)
    kind = type(error).__name__ if isinstance(error, BaseException) else "error"
    return Failed({"kind": kind, "message": str(error or "the task failed")}, permanent=False)


async def _task_of(context: OrchContext, message: Mapping[str, Any]) -> Task:
    """Return the task of a message, with the id that its maker gave it."""
    job_id, node_id = str(message["job_id"]), str(message["node_id"])
    page = await context.backend.call(list_graph_tasks, job_id, node_id=node_id)
    task = Task.__new__(Task)
    GraphItem.__init__(task, node_id)
    task.id = int(page.items[0].task_id if page.items else message["task_id"])
    task.job_id, task.node_id = int(job_id), node_id
    # Not checked again: the handler of a workflow file may have any name.
    task.entrypoint, task.function, task.options = str(message["handler"]), None, {}
    task.kwargs = dict(message["params"])
    task.status = NodeStatus.CLAIMED
    return task
