"""Points in time as people write them in filters."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_SPAN: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([smhdw])")
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_time(text: str, now: float) -> float:
    """Parse a time span before now (90s, 15m, 2h, 1d, 1w), or an ISO 8601 date or time, by default local.

    Raise `ValueError` with a sentence for people.
    """
    span = _SPAN.fullmatch(text.strip())
    if span is not None:
        return now - float(span[1]) * _UNIT_SECONDS[span[2]]
    try:
        return datetime.fromisoformat(text.strip()).astimezone(UTC).timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{text[:100]!r} is not a time: write a span before now (90s, 15m, 2h, 1d, 1w), a date"
            " (2026-11-16) or a time (2026-11-16T08:30:00Z)"
        ) from error
