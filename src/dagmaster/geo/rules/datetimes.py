"""Datetimes and intervals as STAC and RFC 3339 write them, and as users write them."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta
from typing import Final

from dagmaster.errors import invalid_input
from dagmaster.text_format import format_count, library_words

Interval = tuple[datetime | None, datetime | None]
"""Start and end, both inclusive. None: open."""

_DATETIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?(?P<zone>[Zz]|[+-]\d\d:?\d\d)?")
_DATE: Final = re.compile(r"(\d{4})(?:-(\d\d))?(?:-(\d\d))?")
"""A day, a month or a year."""


def parse_datetime(text: object, label: str = "the datetime") -> datetime:
    """Parse an RFC 3339 datetime and convert it to UTC. Errors name it by `label`."""
    match = _DATETIME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise invalid_input(f"{label} is {text!r:.80}: write it as 2026-11-16T05:00:00Z")
    if match["zone"] is None:
        raise invalid_input(f"{label} has no time zone, {text!r}: write {text}Z if it is UTC")
    try:
        return datetime.fromisoformat(match[0].upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise invalid_input(
            f"{label} is {text!r:.80}, which is not in the calendar: correct"
            f" it{library_words('Python', error)}"
        ) from None


def format_datetime(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def normalize_datetime(text: str) -> str:
    """Convert a user's datetime to RFC 3339 in UTC.

    A day, a month or a year means its first moment; a datetime without a time zone is UTC.
    """
    try:
        if _DATE.fullmatch(text.strip()) and (start := _interval_end(text.strip(), is_last=False)):
            return format_datetime(start)
        value = datetime.fromisoformat(text.strip())
        return format_datetime(value.replace(tzinfo=UTC) if value.tzinfo is None else value)
    except (ValueError, OverflowError):
        raise invalid_input(
            f"{text[:60]!r} is not a datetime: write it as 2001-07-13T10:00:00Z, 2001-07-13, 2001-07 or 2001"
        ) from None


def parse_interval(text: str) -> Interval:
    """Parse STAC's `datetime` parameter: one datetime, or `start/end`, where `..` or nothing is open.

    A date, a month (2026-11) or a year covers all of its days.
    """
    ends = [part.strip() for part in text.split("/")]
    if len(ends) > 2:  # noqa: PLR2004 - start and end
        raise invalid_input(
            f"{text!r} has {format_count(len(ends), 'part')}: write one datetime, or start/end"
        )
    start, end = _interval_end(ends[0], is_last=False), _interval_end(ends[-1], is_last=True)
    if start is None and end is None:
        raise invalid_input(
            f"{text!r} is open at both ends: name one, as 2026-01-01/.. or ../2026-12-31, or leave it out"
        )
    if start is not None and end is not None and start > end:
        raise invalid_input(f"{text!r} ends before it starts: write the earlier one first")
    return start, end


def _interval_end(text: str, *, is_last: bool) -> datetime | None:
    if text in ("", ".."):
        return None
    match = _DATE.fullmatch(text)
    if match is None:
        return parse_datetime(text)
    year, month, day = match.groups()
    start = parse_datetime(f"{year}-{month or '01'}-{day or '01'}T00:00:00Z", repr(text))
    if not is_last:
        return start
    if day is not None:
        return start + timedelta(days=1, microseconds=-1)
    last_month = start.replace(month=12) if month is None else start
    last_day = last_month.replace(day=monthrange(last_month.year, last_month.month)[1])
    return last_day + timedelta(days=1, microseconds=-1)
