"""Services, queues and tasks across jobs."""

from __future__ import annotations

from starlette.responses import JSONResponse

from dagmaster.application.queries.fleet import fleet, list_orchestrators, list_queues, list_workers
from dagmaster.application.queries.nodes import list_nodes, list_tasks
from dagmaster.http.api.jobs import Statuses, parse_node_statuses
from dagmaster.http.routes import App, Cursor, Limit, Routes
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.read_store import NodeFilter, TaskFilter

routes = Routes("fleet")


@routes.get("/fleet", Scope.READ, "FleetView")
async def whole_fleet(app: App) -> JSONResponse:
    """Show orchestrators, workers and queues."""
    return JSONResponse((await fleet(app)).to_dict())


@routes.get("/orchestrators", Scope.READ, "OrchestratorViewPage")
async def orchestrators(app: App, cursor: Cursor = None, limit: Limit = 100) -> JSONResponse:
    """List orchestrators that are alive or stopped within the last hour."""
    return JSONResponse((await list_orchestrators(app, cursor=cursor, limit=limit)).to_dict())


@routes.get("/workers", Scope.READ, "WorkerViewPage")
async def workers(app: App, cursor: Cursor = None, limit: Limit = 100) -> JSONResponse:
    """List workers that are alive or stopped within the last hour."""
    return JSONResponse((await list_workers(app, cursor=cursor, limit=limit)).to_dict())


@routes.get("/queues", Scope.READ, "QueueViewPage")
async def queues(app: App, cursor: Cursor = None, limit: Limit = 100) -> JSONResponse:
    """List queues with tasks, and how many workers serve each."""
    return JSONResponse((await list_queues(app, cursor=cursor, limit=limit)).to_dict())


@routes.get("/nodes", Scope.READ, "NodeViewPage")
async def nodes(
    app: App, status: Statuses = None, workflow_id: str | None = None, cursor: Cursor = None, limit: Limit = 100
) -> JSONResponse:
    """List nodes across jobs, newest job first."""
    node_filter = NodeFilter(statuses=parse_node_statuses(status), workflow_id=workflow_id)
    return JSONResponse((await list_nodes(app, node_filter, cursor=cursor, limit=limit)).to_dict())


@routes.get("/tasks", Scope.READ, "TaskViewPage")
async def tasks(
    app: App,
    queue: str | None = None,
    worker_id: str | None = None,
    job_id: str | None = None,
    handler: str | None = None,
    is_claimed: bool | None = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> JSONResponse:
    """List tasks in flight across jobs, oldest first."""
    task_filter = TaskFilter(queue=queue, worker_id=worker_id, job_id=job_id, handler=handler, is_claimed=is_claimed)
    return JSONResponse((await list_tasks(app, task_filter, cursor=cursor, limit=limit)).to_dict())
