"""Nodes and tasks across jobs: filters in the address, what is in flight, how long executions took."""

from __future__ import annotations

import asyncio
from typing import Any

from dagmaster.application.views import (
    AttemptRecord,
    AttemptStatus,
    DurationReport,
    FleetRecord,
    NodeStatus,
    Page,
    ProgressRecord,
    TaskRecord,
)
from dagmaster.engine.status import Isolation
from dagmaster.sdk.handler_registry import handler
from dagmaster.store.memory.metrics import roll_up
from dagmaster.store.memory.read_store import MemoryReadStore
from dagmaster.ui.pages.nodes import NodesQuery
from dagmaster.ui.pages.tasks import TasksQuery, tasks_page
from tests.unit.application.memory_application import finished
from tests.unit.ui.page_client import opened_pages, text_of

NO_FLEET = FleetRecord(orchestrators=(), workers=(), queues=(), unowned_jobs=0)
NO_DURATIONS = DurationReport(workflow_id=None, since=0.0, until=1.0, pending_jobs=0, buckets=())
FLOW = """
workflow_id: mixed
version: 1
nodes:
  quick: {handler: quick, next: slow}
  slow: {handler: wait_forever}
"""


@handler("quick", queue="q")
async def quick() -> dict[str, Any]:
    return {}


def a_task(**changes: Any) -> TaskRecord:
    values = {
        "task_id": "9", "job_id": "7", "node_id": "tiles__1", "attempt": 1, "queue": "q", "priority": 0, "handler": "h",
        "isolation": Isolation.SHARED, "status": NodeStatus.RUNNING, "dispatched_at": 90.0, "worker_id": "5",
        "claimed_at": 92.0, "started_at": 93.0, "stop_requested_at": None, "progress": None,
    }  # fmt: skip
    return TaskRecord(**{**values, **changes})


def test_a_task_says_how_long_it_waited_and_runs():
    progress = ProgressRecord(current=3.0, total=4.0, message="tile 3")
    views = (
        a_task(progress=progress),
        a_task(claimed_at=None, started_at=None, worker_id=None, stop_requested_at=99.0),
    )
    page = tasks_page(
        TasksQuery(queue="q"),
        Page(items=views, next_cursor="abc"),
        fleet=NO_FLEET,
        durations=NO_DURATIONS,
        days=7,
        now=100.0,
        cursor=None,
    )
    running, waiting = page.rows
    assert running.waited is not None
    assert running.runs is not None
    assert (running.waited.text, running.runs.text, running.percent) == ("2.0 s", "7.0 s", 75)
    assert waiting.waited is not None
    assert (waiting.waited.text, waiting.runs, waiting.note, waiting.worker_href) == (
        "10 s",
        None,
        "asked to stop",
        "",
    )
    assert running.worker_href == "/ui/tasks?queue=q&worker_id=5"
    assert page.next == "/ui/tasks?queue=q&cursor=abc"


def test_filters_stay_in_the_address():
    query = NodesQuery(statuses=("failed", "running"), workflow_id="a b", top_level=True)
    assert (
        query.path(cursor="x")
        == "/ui/nodes?status=failed&status=running&workflow_id=a+b&top_level=true&cursor=x"
    )
    assert not NodesQuery().is_filtered


def test_nodes_and_tasks_of_all_jobs_are_listed_and_filtered():
    async def main() -> None:
        has_started = asyncio.Event()

        @handler("wait_forever", queue="q")
        async def wait_forever() -> dict[str, Any]:
            has_started.set()
            await asyncio.Event().wait()
            return {}

        async with opened_pages(quick, wait_forever) as pages:
            assert "No node has started yet" in text_of((await pages.get("/ui/nodes")).text)
            assert "No task is in flight" in text_of((await pages.get("/ui/tasks")).text)
            assert "No task has finished yet" in text_of((await pages.get("/ui/tasks?state=finished")).text)
            await pages.api.publish(FLOW)
            job_id = (await pages.api.post("/api/v1/jobs", {"workflow_id": "mixed"})).json()["job_id"]
            await has_started.wait()
            nodes = (await pages.get("/ui/nodes?status=completed")).text
            assert f"/ui/jobs/{job_id}/nodes/quick" in nodes
            assert f"/ui/jobs/{job_id}/nodes/slow" not in nodes
            assert f"/ui/jobs/{job_id}/nodes/slow" in (await pages.get("/ui/tasks?state=claimed")).text
            assert "No task matches" in (await pages.get("/ui/tasks?state=waiting")).text
            assert "No task matches" in (await pages.get("/ui/tasks?queue=other")).text
            assert "No node matches" in (await pages.get("/ui/nodes?workflow_id=other")).text
            await pages.api.post(f"/api/v1/jobs/{job_id}/cancel")
            await finished(pages.api.application, job_id)
            ended = (await pages.get("/ui/tasks?state=finished")).text
            assert ended.index(f"/ui/jobs/{job_id}/nodes/slow") < ended.index(
                f"/ui/jobs/{job_id}/nodes/quick"
            )
            completed = (await pages.get("/ui/tasks?state=completed&queue=q")).text
            assert f"/ui/jobs/{job_id}/nodes/slow" not in completed
            worker_id = (await pages.api.get("/api/v1/tasks/finished")).json()["items"][0]["worker_id"]
            assert "nodes/quick" in (await pages.get(f"/ui/tasks?state=finished&worker_id={worker_id}")).text
            assert "No task matches" in (await pages.get("/ui/tasks?state=finished&worker_id=1")).text
            assert isinstance(pages.api.application.read, MemoryReadStore)
            roll_up(pages.api.application.read._database, 10)
            assert "1 execution: 1 completed, 0 failed" in text_of((await pages.get("/ui/nodes")).text)

    asyncio.run(main())


def test_a_wrong_filter_is_explained_and_stays():
    async def main() -> None:
        async with opened_pages() as pages:
            for path, problem in (
                ("/ui/nodes?status=odd", "not a status of a node"),
                ("/ui/nodes?cursor=odd", "the cursor is damaged"),
                ("/ui/tasks?worker_id=%3Cb%3E", "an id has only digits"),
                ("/ui/tasks?state=odd", "state: one of waiting, claimed, finished"),
                ("/ui/tasks?state=finished&handler=h", "finished tasks are not stored with their handler"),
                ("/ui/tasks?state=finished&job_id=x", "an id has only digits"),
            ):
                answer = await pages.get(path)
                assert answer.status_code == 400, path
                assert problem in answer.text, path
            assert 'value="&lt;b&gt;"' in (await pages.get("/ui/tasks?worker_id=%3Cb%3E")).text

    asyncio.run(main())


def test_a_finished_task_says_how_long_it_waited_and_took_and_why_it_failed():
    view = AttemptRecord(
        job_id="7", node_id="tiles__1", attempt=2, task_id="9", status=AttemptStatus.FAILED, queue="q", worker_id="5",
        worker="host:1", dispatched_at=50.0, claimed_at=51.0, started_at=52.0, finished_at=60.0,
        progress=None, error={"message": "no such tile"}, metrics=None,
    )  # fmt: skip
    query = TasksQuery(state="finished", worker_id="5")
    about: dict[str, Any] = {
        "fleet": NO_FLEET,
        "durations": NO_DURATIONS,
        "days": 7,
        "now": 100.0,
        "cursor": None,
    }
    page = tasks_page(query, Page(items=(view,), next_cursor=None), **about)
    (row,) = page.rows
    assert (row.waited and row.waited.text, row.runs and row.runs.text) == ("2.0 s", "8.0 s")
    assert (row.record.status, row.worker, row.error) == ("FAILED", "host:1", "no such tile")
    assert row.finished is not None
    assert (page.in_flight_href, page.finished_href) == (
        "/ui/tasks?worker_id=5",
        "/ui/tasks?worker_id=5&state=finished",
    )
    empty = tasks_page(query, Page(items=(), next_cursor="abc"), **about)
    assert empty.summary == "None of the 5,000 tasks that finished last: go on with older ones"
