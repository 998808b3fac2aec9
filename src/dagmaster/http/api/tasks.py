"""Tasks for workers that speak only HTTP: register, claim, renew, report. See docs/howto/http-worker.md."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field
from starlette.requests import Request
from starlette.responses import JSONResponse

from dagmaster.application.remote_tasks import MAX_CLAIM, MAX_WAIT_SECONDS, ClaimRequest, ProgressReport
from dagmaster.http.parameters import MAX_ID
from dagmaster.http.routes import Body, Routes
from dagmaster.http.services import Caller, Origin, Services, Tasks
from dagmaster.json_types import JsonObject
from dagmaster.ports.api_keys import Reach, Scope
from dagmaster.ports.handler_contracts import HandlerOffer
from dagmaster.ports.queue_names import MAX_QUEUE, QUEUE_PATTERN
from dagmaster.ports.remote_workers import HTTP_VERSION, NewWorker
from dagmaster.ports.task_messages import Failed, Outcome, Released, Succeeded
from dagmaster.sdk.entrypoints import name_problem
from dagmaster.sdk.handler_decorator import MAX_NAME
from dagmaster.sdk.handler_definitions import define_handler

routes = Routes("tasks")
MAX_HELD: Final = 10_000
MAX_HANDLERS: Final = 500
MAX_SECONDS: Final = 10 * 86_400.0


def _check_range(digits: str) -> str:
    if int(digits) >= 2**63:
        raise ValueError("an id or token has at most 63 bits")
    return digits


def _check_name(name: str) -> str:
    problem = name_problem(name)
    if problem is not None:
        raise ValueError(problem)
    return name


Digits = Annotated[
    str, Field(pattern=r"^[0-9]{1,19}$", examples=["4503599627370496"]), AfterValidator(_check_range)
]
Queue = Annotated[str, Field(max_length=MAX_QUEUE, pattern=QUEUE_PATTERN)]
NO_STORE: Final = {"Cache-Control": "no-store"}


class HandlerBody(Body):
    """A handler of a worker. What it says of params and output is used to validate workflows."""

    name: Annotated[str, AfterValidator(_check_name)] = Field(
        min_length=1,
        max_length=MAX_NAME,
        description="At most 64 characters, or module.function.",
        examples=["thumbnail"],
    )
    version: str = Field(default="1", min_length=1, max_length=64)
    description: str = Field(default="", max_length=2_000)
    queue: Queue | None = Field(default=None, description="Of tasks that name none.")
    timeout_seconds: float | None = Field(default=None, ge=1, le=86_400)
    params: dict[str, Any] | None = Field(default=None, description="JSON Schema. None: any params.")
    output: dict[str, Any] | None = Field(default=None, description="JSON Schema. None: any output.")


class WorkerBody(Body):
    """A worker to register."""

    handlers: list[HandlerBody] = Field(
        max_length=MAX_HANDLERS, description="It gets tasks of these; none: no tasks."
    )
    queues: list[Queue] = Field(
        default_factory=list, max_length=100, description="None: it serves every queue."
    )
    concurrency: int = Field(default=1, ge=1, le=MAX_HELD, description="How many tasks it runs at once.")
    host: str = Field(default="http", min_length=1, max_length=255, description="Where it runs, for people.")
    pid: int = Field(default=0, ge=0, le=2**31 - 1)
    version: str = Field(default=HTTP_VERSION, max_length=64, description="Of its software, for people.")


class WorkerCallBody(Body):
    """A call of a registered worker."""

    worker_id: Digits


class HeartbeatBody(WorkerCallBody):
    """The tasks that a worker holds.

    Others that it claimed some time ago are released: their messages were lost.
    """

    task_ids: list[Digits] = Field(default_factory=list, max_length=MAX_HELD)


class ClaimBody(HeartbeatBody):
    """A request for tasks. It renews the lease like a heartbeat."""

    limit: int = Field(default=1, ge=1, le=MAX_CLAIM, description="Claim what you can start at once.")
    wait_seconds: float = Field(
        default=0.0, ge=0, le=MAX_WAIT_SECONDS, description="How long to wait for a task."
    )


class TaskCallBody(WorkerCallBody):
    """A report about a task. `task_id` and `lease_token` come from its message."""

    task_id: Digits
    lease_token: Digits
    job_id: Digits | None = Field(default=None, description="Of the message. Not needed.")
    node_id: str | None = Field(default=None, max_length=MAX_ID, description="Of the message. Not needed.")


class CheckpointBody(Body):
    """A point from which another attempt can resume."""

    phase: str = Field(min_length=1, max_length=200)
    data: dict[str, Any] = Field(default_factory=dict)
    artifacts: list[str] = Field(
        default_factory=list, max_length=1_000, description="URIs that it relies on."
    )


class LogBody(Body):
    """A part of the log of a task. Sent again with the same number, it is stored once."""

    chunk: int = Field(ge=1, le=2**31 - 1)
    text: str = Field(max_length=64 * 1024)


class ProgressBody(TaskCallBody):
    """What a running task reports. Everything is optional."""

    current: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    total: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    message: str = Field(default="", max_length=2_000)
    checkpoint: CheckpointBody | None = None
    log: LogBody | None = None


class ErrorBody(Body):
    """Why a task failed."""

    kind: str = Field(default="error", min_length=1, max_length=200, description="A word for programs.")
    message: str = Field(min_length=1, max_length=20_000)
    details: dict[str, Any] = Field(default_factory=dict)


class ResultBody(TaskCallBody):
    """The outcome of a task. `released`: it was not finished and has not failed; it uses up no retry."""

    status: Literal["completed", "failed", "released"]
    output: dict[str, Any] = Field(default_factory=dict, description="Of a completed task.")
    metrics: dict[str, Any] = Field(default_factory=dict)
    error: ErrorBody | None = Field(default=None, description="Of a failed task.")
    permanent: bool = Field(default=False, description="A retry would not help.")
    duration_seconds: float | None = Field(default=None, ge=0, le=MAX_SECONDS, allow_inf_nan=False)

    def to_outcome(self) -> Outcome:
        seconds = self.duration_seconds
        if self.status == "completed":
            return Succeeded(self.output, self.metrics, running_seconds=seconds)
        if self.status == "released":
            return Released("the worker released the task", running_seconds=seconds)
        error = self.error or ErrorBody(message="the handler failed")
        document = {**error.details, "kind": error.kind, "message": error.message}
        return Failed(document, self.permanent, running_seconds=seconds)


@routes.post("/workers", Scope.WORK, "RegistrationView", 201, reach=Reach.OPEN)
async def register(
    services: Services, tasks: Tasks, caller: Caller, origin: Origin, body: WorkerBody
) -> JSONResponse:
    """Register a worker, and publish its handlers.

    It has to call again within its lease, or its tasks are lost.
    """
    definitions = [define_handler(**handler.model_dump()) for handler in body.handlers]
    # An administrator could trust itself with each of them.
    is_admin = Scope.ADMIN in caller.scopes
    named = tuple(one.name for one in definitions) if is_admin else caller.limits.handlers
    worker = NewWorker(
        registered_by=caller.key_id,
        host=body.host,
        pid=body.pid,
        version=body.version,
        queues=tuple(body.queues),
        concurrency=body.concurrency,
        offer=HandlerOffer(caller.actor, definitions, named),
    )
    view = await tasks.register(worker, caller.limits)
    # Before the answer: a worker whose entry is missing does not get its id.
    details: JsonObject = {
        "host": worker.host,
        "queues": [*worker.queues],
        "handlers": [*sorted(worker.offered)],
    }
    await services.audit_of(caller).append(
        [origin.entry("worker.register", "worker", view.worker_id, details)]
    )
    return JSONResponse(view.to_dict(), 201)


@routes.post("/workers/{worker_id}/deregister", Scope.WORK, "DeregistrationView", reach=Reach.OPEN)
async def deregister(
    services: Services, tasks: Tasks, caller: Caller, origin: Origin, worker_id: str
) -> JSONResponse:
    """Release the tasks of a worker, and deregister it."""
    view = await tasks.deregister(worker_id, caller.key_id)
    await services.audit_of(caller).append([origin.entry("worker.deregister", "worker", view.worker_id)])
    return JSONResponse(view.to_dict())


@routes.post("/tasks/claim", Scope.WORK, "ClaimedTasksView", reach=Reach.OPEN)
async def claim(request: Request, tasks: Tasks, caller: Caller, body: ClaimBody) -> JSONResponse:
    """Claim tasks of the worker's handlers; wait for one if all queues are empty."""

    async def is_connected() -> bool:
        return not await request.is_disconnected()

    asked = ClaimRequest(
        worker_id=body.worker_id, task_ids=body.task_ids, limit=body.limit, wait_seconds=body.wait_seconds
    )
    view = await tasks.claim(asked, caller.key_id, is_connected)
    return JSONResponse(view.to_dict(), headers=NO_STORE)


@routes.post("/callbacks/task-heartbeat", Scope.WORK, "HeartbeatView", reach=Reach.OPEN)
async def heartbeat(tasks: Tasks, caller: Caller, body: HeartbeatBody) -> JSONResponse:
    """Renew the lease of a worker and of its tasks; learn which of them to stop."""
    view = await tasks.heartbeat(body.worker_id, body.task_ids, caller.key_id)
    return JSONResponse(view.to_dict())


@routes.post("/callbacks/task-progress", Scope.WORK, "TaskProgressView", reach=Reach.OPEN)
async def progress(tasks: Tasks, caller: Caller, body: ProgressBody) -> JSONResponse:
    """Report the progress of a task, a checkpoint, a part of its log. It does not renew the lease."""
    report = ProgressReport(
        worker_id=body.worker_id,
        task_id=body.task_id,
        lease_token=int(body.lease_token),
        progress=None
        if body.current is None
        else {"current": body.current, "total": body.total, "message": body.message},
        checkpoint=None if body.checkpoint is None else body.checkpoint.model_dump(),
        log=None if body.log is None else (body.log.chunk, body.log.text),
    )
    return JSONResponse((await tasks.progress(report, caller.key_id)).to_dict())


@routes.post("/callbacks/task-result", Scope.WORK, "TaskResultView", reach=Reach.OPEN)
async def result(tasks: Tasks, caller: Caller, body: ResultBody) -> JSONResponse:
    """Report the outcome of a task.

    Sent again, it gets the same answer; under a stale lease token it gets 409.
    """
    view = await tasks.report(
        body.worker_id, body.task_id, int(body.lease_token), body.to_outcome(), caller.key_id
    )
    return JSONResponse(view.to_dict())
