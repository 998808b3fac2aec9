"""Why a job or a node has its status: the facts are the read store's, the reasons `engine.diagnosis`'s."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.blocking_reasons import command_reasons, reason_data
from dagmaster.application.job_lookup import find_job
from dagmaster.application.node_lookup import child_of, unknown_child, unknown_node
from dagmaster.application.secret_inputs import redactor_of
from dagmaster.application.views.why import (
    ChildJobWhyView,
    GroupView,
    JobWhyView,
    LinkView,
    NodeReasonView,
    NodeWhyView,
    ReasonView,
)
from dagmaster.engine.diagnosis.context import AdvanceFailure, ChildJob, DiagnosisContext
from dagmaster.engine.diagnosis.explain import THE_JOB, Why, nodes_to_quote
from dagmaster.engine.diagnosis.reasons import ReasonCode
from dagmaster.engine.graph import ApprovalSpec
from dagmaster.engine.groups import begun_groups, shown_status
from dagmaster.engine.model import FanOut, Job
from dagmaster.errors import JobNotFound, NodeNotFound
from dagmaster.records.redacted import redacted

if TYPE_CHECKING:
    from dagmaster.application.context import Application
    from dagmaster.application.secret_inputs import JobRedactor
    from dagmaster.application.views.jobs import BlockingReasonView
    from dagmaster.engine.diagnosis.explain import Group, Link
    from dagmaster.engine.diagnosis.reasons import Reason
    from dagmaster.engine.graph import Graph
    from dagmaster.engine.status import NodeStatus
    from dagmaster.ports.read_store import DiagnosisFacts
    from dagmaster.records.jobs import JobRecord

_MAX_DEPTH: Final = 8
"""Child jobs nest no deeper."""
_MAX_SUGGESTED: Final = 5_000
_OF_THE_JOB: Final = frozenset({ReasonCode.JOB_FAILED, ReasonCode.JOB_CANCELLED, ReasonCode.JOB_DEADLINE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A job and why it has its status.

    Nothing of it is secret: values are redacted before they are explained.
    """

    record: JobRecord
    why: Why
    redact: JobRedactor
    begun_groups: frozenset[str]


async def why_job(app: Application, job_id: str | None) -> JobWhyView:
    """Explain a job: the reason that matters most, then all its nodes."""
    explanation = await _explain(app, await find_job(app, job_id))
    why = explanation.why
    return JobWhyView(
        job=redacted(explanation.record, explanation.redact),
        reason=_job_reason(explanation),
        child_jobs=await _child_jobs(app, _first_chain(why)),
        groups=tuple(_group_view(explanation, group) for group in why.groups()),
        nodes={
            node.id: NodeReasonView(
                status=_displayed_status(explanation, node.id),
                **_reason_fields(explanation, why.reason_for(node.id)),
            )
            for node in why.nodes()
        },
        commands=await _commands(app, explanation),
    )


async def why_node(app: Application, job_id: str | None, node_id: str) -> NodeWhyView:
    """Explain a node, link by link to the root cause. Raise `NodeNotFound` if the job has no such node."""
    explanation = await _explain(app, await find_job(app, job_id))
    why = explanation.why
    if node_id not in why.job.nodes:
        raise NodeNotFound(_unknown(explanation, node_id))
    links = why.chain(node_id)
    return NodeWhyView(
        job=redacted(explanation.record, explanation.redact),
        node_id=node_id,
        chain=tuple(_link_view(explanation, link) for link in links),
        child_jobs=await _child_jobs(app, links),
        commands=await _commands(app, explanation),
    )


async def job_reason(app: Application, job_id: str | None) -> ReasonView:
    """Return the reason that matters most in a job, leaving out its nodes' reasons."""
    return _job_reason(await _explain(app, await find_job(app, job_id)))


async def explain_job(app: Application, job_id: str | None) -> Why:
    """Return the explanation of a job with the engine's own types, for tests and tools."""
    return (await _explain(app, await find_job(app, job_id))).why


async def _explain(app: Application, record: JobRecord) -> Explanation:
    facts = await app.read.diagnosis(record.job_id)
    graph = await app.explained_outlines.of_job(record)
    redact = redactor_of(graph.inputs, record)
    if facts is None:
        raise JobNotFound(f"job {record.job_id} was removed while it was read")
    job, failed_with = _rebuild(graph, facts)
    approvals = [
        node.id for node in job.nodes.values() if isinstance(node.spec, ApprovalSpec) and not node.is_terminal
    ]
    waits = await app.read.waits(record.job_id, approvals) if approvals else {}
    children = await app.read.child_jobs(record.job_id)
    quoted_nodes = list(nodes_to_quote(job))
    outputs = await app.read.outputs(record.job_id, quoted_nodes) if quoted_nodes else {}
    if facts.advance_failure is None and failed_with is not None:
        facts = replace(facts, advance_failure=AdvanceFailure(error=failed_with, retry_in_seconds=0.0))
    context = DiagnosisContext(
        now=record.read_at,
        created_at=record.created_at,
        finished_at=record.finished_at,
        error=redact(record.error),
        **facts.values(),
        is_local_run=record.queue is not None,
        child_jobs={
            node_id: ChildJob(id=child, status=status) for node_id, (child, status) in children.items()
        },
        approval_messages={node_id: redact(wait.message) for node_id, wait in waits.items()},
        inputs=redact.inputs(record.inputs),
        outputs={node_id: redact(output) for node_id, output in outputs.items()},
    )
    nodes = () if record.is_finished else job.nodes.values()
    begun = begun_groups(graph.specs, ((node.id, node.status) for node in nodes))
    return Explanation(record=record, why=Why(job, context), redact=redact, begun_groups=begun)


def _rebuild(graph: Graph, facts: DiagnosisFacts) -> tuple[Job, str | None]:
    """Rebuild the job; if its rows make no sense, without them, and with the name of the error."""
    try:
        return Job.rebuild(graph, facts.job, facts.nodes), None
    except Exception as error:  # noqa: BLE001 - the job that cannot be rebuilt is the one to explain
        return Job.rebuild(graph, facts.job, ()), type(error).__name__


def _unknown(explanation: Explanation, node_id: str) -> str:
    nodes = explanation.why.job.nodes
    fan_out_id = (child_of(node_id) or ("",))[0]
    fan_out = nodes.get(fan_out_id)
    if isinstance(fan_out, FanOut) and fan_out.total is not None:
        return unknown_child(node_id, fan_out_id, fan_out.total)
    return unknown_node(explanation.record.workflow_id, node_id, list(nodes)[:_MAX_SUGGESTED])


async def _commands(app: Application, explanation: Explanation) -> tuple[BlockingReasonView, ...]:
    pending = await app.read.pending_commands(explanation.record.job_id)
    context = explanation.why.context
    return tuple(command_reasons(pending, context.orchestrators, context.draining_orchestrators))


# ── Child jobs ──────────────────────────────────────────────────────────────────────────────────────────────


def _first_chain(why: Why) -> list[Link]:
    """Return the chain of the reason that matters most in a job, to follow it into a child job."""
    because = why.head().because
    return why.chain(because[0]) if because else []


async def _child_jobs(app: Application, links: list[Link]) -> tuple[ChildJobWhyView, ...]:
    """Explain the child job that a chain ends at, the child job that this one waits for, and so on."""
    views: list[ChildJobWhyView] = []
    while links and len(views) < _MAX_DEPTH:
        reason = links[-1].reason if links[-1].subject != THE_JOB or len(links) == 1 else links[-2].reason
        if (
            reason.code not in (ReasonCode.CHILD_JOB, ReasonCode.CHILD_JOB_FAILED)
            or "job_id" not in reason.data
        ):
            break
        record = await app.read.job(str(reason.data["job_id"]))
        if record is None:
            break
        explanation = await _explain(app, record)
        links = _first_chain(explanation.why)
        views.append(
            ChildJobWhyView(
                job_id=record.job_id,
                workflow_id=record.workflow_id,
                reason=_job_reason(explanation, default_subject="it"),
            )
        )
    return tuple(views)


# ── Views ───────────────────────────────────────────────────────────────────────────────────────────────────


def _job_reason(explanation: Explanation, default_subject: str = "the job") -> ReasonView:
    """Return a job's reason. One that was taken from nodes has them as its subject; else the job is."""
    reason = explanation.why.head()
    is_of_nodes = bool(reason.because) and reason.code not in _OF_THE_JOB
    fields = _reason_fields(explanation, reason)
    if not is_of_nodes:
        fields["sentence"] = f"{default_subject} {fields['sentence']}"
    return ReasonView(**fields)


def _reason_fields(explanation: Explanation, reason: Reason) -> dict[str, Any]:
    redact = explanation.redact
    return {
        "code": reason.code,
        "sentence": redact(reason.sentence),
        "data": redact(reason_data(reason.data)),
        "because": tuple(reason.because),
    }


def _link_view(explanation: Explanation, link: Link) -> LinkView:
    is_job = link.subject == THE_JOB
    return LinkView(
        node_id=None if is_job else link.subject,
        status=None if is_job else _displayed_status(explanation, link.subject),
        **_reason_fields(explanation, link.reason),
    )


def _group_view(explanation: Explanation, group: Group) -> GroupView:
    return GroupView(
        code=group.reason.code,
        subject=group.subject,
        sentence=explanation.redact(group.sentence),
        count=group.count,
        fan_out=group.fan_out,
        status=_displayed_status(explanation, group.examples[0]),
        examples=tuple(group.examples),
    )


def _displayed_status(explanation: Explanation, node_id: str) -> NodeStatus:
    """Return a node's status as lists display it."""
    why = explanation.why
    task = why.context.tasks.get(node_id)
    status = why.job.nodes[node_id].status if task is None else task.status
    return shown_status(node_id, status, explanation.begun_groups)


# ── Kinds of reasons, for renderers ─────────────────────────────────────────────────────────────────────────

_SUCCESS: Final = frozenset({ReasonCode.COMPLETED, ReasonCode.JOB_COMPLETED})
_MINOR: Final = frozenset(
    {
        ReasonCode.NODES, ReasonCode.CHILDREN, ReasonCode.NOT_STARTED, ReasonCode.BRANCH_NOT_TAKEN,
        ReasonCode.COMPLETED, ReasonCode.UPSTREAM_SKIPPED, ReasonCode.MAX_PARALLEL, ReasonCode.SUPERSEDED,
    }
)  # fmt: skip
_CODES: Final = list(ReasonCode)
# The catalogue is ordered by urgency: everything up to here is a failure, or needs an operator.
_LAST_FAILURE: Final = _CODES.index(ReasonCode.CHILDREN_FAILED)


def is_success(code: str) -> bool:
    """Return whether a reason says that all is well."""
    return code in _SUCCESS


def is_minor(code: str) -> bool:
    """Return whether a reason only follows from another one."""
    return code in _MINOR


def is_failure(code: str) -> bool:
    """Return whether a reason is a failure, or needs an operator."""
    return _CODES.index(ReasonCode(code)) <= _LAST_FAILURE
