"""Why a worker ends by itself so that its supervisor starts a new one, and the exit codes that say so."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class RecycleReason(StrEnum):
    """What a new process repairs."""

    UNSTOPPABLE = "unstoppable"
    MEMORY = "memory"


EXIT_CODES: Final[Mapping[RecycleReason, int]] = {RecycleReason.UNSTOPPABLE: 80, RecycleReason.MEMORY: 81}
"""No codes of sysexits (64 to 78): a supervisor can tell a recycled worker from a broken one."""

REASON_SENTENCES: Final[Mapping[str, str]] = {
    RecycleReason.UNSTOPPABLE: "could not stop a handler",
    RecycleReason.MEMORY: "reached its memory limit",
}
EXIT_SENTENCES: Final[Mapping[int, str]] = {
    code: REASON_SENTENCES[reason] for reason, code in EXIT_CODES.items()
}
