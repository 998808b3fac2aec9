"""The names of queues: one rule for workflow files, Python code, settings, commands and the API.

A list of queues is written with commas, `*` means all of them, and a name stands in logs, metrics and
commands: so it has no spaces, commas, stars or control characters.
"""

from __future__ import annotations

import re
from typing import Final

MAX_QUEUE: Final = 128
QUEUE_PATTERN: Final = r"^[^\s,*\x00-\x1f\x7f-\x9f]+$"
QUEUE_RULE: Final = (
    f"a name of at most {MAX_QUEUE} characters, without spaces, commas, * and control characters"
)

_NAME: Final = re.compile(QUEUE_PATTERN)


def is_queue_name(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_QUEUE and _NAME.fullmatch(value) is not None
