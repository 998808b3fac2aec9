"""Workflows: the list, how jobs do, the definition, versions and their difference, and which one is active."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from dagmaster.ports.api_keys import Scope
from dagmaster.store.memory.metrics import roll_up
from dagmaster.store.memory.read_store import MemoryReadStore
from dagmaster.ui.pages.workflow import MAX_LINES
from dagmaster.ui.pages.workflow_rows import success_rate, workflow_path
from tests.unit.application.memory_application import finished
from tests.unit.ui.page_client import opened_pages, text_of

if TYPE_CHECKING:
    from tests.unit.ui.page_client import Pages

SLOW = """
workflow_id: slow
version: 1
name: Slow one
tags: [demo]
inputs: {token: {type: string, secret: true, default: hunter2-canary}}
nodes:
  first: {handler: greet, params: {name: "<b>bold</b>"}}
"""


async def run_one(pages: Pages) -> str:
    job_id: str = (await pages.api.post("/api/v1/jobs", {"workflow_id": "slow"})).json()["job_id"]
    await finished(pages.api.application, job_id)
    assert isinstance(pages.api.application.read, MemoryReadStore)
    roll_up(pages.api.application.read._database, 10)
    return job_id


def test_the_list_shows_versions_success_and_the_last_job():
    async def main() -> None:
        async with opened_pages() as pages:
            assert "No workflow is published" in text_of((await pages.get("/ui/workflows")).text)
            await pages.api.publish(SLOW)
            assert "never ran" in text_of((await pages.get("/ui/workflows")).text)
            job_id = await run_one(pages)
            answer = await pages.get("/ui/workflows")
            assert f"/ui/jobs/{job_id}" in answer.text
            assert "Slow one demo v1 1 1 100 %" in text_of(answer.text)
            assert "slow" in (await pages.get("/ui/workflows?tag=demo")).text
            assert "No workflow has this tag" in (await pages.get("/ui/workflows?tag=other")).text

    asyncio.run(main())


def test_a_workflow_shows_numbers_nodes_and_jobs():
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish(SLOW)
            assert "It never ran" in text_of((await pages.get("/ui/workflows/slow")).text)
            job_id = await run_one(pages)
            text = text_of((await pages.get("/ui/workflows/slow")).text)
            assert "1 completed, 0 failed, 0 cancelled" in text
            assert "Show as a table" in text
            assert "first 1" in text
            assert job_id in text
            assert "No failures" in text
            assert (await pages.get("/ui/workflows/unknown")).status_code == 404
            assert (await pages.get("/ui/workflows/slow?version=9")).status_code == 404

    asyncio.run(main())


def test_the_definition_has_lines_without_secrets_and_markup():
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish(SLOW)
            html = (await pages.get("/ui/workflows/slow/definition")).text
            assert '<span class="line" id="L1">workflow_id: slow' in html
            assert "hunter2-canary" not in html
            assert "&lt;b&gt;bold&lt;/b&gt;" in html
            graph = (await pages.get("/ui/workflows/slow/graph")).text
            assert '<dag-graph src="/api/v1/workflows/slow/graph?version=1">' in graph
            assert "/api/v1/workflows/slow/diagram.svg?version=1" in graph
            assert "first task greet the start" in text_of(graph)

    asyncio.run(main())


def test_two_versions_are_compared_and_an_administrator_chooses_the_active_one():
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish(SLOW)
            assert "There is one version" in (await pages.get("/ui/workflows/slow/versions")).text
            await pages.api.publish(SLOW.replace("version: 1", "version: 2").replace("Slow one", "Slower"))
            text = text_of((await pages.get("/ui/workflows/slow/versions")).text)
            assert "2 changes" in text
            assert "changed name Slow one Slower" in text
            assert (
                "They are the same" in (await pages.get("/ui/workflows/slow/versions?before=1&after=1")).text
            )
            assert "v1 not active" in text_of((await pages.get("/ui/workflows/slow?version=1")).text)
            answer = await pages.post("/ui/workflows/slow/activate", {"version": "1"})
            assert answer.headers["location"] == "/ui/workflows/slow/versions"
            assert "v1 active" in text_of((await pages.get("/ui/workflows/slow")).text)
            for version in ("", "0", "x", "9" * 10, "\u0661"):
                assert (
                    await pages.post("/ui/workflows/slow/activate", {"version": version})
                ).status_code == 400
            assert (await pages.post("/ui/workflows/slow/activate", {"version": "7"})).status_code == 404
            await pages.log_in(Scope.READ)
            html = (await pages.get("/ui/workflows/slow/versions")).text
            assert "Activate" not in html

    asyncio.run(main())


@pytest.mark.parametrize(
    ("rate", "text", "tone"),
    [(1.0, "100 %", "ok"), (0.99999, "99.9 %", "ok"), (0.7, "70.0 %", "warning"), (0.0, "0.0 %", "failed")],
)
def test_a_success_rate_is_full_only_if_nothing_failed(rate, text, tone):
    shown = success_rate(rate)
    assert shown is not None
    assert (shown.text, shown.tone) == (text, tone)
    assert success_rate(None) is None


def test_the_path_of_a_workflow_is_escaped():
    assert (
        workflow_path("a/b?c", "versions", before=None, after=2) == "/ui/workflows/a%2Fb%3Fc/versions?after=2"
    )


@pytest.mark.slow
def test_a_long_definition_is_cut_and_downloaded():
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish(
                SLOW
                + "".join(
                    f"  n{number}: {{handler: greet, params: {{name: x}}}}\n" for number in range(2_600)
                )
            )
            html = (await pages.get("/ui/workflows/slow/definition")).text
            assert html.count('class="line"') == MAX_LINES
            assert "Download all of it" in html

    asyncio.run(main())
