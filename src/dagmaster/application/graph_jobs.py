"""Jobs whose graph is built in code, and nodes that are added to a job from outside."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dagmaster.application.callback_addresses import check_callback_url
from dagmaster.application.commands.sending import WAIT_SECONDS, OutgoingCommand, await_command, check_sender
from dagmaster.application.job_lookup import find_job
from dagmaster.application.submission import (
    JobRequest,
    JobSubmitter,
    accepted_result,
    audit_entries,
    in_trace,
)
from dagmaster.application.views.graph_tasks import AddedNodesView, ReleasedHoldView
from dagmaster.authoring.added_nodes import PYTHON_DEFINITION, encode_json, read_batches
from dagmaster.authoring.compiler.compile import compile_definition
from dagmaster.authoring.graph_parts import check_part
from dagmaster.engine.graph import HOLD_DESCRIPTION, HOLD_LABEL, is_hold
from dagmaster.engine.growth import grow_graph
from dagmaster.engine.status import SkipReason
from dagmaster.errors import CommandInvalid, IdempotencyConflict, JobFinished, JobNotFound, NodesRejected
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.job_options import OPTION_NAMES, JobOptions
from dagmaster.text_format import format_list

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dagmaster.application.context import Application
    from dagmaster.application.views.results import SubmitResult
    from dagmaster.authoring.graph_parts import GraphPart
    from dagmaster.engine.graph import Graph, Spec
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.added_nodes import BatchRows
    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.records.jobs import JobRecord

_FIRST_BATCH: Final = 1
_NO_BATCH: Final = 2**31 - 1
"""The number of a batch that is only checked: no stored batch has the names of its nodes."""


@dataclass(slots=True, kw_only=True)
class GraphJobRequest(JobOptions):
    """A job with its own graph."""

    part: GraphPart


async def submit_graph(app: Application, request: GraphJobRequest) -> SubmitResult:
    """Store a job with all nodes of its graph, or nothing; raise `NodesRejected` if they make no graph."""
    check_callback_url(app, request.callback_url)
    graph = python_graph()
    _check_known(graph, request.part.known.values())
    rows = await app.graphs.run(check_part, request.part)
    submitter = JobSubmitter(
        app.client, await app.client.lease_ids(), app.origin, env=app.env, vault=app.vault
    )
    options = {name: getattr(request, name) for name in OPTION_NAMES}
    job = await submitter.make_job(in_trace(JobRequest(**(options | {"tenant": app.tenant}))), graph)
    if job.idempotency_key is not None:
        # The same graph, built again, has other ids.
        job = replace(job, body_hash=_hash_rows(job.body_hash or "", rows))
    await submitter.store_graph(graph)
    accepted = await app.client.submit_graph(job, rows, audit=audit_entries([job], app.origin))
    if not accepted.same:
        raise IdempotencyConflict(
            f"this idempotency key was used for another job, {accepted.job_id}, with another graph: use a new"
            " key"
        )
    result = accepted_result(job, accepted)
    return result if result.is_new else replace(result, task_ids=await _stored_ids(app, accepted.job_id))


async def _stored_ids(app: Application, job_id: str) -> dict[str, str]:
    ids: dict[str, str] = {}
    for batch in await app.read.added_nodes.load_batches(job_id, [_FIRST_BATCH]):
        ids |= {node.node_id: str(node.id) for node in batch.nodes}
        ids |= {group.name: str(group.id) for group in batch.groups}
    return ids


async def add_nodes(
    app: Application, job_id: str, part: GraphPart, *, sent_by: str, wait_seconds: float = WAIT_SECONDS
) -> AddedNodesView:
    """Add nodes to a job that has not finished, all or none, and wait until its owner accepted them.

    Raise `NodesRejected` if they cannot be added. The owner checks again: what changed in between is in the
    result.
    """
    check_sender(sent_by)
    job = await find_job(app, job_id)
    if job.is_finished:
        raise JobFinished(
            f"job {job.job_id} is {job.status}: {_labels(part)} cannot be added to a job that has finished"
        )
    graph = await _with_pending(app, job, await app.outlines.of_job(job))
    _check_known(graph, part.known.values())
    await app.graphs.run(check_part, part, await _without_superseded(app, job, graph, part), _NO_BATCH)
    number = await app.client.reserve_batch(job.job_id)
    if number is None:
        raise JobNotFound(f"there is no job {job.job_id!r}")
    rows = part.to_rows(number)
    command = OutgoingCommand(
        kind=CommandKind.ADD_NODES,
        sent_by=sent_by,
        effects=frozenset({EventType.NODES_ADDED}),
        body={"batch": number},
    )

    async def store() -> str | None:
        return await app.client.add_batch(
            job.job_id, number, rows, sent_by, audit=_entries(app, job, rows, sent_by)
        )

    result = await await_command(app, job, command, store, wait_seconds=wait_seconds)
    if not result.accepted:
        raise NodesRejected(f"job {job.job_id}: {result.sentence}")
    own = {task.id for task in part.tasks} | {group.id for group in part.groups}
    return AddedNodesView(
        job_id=job.job_id,
        batch=number,
        node_ids={str(one): name for one, name in part.names(number).items() if one in own},
        is_accepted=result.is_done,
        sentence=result.sentence,
    )


async def release_hold(
    app: Application, job_id: str, signal: str, *, wait_seconds: float = 0.0
) -> ReleasedHoldView:
    """Let a job complete that the code which made it kept open: see `Hold`.

    `wait_seconds`: how long to wait for its owner, which completes a job whose tasks have ended. Whether a
    node waits for the signal is not looked up: a job may have 100,000 of them.
    """
    if not is_hold(signal):
        raise CommandInvalid(f"{signal[:100]!r} is not the signal of a hold, which begins with {HOLD_LABEL}")
    body: dict[str, JsonValue] = {"name": signal, "payload": None}
    sent_by = "anonymous" if app.origin is None else app.origin.actor

    async def store() -> str | None:
        return await app.client.send(job_id, CommandKind.SIGNAL, body, sent_by)

    command = OutgoingCommand(kind=CommandKind.SIGNAL, sent_by=sent_by, effects=frozenset(), body=body)
    job = await find_job(app, job_id)
    if job.is_finished:
        # A resume of it releases its holds.
        raise JobFinished(f"job {job.job_id} has finished: it is {job.status}, and nothing holds it")
    result = await await_command(app, job, command, store, wait_seconds=wait_seconds)
    return ReleasedHoldView(job_id=job.job_id, command_id=result.command_id)


def python_graph() -> Graph:
    """Return the graph of jobs that are built in code: without nodes."""
    return compile_definition(PYTHON_DEFINITION)


async def _with_pending(app: Application, job: JobRecord, graph: Graph) -> Graph:
    """Return a graph with what was sent to the job before and no owner has accepted yet."""
    numbers = await app.read.added_nodes.pending_batches(job.job_id)
    batches = await app.read.added_nodes.load_batches(job.job_id, numbers) if numbers else []
    return await app.graphs.run(grow_graph, graph, read_batches(batches)) if batches else graph


async def _without_superseded(
    app: Application, job: JobRecord, graph: Graph, part: GraphPart
) -> Mapping[str, Spec]:
    """Return the specs of a graph without superseded nodes whose names are used again."""
    written = (*(task.name for task in part.tasks), *(group.name for group in part.groups))
    names = [name for name in written if name is not None and name in graph.specs]
    records = await app.read.nodes(job.job_id, names) if names else ()
    superseded = {record.node_id for record in records if record.skip_reason is SkipReason.SUPERSEDED}
    if not superseded:
        return graph.specs
    return {node_id: spec for node_id, spec in graph.specs.items() if node_id not in superseded}


def _check_known(graph: Graph, names: Collection[str]) -> None:
    unknown = next((name for name in names if name not in graph.specs), None)
    if unknown is not None:
        raise NodesRejected(f"the job has no node {unknown!r}: is this a task of another job?")


def _labels(part: GraphPart) -> str:
    tasks = [task.name or task.label for task in part.tasks if task.label != HOLD_LABEL]
    return format_list(tasks or [group.name for group in part.groups])


def _entries(app: Application, job: JobRecord, rows: BatchRows, sent_by: str) -> list[AuditEntry]:
    if app.origin is None:
        return []
    return [app.origin.entry("job.add_nodes", "job", job.job_id, {"count": len(rows.nodes)}, actor=sent_by)]


def _without_code(definition: str) -> str:
    """Return a definition without its function's fingerprint: a release does not change the graph."""
    if '"code_fingerprint": ' not in definition:
        return definition
    return json.dumps(
        {key: value for key, value in json.loads(definition).items() if key != "code_fingerprint"}
    )


def _without_place(definition: str) -> str:
    """Return the definition of a hold without its place: another process makes the same graph."""
    return encode_json(json.loads(definition) | {"description": f"{HOLD_DESCRIPTION}."})


def _hash_rows(body_hash: str, rows: BatchRows) -> str:
    nodes = [
        (
            node.node_id,
            node.group,
            (_without_place if is_hold(node.node_id) else _without_code)(node.definition),
        )
        for node in rows.nodes
    ]
    groups = [(group.name, group.parent) for group in rows.groups]
    body = json.dumps([body_hash, nodes, groups, rows.dependencies])
    return hashlib.sha256(body.encode()).hexdigest()
