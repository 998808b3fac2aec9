"""Jobs with a graph built in code, and tasks added to a job: as JSON, or as lines for large graphs.

The names of functions are checked by the workers, which run only functions of modules that their operators
allowed.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Query
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse

from dagmaster.application.graph_jobs import GraphJobRequest, add_nodes, release_hold, submit_graph
from dagmaster.application.queries.graph_tasks import (
    MAX_LISTED,
    find_task,
    list_dependencies,
    list_graph_tasks,
)
from dagmaster.authoring.graph_parts import GraphPart, GroupPart
from dagmaster.errors import (
    MediaTypeUnsupported,
    NodesRejected,
    Problem,
    RequestInvalid,
    RequestTooLarge,
)
from dagmaster.http.api.graph_bodies import (
    DependencyBody,
    GraphJob,
    GraphJobBody,
    GraphLine,
    GroupBody,
    PartBody,
    PartLine,
    TaskBody,
)
from dagmaster.http.api.submissions import CorrelationId, IdempotencyKey, one_key
from dagmaster.http.api.tasks import Digits
from dagmaster.http.page_links import PageAnswer
from dagmaster.http.parameters import MAX_ID, Cursor, JobId, WaitSeconds
from dagmaster.http.routes import NDJSON, Routes, parse_json
from dagmaster.http.services import App, Caller, Compiler
from dagmaster.ports.added_nodes import MemberKind
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.job_options import SUBMITTER_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.application.context import Application

routes = Routes("graphs")
MAX_LINES_BYTES: Final = 256 * 1024 * 1024
"""The largest graph, decompressed."""
GraphLimit = Annotated[int, Query(ge=1, le=MAX_LISTED, description="The number of items of a page.")]


@routes.post("/jobs/graph", Scope.ADMIN, "SubmitResult", 202, headers=["Location"])
async def submit(
    app: App,
    caller: Caller,
    body: GraphJobBody,
    idempotency_key: IdempotencyKey = None,
    correlation_id: CorrelationId = None,
) -> JSONResponse:
    """Submit a job with its own graph, of up to 1,000 tasks. All of it is stored, or nothing."""
    builder = PartBuilder(app.default_queue)
    builder.add_body(body.graph)
    options = _options(body, idempotency_key, correlation_id)
    return await _submit(app, caller.actor, options, builder.finish())


@routes.post("/jobs/graph/lines", Scope.ADMIN, "SubmitResult", 202, headers=["Location"], lines=GraphLine)
async def submit_lines(
    app: App,
    caller: Caller,
    compiler: Compiler,
    request: Request,
    idempotency_key: IdempotencyKey = None,
    correlation_id: CorrelationId = None,
) -> JSONResponse:
    """Submit a job with a large graph: NDJSON (application/x-ndjson), also with gzip, at most 64 MiB.

    First a line {"job": …}, then lines {"task": …}, {"group": …}, {"dependency": …}. All of it is stored, or
    nothing.
    """
    job, part = await compiler.run(read_lines, await _body(request), app.default_queue, has_job=True)
    assert job is not None  # noqa: S101 - for mypy; `has_job`
    return await _submit(app, caller.actor, _options(job, idempotency_key, correlation_id), part)


@routes.post("/jobs/{job_id}/tasks", Scope.ADMIN, "AddedNodesView")
async def add(
    app: App, caller: Caller, job_id: JobId, body: PartBody, wait_seconds: WaitSeconds = 5.0
) -> JSONResponse:
    """Add up to 1,000 tasks to a job that has not finished: all or none."""
    builder = PartBuilder(app.default_queue)
    builder.add_body(body)
    view = await add_nodes(app, job_id, builder.finish(), sent_by=caller.actor, wait_seconds=wait_seconds)
    return JSONResponse(view.to_dict())


@routes.post("/jobs/{job_id}/tasks/lines", Scope.ADMIN, "AddedNodesView", lines=PartLine)
async def add_lines(
    app: App,
    caller: Caller,
    compiler: Compiler,
    job_id: JobId,
    request: Request,
    wait_seconds: WaitSeconds = 5.0,
) -> JSONResponse:
    """Add many tasks to a job that has not finished: NDJSON as for a new job, without its line. All or none.

    A line {"known": [id, node id]} names a task or a group of the job that others refer to.
    """
    _, part = await compiler.run(read_lines, await _body(request), app.default_queue, has_job=False)
    view = await add_nodes(app, job_id, part, sent_by=caller.actor, wait_seconds=wait_seconds)
    return JSONResponse(view.to_dict())


@routes.post("/jobs/{job_id}/holds/{signal}/release", Scope.ADMIN, "ReleasedHoldView")
async def release(app: App, job_id: JobId, signal: str, wait_seconds: WaitSeconds = 0.0) -> JSONResponse:
    """Let a job complete that the code which made it kept open while it added tasks."""
    view = await release_hold(app, job_id, signal, wait_seconds=wait_seconds)
    return JSONResponse(view.to_dict())


@routes.get("/jobs/{job_id}/graph/tasks", Scope.READ, "GraphTaskViewPage")
async def tasks(
    app: App,
    job_id: JobId,
    node_id: Annotated[str | None, Query(max_length=MAX_ID)] = None,
    cursor: Cursor = None,
    limit: GraphLimit = 1_000,
) -> JSONResponse:
    """List the tasks of a job that were built in code, without their results."""
    page = await list_graph_tasks(app, job_id, node_id=node_id, cursor=cursor, limit=limit)
    return PageAnswer(page)


@routes.get("/jobs/{job_id}/graph/dependencies", Scope.READ, "GraphDependencyViewPage")
async def dependencies(
    app: App, job_id: JobId, cursor: Cursor = None, limit: GraphLimit = 1_000
) -> JSONResponse:
    """List the dependencies of a job between tasks and groups that were built in code."""
    return PageAnswer(await list_dependencies(app, job_id, cursor=cursor, limit=limit))


@routes.get("/tasks/{task_id}", Scope.READ, "GraphTaskView")
async def show_task(app: App, task_id: Digits) -> JSONResponse:
    """Show a task of a graph that was built in code, by the id that its maker chose."""
    return JSONResponse((await find_task(app, task_id)).to_dict())


def _options(job: GraphJob, header_key: str | None, correlation_id: str | None) -> dict[str, Any]:
    """Return the options of a body and its headers."""
    options = {name: getattr(job, name) for name in SUBMITTER_OPTIONS}
    options["idempotency_key"] = one_key(options["idempotency_key"], header_key)
    options["correlation_id"] = options["correlation_id"] or correlation_id
    return options


async def _submit(
    app: Application, submitted_by: str, options: dict[str, Any], part: GraphPart
) -> JSONResponse:
    request = GraphJobRequest(**options, part=part, submitted_by=submitted_by)
    result = await submit_graph(app, request)
    return JSONResponse(result.to_dict(), 202, headers={"Location": f"/api/v1/jobs/{result.job_id}"})


# ── Lines ───────────────────────────────────────────────────────────────────────────────────────────────────


class PartBuilder:
    """Makes a part of what was validated."""

    def __init__(self, default_queue: str | None) -> None:
        self.part = GraphPart()
        self._queue = default_queue

    def finish(self) -> GraphPart:
        """Return the part. A task waits for those whose results it gets, also without a dependency."""
        groups = {group.id for group in self.part.groups}
        known = {(source, target) for _, source, _, target in self.part.dependencies}
        for task in self.part.tasks:
            # In their order: the same graph, built again, has other ids.
            for source in dict.fromkeys(reference[1] for reference in task.references):
                if source in groups:
                    raise NodesRejected(
                        f"task {task.name or task.label}: {source} is a group, which has no result"
                    )
                if (source, task.id) not in known:
                    self.part.dependencies.append((MemberKind.TASK, source, MemberKind.TASK, task.id))
        return self.part

    def add_body(self, body: PartBody) -> None:
        for task in body.tasks:
            self.add(task)
        for group in body.groups:
            self.add(group)
        for dependency in body.dependencies:
            self.add(dependency)
        self.part.known |= {int(number): name for number, name in body.known.items()}

    def add(self, one: TaskBody | GroupBody | DependencyBody) -> None:
        if isinstance(one, TaskBody):
            self.part.tasks.append(one.to_part(self._queue))
        elif isinstance(one, GroupBody):
            parent = None if one.parent is None else int(one.parent)
            self.part.groups.append(GroupPart(int(one.id), one.name, parent))
        else:
            kinds = MemberKind(one.previous_type), MemberKind(one.next_type)
            self.part.dependencies.append((kinds[0], int(one.previous_id), kinds[1], int(one.next_id)))


_LINES: Final[dict[str, type[TaskBody | GroupBody | DependencyBody]]] = {
    "task": TaskBody,
    "group": GroupBody,
    "dependency": DependencyBody,
}


def read_lines(
    content: tuple[bytes, bool], default_queue: str | None, *, has_job: bool
) -> tuple[GraphJob | None, GraphPart]:
    """Return the job and the graph of a body of lines; raise `RequestInvalid` with the first bad line."""
    builder = PartBuilder(default_queue)
    job: GraphJob | None = None
    for number, line in enumerate(_lines(*content), 1):
        if not line.strip():
            continue
        try:
            ((kind, value),) = parse_line(number, line).items()
            if kind == "job" and has_job and job is None:
                job = GraphJob.model_validate(value)
            elif kind == "known":
                builder.part.known[int(value[0])] = str(value[1])
            else:
                builder.add(_LINES[kind].model_validate(value))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise _bad_line(number, f"{place}: {first['msg']}") from None
        except (KeyError, ValueError, TypeError, IndexError, AttributeError):
            kinds = [*(["job"] if has_job else []), *_LINES, "known"]
            raise _bad_line(number, f"it is a JSON object with one key of: {', '.join(kinds)}") from None
    if has_job and job is None:
        raise RequestInvalid([Problem(message='a line {"job": {"name": …}} is missing', path="body")])
    return job, builder.finish()


def parse_line(number: int, line: bytes) -> Any:
    """Return the value of a line of strict JSON; raise `RequestInvalid` with the number of the line."""
    try:
        return parse_json(line)
    except ValueError as error:
        raise _bad_line(number, f"it is not valid JSON: {error}"[:300]) from None


def _bad_line(number: int, reason: str) -> RequestInvalid:
    return RequestInvalid([Problem(message=f"line {number}: {reason}", path=f"body.{number}")])


def _lines(content: bytes, is_compressed: bool) -> Iterator[bytes]:
    if is_compressed:
        content = _decompress(content)
    yield from content.split(b"\n")


def _decompress(content: bytes) -> bytes:
    """Decompress gzip; raise if it is not gzip or too large: a small body may decompress to terabytes."""
    reader = zlib.decompressobj(wbits=31)
    try:
        data = reader.decompress(content, MAX_LINES_BYTES)
    except zlib.error as error:
        raise RequestInvalid([Problem(message=f"the body is not gzip: {error}", path="body")]) from None
    if reader.unconsumed_tail or not reader.eof:
        if len(data) >= MAX_LINES_BYTES:
            raise RequestTooLarge(f"a graph has at most {MAX_LINES_BYTES:,} bytes, decompressed")
        raise RequestInvalid([Problem(message="the body is not gzip: its end is missing", path="body")])
    if reader.unused_data:
        # Several members are a valid file. Only the first one was read: the rest must not be lost without a
        # word.
        raise RequestInvalid(
            [Problem(message="the body continues after the end of its gzip: send one", path="body")]
        )
    return data


async def _body(request: Request) -> tuple[bytes, bool]:
    """Return the body of lines, and whether it is compressed."""
    media_type = request.headers.get("content-type", "").split(";", 1)[0].strip().lower()
    if media_type != NDJSON:
        raise MediaTypeUnsupported(f"the body is lines of JSON: send Content-Type: {NDJSON}")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", "gzip"}:
        raise MediaTypeUnsupported("the body is compressed by gzip, or not at all")
    return await request.body(), encoding == "gzip"
