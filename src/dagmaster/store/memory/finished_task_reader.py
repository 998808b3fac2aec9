"""Finished tasks across jobs in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.ports.finished_tasks import ENDS, MAX_SCANNED, FinishedTaskPage, FinishedTaskRecord
from dagmaster.store.memory.read_rows import attempt_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.ports.finished_tasks import FinishedTaskFilter
    from dagmaster.records.page import Position
    from dagmaster.records.tasks import AttemptRecord
    from dagmaster.store.memory.database import MemoryDatabase


class MemoryFinishedTaskReader:
    """Finished tasks."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def page(
        self, task_filter: FinishedTaskFilter, *, after: Position | None = None, limit: int = 100
    ) -> FinishedTaskPage:
        last = None if after is None else (float(after[0]), _number(after[1]), int(after[2]))
        ends = sorted((end for end in self._ends(task_filter) if last is None or end[0] < last), reverse=True)
        records: list[FinishedTaskRecord] = []
        for (at, job_id, seq), node_id, number in ends[:MAX_SCANNED]:
            attempts = attempt_records(self._database, str(job_id), node_id)
            attempt = next(
                (one for one in attempts if one.attempt == number and one.finished_at is not None), None
            )
            if attempt is not None and _is_selected(attempt, task_filter):
                records.append(FinishedTaskRecord(attempt, (at, str(job_id), seq)))
            if len(records) == limit:
                return FinishedTaskPage(records, records[-1].position)
        if len(ends) < MAX_SCANNED:
            return FinishedTaskPage(records, None)
        at, job_id, seq = ends[MAX_SCANNED - 1][0]
        return FinishedTaskPage(records, (at, str(job_id), seq))

    def _ends(self, task_filter: FinishedTaskFilter) -> Iterator[tuple[tuple[float, int, int], str, int]]:
        """Yield the key, node and attempt of each event that ended an attempt."""
        for job in self._database.jobs.values():
            is_asked_for = (
                not job.new.is_hidden if task_filter.job_id is None else job.new.id == task_filter.job_id
            )
            for event in job.events if is_asked_for else ():
                is_late = task_filter.since is None or event.at > task_filter.since
                if is_late and event.type in ENDS and event.node_id is not None and event.attempt is not None:
                    yield (event.at, int(job.new.id), event.seq), event.node_id, event.attempt


def _is_selected(attempt: AttemptRecord, task_filter: FinishedTaskFilter) -> bool:
    return (
        task_filter.queue in (None, attempt.queue)
        and task_filter.worker_id in (None, attempt.worker_id)
        and (not task_filter.statuses or attempt.status in task_filter.statuses)
    )


def _number(text: object) -> int:
    return int(str(text)) if str(text).isdigit() else 0
