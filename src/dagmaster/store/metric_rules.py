"""The rules of metrics that both stores share; migration 0004 of the schema has the same in SQL."""

from __future__ import annotations

import math
import re
from typing import Final

GROWTH: Final = 1.02
MAX_MESSAGE: Final = 300
ROLL_UP_JOBS: Final = 200
"""How many jobs one roll-up counts at most."""

_REPLACEMENTS: Final = (
    (re.compile(r"""[A-Za-z][A-Za-z0-9+.-]*://[^ \t\n'"<>]+"""), "<uri>"),
    (re.compile(r"""(^|[ \t\n'"(=])/[^ \t\n'",;:)]+"""), r"\1<path>"),
    (
        re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|0x[0-9a-fA-F]+|[0-9a-fA-F]{16,}"),
        "<id>",
    ),
    (re.compile(r"[0-9]+([.][0-9]+)?"), "<n>"),
)


def duration_bin(seconds: float | None) -> int:
    """Return the bin of a duration; -1 for what never started."""
    if seconds is None:
        return -1
    milliseconds = seconds * 1000
    return 0 if milliseconds <= 1 else math.ceil(math.log(milliseconds) / math.log(GROWTH))


def bin_seconds(number: int) -> float:
    """Return the duration that stands for a bin: the harmonic mean of its bounds, at most 1 % from each."""
    return 2.0 * GROWTH**number / (1 + GROWTH) / 1000


def failure_message(message: str) -> str:
    """Return a message without what differs from job to job, so that equal failures are one group."""
    for pattern, replacement in _REPLACEMENTS:
        message = pattern.sub(replacement, message)
    return message[:MAX_MESSAGE]


def top_node(node_id: str) -> str:
    """Return the node of the workflow that a node belongs to: the fan-out of a child."""
    return node_id.partition("__")[0]
