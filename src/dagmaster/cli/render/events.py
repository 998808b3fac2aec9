"""Format an event as a line."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from dagmaster.ports.audit_events import EventType
from dagmaster.sdk.terminal import style

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from dagmaster.application.views import EventView

_COLOURS: Final[dict[str, str]] = {
    EventType.NODE_COMPLETED: "green",
    EventType.NODE_FAILED: "red",
    EventType.ATTEMPT_FAILED: "yellow",
    EventType.ATTEMPT_LOST: "yellow",
    EventType.NODE_CANCELLED: "yellow",
    EventType.CANCEL_REQUESTED: "yellow",
    EventType.NODE_CANCEL_REQUESTED: "yellow",
    EventType.COMMAND_REJECTED: "yellow",
    EventType.APPROVAL_REQUESTED: "magenta",
    EventType.NODE_WAITING: "magenta",
}
_FINISHED_COLOURS: Final = {"COMPLETED": "green", "FAILED": "red"}
_WIDTH: Final = max(len(kind.value) for kind in EventType)


def event_line(event: EventView) -> str:
    """Format an event: number, local time, type, sentence."""
    at = time.strftime("%H:%M:%S", time.localtime(event.at)) + f".{int(event.at % 1 * 1000):03d}"
    number = style(f"{event.seq:>5}", fg="bright_black")
    kind = style(event.type.ljust(_WIDTH), fg=event_colour(event.type, event.data))
    return f"{number}  {at}  {kind}  {event.sentence}"


def event_colour(event_type: str, data: Mapping[str, Any]) -> str | None:
    if event_type == EventType.JOB_FINISHED:
        return _FINISHED_COLOURS.get(str(data.get("status")), "yellow")
    return _COLOURS.get(event_type)
