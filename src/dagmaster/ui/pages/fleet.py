"""Orchestrators and workers, and queues: who is alive, what they hold, and what waits for how long."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.health import describe_conditions
from dagmaster.application.left_services import is_settled, left_seconds
from dagmaster.application.views import QueueRecord, WorkerRecord
from dagmaster.text_format import age, format_count, format_list
from dagmaster.ui.pages.addresses import with_query
from dagmaster.ui.pages.job_rows import job_path
from dagmaster.ui.pages.times import NOTHING, format_optional, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dagmaster.application.views import FleetRecord, HandlerRecord, OrchestratorRecord

LOOKS: Final = {
    "alive": ("check", "ok"),
    "busy": ("progress", "running"),
    "draining": ("pause", "waiting"),
    "drained": ("pause", "skipped"),
    "stopped": ("slash", "skipped"),
    "died": ("cross", "failed"),
}
"""The icon and the tone of the state of a member."""
_LATE: Final = 0.5
"""A heartbeat is late after this part of the lease."""


@dataclass(frozen=True, slots=True)
class MemberState:
    """The state of an orchestrator or a worker."""

    word: str
    icon: str
    tone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    """An orchestrator or a worker.

    `lease`: how much of it is left, in percent; `left`: what became of what it held.

    `drain_word`: what the button does, Drain or Undrain; `drain_href`: its confirmation, empty if it has
    none.
    """

    member_id: str
    place: str
    version: str
    state: MemberState
    heartbeat: str
    lease: int
    lease_tone: str
    uptime: str
    held: str
    held_percent: int
    holds: str
    queues: tuple[str, ...]
    counts: tuple[tuple[str, str], ...]
    left: str
    left_href: str
    tasks_href: str
    drain_word: str
    drain_href: str
    drain_note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractChange:
    """A contract of a handler that waits for an administrator. `differences`: what it would change."""

    handler: str
    owner: str
    caller: str
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPage:
    """All members. `headline`: how many are alive; `versions`: how many members run which version.

    `stopped`: those that stopped, with their kind, and left nothing to look after: each `dagmaster run` has
    two.
    """

    headline: str
    tone: str
    orchestrators: tuple[MemberRow, ...]
    workers: tuple[MemberRow, ...]
    stopped: tuple[tuple[str, MemberRow], ...]
    slots: str
    slots_percent: int
    versions: tuple[tuple[str, str], ...]
    unowned: str
    changes: tuple[ContractChange, ...] = ()
    warning: str = ""
    title: str = "Fleet"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A queue. `age`: how long its oldest task waits; `drained`: when it may be empty."""

    record: QueueRecord
    age: str
    age_percent: int
    drained: str
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuesPage:
    """All queues with tasks, and those that live workers serve, the longest waiting one first."""

    headline: str
    tone: str
    rows: tuple[QueueRow, ...]
    waiting: str
    claimed: str
    rate: str
    oldest: str
    warning: str = ""
    title: str = "Queues"


def fleet_page(
    view: FleetRecord, handlers: Iterable[HandlerRecord] = (), stale_seconds: float = 0.0
) -> FleetPage:
    """Return the services. `stale_seconds`: how long ago they were read, if not now."""
    orchestrators = [one for one in view.orchestrators if one.is_alive]
    workers = [one for one in view.workers if one.is_alive]
    members: tuple[OrchestratorRecord | WorkerRecord, ...] = (*orchestrators, *workers)
    versions = Counter(member.version for member in members)
    slots, busy = sum(one.concurrency for one in workers), sum(one.running for one in workers)
    return FleetPage(
        headline=f"{format_count(len(orchestrators), 'orchestrator')}"
        f" and {format_count(len(workers), 'worker')} alive",
        tone="ok" if _has_claiming(view.orchestrators) and _has_claiming(view.workers) else "failed",
        orchestrators=tuple(_orchestrator_row(one) for one in view.orchestrators if not is_settled(one)),
        workers=tuple(_worker_row(one) for one in view.workers if not is_settled(one)),
        stopped=tuple(_stopped_rows(view)),
        slots=f"{busy:,} of {slots:,}",
        slots_percent=_percent(busy, slots),
        versions=tuple((name, f"{count:,}") for name, count in sorted(versions.items())),
        unowned=f"{view.unowned_jobs:,}",
        changes=tuple(_contract_changes(handlers)),
        warning=" ".join(filter(None, (_describe_age(stale_seconds), describe_conditions(members)))),
    )


def _describe_age(stale_seconds: float) -> str:
    if not stale_seconds:
        return ""
    return f"The database does not answer: these values are {age(stale_seconds)} old."


def _contract_changes(handlers: Iterable[HandlerRecord]) -> Iterator[ContractChange]:
    for handler in handlers:
        for change in handler.changes:
            yield ContractChange(
                handler=handler.name,
                owner=handler.owner,
                caller=change.actor,
                differences=change.differences or ("the same: its workers want its tasks",),
            )


def queues_page(view: FleetRecord, stale_seconds: float = 0.0) -> QueuesPage:
    """Return the queues. `age_percent`: the age relative to the oldest task of all queues."""
    served = [*view.queues, *_idle_queues(view)]
    ordered = sorted(served, key=lambda queue: (-(queue.oldest_seconds or 0.0), -queue.waiting, queue.queue))
    oldest = max((queue.oldest_seconds or 0.0 for queue in served), default=0.0)
    stuck = [queue for queue in served if queue.is_stuck]
    waiting = sum(queue.waiting for queue in served)
    if stuck:
        names = ", ".join(queue.queue for queue in stuck[:3])
        headline, tone = f"No worker serves {names}", "failed"
    elif waiting:
        headline, tone = (
            f"{format_count(waiting, 'task waits', 'tasks wait')}, the oldest for {age(oldest)}",
            "ok",
        )
    else:
        headline, tone = "No task waits", "ok"
    return QueuesPage(
        headline=headline,
        tone=tone,
        rows=tuple(_queue_row(queue, oldest) for queue in ordered),
        waiting=f"{waiting:,}",
        claimed=f"{sum(queue.claimed for queue in served):,}",
        rate=f"{sum(queue.finished_last_minute for queue in served):,}",
        oldest=format_seconds(oldest) if waiting else NOTHING,
        warning=_describe_age(stale_seconds),
    )


def _idle_queues(view: FleetRecord) -> Iterator[QueueRecord]:
    """Give the queues without tasks that live workers serve by name, or finished tasks of lately."""
    workers = [one for one in view.workers if one.is_alive]
    with_tasks = {queue.queue for queue in view.queues}
    names = {name for one in workers for name in (*one.queues, *one.finished_last_minute)} - with_tasks
    for name in names:
        serving = [one for one in workers if not one.is_draining and (not one.queues or name in one.queues)]
        yield QueueRecord(
            queue=name,
            waiting=0,
            waiting_exclusive=0,
            claimed=0,
            oldest_seconds=None,
            finished_last_minute=sum(one.finished_last_minute.get(name, 0) for one in workers),
            workers=len(serving),
            note=None,
        )


def _queue_row(queue: QueueRecord, oldest: float) -> QueueRow:
    rate = queue.finished_last_minute
    seconds = queue.oldest_seconds
    return QueueRow(
        record=queue,
        age=format_optional(seconds),
        age_percent=_percent(seconds or 0.0, oldest),
        drained=f"empty in about {age(queue.waiting / rate * 60)}" if rate and queue.waiting else "",
        href=with_query("/ui/tasks", queue=queue.queue),
    )


def _stopped_rows(view: FleetRecord) -> Iterator[tuple[str, MemberRow]]:
    """Yield the members that need no look, the last one that stopped first."""
    members: tuple[OrchestratorRecord | WorkerRecord, ...] = (*view.orchestrators, *view.workers)
    stopped = [one for one in members if is_settled(one)]
    for one in sorted(stopped, key=left_seconds):
        if isinstance(one, WorkerRecord):
            yield "worker", _worker_row(one)
        else:
            yield "orchestrator", _orchestrator_row(one)


def _orchestrator_row(one: OrchestratorRecord) -> MemberRow:
    left = one.left
    sentence = ""
    if left is not None and left.jobs:
        parts = [
            (left.owned_again, "owned again"),
            (left.unowned, "without owner"),
            (left.not_reclaimed, "not reclaimed yet"),
            (left.reassigned, "finished since"),
        ]
        sentence = f"left {format_count(left.jobs, 'job')}: {_counted(parts)}"
    return MemberRow(
        member_id=one.orchestrator_id,
        place=one.place,
        version=one.version,
        state=_state(one),
        **_lease(one),
        **_drain(one, one.orchestrator_id),
        held=f"{one.jobs:,}",
        held_percent=0,
        holds=format_count(one.jobs, "job"),
        queues=(),
        counts=_counts(
            one,
            ("turns", "turn", "turns"),
            ("results", "result", "results"),
            ("jobs_finished", "job finished", "jobs finished"),
        ),
        left=sentence,
        left_href="",
        tasks_href="",
    )


def _worker_row(one: WorkerRecord) -> MemberRow:
    sentence, href = "", ""
    if one.left is not None and one.left.tasks:
        parts = [
            (one.left.not_reclaimed, "not reclaimed yet"),
            *((count, name) for name, count in one.left.now.items()),
        ]
        sentence = f"left {format_count(one.left.tasks, 'task')}: {_counted(parts)}"
        if one.left.alone_with is not None:
            sentence = f"died while it ran only {one.left.alone_with.node_id}"
            href = job_path(one.left.alone_with.job_id, "nodes", one.left.alone_with.node_id)
        elif one.left.crashed:
            sentence += f"; crashed since: {format_list([node.node_id for node in one.left.crashed])}"
            href = job_path(one.left.crashed[0].job_id, "nodes", one.left.crashed[0].node_id)
    return MemberRow(
        member_id=one.worker_id,
        place=one.place,
        version=one.version,
        state=_state(one),
        **_lease(one),
        **_drain(one, one.worker_id),
        held=f"{one.running:,}/{one.concurrency:,}",
        held_percent=_percent(one.running, one.concurrency),
        holds=f"{one.running} of {one.concurrency} slots busy,"
        f" {format_count(one.prefetched, 'task')} prefetched",
        queues=one.queues,
        counts=_counts(one, ("completed", "completed", "completed"), ("failed", "failed", "failed")),
        left=sentence,
        left_href=href,
        tasks_href=with_query("/ui/tasks", worker_id=one.worker_id) if one.is_alive else "",
    )


def state_word(one: OrchestratorRecord | WorkerRecord) -> str:
    if not one.is_alive:
        return "died" if one.has_died else "stopped"
    if one.is_draining:
        return "drained" if one.is_drained else "draining"
    return "busy" if isinstance(one, WorkerRecord) and one.running else "alive"


def _state(one: OrchestratorRecord | WorkerRecord) -> MemberState:
    word = state_word(one)
    return MemberState(word, *LOOKS[word])


def _has_claiming(members: Sequence[OrchestratorRecord | WorkerRecord]) -> bool:
    return any(one.is_alive and not one.is_draining for one in members)


def _drain(one: OrchestratorRecord | WorkerRecord, member_id: str) -> dict[str, Any]:
    """Return the button that drains a live member or undrains it; none while it stops by itself."""
    word, note = "Drain", ""
    if one.drain is not None:
        word = "Undrain"
        is_late = not one.drain.is_seen and one.drain.requested_seconds > one.lease_seconds
        note = f"asked {age(one.drain.requested_seconds)} ago"
        if is_late:
            note = "does not answer: an older version"
    has_button = one.is_alive and (one.drain is not None or not one.is_draining)
    href = f"/ui/fleet/{member_id}/{word.lower()}" if has_button else ""
    return {"drain_word": word, "drain_href": href, "drain_note": note}


def _lease(one: OrchestratorRecord | WorkerRecord) -> dict[str, Any]:
    part = one.silent_seconds / one.lease_seconds if one.lease_seconds else 1.0
    return {
        "heartbeat": f"{age(max(one.silent_seconds, 0.0))} ago",
        "lease": max(0, 100 - round(part * 100)) if one.is_alive else 0,
        "lease_tone": "ok" if part < _LATE else "warning",
        "uptime": age(one.age_seconds) if one.is_alive else f"{age(left_seconds(one))} ago",
    }


def _counts(
    one: OrchestratorRecord | WorkerRecord, *names: tuple[str, str, str]
) -> tuple[tuple[str, str], ...]:
    """Return counters that the member has, each with its word: older versions do not count everything."""
    counted = [(one.counters.get(name), words) for name, *words in names]
    return tuple((f"{count:,}", words[count != 1]) for count, words in counted if isinstance(count, int))


def _counted(parts: list[tuple[int, str]]) -> str:
    return ", ".join(f"{count:,} {word}" for count, word in parts if count)


def _percent(part: float, whole: float) -> int:
    return round(min(part / whole, 1.0) * 100) if whole else 0
