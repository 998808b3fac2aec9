"""What a job waits for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dagmaster.application.views.jobs import BlockingReasonView
from dagmaster.engine.diagnosis.active_nodes import (
    being_cancelled,
    explain_stalled_job,
    format_all_draining,
    queued,
    waiting_for_child_job,
    waiting_for_retry,
)
from dagmaster.engine.diagnosis.context import ChildJob, DiagnosisContext, Service
from dagmaster.engine.diagnosis.reasons import ReasonCode
from dagmaster.engine.diagnosis.waiting_nodes import waiting_for_approval, waiting_for_signal_or_time
from dagmaster.engine.graph import ApprovalSpec, TaskSpec, WaitSpec
from dagmaster.engine.status import TERMINAL_NODE, Isolation, NodeStatus
from dagmaster.text_format import age, format_count, format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dagmaster.application.job_snapshot import JobSnapshot
    from dagmaster.engine.diagnosis.reasons import Reason
    from dagmaster.json_types import JsonObject
    from dagmaster.ports.read_store import PendingCommand
    from dagmaster.records.nodes import NodeRecord

REPORT_AFTER_SECONDS: Final = 5.0
"""A task or a job that waits for less than this is not reported."""
_MAX_REASONS: Final = 6


def blocking_reasons(snapshot: JobSnapshot) -> list[BlockingReasonView]:
    fleet = snapshot.fleet
    reasons = list(command_reasons(snapshot.commands, fleet.orchestrators, fleet.draining_orchestrators))
    if not snapshot.job.is_finished:
        reasons += [*_owner_reasons(snapshot), *_queue_reasons(snapshot), *_node_reasons(snapshot)]
    more = len(reasons) - _MAX_REASONS
    shown = reasons if more <= 0 else [*reasons[:_MAX_REASONS], _plain(f"and {more} more")]
    redact = snapshot.redact
    return [
        replace(reason, sentence=str(redact(reason.sentence)), data=redact(reason.data)) for reason in shown
    ]


def command_reasons(
    commands: Sequence[PendingCommand], orchestrators: int, draining: int = 0
) -> Iterator[BlockingReasonView]:
    none = format_all_draining(draining, "orchestrator") if draining else "none is alive"
    for command in commands:
        by, seconds = f" by {command.sent_by}" if command.sent_by else "", age(command.age_seconds)
        subject = f"{'an' if command.kind[0] in 'aeiou' else 'a'} {command.kind.replace('_', ' ')}{by}"
        if not orchestrators:
            sentence = f"{subject} has been waiting {seconds} for an orchestrator; {none}"
            yield replace(_plain(sentence), code=ReasonCode.NO_ORCHESTRATOR)
        elif command.age_seconds > REPORT_AFTER_SECONDS:
            yield _plain(f"{subject} has been waiting {seconds} to be processed")


def _owner_reasons(snapshot: JobSnapshot) -> Iterator[BlockingReasonView]:
    job, owner = snapshot.job, snapshot.job.owner
    service = None
    if owner is not None:
        service = Service(
            id=owner.orchestrator_id,
            where=f"{owner.host}:{owner.pid}",
            silent_seconds=owner.silent_seconds,
            lease_seconds=snapshot.lease_seconds,
            is_over=owner.is_over,
        )
    context = DiagnosisContext(
        now=job.read_at,
        created_at=job.created_at,
        owner=service,
        orchestrators=snapshot.fleet.orchestrators,
        draining_orchestrators=snapshot.fleet.draining_orchestrators,
        is_local_run=job.queue is not None,
    )
    reason = explain_stalled_job(context)
    is_young = job.read_at - job.created_at < REPORT_AFTER_SECONDS
    if reason is not None and not (is_young and reason.code is ReasonCode.NO_OWNER and job.queue is None):
        yield _of_reason(reason, f"the job {reason.sentence}")
    if job.is_cancelling:
        yield _plain("the job is being cancelled; running tasks were asked to stop")


def _queue_reasons(snapshot: JobSnapshot) -> Iterator[BlockingReasonView]:
    for backlog in snapshot.backlog:
        isolation = Isolation.EXCLUSIVE if backlog.is_exclusive else Isolation.SHARED
        reason = queued(backlog.queue, backlog.state, backlog.oldest_seconds, isolation=isolation)
        if reason.code is ReasonCode.NO_WORKER or backlog.oldest_seconds > REPORT_AFTER_SECONDS:
            sentence = reason.group_sentence if backlog.tasks > 1 else reason.sentence
            yield _of_reason(reason, f"{format_count(backlog.tasks, 'task')} {sentence}")


def _node_reasons(snapshot: JobSnapshot) -> Iterator[BlockingReasonView]:
    for node_id, record in snapshot.nodes.items():
        reason = _node_reason(snapshot, record)
        if reason is not None:
            yield _of_reason(reason, f"{node_id} {reason.sentence}", node_id)


def _node_reason(snapshot: JobSnapshot, record: NodeRecord) -> Reason | None:
    """Return why a node waits for a person, a signal, a time or a child job."""
    spec, now = snapshot.graph.specs[record.node_id], snapshot.job.read_at
    child = snapshot.child_jobs.get(record.node_id)
    if record.status is NodeStatus.WAITING and isinstance(spec, ApprovalSpec):
        wait = snapshot.waits.get(record.node_id)
        return waiting_for_approval(spec, "" if wait is None else wait.message, record.wake_at, now)
    if record.status is NodeStatus.WAITING and isinstance(spec, WaitSpec):
        return waiting_for_signal_or_time(spec, record.wake_at, now)
    if record.status is NodeStatus.READY and record.wake_at is not None and isinstance(spec, TaskSpec):
        max_attempts = spec.retry.max_attempts
        return waiting_for_retry(
            record.error or {}, record.failed_attempts + 1, max_attempts, wake_at=record.wake_at, now=now
        )
    if child is not None and record.status not in TERMINAL_NODE:
        return waiting_for_child_job(ChildJob(id=child[0], status=child[1]), record.cancel_request)
    return None if record.cancel_request is None else being_cancelled(record.cancel_request)


def _of_reason(reason: Reason, sentence: str, node_id: str | None = None) -> BlockingReasonView:
    return BlockingReasonView(
        sentence=sentence, code=reason.code, node_id=node_id, data=reason_data(reason.data)
    )


def _plain(sentence: str) -> BlockingReasonView:
    return BlockingReasonView(sentence=sentence, code=None, node_id=None, data={})


def reason_data(data: JsonObject) -> JsonObject:
    """Return what is known of a reason's data, with times in RFC 3339."""
    return {
        name: format_rfc3339(value) if _is_time(name) and isinstance(value, int | float) else value
        for name, value in data.items()
        if value is not None
    }


def _is_time(name: str) -> bool:
    return name == "at" or name.endswith("_at")
