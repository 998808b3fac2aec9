"""Sentences about what a job waits for, each with the command to type if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.application.suggested_commands import suggest_command
from dagmaster.engine.diagnosis.active_nodes import (
    explain_stalled_job,
    queued,
    waiting_for_approval,
    waiting_for_child_job,
    waiting_for_retry,
    waiting_for_signal_or_time,
)
from dagmaster.engine.diagnosis.context import ChildJob, DiagnosisContext, QueueState, Service
from dagmaster.engine.diagnosis.reasons import ReasonCode
from dagmaster.engine.graph import ApprovalSpec, TaskSpec, WaitSpec
from dagmaster.engine.status import TERMINAL_NODE, NodeStatus
from dagmaster.text_format import age, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dagmaster.application.job_snapshot import JobSnapshot
    from dagmaster.engine.diagnosis.reasons import Reason
    from dagmaster.ports.read_store import NodeRecord, PendingCommand

REPORT_AFTER_SECONDS: Final = 5.0
"""A task or a job that waits for less than this is not reported."""
_MAX_SENTENCES: Final = 6


def blocking_reasons(snapshot: JobSnapshot) -> list[str]:
    """Return why a job does not advance, and what to do about it."""
    sentences = list(command_sentences(snapshot.commands, snapshot.fleet.orchestrators))
    if not snapshot.job.is_finished:
        sentences += [*_owner_sentences(snapshot), *_queue_sentences(snapshot), *_node_sentences(snapshot)]
    more = len(sentences) - _MAX_SENTENCES
    shown = sentences if more <= 0 else [*sentences[:_MAX_SENTENCES], f"and {more} more"]
    return [str(snapshot.redact(sentence)) for sentence in shown]


def command_sentences(commands: Sequence[PendingCommand], orchestrators: int) -> Iterator[str]:
    """Yield a sentence for each command that waits for a live orchestrator, or for long."""
    for command in commands:
        by, seconds = f" by {command.sent_by}" if command.sent_by else "", age(command.age_seconds)
        subject = f"{'an' if command.kind[0] in 'aeiou' else 'a'} {command.kind.replace('_', ' ')}{by}"
        if not orchestrators:
            waiting = f"has been waiting {seconds} for an orchestrator; none is alive"
            yield f"{subject} {waiting} → dagmaster orchestrator"
        elif command.age_seconds > REPORT_AFTER_SECONDS:
            yield f"{subject} has been waiting {seconds} to be processed"


def _owner_sentences(snapshot: JobSnapshot) -> Iterator[str]:
    job, owner = snapshot.job, snapshot.job.owner
    service = None
    if owner is not None:
        service = Service(
            id=owner.owner_id,
            where=f"{owner.host}:{owner.pid}",
            silent_seconds=owner.silent_seconds,
            lease_seconds=snapshot.lease_seconds,
        )
    context = DiagnosisContext(
        now=job.now,
        created_at=job.created_at,
        owner=service,
        orchestrators=snapshot.fleet.orchestrators,
        is_local_run=job.queue is not None,
    )
    reason = explain_stalled_job(context)
    is_young = job.now - job.created_at < REPORT_AFTER_SECONDS
    if reason is not None and not (is_young and reason.code is ReasonCode.NO_OWNER and job.queue is None):
        yield _sentence(snapshot, "the job", reason)
    if job.is_cancelling:
        yield "the job is being cancelled; running tasks were asked to stop"


def _queue_sentences(snapshot: JobSnapshot) -> Iterator[str]:
    for backlog in snapshot.backlog:
        state = QueueState(workers=backlog.workers, slots=backlog.slots, busy=backlog.busy)
        reason = queued(backlog.queue, state, backlog.oldest_seconds)
        if reason.code is ReasonCode.NO_WORKER or backlog.oldest_seconds > REPORT_AFTER_SECONDS:
            yield _sentence(snapshot, format_count(backlog.tasks, "task"), reason, is_plural=backlog.tasks > 1)


def _node_sentences(snapshot: JobSnapshot) -> Iterator[str]:
    for node_id, record in snapshot.nodes.items():
        reason = _node_reason(snapshot, record)
        if reason is not None:
            yield _sentence(snapshot, node_id, reason)


def _node_reason(snapshot: JobSnapshot, record: NodeRecord) -> Reason | None:
    """Return why a node waits for a person, a signal, a time or a child job."""
    spec, now = snapshot.graph.specs[record.node_id], snapshot.job.now
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
        return waiting_for_child_job(ChildJob(id=child[0], status=child[1]))
    return None


def _sentence(snapshot: JobSnapshot, subject: str, reason: Reason, *, is_plural: bool = False) -> str:
    command = suggest_command(snapshot.job.id, reason, subject)
    sentence = reason.group_sentence if is_plural else reason.sentence
    return f"{subject} {sentence}{f' → {command}' if command else ''}"
