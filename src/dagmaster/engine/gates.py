"""Gates decide when a node may start. They count settled leaves: a leaf costs its depth, never a rescan.

The outcome of a gate does not depend on the order in which its leaves settle: `all_of` is not_taken only once
no leaf is open, because an open leaf may still break the gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.engine.graph import GateKind

if TYPE_CHECKING:
    from dagmaster.engine.graph import FlatGate

# Outcomes are small integers: they index a gate's four counters, and this is the hot path.
OPEN: Final = 0
SATISFIED: Final = 1
NOT_TAKEN: Final = 2
BROKEN: Final = 3


def count(gates: tuple[FlatGate, ...], counts: list[int], gate: int, outcome: int) -> int:
    """Count one settled member of a gate. Return the outcome of the root if that settles it, else OPEN.

    `counts` holds four numbers per gate: its outcome, then how many members are satisfied, not taken, broken.
    """
    while True:
        base = 4 * gate
        if counts[base] != OPEN:
            return OPEN
        counts[base + outcome] += 1
        kind, size, parent = gates[gate]
        outcome = _outcome(
            kind, size, counts[base + SATISFIED], counts[base + NOT_TAKEN], counts[base + BROKEN]
        )
        if outcome == OPEN:
            return OPEN
        counts[base] = outcome
        if parent < 0:
            return outcome
        gate = parent


def _outcome(kind: GateKind, size: int, satisfied: int, not_taken: int, broken: int) -> int:
    if kind is GateKind.ANY:
        if satisfied:
            return SATISFIED
        if not_taken + broken < size:
            return OPEN
        return BROKEN if broken else NOT_TAKEN
    if broken:
        return BROKEN
    if satisfied + not_taken < size:
        return OPEN
    if kind is GateKind.ALL:
        return NOT_TAKEN if not_taken else SATISFIED
    return SATISFIED if satisfied else NOT_TAKEN
