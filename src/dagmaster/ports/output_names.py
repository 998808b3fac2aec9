"""The names of large outputs. A name says which attempt or turn wrote the blob, to compare it with rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_SMALLEST_TOKEN: Final = 1 << 32
"""A token is a Snowflake, and over this; no job has as many events."""
_MAX_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class OutputName:
    """What a name says. `number`, `sequence`: attempt and token of a task, or epoch and event of a turn."""

    job_id: str
    path: str
    number: int
    sequence: int

    @property
    def is_attempt(self) -> bool:
        """Tell an output that a worker wrote from a value that an orchestrator wrote."""
        return self.sequence >= _SMALLEST_TOKEN

    def __str__(self) -> str:
        return f"jobs/{self.job_id}/{self.path}/{self.number}-{self.sequence}.json"


def parse_output_name(name: str) -> OutputName | None:
    """Return what a name says; None for a name that no service gives."""
    match name.removesuffix(".json").split("/"):
        case ["jobs", job_id, path, numbers]:
            number, _, sequence = numbers.partition("-")
            if all(
                part.isascii() and part.isdigit() and len(part) <= _MAX_DIGITS
                for part in (job_id, number, sequence)
            ):
                return OutputName(job_id, path, int(number), int(sequence))
    return None
