"""Administration of a database in memory: an audit of its events, and its metrics counted again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.ports.invariant_audit import AuditBatch, AuditedRows, AuditPosition, Violation
from dagmaster.ports.metric_rebuild import CountedJobs
from dagmaster.store.memory.metrics import roll_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.output_names import OutputName
    from dagmaster.store.memory.database import MemoryDatabase, StoredJob

JOBS_AT_ONCE: Final = 1_000
_RULE: Final = "The events of a job are numbered from 1 to its event_seq, and none is missing."


class MemoryInvariantAuditor:
    """Checks that no event is missing. What else could be wrong in memory, the simulation's oracle checks."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def count_jobs(self) -> int:
        return len(self._database.jobs)

    async def check(self, position: AuditPosition | None = None, *, job_id: str | None = None) -> AuditBatch:
        start = 0 if position is None else position.start
        ids = sorted(number for number in map(int, self._database.jobs) if number >= start)
        if job_id is not None:
            ids = [number for number in ids if number == int(job_id)]
        jobs = [self._database.jobs[str(number)] for number in ids[:JOBS_AT_ONCE]]
        following = None if len(ids) <= JOBS_AT_ONCE else AuditPosition(AuditedRows.JOBS, ids[JOBS_AT_ONCE])
        return AuditBatch(
            jobs=len(jobs),
            nodes=sum(len(job.nodes) for job in jobs),
            events=sum(len(job.events) for job in jobs),
            invariants=1,
            violations=[violation for job in jobs if (violation := _missing_events(job)) is not None],
            next_position=following,
        )

    async def newer_outputs(self, outputs: Sequence[OutputName]) -> Sequence[Violation]:
        """Return none: outputs in memory and their rows end together."""
        del outputs
        return ()


def _missing_events(job: StoredJob) -> Violation | None:
    numbers = [event.seq for event in job.events]
    if numbers == list(range(1, len(numbers) + 1)):
        return None
    return Violation("events_have_no_gaps", _RULE, job.new.id, None, f"has the events {numbers[:100]}")


class MemoryMetricRebuilder:
    """Counts all finished jobs again."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def start(self) -> int:
        """Forget all samples, and queue every finished job."""
        database = self._database
        database.metric_samples.clear()
        finished = [job for job in database.jobs.values() if job.finished_at is not None]
        database.metric_pending.clear()
        database.metric_pending.update({(job.new.id, job.row.run): None for job in finished})
        return 1

    async def count(self, rebuild: int) -> CountedJobs:  # noqa: ARG002 - there is one process
        counted = roll_up(self._database, len(self._database.metric_pending))
        return CountedJobs(counted, 0, is_last=True)
