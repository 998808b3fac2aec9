"""Points in time and durations, as pages show them. Scripts let them tick."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from dagmaster.text_format import age, format_rfc3339

_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
NOTHING: Final = "\N{EN DASH}"
"""What stands where there is no value."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time: for programs, exactly, and how long ago."""

    iso: str
    absolute: str
    relative: str


@dataclass(frozen=True, slots=True)
class Duration:
    """How long something took; `since`: it still goes on, and began then."""

    text: str
    seconds: float
    since: str = ""


def moment(at: float | None, now: float) -> Moment | None:
    if at is None:
        return None
    seconds = now - at
    relative = f"{age(seconds)} ago" if seconds >= 0 else f"in {age(-seconds)}"
    return Moment(
        format_rfc3339(round(at, 3)), f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC", relative
    )


def duration(began: float | None, ended: float | None, now: float) -> Duration | None:
    """Return how long something took, or has taken so far; None before it began."""
    if began is None:
        return None
    seconds = max((now if ended is None else ended) - began, 0.0)
    return Duration(
        format_seconds(seconds), seconds, format_rfc3339(round(began, 3)) if ended is None else ""
    )


def format_seconds(seconds: float) -> str:
    """Format a duration in its two largest units: 340 ms, 1.2 s, 3 min 12 s, 2 h 05 min, 3 d 4 h."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:  # noqa: PLR2004 - below it a decimal says something
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02d} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02d} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def format_optional(seconds: float | None) -> str:
    """Format a duration; a dash for None."""
    return NOTHING if seconds is None else format_seconds(seconds)
