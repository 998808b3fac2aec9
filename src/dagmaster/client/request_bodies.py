"""What requests contain: the bodies of submissions and resumes, and the query strings of filters."""

from __future__ import annotations

import gzip
import json
import uuid
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from dagmaster.application.views.results import SubmitOutcome
from dagmaster.ports.job_filter import Match, active_fields
from dagmaster.ports.job_options import SUBMITTER_OPTIONS
from dagmaster.text_format import format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dagmaster.application.commands.resume import ResumeRequest
    from dagmaster.application.submission import JobRequest
    from dagmaster.application.views.results import SubmitResult
    from dagmaster.authoring.graph_parts import GraphPart, TaskPart
    from dagmaster.json_types import JsonObject
    from dagmaster.ports.finished_tasks import FinishedTaskFilter
    from dagmaster.ports.job_filter import JobFilter
    from dagmaster.ports.job_options import JobOptions
    from dagmaster.ports.read_records import TaskFilter
    from dagmaster.ports.task_messages import Outcome


def job_body(request: JobRequest) -> dict[str, Any]:
    """Return the body of a submission. It always has an idempotency key: the request may be sent twice."""
    body = {**run_body(request), "workflow_id": request.workflow_id, "version": request.version}
    return {name: value for name, value in body.items() if value is not None}


def run_body(request: JobRequest) -> dict[str, Any]:
    """Return what a submission has besides its workflow."""
    inputs = {"inputs": dict(request.inputs), "input_texts": dict(request.input_texts)}
    return inputs | options_body(request)


def options_body(options: JobOptions) -> dict[str, Any]:
    """Return the options of a submission. There is always an idempotency key.

    An option that is not set is left out: a server of an older version may not know it.
    """
    values = {name: getattr(options, name) for name in SUBMITTER_OPTIONS}
    body = {name: value for name, value in values.items() if value is not None}
    return body | {"idempotency_key": options.idempotency_key or uuid.uuid4().hex}


def definition_body(requests: Sequence[JobRequest]) -> dict[str, Any]:
    """Return the body of a submission of a workflow that is not published.

    All requests have the same graph.
    """
    first = requests[0]
    return {
        "definition": None if first.graph is None else first.graph.definition,
        "child_definitions": [graph.definition for graph in first.child_graphs],
        "jobs": [run_body(request) for request in requests],
    }


def graph_lines(part: GraphPart, job: Mapping[str, Any] | None = None) -> bytes:
    """Return a graph as compressed lines of JSON; with a job, it is the first one."""
    lines: list[dict[str, Any]] = (
        [] if job is None else [{"job": {name: value for name, value in job.items() if value is not None}}]
    )
    lines += [{"known": [str(number), name]} for number, name in part.known.items()]
    lines += [
        {"group": _without_none(id=str(one.id), name=one.name, parent=_text(one.parent))}
        for one in part.groups
    ]
    lines += [{"task": _task_line(task)} for task in part.tasks]
    for kind, source, to, target in part.dependencies:
        ends = {"previous_type": kind, "previous_id": str(source), "next_type": to, "next_id": str(target)}
        lines.append({"dependency": ends})
    return gzip.compress("\n".join(map(json.dumps, lines)).encode(), compresslevel=1)


def _task_line(task: TaskPart) -> dict[str, Any]:
    definition: dict[str, Any] = task.with_params()
    if "sources" in definition:
        definition = {**definition, "sources": [str(source) for source in definition["sources"]]}
    line = _without_none(
        id=str(task.id), label=task.label, name=task.name, group=_text(task.group), definition=definition
    )
    if task.references:
        line["references"] = [
            {"path": path, "task": str(source), "within": within[0] if within else []}
            for path, source, *within in task.references
        ]
    return line


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _without_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def own_result(request: JobRequest, result: SubmitResult) -> SubmitResult:
    """Return the outcome as its caller sees it: a job that exists under our own key was created by us."""
    if request.idempotency_key is None and result.outcome is SubmitOutcome.EXISTING:
        return replace(result, outcome=SubmitOutcome.ACCEPTED, is_new=True)
    return result


def resume_body(request: ResumeRequest) -> dict[str, Any]:
    """Return the body of a resume."""
    return {
        "from_nodes": list(request.from_nodes),
        "inputs": dict(request.inputs),
        "input_texts": dict(request.input_texts),
        "version": request.version,
        "idempotency_key": request.idempotency_key,
    }


def job_query(job_filter: JobFilter | None) -> dict[str, Any]:
    """Return the query string of a filter of jobs."""
    active = [] if job_filter is None else active_fields(job_filter)
    return {one.parameter: _query_value(one.match, value) for _, one, value in active}


def _query_value(match: Match, value: Any) -> Any:
    if match is Match.STATUS:
        return status_names(value)
    if match in (Match.AFTER, Match.BEFORE):
        return time_text(value)
    return sorted(value) if match is Match.IDS else value


def task_query(task_filter: TaskFilter | None) -> dict[str, Any]:
    """Return the query string of a filter of tasks."""
    if task_filter is None:
        return {}
    return {field.name: getattr(task_filter, field.name) for field in fields(task_filter)}


def finished_task_query(task_filter: FinishedTaskFilter | None) -> dict[str, Any]:
    """Return the query string of a filter of finished tasks."""
    if task_filter is None:
        return {}
    names = ("queue", "worker_id", "job_id")
    values = {name: getattr(task_filter, name) for name in names}
    return {**values, "status": sorted(task_filter.statuses) or None, "since": time_text(task_filter.since)}


def time_text(at: float | None) -> str | None:
    """Return a point in time as a query string has it."""
    return None if at is None else format_rfc3339(at)


def status_names(statuses: Collection[str]) -> list[str] | None:
    """Return statuses as a query string has them."""
    return sorted(status.lower() for status in statuses) or None


def outcome_body(outcome: Outcome) -> JsonObject:
    """Return the outcome of a task as the body of a report."""
    from dagmaster.ports.task_messages import Released, Succeeded

    if isinstance(outcome, Released):
        return {"status": "released"}
    if isinstance(outcome, Succeeded):
        return {"status": "completed", "output": outcome.output, "metrics": outcome.metrics}
    error: JsonObject = {"kind": outcome.error["kind"], "message": outcome.error["message"]}
    return {"status": "failed", "error": error, "permanent": outcome.permanent}
