"""Format values, times and durations for a terminal."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Final

from dagmaster.ports.recycle_reasons import EXIT_SENTENCES
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from dagmaster.json_types import JsonValue

DIM: Final = "bright_black"
_SECONDS_A_MINUTE: Final = 60
_HOURS_A_DAY: Final = 24
_EXACT_RATE: Final = 10
"""Lower rates have a decimal."""


def duration(seconds: float) -> str:
    """Format a duration in its two largest units."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _SECONDS_A_MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), _SECONDS_A_MINUTE)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, _HOURS_A_DAY)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def format_rate(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= _EXACT_RATE else f"{rate:.1f}/s"


def format_exit(code: int) -> str:
    """Format how a process ended; `code` is that of `subprocess`."""
    if code in EXIT_SENTENCES:
        return f"{EXIT_SENTENCES[code]} and exited with code {code}"
    return f"exited with code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"


def local_time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def value_lines(title: str, value: JsonValue, max_length: int) -> Iterator[RenderableType]:
    """Draw a JSON value below a title; a long one is cut."""
    from rich.padding import Padding
    from rich.text import Text

    text = json.dumps(value, ensure_ascii=False, indent=2)
    if len(text) > max_length:
        text = f"{text[:max_length]}… ({format_count(len(text), 'character')}: --json shows all)"
    yield Text(f"\n{title}", style=DIM)
    yield Padding(Text(text), (0, 0, 0, 2), expand=False)
