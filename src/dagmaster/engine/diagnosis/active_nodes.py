"""Reasons of unfinished nodes, and of jobs that no orchestrator advances. Pure: the facts are arguments.

This is the only place that builds these sentences: for one node, and for a group of nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.diagnosis.context import format_busy_processes
from dagmaster.engine.diagnosis.reasons import Reason, ReasonCode, format_time
from dagmaster.engine.diagnosis.untrusted_handlers import untrusted
from dagmaster.engine.status import Isolation, isolation_after
from dagmaster.text_format import age, format_count, format_error, format_list

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dagmaster.engine.diagnosis.context import (
        ChildJob,
        DiagnosisContext,
        FinishedAttempt,
        InFlightTask,
        QueueState,
        Service,
    )
    from dagmaster.engine.model import FanOut, Job, Node
    from dagmaster.json_types import JsonObject

CAUSE: Final = " (which "
"""Starts the reason of an upstream node inside the sentence of a node that waits for it."""

_CHILD_WORDS: Final = {
    ReasonCode.RUNNING: "running",
    ReasonCode.CLAIMED: "claimed",
    ReasonCode.QUEUED: "queued",
    ReasonCode.EXCLUSIVE: "waiting to run alone",
    ReasonCode.NO_WORKER: "queued without a live worker",
    ReasonCode.HANDLER_UNTRUSTED: "queued without a trusted worker",
    ReasonCode.RETRY: "waiting for a retry",
    ReasonCode.CHILD_JOB: "waiting for child jobs",
    ReasonCode.REPORTED: "reported",
    ReasonCode.STOPPING: "stopping",
    ReasonCode.MAX_PARALLEL: "waiting for a slot",
}

# ── The job ──


def explain_stalled_job(context: DiagnosisContext) -> Reason | None:
    """Return why no orchestrator advances an open job; None if its owner is healthy."""
    owner = context.owner
    if owner is None or owner.is_dead:
        return _no_owner(context, owner)
    failure, by = context.advance_failure, {"owner": owner.id, "where": owner.where}
    if failure is not None:
        again = "now" if failure.retry_in_seconds <= 0 else f"in {age(failure.retry_in_seconds)}"
        return Reason(
            code=ReasonCode.ADVANCE_FAILED,
            sentence=f"could not be advanced by its owner {owner.where}: {failure.error}; "
            f"the owner's log has the details, and it retries {again}",
            data={**by, "error": failure.error, "retry_in_seconds": failure.retry_in_seconds},
        )
    if owner.is_silent:
        left = owner.lease_seconds - owner.silent_seconds
        return Reason(
            code=ReasonCode.OWNER_SILENT,
            sentence=f"is owned by {owner.where}, whose last heartbeat was {age(owner.silent_seconds)} ago; "
            f"if it is dead, another orchestrator takes over in {age(left)}",
            data={**by, "silent_seconds": owner.silent_seconds, "reclaim_in_seconds": left},
        )
    return None


def _no_owner(context: DiagnosisContext, owner: Service | None) -> Reason:
    died = "" if owner is None else f"its owner {owner.where} {owner.death}"
    data: JsonObject = {"orchestrators": context.orchestrators}
    if owner is not None:
        data |= {"owner": owner.id, "where": owner.where, "silent_seconds": owner.silent_seconds}
    if context.orchestrators == 0:
        draining = context.draining_orchestrators
        data |= {"draining": draining} if draining else {}
        none = format_all_draining(draining, "orchestrator") if draining else "none is alive"
        sentence = f"waits for an orchestrator; {f'{died}, and {none}' if died else none}"
        return Reason(code=ReasonCode.NO_ORCHESTRATOR, sentence=sentence, data=data)
    if died:
        return Reason(
            code=ReasonCode.OWNER_DIED,
            sentence=f"waits for an orchestrator; {died}, and another takes over within seconds",
            data=data,
        )
    alive = f"{context.orchestrators:,} {'is' if context.orchestrators == 1 else 'are'} alive"
    origin = "it came from a `dagmaster run` that has ended; " if context.is_local_run else ""
    sentence = f"waits for an orchestrator; {origin}{alive}"
    return Reason(code=ReasonCode.NO_OWNER, sentence=sentence, data=data)


# ── Upstream nodes, children, slots ──


def waiting_for_nodes(
    names: Sequence[str], first: Reason | None, *, any_of: bool = False, groups: Collection[str] = ()
) -> Reason:
    """Return the reason of a node that waits for upstream nodes. `first`: the reason of the first of them."""
    labels = [f"the group {name}" if name in groups else name for name in names]
    named = format_list(labels, conjunction="or" if any_of else "and")
    why = f"{CAUSE}{first.sentence})" if first is not None and len(names) == 1 else ""
    return Reason(
        code=ReasonCode.NODES,
        sentence=f"waits for {named}{why}",
        group_sentence=f"wait for {named}",
        data={"any_of": any_of or None, "count": len(names)},
        because=tuple(names[:20]),
    )


def waiting_for_group(name: str, unfinished: int, total: int) -> Reason:
    detail = f"for the group {name}: {_format_unfinished(unfinished, total)}"
    return Reason(
        code=ReasonCode.NODES,
        sentence=f"waits {detail}",
        group_sentence=f"wait {detail}",
        data={"count": 1, "unfinished": unfinished, "total": total},
        because=(name,),
    )


def waiting_for_members(open_members: Sequence[str], unfinished: int, total: int) -> Reason:
    """Return the reason of a group that waits for its nodes.

    `open_members`: the direct ones that are unfinished.
    """
    return Reason(
        code=ReasonCode.NODES,
        sentence=f"waits for its nodes: {_format_unfinished(unfinished, total)}",
        group_sentence="wait for their nodes",
        data={"count": len(open_members), "unfinished": unfinished, "total": total},
        because=tuple(open_members[:20]),
    )


def _format_unfinished(unfinished: int, total: int) -> str:
    return (
        f"{unfinished:,} of {format_count(total, 'node')} {'is' if unfinished == 1 else 'are'} not finished"
    )


def waiting_for_children(fan: FanOut, first: Sequence[str], counts: Mapping[ReasonCode, int]) -> Reason:
    """Return the reason of a fan-out that waits for its children.

    `first`: the children whose reasons matter most.
    """
    total = fan.total or 0
    finished = fan.completed + fan.failed
    by_word: dict[str, int] = {}
    for code, count in counts.items():
        word = _CHILD_WORDS.get(code, "waiting")
        by_word[word] = by_word.get(word, 0) + count
    created = "" if fan.expanded >= total else f"; {fan.expanded:,} created so far"
    failed = f", {fan.failed:,} of them failed" if fan.failed else ""
    rest = "".join(
        f"{', ' if i else '; '}{count:,} {word}" for i, (word, count) in enumerate(by_word.items())
    )
    detail = f"{finished:,} of {total:,} finished{failed}{rest}{created}"
    return Reason(
        code=ReasonCode.CHILDREN,
        sentence=f"{_format_cancel('is', fan.cancel_request)}waits for its children: {detail}",
        group_sentence="" if fan.parent is None else "wait for their children",
        data={
            "total": total, "completed": fan.completed, "failed": fan.failed, "expanded": fan.expanded,
            "open": {code.value: count for code, count in counts.items()},
        },
        because=tuple(first),
    )  # fmt: skip


def waiting_for_slot(fan: FanOut) -> Reason:
    limit = fan.spec.max_parallel
    active = format_count(fan.active, f"child of {fan.id} is active", f"children of {fan.id} are active")
    detail = f"for a slot: {active}, and max_parallel is {limit:,}"
    return Reason(
        code=ReasonCode.MAX_PARALLEL,
        sentence=f"waits {detail}",
        group_sentence=f"wait {detail}",
        data={"fan_out": fan.id, "max_parallel": limit, "active": fan.active},
    )


# ── Retries, approvals, waits, child jobs ──


def waiting_for_retry(error: JsonObject, number: int, limit: int, *, wake_at: float, now: float) -> Reason:
    """Return the reason of a node that waits for a retry.

    `number`: of the next attempt; `limit`: `max_attempts`.
    """
    left = wake_at - now
    again = f"in {age(left + 0.999)}" if left > 0 else "now"
    failure = format_error(error) or "a failure"
    return Reason(
        code=ReasonCode.RETRY,
        sentence=f"waits for a retry: attempt {number} of {limit} {again}, after {failure}",
        group_sentence=f"wait for a retry, after {error.get('type') or error.get('kind') or 'failures'}",
        data={"attempt": number, "max_attempts": limit, "at": format_time(wake_at), "error": error},
    )


def waiting_for_child_job(child: ChildJob | None, cancel: JsonObject | None = None) -> Reason:
    """Return the reason of a node that waits for its child job. `cancel`: the request to cancel the node."""
    if child is None:
        return deciding("its child job is being created")
    return Reason(
        code=ReasonCode.CHILD_JOB if cancel is None else ReasonCode.STOPPING,
        sentence=f"{_format_cancel('is', cancel)}waits for child job {child.id} ({child.status.lower()})",
        group_sentence=f"{_format_cancel('are', cancel)}wait for child jobs",
        data={"job_id": child.id, "status": child.status},
    )


# ── Tasks ──


def task_in_flight(
    node: Node, out: InFlightTask | None, report: FinishedAttempt | None, context: DiagnosisContext
) -> Reason:
    """Explain a node whose task is queued, held by a worker, or reported but not processed yet."""
    if report is not None or out is None:
        result = "" if report is None else f" as {report.status} {age(context.now - report.at)} ago"
        return Reason(
            code=ReasonCode.REPORTED,
            sentence=f"was reported{result}; the job's owner processes the report next",
            group_sentence="were reported; the job's owner processes the reports next",
            data={"attempt": node.attempt, "status": None if report is None else report.status},
        )
    if out.worker is None and out.stop_requested_at is not None:
        return _stopping(node, out, context)
    if out.worker is None and out.untrusted_caller is not None:
        return untrusted(out, out.untrusted_caller, context.now - out.dispatched_at)
    if out.worker is None:
        return queued(
            out.queue,
            context.queues.get(out.queue),
            context.now - out.dispatched_at,
            isolation=isolation_after(node.shared_losses),
            position=out.queue_position,
            timeout_seconds=None if node.wake_at is None else node.wake_at - context.now,
        )
    return _held_by(node, out, out.worker, context)


def queued(
    queue: str,
    state: QueueState | None,
    seconds: float,
    *,
    isolation: Isolation = Isolation.SHARED,
    position: int | None = None,
    timeout_seconds: float | None = None,
) -> Reason:
    """Return the reason of a task that waits in a queue for a worker, or for one without other tasks."""
    data: JsonObject = {"queue": queue, "seconds": seconds, "position": position}
    end = "" if timeout_seconds is None else f"; times out in {age(timeout_seconds)}"
    if state is None or state.workers == 0:
        none = "no live worker serves this queue"
        if state is not None and state.draining:
            none = f"no worker claims from this queue: {format_all_draining(state.draining, 'worker')}"
            data |= {"draining": state.draining, "drained_worker": state.drained_worker}
        return Reason(
            code=ReasonCode.NO_WORKER,
            sentence=f"has been queued on {queue} for {age(seconds)}; {none}{end}",
            group_sentence=f"are queued on {queue}; {none}",
            data={**data, "workers": 0},
        )
    workers = format_count(state.workers, "live worker")
    load = f"{workers}, {state.busy:,} of {state.slots:,} slots busy"
    data |= {"workers": state.workers, "slots": state.slots, "busy": state.busy}
    if isolation is Isolation.EXCLUSIVE:
        needs = f"a worker of {queue} that runs nothing else, since workers died that ran"
        return Reason(
            code=ReasonCode.EXCLUSIVE,
            sentence=f"has been waiting {age(seconds)} for {needs} it next to other tasks; {load}",
            group_sentence=f"wait for {needs} them next to other tasks; {load}",
            data=data,
        )
    if state.lacks_processes:
        whose = "its" if state.workers == 1 else "their"
        load += f", and {format_busy_processes(whose, state.processes)}"
    if isolation is Isolation.PROCESS:
        load += "; needs a process, since a worker died that ran it next to other tasks"
    place = "" if position is None else f", position {position:,}"
    return Reason(
        code=ReasonCode.QUEUED,
        sentence=f"has been queued on {queue} for {age(seconds)}{place}; {load}{end}",
        group_sentence=f"are queued on {queue}; {load}",
        data={**data, "processes": state.processes or None, "processes_busy": state.processes_busy or None},
    )


def format_all_draining(count: int, noun: str) -> str:
    """Format that all live services of a kind drain, and so claim nothing."""
    return f"the only live {noun} is draining" if count == 1 else f"all {count:,} live {noun}s are draining"


def _held_by(node: Node, out: InFlightTask, worker: Service, context: DiagnosisContext) -> Reason:
    seconds = max(context.now - (out.claimed_at or context.now), 0.0)
    data: JsonObject = {
        "worker": worker.id,
        "where": worker.where,
        "seconds": seconds,
        "attempt": node.attempt,
    }
    if worker.is_dead:
        is_stopping = out.stop_requested_at is not None or context.cancelled_at is not None
        end = "will not be retried, since it was asked to stop" if is_stopping else "will be retried"
        return Reason(
            code=ReasonCode.WORKER_DIED,
            sentence=f"was held by worker {worker.where}, which {worker.death}; it {end}",
            group_sentence=f"were held by worker {worker.where}, which died; each {end}",
            data={**data, "silent_seconds": worker.silent_seconds},
        )
    if out.stop_requested_at is not None:
        return _stopping(node, out, context)
    if worker.is_silent:
        left = worker.lease_seconds - worker.silent_seconds
        silent = age(worker.silent_seconds)
        return Reason(
            code=ReasonCode.WORKER_SILENT,
            sentence=f"is held by worker {worker.where}, whose last heartbeat was {silent} ago; "
            f"if it is dead, the task is retried in {age(left)}",
            group_sentence=f"are held by worker {worker.where}, whose heartbeat is late",
            data={**data, "silent_seconds": worker.silent_seconds, "reclaim_in_seconds": left},
        )
    where = f"{worker.where} (draining)" if worker.is_draining else worker.where
    data["is_draining"] = worker.is_draining or None
    if out.started_at is None:
        return Reason(
            code=ReasonCode.CLAIMED,
            sentence=f"was claimed by worker {where} {age(seconds)} ago and has not started",
            group_sentence=f"were claimed by worker {where} and have not started",
            data=data,
        )
    data["seconds"] = seconds = max(context.now - out.started_at, 0.0)
    again = f", attempt {node.attempt}" if node.attempt > 1 else ""
    progress = _format_progress(out.progress)
    detail = f"{again}: {progress}" if progress else again
    return Reason(
        code=ReasonCode.RUNNING,
        sentence=f"has been running for {age(seconds)} on worker {where}{detail}",
        group_sentence=f"are running on worker {where}",
        data={**data, "progress": None if out.progress is None else dict(out.progress)},
    )


def _stopping(node: Node, out: InFlightTask, context: DiagnosisContext) -> Reason:
    asked = age(context.now - (out.stop_requested_at or context.now))
    where = "" if out.worker is None else f" on worker {out.worker.where}"
    cancel = node.cancel_request
    one, several = _format_cancel("is", cancel), _format_cancel("are", cancel)
    return Reason(
        code=ReasonCode.STOPPING,
        sentence=f"{one}was asked to stop {asked} ago{where} and has not stopped yet",
        group_sentence=f"{several}were asked to stop{where} and have not stopped yet",
        data={
            "attempt": node.attempt,
            "worker": None if out.worker is None else out.worker.id,
            "by": None if cancel is None else cancel.get("by"),
        },
    )


def being_cancelled(cancel: JsonObject) -> Reason:
    who, data = cancel.get("message"), {"by": cancel.get("by")}
    text = f"being {who}; what runs was asked to stop"
    return Reason(code=ReasonCode.STOPPING, sentence=f"is {text}", group_sentence=f"are {text}", data=data)


def _format_cancel(verb: str, cancel: JsonObject | None) -> str:
    """Format who cancelled a node that has not stopped yet, as the start of a sentence."""
    return "" if cancel is None else f"{verb} being {cancel.get('message')}; "


def _format_progress(progress: Mapping[str, Any] | None) -> str:
    if progress is None:
        return ""
    total, current = progress.get("total"), progress.get("current", 0)
    message = str(progress.get("message") or "")
    share = f"{min(max(current / total, 0.0), 1.0):.0%}" if total else ""
    return f"{share} {message}".strip() or f"{current:g}"


# ── The owner ──


def deciding(detail: str = "") -> Reason:
    """Return the reason of a node, or a job, that its owner advances within a moment."""
    text = f"being advanced by the job's owner{detail and f': {detail}'}"
    return Reason(code=ReasonCode.DECIDING, sentence=f"is {text}", group_sentence=f"are {text}")


def not_started(job: Job) -> Reason:
    return Reason(
        code=ReasonCode.NOT_STARTED,
        sentence="waits for the job to start",
        group_sentence="wait for the job to start",
        data={"status": job.status.value},
    )
