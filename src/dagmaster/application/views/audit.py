"""Views of an audit of the database."""

from __future__ import annotations

from dataclasses import dataclass

from dagmaster.ports.invariant_audit import Violation
from dagmaster.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditBatchView(Record):
    """What one batch of an audit checked.

    `jobs_total`: how many jobs there are to check, in the first batch only.
    """

    jobs_total: int | None
    jobs_checked: int
    nodes_checked: int
    events_checked: int
    invariants_total: int
    violations: tuple[Violation, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditView(Record):
    """What was checked, and every violation that was found."""

    is_valid: bool
    jobs_total: int
    nodes_total: int
    events_total: int
    invariants_total: int
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputAuditView(Record):
    """How many large outputs were compared, and the first ones that are newer than their jobs' rows."""

    is_valid: bool
    outputs_total: int
    violations: tuple[Violation, ...]
