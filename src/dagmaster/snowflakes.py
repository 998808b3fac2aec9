"""Snowflake ids: 41 bits of milliseconds, 10 of machine, 12 of sequence. They are shown as decimal strings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.ports.ids import EPOCH_MS

if TYPE_CHECKING:
    from dagmaster.ports.clock import Clock

_MACHINES: Final = 1 << 10
_SEQUENCES: Final = 1 << 12


def time_of(number: str) -> float:
    """Return when an id was made, in seconds since the epoch."""
    return ((int(number) >> 22) + EPOCH_MS) / 1000


class Snowflakes:
    """Generates ids that increase with time. A burst uses up ids of the following milliseconds instead of waiting."""

    def __init__(self, clock: Clock, machine: int = 0) -> None:
        if not 0 <= machine < _MACHINES:
            raise ValueError(f"a machine id is between 0 and {_MACHINES - 1}, not {machine}")
        self._clock = clock
        self._machine = machine
        self._next = 0

    def new(self) -> str:
        """Return the next id."""
        ticks = (int(self._clock.now() * 1000) - EPOCH_MS) * _SEQUENCES
        self._next = max(self._next + 1, ticks)
        moment, sequence = divmod(self._next, _SEQUENCES)
        return str((moment * _MACHINES + self._machine) * _SEQUENCES + sequence)
