"""The confirmation of a drain, or of its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.application.commands.drain import (
    describe_holds,
    describe_lack,
    find_live_service,
    format_name,
    get_id,
)
from dagmaster.application.views import WorkerRecord

if TYPE_CHECKING:
    from dagmaster.application.views import FleetRecord

GRACE_CHOICES: Final = (
    ("", "until they have finished"),
    ("60", "for 1 minute"),
    ("600", "for 10 minutes"),
    ("3600", "for 1 hour"),
)
"""How long a worker may go on with what it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPage:
    """What a drain does to one service. `choices`: the grace periods, for a worker that holds tasks."""

    title: str
    service_id: str
    place: str
    holds: str
    effect: str
    warning: str
    choices: tuple[tuple[str, str], ...]
    button: str
    is_dangerous: bool
    action: str
    back: str = "/ui/fleet"


def drain_page(view: FleetRecord, service_id: str) -> DrainPage:
    member = find_live_service(view, service_id)
    is_worker = isinstance(member, WorkerRecord)
    if is_worker:
        effect = "It claims no more tasks, finishes those that run, and returns the others to their queues."
    else:
        effect = "It claims no more jobs, and releases its own to the other orchestrators."
    lack = describe_lack(view, member)
    return DrainPage(
        title=f"Drain {format_name(member)}",
        service_id=get_id(member),
        place=member.place,
        holds=f"It holds {describe_holds(member)}.",
        effect=f"{effect} The process stays until it is stopped, and can be undrained.",
        warning=lack and f"{lack}.",
        choices=GRACE_CHOICES if is_worker else (),
        button="Drain",
        is_dangerous=True,
        action=f"/ui/fleet/{get_id(member)}/drain",
    )


def undrain_page(view: FleetRecord, service_id: str) -> DrainPage:
    member = find_live_service(view, service_id)
    return DrainPage(
        title=f"Undrain {format_name(member)}",
        service_id=get_id(member),
        place=member.place,
        holds=f"It holds {describe_holds(member)}.",
        effect=f"It claims {'tasks' if isinstance(member, WorkerRecord) else 'jobs'} again.",
        warning="",
        choices=(),
        button="Undrain",
        is_dangerous=False,
        action=f"/ui/fleet/{get_id(member)}/undrain",
    )
