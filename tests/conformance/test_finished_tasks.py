"""Finished tasks across jobs: newest first, by filters, in pages that look at a bounded number of tasks."""

from __future__ import annotations

from typing import Any

from dagmaster.engine.status import AttemptStatus
from dagmaster.ports.finished_tasks import FinishedTaskFilter
from dagmaster.store.memory import finished_task_reader as memory_finished_task_reader
from dagmaster.store.postgres import finished_task_reader
from tests.conformance.test_reads import id_of, tiled


async def test_finished_tasks_are_listed_across_jobs_newest_first(world):
    reader, first, second = await world.reader(), await tiled(world), await tiled(world)
    finished = reader.finished_tasks

    async def tasks_of(**selection):
        page = await finished.page(FinishedTaskFilter(**selection))
        assert page.after is None
        return [
            (record.attempt.job_id, record.attempt.node_id, record.attempt.status) for record in page.records
        ]

    expected = [
        (played.job_id, node_id, AttemptStatus(status))
        for played in (second, first)
        for node_id, status in (("tiles__1", "FAILED"), ("tiles__0", "COMPLETED"), ("plan", "COMPLETED"))
    ]
    assert await tasks_of() == expected
    assert await tasks_of(job_id=first.job_id) == expected[3:]
    failures = await tasks_of(statuses=frozenset({AttemptStatus.FAILED, AttemptStatus.LOST}))
    assert failures == [expected[0], expected[3]]
    assert await tasks_of(worker_id=id_of(first.worker), queue="q") == expected[3:]
    assert await tasks_of(queue="other") == await tasks_of(queue="\0") == await tasks_of(job_id="1") == []
    assert await tasks_of(worker_id="x") == await tasks_of(job_id="9" * 30) == []
    (record,) = (await finished.page(FinishedTaskFilter(), limit=1)).records
    (same,) = [one for one in await reader.attempts(second.job_id, "tiles__1") if one.finished_at is not None]
    assert record.attempt == same
    assert await tasks_of(since=record.position[0] + 1.0) == []
    choices: tuple[dict[str, Any], ...] = ({}, {"job_id": first.job_id})
    for chosen in choices:
        pages, after = [], None
        while True:
            page = await finished.page(FinishedTaskFilter(**chosen), after=after, limit=2)
            pages += [(one.attempt.job_id, one.attempt.node_id) for one in page.records]
            after = page.after
            if after is None:
                break
        assert pages == [entry[:2] for entry in (expected[3:] if chosen else expected)]


async def test_a_page_of_finished_tasks_looks_at_a_bounded_number_and_names_where_to_go_on(
    world, monkeypatch
):
    for module in (finished_task_reader, memory_finished_task_reader):
        monkeypatch.setattr(module, "MAX_SCANNED", 1)
    reader, played = await world.reader(), await tiled(world)
    choices: tuple[dict[str, Any], ...] = ({}, {"job_id": played.job_id})
    for chosen in choices:
        nodes, empty, after = [], 0, None
        for _ in range(6):
            task_filter = FinishedTaskFilter(statuses=frozenset({AttemptStatus.COMPLETED}), **chosen)
            page = await reader.finished_tasks.page(task_filter, after=after, limit=1)
            nodes += [record.attempt.node_id for record in page.records]
            empty += not page.records
            after = page.after
            if after is None:
                break
        assert (nodes, after) == (["tiles__0", "plan"], None)
        assert empty >= 1
