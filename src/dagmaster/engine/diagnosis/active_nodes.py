"""Why a node that is not over stands where it stands, and why nobody moves a job. Pure: the facts are given.

The sentences are made here only: for one node, for many at once, for a page that counts instead of listing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.engine.approvals_and_waits import rfc3339
from dagmaster.engine.diagnosis.reasons import Reason, ReasonCode
from dagmaster.text_format import age, counted, format_error, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.engine.diagnosis.context import (
        ChildJob,
        DiagnosisContext,
        FinishedAttempt,
        InFlightTask,
        QueueState,
        Service,
    )
    from dagmaster.engine.graph import ApprovalSpec, WaitSpec
    from dagmaster.engine.model import FanOut, Job, Node

# ── The job ──


def nobody_moves(around: DiagnosisContext) -> Reason | None:
    """Why nobody moves an open job; None if its owner is well."""
    owner = around.owner
    if owner is None or owner.is_dead:
        return _no_owner(around, owner)
    trouble, by = around.trouble, {"owner": owner.id, "where": owner.where}
    if trouble is not None:
        again = "now" if trouble.again_in_seconds <= 0 else f"in {age(trouble.again_in_seconds)}"
        return Reason(
            code=ReasonCode.ADVANCE_FAILED,
            sentence=f"could not be advanced by its owner {owner.where}: {trouble.error}. "
            f"The owner's log says more; it tries again {again}",
            data={**by, "error": trouble.error, "again_in_seconds": trouble.again_in_seconds},
        )
    if owner.is_silent:
        left = owner.lease_seconds - owner.silent_seconds
        return Reason(
            code=ReasonCode.OWNER_SILENT,
            sentence=f"has an owner, {owner.where}, that was last heard {age(owner.silent_seconds)} ago: "
            f"if it died, another takes over in {age(left)}",
            data={**by, "silent_seconds": owner.silent_seconds, "reclaim_in_seconds": left},
        )
    return None


def _no_owner(around: DiagnosisContext, owner: Service | None) -> Reason:
    died = "" if owner is None else f"its owner {owner.where} died {age(owner.silent_seconds)} ago"
    data: dict[str, Any] = {"orchestrators": around.orchestrators}
    if owner is not None:
        data |= {"owner": owner.id, "where": owner.where, "silent_seconds": owner.silent_seconds}
    if around.orchestrators == 0:
        said = "no orchestrator is alive"
        sentence = f"waits for an owner: {f'{died}, and {said}' if died else said}"
        return Reason(code=ReasonCode.NO_ORCHESTRATOR, sentence=sentence, data=data)
    if died:
        return Reason(
            code=ReasonCode.OWNER_DIED,
            sentence=f"waits for an owner: {died}, another takes it over within seconds",
            data=data,
        )
    alive = counted(around.orchestrators, "orchestrator is alive", "orchestrators are alive")
    where = "it came from a `dagmaster run` that is gone; " if around.is_of_a_run else ""
    sentence = f"waits for an owner: {where}{alive}"
    return Reason(code=ReasonCode.NO_OWNER, sentence=sentence, data=data)


# ── Nodes before it, children, places ──


def for_nodes(names: Sequence[str], first: Reason | None, *, any_of: bool = False) -> Reason:
    """It waits for nodes before it. `first`: what is to be said of the first of them."""
    said = listed(names, joint="or" if any_of else "and")
    why = f" (it {first.sentence})" if first is not None and len(names) == 1 else ""
    return Reason(
        code=ReasonCode.NODES,
        sentence=f"waits for {said}{why}",
        together=f"wait for {said}",
        data={"any_of": any_of or None, "count": len(names)},
        because=tuple(names[:20]),
    )


def for_children(fan: FanOut, first: Sequence[str], counts: Mapping[str, int]) -> Reason:
    """A fan-out waits for its children, of which `first` tell most."""
    total = fan.total or 0
    over = fan.completed + fan.failed
    parts = [f"{count:,} {word}" for word, count in counts.items() if count]
    made = "" if fan.expanded >= total else f"; {fan.expanded:,} are made so far"
    failed = f", {fan.failed:,} of them failed" if fan.failed else ""
    rest = f"; {', '.join(parts)}" if parts else ""
    return Reason(
        code=ReasonCode.CHILDREN,
        sentence=f"waits for its children: {over:,} of {total:,} are over{failed}{rest}{made}",
        together="" if fan.parent is None else "wait for their children",
        data={"total": total, "completed": fan.completed, "failed": fan.failed, "expanded": fan.expanded, **counts},
        because=tuple(first),
    )


def for_place(fan: FanOut) -> Reason:
    """A child waits for a sibling to be over."""
    limit = fan.spec.max_parallel
    out = counted(fan.active, f"child of {fan.id} is out", f"children of {fan.id} are out")
    said = f"for a place: {out}, and max_parallel is {limit:,}"
    return Reason(
        code=ReasonCode.MAX_PARALLEL,
        sentence=f"waits {said}",
        together=f"wait {said}",
        data={"fan_out": fan.id, "max_parallel": limit, "active": fan.active},
    )


# ── Retries and pauses ──


def retry(error: dict[str, Any], number: int, most: int, *, wake_at: float, now: float) -> Reason:
    """It rests between two tries, of which this is the next."""
    left = wake_at - now
    again = f"in {age(left + 0.999)}" if left > 0 else "now"
    return Reason(
        code=ReasonCode.RETRY,
        sentence=f"rests: try {number} of {most} {again}, after {format_error(error) or 'a failure'}",
        together=f"rest until they are tried again, after {error.get('type') or error.get('kind') or 'failures'}",
        data={"try": number, "max_attempts": most, "at": _time(wake_at), "error": error},
    )


def approval(spec: ApprovalSpec, message: str, wake_at: float | None, now: float) -> Reason:
    """A person is asked."""
    whose = f"approval by {listed(spec.approvers, joint='or')}" if spec.approvers else "approval by anybody"
    end = "" if wake_at is None else f"; in {age(wake_at - now)} it is {_by_itself(spec)}"
    return Reason(
        code=ReasonCode.APPROVAL,
        sentence=f"waits for {whose}{f': {message}' if message else ''}{end}",
        together=f"wait for {whose}",
        data={"approvers": list(spec.approvers), "message": message or None, "until": _time(wake_at)},
    )


def _by_itself(spec: ApprovalSpec) -> str:
    return "approved by itself" if spec.on_timeout.value == "approve" else "given up"


def pause(spec: WaitSpec, wake_at: float | None, now: float) -> Reason:
    """It waits for a signal or a time."""
    until = _time(wake_at)
    if spec.signal is not None:
        end = "" if wake_at is None else f", for at most {age(wake_at - now)} more"
        return Reason(
            code=ReasonCode.SIGNAL,
            sentence=f"waits for signal {spec.signal}{end}",
            together=f"wait for signal {spec.signal}",
            data={"signal": spec.signal, "until": until},
        )
    left = 0.0 if wake_at is None else wake_at - now
    return Reason(
        code=ReasonCode.WAIT_UNTIL,
        sentence=f"waits another {age(left + 0.999)}" if left > 0 else "has waited long enough: it goes on now",
        together="wait for a time",
        data={"at": until},
    )


def child_job(child: ChildJob | None) -> Reason:
    """It waits for another job."""
    if child is None:
        return in_hand("the job for it is being started")
    return Reason(
        code=ReasonCode.CHILD_JOB,
        sentence=f"waits for child job {child.id} ({child.status.lower()})",
        together="wait for child jobs",
        data={"job_id": child.id, "status": child.status},
    )


# ── Tasks ──


def task(node: Node, out: InFlightTask | None, report: FinishedAttempt | None, around: DiagnosisContext) -> Reason:
    """Its attempt is out: in a queue, or at a worker; or it is over, and the owner has not taken that up."""
    if report is not None or out is None:
        said = "" if report is None else f" as {report.status} {age(around.now - report.at)} ago"
        return Reason(
            code=ReasonCode.REPORTED,
            sentence=f"was reported{said}: the job's owner takes that up next",
            together="were reported: the job's owner takes that up next",
            data={"attempt": node.attempt, "status": None if report is None else report.status},
        )
    if out.worker is None and out.stop_requested_at is not None:
        return _stopping(node, out, around)
    if out.worker is None:
        return queued(
            out.queue,
            around.queues.get(out.queue),
            around.now - out.dispatched_at,
            ahead=out.ahead,
            given_up=None if node.wake_at is None else node.wake_at - around.now,
        )
    return _held(node, out, out.worker, around)


def queued(
    queue: str, state: QueueState | None, seconds: float, *, ahead: int | None = None, given_up: float | None = None
) -> Reason:
    """A task waits for a worker."""
    data = {"queue": queue, "seconds": seconds, "ahead": ahead}
    end = "" if given_up is None else f"; given up in {age(given_up)}"
    if state is None or state.workers == 0:
        return Reason(
            code=ReasonCode.NO_WORKER,
            sentence=f"has waited {age(seconds)} in queue {queue}: no live worker serves it{end}",
            together=f"wait in queue {queue}: no live worker serves it",
            data={**data, "workers": 0},
        )
    alive = counted(state.workers, "worker is alive", "workers are alive")
    where = f"{alive}, {state.busy:,} of {state.seats:,} places busy"
    if state.lacks_processes:
        whose = "its" if state.workers == 1 else "their"
        where += f", and {lacking_processes(whose, state.processes)}"
    before = f"behind {counted(ahead, 'other task', 'other tasks')} " if ahead else ""
    return Reason(
        code=ReasonCode.QUEUED,
        sentence=f"has waited {age(seconds)} {before}in queue {queue}: {where}{end}",
        together=f"wait in queue {queue}: {where}",
        data={
            **data, "workers": state.workers, "seats": state.seats, "busy": state.busy,
            "processes": state.processes or None, "processes_busy": state.processes_busy or None,
        },
    )  # fmt: skip


def lacking_processes(whose: str, count: int) -> str:
    """Plain functions wait for one another, though there are seats."""
    said = "process for plain functions is" if count == 1 else "processes for plain functions are"
    return f"{whose} {count:,} {said} busy (DAGMASTER_PROCESSES)"


def _held(node: Node, out: InFlightTask, worker: Service, around: DiagnosisContext) -> Reason:
    seconds = max(around.now - (out.claimed_at or around.now), 0.0)
    data: dict[str, Any] = {"worker": worker.id, "where": worker.where, "seconds": seconds, "attempt": node.attempt}
    if worker.is_dead:
        is_stopping = out.stop_requested_at is not None or around.cancelled_at is not None
        then = "not tried again, for {} to stop" if is_stopping else "tried again"
        return Reason(
            code=ReasonCode.WORKER_DIED,
            sentence=f"was at worker {worker.where}, which died {age(worker.silent_seconds)} ago: "
            f"it is {then.format('it was')}",
            together=f"were at worker {worker.where}, which died: they are {then.format('they were')}",
            data={**data, "silent_seconds": worker.silent_seconds},
        )
    if out.stop_requested_at is not None:
        return _stopping(node, out, around)
    if worker.is_silent:
        left = worker.lease_seconds - worker.silent_seconds
        return Reason(
            code=ReasonCode.WORKER_SILENT,
            sentence=f"is at worker {worker.where}, last heard {age(worker.silent_seconds)} ago: "
            f"if it died, the task is tried again in {age(left)}",
            together=f"are at worker {worker.where}, which was not heard for a while",
            data={**data, "silent_seconds": worker.silent_seconds, "reclaim_in_seconds": left},
        )
    if out.has_begun is False:
        return Reason(
            code=ReasonCode.PREFETCHED,
            sentence=f"is prefetched by worker {worker.where}, and has not begun in {age(seconds)}",
            together=f"are prefetched by worker {worker.where}, and have not begun",
            data=data,
        )
    if out.has_begun is None:
        return Reason(
            code=ReasonCode.CLAIMED,
            sentence=f"was taken by worker {worker.where} {age(seconds)} ago",
            together=f"were taken by worker {worker.where} a moment ago",
            data=data,
        )
    if out.begun_at is not None:
        data["seconds"] = seconds = max(around.now - out.begun_at, 0.0)
    again = f", attempt {node.attempt}" if node.attempt > 1 else ""
    far = _progress(out.progress)
    return Reason(
        code=ReasonCode.RUNNING,
        sentence=f"has run for {age(seconds)} on worker {worker.where}{again}{f': {far}' if far else ''}",
        together=f"run on worker {worker.where}",
        data={**data, "progress": None if out.progress is None else dict(out.progress)},
    )


def _stopping(node: Node, out: InFlightTask, around: DiagnosisContext) -> Reason:
    asked = age(around.now - (out.stop_requested_at or around.now))
    where = "" if out.worker is None else f" on worker {out.worker.where}"
    return Reason(
        code=ReasonCode.STOPPING,
        sentence=f"was asked to stop {asked} ago{where}, and has not yet",
        together=f"were asked to stop{where}, and have not yet",
        data={"attempt": node.attempt, "worker": None if out.worker is None else out.worker.id},
    )


def _progress(progress: Mapping[str, Any] | None) -> str:
    if progress is None:
        return ""
    total, current = progress.get("total"), progress.get("current", 0)
    said = str(progress.get("message") or "")
    share = f"{min(max(current / total, 0.0), 1.0):.0%}" if total else ""
    return f"{share} {said}".strip() or f"{current:g}"


# ── The owner ──


def in_hand(what: str = "the job's owner decides within a moment") -> Reason:
    """The owner goes on with it within a moment."""
    return Reason(code=ReasonCode.DECIDING, sentence=f"is in hand: {what}", together=f"are in hand: {what}")


def not_started(job: Job) -> Reason:
    """Nothing of the job has begun."""
    said, data = "for the job to start", {"status": job.status.value}
    return Reason(code=ReasonCode.NOT_STARTED, sentence=f"waits {said}", together=f"wait {said}", data=data)


def _time(at: float | None) -> str | None:
    return None if at is None else rfc3339(at)
