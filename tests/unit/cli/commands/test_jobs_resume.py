"""What a dry run of a resume prints."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dagmaster import OrchContext, create_task, get_current_context, run_job_test_async
from dagmaster.application.commands.resume import ResumeRequest, plan_resume
from dagmaster.cli.commands.jobs_control import print_plan
from dagmaster.ui.pages.changes import plan_page

if TYPE_CHECKING:
    import pytest


async def note(value: int) -> int:
    return value


async def split(count: int) -> int:
    await get_current_context().apply([create_task(note, {"value": number}) for number in range(count)])
    return count


def test_nodes_that_may_be_added_again_are_counted_apart(capsys: pytest.CaptureFixture[str]):
    async def plan() -> tuple[Any, Any]:
        async with OrchContext(in_memory=True) as context:
            first = create_task(split, {"count": 4})
            job = await context.create_job("grown", first >> create_task(note, {"value": 0}, name="last"))
            await run_job_test_async(job)
            request = ResumeRequest(sent_by="ada", from_nodes=("split",))
            view = await context.backend.call(plan_resume, str(job.id), request)
            return view, (await context.backend.read_job(str(job.id)))[0]

    view, job = asyncio.run(plan())
    assert len(view.redone) == 6
    print_plan(view, as_json=False)
    printed = capsys.readouterr().out
    assert "redone (2)" in printed
    assert "redone if they are added again (4)" in printed
    assert ", 2 nodes run again, 4 if they are added again, " in plan_page(view, job).summary
