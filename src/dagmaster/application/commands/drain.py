"""Drain an orchestrator or a worker: it claims nothing more, and lets go of what it holds. And the way back.

The request is stored with the registration of the service. From then on its claims take nothing; the service
itself learns it with its next heartbeat, for which it is notified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.application.commands.sending import check_sender
from dagmaster.application.left_services import left_seconds
from dagmaster.application.queries.fleet import fleet
from dagmaster.application.views.results import DrainResult
from dagmaster.errors import CommandInvalid, DrainRejected, ServiceNotFound
from dagmaster.ports.run_queues import is_run_queue
from dagmaster.records.fleet import OrchestratorRecord, WorkerRecord
from dagmaster.text_format import age, format_count, format_list, format_seconds

if TYPE_CHECKING:
    from dagmaster.application.context import Application
    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.records.fleet import FleetRecord

MAX_GRACE_SECONDS: Final = 86_400.0
"""No task runs for longer than a day."""


async def drain_service(
    app: Application, service: str, *, sent_by: str, grace_seconds: float | None = None
) -> DrainResult:
    """Ask a live orchestrator or worker, by its id or its HOST:PID, to drain.

    An orchestrator releases its jobs to the others at once. A worker lets running tasks finish, for
    `grace_seconds` if given; then it asks them to save a checkpoint, and releases them.
    """
    check_sender(sent_by)
    if grace_seconds is not None and not 0 <= grace_seconds <= MAX_GRACE_SECONDS:
        raise CommandInvalid(f"the grace period has 0 to {format_seconds(MAX_GRACE_SECONDS)}")
    view = await fleet(app)
    member = find_live_service(view, service)
    _check_drainable(view, member)
    if grace_seconds is not None and isinstance(member, OrchestratorRecord):
        raise CommandInvalid(
            "an orchestrator has no grace period: it releases its jobs at once. Drain it without one"
        )
    details = {} if grace_seconds is None else {"grace_seconds": grace_seconds}
    entries = _audit_entries(app, member, "drain", sent_by, **details)
    if not await app.client.drain(get_id(member), grace_seconds=grace_seconds, audit=entries):
        raise DrainRejected(f"{format_name(member)} has stopped a moment ago")
    return _result(member, is_draining=True, sentence=_describe_drain(view, member, grace_seconds))


async def undrain_service(app: Application, service: str, *, sent_by: str) -> DrainResult:
    check_sender(sent_by)
    member = find_live_service(await fleet(app), service)
    entries = _audit_entries(app, member, "undrain", sent_by)
    if await app.client.undrain(get_id(member), audit=entries):
        return _result(member, is_draining=False, sentence=f"{format_name(member)} claims again")
    if member.is_draining:
        raise DrainRejected(f"{format_name(member)} stops, and nothing asked it to drain: start another one")
    return _result(
        member, is_draining=False, sentence=f"{format_name(member)} does not drain; nothing was changed"
    )


# ── Services ──


def find_live_service(view: FleetRecord, service: str) -> OrchestratorRecord | WorkerRecord:
    """Return a live service by id or HOST:PID; raise `ServiceNotFound`, or `DrainRejected` if it ended."""
    members: tuple[OrchestratorRecord | WorkerRecord, ...] = (*view.orchestrators, *view.workers)
    matching = [one for one in members if service in (get_id(one), one.place)]
    alive = [one for one in matching if one.is_alive]
    if len(alive) > 1:
        names = format_list([f"{get_kind(one)} {get_id(one)}" for one in alive])
        raise DrainRejected(f"{service} is more than one service: name the id of {names}")
    if alive:
        return alive[0]
    if matching:
        gone = min(matching, key=left_seconds)
        verb = "died" if gone.has_died else "stopped"
        raise DrainRejected(
            f"{format_name(gone)} {verb} {age(left_seconds(gone))} ago: there is nothing to drain"
        )
    raise ServiceNotFound(
        f"there is no orchestrator or worker {service!r}; `dagmaster fleet --json` lists the ones of the last"
        " hour"
    )


def get_kind(member: OrchestratorRecord | WorkerRecord) -> str:
    return "worker" if isinstance(member, WorkerRecord) else "orchestrator"


def get_id(member: OrchestratorRecord | WorkerRecord) -> str:
    return member.worker_id if isinstance(member, WorkerRecord) else member.orchestrator_id


def format_name(member: OrchestratorRecord | WorkerRecord) -> str:
    return f"{get_kind(member)} {member.place}"


def describe_holds(member: OrchestratorRecord | WorkerRecord) -> str:
    noun = "task" if isinstance(member, WorkerRecord) else "job"
    return format_count(member.held_count, noun) if member.held_count else f"no {noun}"


def _check_drainable(view: FleetRecord, member: OrchestratorRecord | WorkerRecord) -> None:
    """Raise `DrainRejected` for a service of a `run`: no other one takes over its job."""
    processes = {(one.host, one.pid) for one in view.workers if any(map(is_run_queue, one.queues))}
    if (member.host, member.pid) in processes:
        raise DrainRejected(
            f"{format_name(member)} belongs to a `dagmaster run`, which ends with its job: cancel the job,"
            " or stop the run"
        )


def describe_lack(view: FleetRecord, member: OrchestratorRecord | WorkerRecord) -> str:
    """Return what waits because no other service of this kind claims, for a sentence; nothing if one does."""
    is_worker = isinstance(member, WorkerRecord)
    others = [one for one in (view.workers if is_worker else view.orchestrators) if one != member]
    if any(one.is_alive and not one.is_draining for one in others):
        return ""
    return f"No other {get_kind(member)} claims: {'tasks' if is_worker else 'jobs'} wait until one starts"


def _describe_drain(
    view: FleetRecord, member: OrchestratorRecord | WorkerRecord, grace_seconds: float | None
) -> str:
    if isinstance(member, OrchestratorRecord):
        effect = f"it claims no more jobs, and releases what it owns: {describe_holds(member)}"
    else:
        limit = (
            f", for {age(grace_seconds)} at most" if grace_seconds is not None and member.held_count else ""
        )
        effect = f"it claims no more tasks, and holds {describe_holds(member)}{limit}"
    lack = describe_lack(view, member)
    return f"{format_name(member)} drains: {effect}{lack and f'. {lack}'}"


def _audit_entries(
    app: Application, member: OrchestratorRecord | WorkerRecord, verb: str, sent_by: str, **details: float
) -> list[AuditEntry]:
    if app.origin is None:
        return []
    kind, where = get_kind(member), {"where": member.place}
    return [app.origin.entry(f"{kind}.{verb}", kind, get_id(member), {**where, **details}, actor=sent_by)]


def _result(member: OrchestratorRecord | WorkerRecord, *, is_draining: bool, sentence: str) -> DrainResult:
    return DrainResult(
        service_id=get_id(member),
        kind=get_kind(member),
        is_draining=is_draining,
        held_count=member.held_count,
        sentence=sentence,
    )
