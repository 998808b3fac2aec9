"""The view of all orchestrators together."""

from __future__ import annotations

from dataclasses import dataclass

from dagmaster.records.fleet import OrchestratorRecord
from dagmaster.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchestratorStatusView(Record):
    """What the orchestrators did that are alive or stopped within the last hour, in sum."""

    alive: int
    jobs: int
    unowned_jobs: int
    jobs_claimed: int
    jobs_reclaimed: int
    jobs_finished: int
    turns: int
    results: int
    orchestrators: tuple[OrchestratorRecord, ...]
