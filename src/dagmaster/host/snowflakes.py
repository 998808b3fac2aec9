"""Snowflake ids: 41 bits of milliseconds, 10 of machine, 12 of sequence.

They are shown as decimal strings.
"""

from __future__ import annotations

import os
import random
import threading
import time
from typing import TYPE_CHECKING, Final

from dagmaster.ports.ids import EPOCH_MS

if TYPE_CHECKING:
    from dagmaster.ports.clock import Clock

_MACHINES: Final = 1 << 10
_SEQUENCES: Final = 1 << 12
LEASED_MACHINES: Final = 960
"""Machine ids below this are leased by the store. Those from here on are for ids that are made without a
store."""


def time_of(number: str) -> float:
    return ((int(number) >> 22) + EPOCH_MS) / 1000


class Snowflakes:
    """Generates ids that increase with time.

    A burst uses up ids of the following milliseconds instead of waiting.
    """

    def __init__(self, clock: Clock, machine: int = 0) -> None:
        if not 0 <= machine < _MACHINES:
            raise ValueError(f"a machine id is between 0 and {_MACHINES - 1}, not {machine}")
        self._clock = clock
        self._machine = machine
        self._next = 0

    def new(self) -> str:
        ticks = (int(self._clock.now() * 1000) - EPOCH_MS) * _SEQUENCES
        self._next = max(self._next + 1, ticks)
        moment, sequence = divmod(self._next, _SEQUENCES)
        return str((moment * _MACHINES + self._machine) * _SEQUENCES + sequence)


class UnleasedSnowflakes:
    """Generates ids without a store, for tasks and groups of Python code. It may be called on any thread.

    The machine id and the place within a millisecond are chosen at random. Two processes can make the same
    id, if both are so and they make ids at the same moment: a store rejects the second one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reseed()

    def reseed(self) -> None:
        """Choose another machine id, as a forked process has to."""
        self._lock = threading.Lock()
        chance = random.SystemRandom()
        self._machine = chance.randrange(LEASED_MACHINES, _MACHINES) << 12
        self._offset = chance.randrange(_SEQUENCES)
        self._next = 0
        self._millisecond = -1
        self._block = iter(range(0))

    def new(self) -> int:
        # Most ids are the next of the block of this millisecond: an iterator in C needs no lock.
        if time.time_ns() // 1_000_000 == self._millisecond:
            number = next(self._block, None)
            if number is not None:
                return number
        return self._first_of_new_block()

    def _first_of_new_block(self) -> int:
        with self._lock:
            millisecond = time.time_ns() // 1_000_000
            first = max(((millisecond - EPOCH_MS) << 12) + self._offset, self._next)
            moment, sequence = divmod(first, _SEQUENCES)
            self._next = (moment + 1) * _SEQUENCES
            number = (moment << 22) | self._machine | sequence
            block = iter(range(number + 1, number + _SEQUENCES - sequence))
            self._block, self._millisecond = block, millisecond
        return number


TASK_IDS: Final = UnleasedSnowflakes()
"""The ids of tasks and groups that are made in this process."""
os.register_at_fork(after_in_child=TASK_IDS.reseed)
