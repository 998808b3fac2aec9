"""Cancel a job or nodes of it, answer its approvals, signal it, retry its nodes. For resume, see `resume`.

What can be known from the stored state is checked first and raised as a typed error. The owner checks again:
what changed in between is rejected by it, and the result says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.application.commands.sending import WAIT_SECONDS, OutgoingCommand, send_command
from dagmaster.application.job_lookup import find_job
from dagmaster.application.node_lookup import find_node, find_nodes, suggest_name
from dagmaster.engine.approvals_and_waits import forbidden_answer, may_answer
from dagmaster.engine.graph import ApprovalSpec, Kind
from dagmaster.engine.status import TERMINAL_NODE, NodeStatus
from dagmaster.errors import (
    ApprovalNotPending,
    ApproverNotAllowed,
    CommandInvalid,
    JobAlreadyCancelled,
    JobFinished,
    NodeNotCancellable,
    NodeNotRetriable,
    SignalNotExpected,
)
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.command_kinds import CommandKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.context import Application
    from dagmaster.application.views.results import CommandResult
    from dagmaster.engine.graph import Graph
    from dagmaster.json_types import JsonValue
    from dagmaster.records.jobs import JobRecord
    from dagmaster.records.nodes import NodeRecord

MAX_NAMED: Final = 1_000
"""Nodes that one command may name. A fan-out or a group counts as one, however many nodes it has."""
MAX_COMMENT: Final = 4_000
"""Characters of a comment that the API and the page accept."""
_RETRIABLE = frozenset({NodeStatus.FAILED, NodeStatus.CANCELLED})


async def cancel_job(
    app: Application,
    job_id: str | None,
    *,
    sent_by: str,
    comment: str = "",
    wait_seconds: float = WAIT_SECONDS,
) -> CommandResult:
    """Ask a job to stop: nothing new starts, and running tasks are asked to stop. `comment`: why.

    A job that nobody owns, and nobody would claim, is decided about here. Raise `JobAlreadyCancelled` the
    second time, also while the job is being cancelled.
    """
    job = await find_job(app, job_id)
    if job.is_cancelled or (job.is_cancelling and not job.is_finished):
        state = "was cancelled already" if job.is_cancelled else "is being cancelled already"
        raise JobAlreadyCancelled(f"job {job.job_id} {state}: `jobs why {job.job_id}` says by whom")
    job = _check_unfinished(job)
    command = OutgoingCommand(
        kind=CommandKind.CANCEL,
        sent_by=sent_by,
        effects=frozenset({EventType.CANCEL_REQUESTED}),
        body={"comment": comment} if comment else {},
    )
    return await send_command(app, job, command, wait_seconds=wait_seconds)


async def cancel_node(
    app: Application, job_id: str | None, node_id: str, *, sent_by: str, wait_seconds: float = WAIT_SECONDS
) -> CommandResult:
    """Cancel one node: it fails with the reason `cancelled`, and its job goes on as after any failure."""
    return await cancel_nodes(app, job_id, [node_id], sent_by=sent_by, wait_seconds=wait_seconds)


async def cancel_nodes(
    app: Application,
    job_id: str | None,
    node_ids: Sequence[str],
    *,
    sent_by: str,
    wait_seconds: float = WAIT_SECONDS,
) -> CommandResult:
    """Cancel nodes: each fails with the reason `cancelled`, and their job goes on as after any failure.

    One that runs is asked to stop first. Of a fan-out or a group, what is in it is cancelled. Nodes that are
    finished are skipped; `NodeNotCancellable` is raised if all are.
    """
    names = _check_names(node_ids)
    job = await _unfinished_job(app, job_id)
    nodes = await find_nodes(app, job, await app.outlines.of_job(job), names)
    reasons = [reason for node in nodes if (reason := _reason_against_cancel(node)) is not None]
    if len(reasons) == len(nodes):
        raise NodeNotCancellable(reasons[0])
    command = OutgoingCommand(
        kind=CommandKind.CANCEL_NODES,
        sent_by=sent_by,
        effects=frozenset({EventType.NODE_CANCEL_REQUESTED}),
        body={"nodes": list(names)},
        node_ids=names,
    )
    return await send_command(app, job, command, wait_seconds=wait_seconds)


async def approve_node(
    app: Application,
    job_id: str | None,
    node_id: str,
    *,
    sent_by: str,
    comment: str = "",
    wait_seconds: float = WAIT_SECONDS,
) -> CommandResult:
    return await _answer(app, CommandKind.APPROVE, job_id, node_id, sent_by, comment, wait_seconds)


async def reject_node(
    app: Application,
    job_id: str | None,
    node_id: str,
    *,
    sent_by: str,
    comment: str = "",
    wait_seconds: float = WAIT_SECONDS,
) -> CommandResult:
    return await _answer(app, CommandKind.REJECT, job_id, node_id, sent_by, comment, wait_seconds)


async def send_signal(
    app: Application,
    job_id: str | None,
    name: str,
    payload: JsonValue = None,
    *,
    sent_by: str,
    wait_seconds: float = WAIT_SECONDS,
) -> CommandResult:
    """Send a signal with a payload to the nodes of a job that wait for it, now or later."""
    job = await _unfinished_job(app, job_id)
    graph = await app.outlines.of_job(job)
    expected = sorted(graph.wiring.waits)
    if name not in expected:
        hint = suggest_name(name, expected) if expected else "Its nodes wait for no signal."
        raise SignalNotExpected(f"no node of {job.workflow_id} waits for signal {name!r}. {hint}".strip())
    command = OutgoingCommand(
        kind=CommandKind.SIGNAL,
        sent_by=sent_by,
        effects=frozenset({EventType.SIGNAL_RECEIVED}),
        body={"name": name, "payload": payload},
    )
    return await send_command(app, job, command, wait_seconds=wait_seconds)


async def retry_node(
    app: Application, job_id: str | None, node_id: str, *, sent_by: str, wait_seconds: float = WAIT_SECONDS
) -> CommandResult:
    """Run one node again: one that failed or was cancelled; or at once one that waits for a retry.

    Nodes that were skipped because of it also run. `resume.plan_retry` is the dry run.
    """
    return await retry_nodes(app, job_id, [node_id], sent_by=sent_by, wait_seconds=wait_seconds)


async def retry_nodes(
    app: Application,
    job_id: str | None,
    node_ids: Sequence[str],
    *,
    sent_by: str,
    wait_seconds: float = WAIT_SECONDS,
) -> CommandResult:
    """Run nodes again, all in one new run.

    Those that cannot be retried are skipped; `NodeNotRetriable` if all are.
    """
    job, nodes = await find_retriable_nodes(app, job_id, node_ids)
    names = tuple(node.node_id for node in nodes)
    command = OutgoingCommand(
        kind=CommandKind.RETRY,
        sent_by=sent_by,
        effects=frozenset({EventType.JOB_RESUMED, EventType.NODE_DISPATCHED}),
        # An orchestrator of schema 0007 knows one node only.
        body={"node": names[0]} if len(names) == 1 else {"nodes": list(names)},
        node_ids=names,
    )
    return await send_command(app, job, command, wait_seconds=wait_seconds)


async def find_retriable_nodes(
    app: Application, job_id: str | None, node_ids: Sequence[str]
) -> tuple[JobRecord, list[NodeRecord]]:
    """Return a job and the named nodes of it; raise `NodeNotRetriable` if none of them can be retried."""
    names = _check_names(node_ids)
    job = await find_job(app, job_id)
    nodes = await find_nodes(app, job, await app.outlines.of_job(job), names)
    if not any(_is_retriable(node) for node in nodes):
        node = nodes[0]
        raise NodeNotRetriable(
            f"node {node.node_id} is {node.status}: only one that failed or was cancelled can be retried"
        )
    return job, nodes


@dataclass(frozen=True, slots=True)
class NodeChoices:
    """Which of some nodes can be cancelled, and which can be retried, as far as the stored state says."""

    cancellable: tuple[str, ...]
    retriable: tuple[str, ...]


async def choose_nodes(app: Application, job_id: str | None, node_ids: Sequence[str]) -> NodeChoices:
    """Return what can be done with nodes; raise `NodeNotFound` for one that does not exist."""
    names = _check_names(node_ids)
    job = await find_job(app, job_id)
    nodes = await find_nodes(app, job, await app.outlines.of_job(job), names)
    cancellable = () if job.is_finished else (node for node in nodes if _reason_against_cancel(node) is None)
    return NodeChoices(
        cancellable=tuple(node.node_id for node in cancellable),
        retriable=tuple(node.node_id for node in nodes if _is_retriable(node)),
    )


def _is_retriable(node: NodeRecord) -> bool:
    waits_for_retry = node.status is NodeStatus.READY and node.wake_at is not None
    return waits_for_retry or node.status in _RETRIABLE


def _reason_against_cancel(node: NodeRecord) -> str | None:
    if node.status in TERMINAL_NODE:
        return f"node {node.node_id} is {node.status}: only an unfinished node can be cancelled"
    return None if node.cancel_request is None else f"node {node.node_id} is being cancelled already"


def _check_names(node_ids: Sequence[str]) -> tuple[str, ...]:
    """Return the names, each once; raise `CommandInvalid` if there are none, or too many."""
    names = tuple(dict.fromkeys(node_ids))
    if not 1 <= len(names) <= MAX_NAMED:
        raise CommandInvalid(
            f"a command names 1 to {MAX_NAMED:,} nodes, not {len(names):,}. Name a fan-out or a group"
        )
    return names


async def _answer(  # noqa: PLR0917 - the arguments of its two callers
    app: Application,
    kind: CommandKind,
    job_id: str | None,
    node_id: str,
    sent_by: str,
    comment: str,
    wait_seconds: float,
) -> CommandResult:
    job = await _unfinished_job(app, job_id)
    graph = await app.outlines.of_job(job)
    node = await find_node(app, job, graph, node_id)
    _check_answerable(job, graph, node, sent_by)
    effect = EventType.APPROVED if kind is CommandKind.APPROVE else EventType.REJECTED
    command = OutgoingCommand(
        kind=kind,
        sent_by=sent_by,
        effects=frozenset({effect}),
        body={"node": node_id, "comment": comment},
        node_ids=(node_id,),
    )
    return await send_command(app, job, command, wait_seconds=wait_seconds)


def _check_answerable(job: JobRecord, graph: Graph, node: NodeRecord, sent_by: str) -> None:
    spec = graph.specs.get(node.node_id)
    if not isinstance(spec, ApprovalSpec):
        approvals = [spec.id for spec in graph.specs.values() if spec.kind is Kind.APPROVAL]
        hint = f"Its approvals: {', '.join(approvals)}." if approvals else f"{job.workflow_id} has none."
        raise CommandInvalid(f"node {node.node_id} is not an approval. {hint}")
    if node.status is not NodeStatus.WAITING:
        raise ApprovalNotPending(f"node {node.node_id} is {node.status}: it does not wait for an answer")
    if not may_answer(spec, sent_by):
        raise ApproverNotAllowed(forbidden_answer(spec, node.node_id, sent_by))


async def _unfinished_job(app: Application, job_id: str | None) -> JobRecord:
    return _check_unfinished(await find_job(app, job_id))


def _check_unfinished(job: JobRecord) -> JobRecord:
    if job.is_finished:
        raise JobFinished(
            f"job {job.job_id} has finished: it is {job.status}. A finished job can be resumed, and its nodes"
            " retried"
        )
    return job
