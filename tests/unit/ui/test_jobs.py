"""The list of jobs, the pages of a job and of its nodes, and what can be done with them."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.application.submission import JobRequest, submit_job
from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.ports.api_keys import Scope
from dagmaster.sdk.handler_registry import Registry, handler
from dagmaster.ui.pages.job import TABS
from dagmaster.ui.pages.jobs import JobsQuery
from tests.unit.http.api_client import greet
from tests.unit.ui.page_client import opened_pages, text_of

if TYPE_CHECKING:
    from tests.unit.ui.page_client import Pages

NAME = "<script>alert(1)</script>"
BROKEN = """
workflow_id: broken
version: 1
inputs: {token: {type: string, secret: true, default: s3cret-canary}}
nodes:
  first: {handler: greet, queue: q, params: {name: ada}, next: second}
  second: {handler: crash, queue: q, params: {text: "{{ inputs.token }}"}, retry: none, next: third}
  third: {handler: greet, queue: q, params: {name: bob}}
"""
SIGNAL = """
workflow_id: signal
version: 1
nodes:
  gate: {type: wait, signal: go, next: done}
  done: {handler: greet, queue: q, params: {name: ada}}
"""

GROUPED = """
workflow_id: grouped
version: 1
nodes:
  prepare: {type: group}
  load: {handler: greet, queue: q, params: {name: ada}, group: prepare}
  gate: {type: wait, signal: go, group: prepare, next: load}
  publish: {handler: greet, queue: q, params: {name: bob}, depends_on: prepare}
"""
STUBBORN = """
workflow_id: stubborn
version: 1
nodes:
  work: {handler: stubborn}
"""


@handler("crash", queue="q")
async def crash(text: str) -> dict[str, Any]:
    print(f"about to crash with {text}")  # noqa: T201 - the log of the task
    raise ValueError(f"<b>no</b> {text}")


async def submitted(pages: Pages, workflow_id: str, status: str, **body: Any) -> str:
    """Submit a job and wait until it has a status; return its id."""
    answer = await pages.api.post("/api/v1/jobs", {"workflow_id": workflow_id, **body})
    assert answer.status_code == 202, answer.text
    job_id = str(answer.json()["job_id"])
    await pages.api.until(job_id, status)
    return job_id


async def broken_job(pages: Pages) -> str:
    await pages.api.publish(BROKEN)
    return await submitted(pages, "broken", "FAILED")


def test_the_list_is_filtered_by_its_address_and_shows_what_was_typed():
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish()
            one = await submitted(pages, "hello", "WAITING", name=NAME)
            two = await submitted(pages, "hello", "WAITING", name="other")
            page = (await pages.get("/ui/jobs?text=oth")).text
            assert two in page
            assert one not in page
            assert 'value="oth"' in page
            everything = (
                await pages.get("/ui/jobs?status=waiting&workflow_id=hello&submitted_by=key:ada&since=1h")
            ).text
            assert one in everything
            assert NAME not in everything
            assert "&lt;script&gt;" in everything
            wrong = await pages.get("/ui/jobs?since=yesterday&text=abc")
            assert wrong.status_code == 400
            assert "is not a time" in wrong.text
            assert 'value="abc"' in wrong.text
            assert (await pages.get("/ui/jobs?cursor=nonsense")).status_code == 400
            assert "No job matches" in (await pages.get("/ui/jobs?status=failed")).text

    asyncio.run(main())


def test_a_page_leads_to_the_next_one_with_the_same_filters(monkeypatch):
    from dagmaster.ui.routes import jobs

    monkeypatch.setattr(jobs, "ROWS", 2)

    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish()
            ids = [await submitted(pages, "hello", "WAITING") for _ in range(3)]
            first = (await pages.get("/ui/jobs?status=waiting")).text
            (link,) = re.findall(r'rel="next" href="([^"]+)"', first)
            assert "status=waiting" in link
            second = (await pages.get(link.replace("&amp;", "&"))).text
            assert [ids[0] in text for text in (first, second)] == [False, True]
            assert [ids[2] in text for text in (first, second)] == [True, False]

    asyncio.run(main())


def test_an_address_keeps_every_filter():
    query = JobsQuery(statuses=("failed", "waiting"), texts={"text": "a&b", "since": "1h"})
    assert query.path(cursor="x") == "/ui/jobs?status=failed&status=waiting&text=a%26b&since=1h&cursor=x"
    assert JobsQuery().path() == "/ui/jobs"


def test_a_failed_job_says_why_and_leads_to_the_first_failure():
    async def main() -> None:
        async with opened_pages(crash) as pages:
            job_id = await broken_job(pages)
            html = (await pages.get(f"/ui/jobs/{job_id}")).text
            text = text_of(html)
            assert "ValueError: &lt;b&gt;no&lt;/b&gt; ***" in text, text[:900]
            assert f'href="/ui/jobs/{job_id}/nodes/second"' in html
            assert "First failure" in text
            assert "Resume" in text
            assert "s3cret-canary" not in html
            assert "&lt;b&gt;no&lt;/b&gt;" in html

    asyncio.run(main())


def test_only_a_published_workflow_is_linked_from_the_pages_of_its_jobs():
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish(SIGNAL)
            published = await submitted(pages, "signal", "WAITING")
            graph = compile_text(
                SIGNAL.replace("workflow_id: signal", "workflow_id: unpublished"), handlers=Registry([greet])
            ).graph
            request = JobRequest(graph=graph, submitted_by="ada")
            other = (await submit_job(pages.api.services.application, request)).job_id
            for job_id, name, links in ((published, "signal", True), (other, "unpublished", False)):
                html = (await pages.get(f"/ui/jobs/{job_id}")).text
                assert (f'href="/ui/workflows/{name}"' in html) is links
                assert name in text_of(html)
            assert (await pages.get("/ui/workflows/signal")).status_code == 200

    asyncio.run(main())


def test_a_long_error_of_a_list_can_be_read_to_its_end():
    long = "no data " * 40 + "at the end"

    async def main() -> None:
        async with opened_pages(crash) as pages:
            await pages.api.publish(BROKEN.replace("{{ inputs.token }}", long))
            job_id = await submitted(pages, "broken", "FAILED")
            for path in ("/ui/", "/ui/jobs", f"/ui/jobs/{job_id}"):
                lists = (await pages.get(path)).text.partition("<table")[2]
                opened = re.search(
                    r'<details class="error-line"><summary>.*?at the end</span>', lists, re.DOTALL
                )
                assert opened is not None, path

    asyncio.run(main())


def test_an_element_listens_before_the_page_connects_to_the_stream():
    """Modules run in the order of their tags. A snapshot that came first left a graph of pending nodes."""

    async def main() -> None:
        async with opened_pages(crash) as pages:
            job_id = await broken_job(pages)
            for tab, element in (("", "dag-graph"), ("/timeline", "job-timeline"), ("/map", "job-map")):
                text = (await pages.get(f"/ui/jobs/{job_id}{tab}")).text
                assert text.index(f"/elements/{element}.js") < text.index("/job.js"), tab

    asyncio.run(main())


def test_every_tab_is_a_separate_page_and_hides_secrets():
    async def main() -> None:
        async with opened_pages(crash) as pages:
            job_id = await broken_job(pages)
            for name, _, _ in TABS[1:]:
                answer = await pages.get(f"/ui/jobs/{job_id}/{name}")
                assert answer.status_code == 200, name
                assert "s3cret-canary" not in answer.text, name
                assert 'aria-current="page"' in answer.text, name
            events = text_of((await pages.get(f"/ui/jobs/{job_id}/events")).text)
            assert "second failed" in events
            nodes = text_of((await pages.get(f"/ui/jobs/{job_id}/nodes?status=skipped")).text)
            assert "third" in nodes
            assert "upstream failed" in nodes
            assert (await pages.get(f"/ui/jobs/{job_id}/nodes?status=odd")).status_code == 400
            assert (await pages.get("/ui/jobs/77")).status_code == 404
            assert (await pages.get(f"/ui/jobs/{job_id}/nodes/sekond")).status_code == 404

    asyncio.run(main())


def test_the_page_of_a_node_has_its_attempts_its_error_and_its_cause():
    async def main() -> None:
        async with opened_pages(crash) as pages:
            job_id = await broken_job(pages)
            html = (await pages.get(f"/ui/jobs/{job_id}/nodes/second")).text
            text = text_of(html)
            assert "second failed" in text
            assert "Retry this node" in text
            assert "Run again from here" in text
            assert "s3cret-canary" not in html
            chain = text_of((await pages.get(f"/ui/jobs/{job_id}/nodes/third")).text)
            assert "second" in chain
            output = text_of((await pages.get(f"/ui/jobs/{job_id}/nodes/first")).text)
            assert "hello ada" in output

    asyncio.run(main())


def test_a_resume_shows_its_plan_first_and_then_runs_again_what_failed():
    async def main() -> None:
        async with opened_pages(crash) as pages:
            job_id = await broken_job(pages)
            text = text_of((await pages.get(f"/ui/jobs/{job_id}/resume")).text)
            assert "nothing has changed yet" in text
            assert "1 reused, 2 nodes run again, 0 not possible" in text
            answer = await pages.post(f"/ui/jobs/{job_id}/resume")
            assert (answer.status_code, answer.headers["location"]) == (303, f"/ui/jobs/{job_id}")
            await pages.api.until(job_id, "FAILED")
            assert (await pages.api.get(f"/api/v1/jobs/{job_id}")).json()["run"] == 2
            plan = text_of((await pages.get(f"/ui/jobs/{job_id}/resume?from_node=first")).text)
            assert "3 nodes run again" in plan
            retry = text_of((await pages.get(f"/ui/jobs/{job_id}/nodes/second/retry")).text)
            assert "Retry second" in retry
            answer = await pages.post(f"/ui/jobs/{job_id}/nodes/second/retry")
            assert answer.status_code == 303

    asyncio.run(main())


def test_nodes_are_cancelled_and_retried_after_a_confirmation_that_says_how_many_it_concerns():
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish(SIGNAL)
            job_id = await submitted(pages, "signal", "WAITING")
            path = f"/ui/jobs/{job_id}"
            node = (await pages.get(f"{path}/nodes/gate")).text
            assert f'href="{path}/cancel-nodes?node_id=gate"' in node
            asked = text_of((await pages.get(f"{path}/cancel-nodes?node_id=gate&node_id=done")).text)
            assert "Cancel 2 nodes" in asked
            assert "rules for failures" in asked
            answer = await pages.post(f"{path}/cancel-nodes", {"node_id": "gate", "of_node": "gate"})
            assert (answer.status_code, answer.headers["location"]) == (303, f"{path}/nodes/gate")
            await pages.api.until(job_id, "FAILED")
            assert "was cancelled by" in (await pages.get(f"{path}/nodes/gate")).text
            assert "Cancel this node" not in (await pages.get(f"{path}/nodes/gate")).text
            late = text_of((await pages.get(f"{path}/cancel-nodes?node_id=gate")).text)
            assert "Nothing to cancel" in late
            assert "1 of 1 selected nodes stays as it is" in late
            assert (await pages.post(f"{path}/cancel-nodes", {"node_id": "gate"})).status_code == 409
            again = text_of((await pages.get(f"{path}/retry-nodes?node_id=gate&node_id=done")).text)
            assert "Retry gate" in again
            assert "1 of 2 selected nodes stays as it is: neither failed nor cancelled" in again
            answer = await pages.post(f"{path}/retry-nodes", {"node_id": "gate"})
            assert answer.status_code == 303
            await pages.api.until(job_id, "WAITING")
            assert (await pages.get(f"{path}/cancel-nodes?node_id=nosuch")).status_code == 404
            assert (await pages.get(f"{path}/cancel-nodes")).status_code == 400
            await pages.log_in(Scope.READ)
            assert "Cancel this node" not in (await pages.get(f"{path}/nodes/gate")).text

    asyncio.run(main())


def test_a_node_that_is_being_cancelled_is_not_offered_to_be_cancelled_again():
    async def main() -> None:
        started, may_end = asyncio.Event(), asyncio.Event()

        @handler("stubborn", queue="q")
        async def stubborn() -> dict[str, Any]:
            started.set()
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                await may_end.wait()
                raise
            return {}

        async with opened_pages(stubborn) as pages:
            await pages.api.publish(STUBBORN)
            job_id = await submitted(pages, "stubborn", "RUNNING")
            await started.wait()
            path = f"/ui/jobs/{job_id}"
            assert "Cancel this node" in (await pages.get(f"{path}/nodes/work")).text
            await pages.post(f"{path}/cancel-nodes", {"node_id": "work", "of_node": "work"})
            node = (await pages.get(f"{path}/nodes/work")).text
            assert "Cancel this node" not in node
            assert "being cancelled</span>" in node
            assert (await pages.api.get(f"/api/v1/jobs/{job_id}/nodes/work")).json()["is_cancelling"] is True
            may_end.set()
            await pages.api.until(job_id, "FAILED")
            assert (await pages.api.get(f"/api/v1/jobs/{job_id}/nodes/work")).json()["is_cancelling"] is False

    asyncio.run(main())


def test_a_group_runs_while_its_members_do(monkeypatch):
    # The first member that is read has not begun.
    monkeypatch.setattr("dagmaster.application.queries.nodes.MEMBERS_AT_ONCE", 1)

    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish(GROUPED)
            job_id = await submitted(pages, "grouped", "WAITING")
            page = (await pages.get(f"/ui/jobs/{job_id}/nodes")).text
            (row,) = re.findall(r'<tr[^>]* data-node="prepare">.*?</tr>', page, re.DOTALL)
            assert "status-running" in row
            assert "status-running" in (await pages.get(f"/ui/jobs/{job_id}/nodes/prepare")).text
            job = (await pages.api.get(f"/api/v1/jobs/{job_id}")).json()
            assert job["counts"] == {"RUNNING": 1, "WAITING": 1, "PENDING": 2}
            await pages.post(f"/ui/jobs/{job_id}/signals/go")
            await pages.api.until(job_id, "COMPLETED")
            assert (await pages.api.get(f"/api/v1/jobs/{job_id}/nodes/prepare")).json()[
                "status"
            ] == "COMPLETED"

    asyncio.run(main())


def test_an_approval_is_answered_and_a_signal_sent_from_the_page():
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish()
            await pages.api.publish(SIGNAL)
            job_id = await submitted(pages, "hello", "WAITING")
            assert 'class="callout tone-waiting" data-why' in (await pages.get(f"/ui/jobs/{job_id}")).text
            assert "go on?" in (await pages.get(f"/ui/jobs/{job_id}/nodes/ask")).text
            answer = await pages.post(f"/ui/jobs/{job_id}/nodes/ask/approve", {"comment": "fine"})
            assert answer.status_code == 303
            await pages.api.until(job_id, "COMPLETED")
            again = await pages.post(f"/ui/jobs/{job_id}/nodes/ask/approve")
            assert again.status_code == 409
            job_id = await submitted(pages, "signal", "WAITING")
            assert "Send signal go" in text_of((await pages.get(f"/ui/jobs/{job_id}/nodes/gate")).text)
            wrong = await pages.post(f"/ui/jobs/{job_id}/signals/go", {"payload": "{"})
            assert (wrong.status_code, "not valid JSON" in wrong.text) == (400, True)
            assert (
                await pages.post(f"/ui/jobs/{job_id}/signals/go", {"payload": '{"a": 1}'})
            ).status_code == 303
            await pages.api.until(job_id, "COMPLETED")

    asyncio.run(main())


def test_a_job_is_cancelled_with_a_comment():
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish(SIGNAL)
            job_id = await submitted(pages, "signal", "WAITING")
            path = f"/ui/jobs/{job_id}"
            assert 'name="comment"' in (await pages.get(f"{path}/cancel")).text
            assert (await pages.post(f"{path}/cancel", {"comment": "x" * 4_001})).status_code == 400
            answer = await pages.post(f"{path}/cancel", {"comment": "wrong year"})
            assert (answer.status_code, answer.headers["location"]) == (303, path)
            await pages.api.until(job_id, "CANCELLED")
            events = text_of((await pages.get(f"{path}/events")).text)
            assert "requested cancellation: wrong year" in events

    asyncio.run(main())


def test_several_jobs_are_cancelled_after_a_confirmation():
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish()
            ids = [await submitted(pages, "hello", "WAITING") for _ in range(2)]
            done = await submitted(pages, "hello", "WAITING")
            await pages.post(f"/ui/jobs/{done}/nodes/ask/reject")
            await pages.api.until(done, "FAILED")
            query = "&".join(f"job_id={job_id}" for job_id in [*ids, done])
            text = text_of((await pages.get(f"/ui/jobs/bulk?action=cancel&{query}")).text)
            assert "Cancel 2 jobs" in text
            assert "1 of the selected jobs stay as they are" in text
            answer = await pages.post("/ui/jobs/bulk", {"action": "cancel", "job_id": [*ids, done]})
            assert answer.status_code == 303
            for job_id in ids:
                await pages.api.until(job_id, "CANCELLED")
            notice = (
                await pages.get(
                    "/ui/jobs",
                    Cookie=f"{pages.cookies['Cookie']}; {answer.headers['set-cookie'].split(';')[0]}",
                )
            ).text
            assert "Cancelling 2 jobs. 1 job not" in notice
            assert (await pages.post("/ui/jobs/bulk", {"action": "delete", "job_id": ids})).status_code == 400
            assert (await pages.post("/ui/jobs/bulk", {"action": "cancel"})).status_code == 400

    asyncio.run(main())


def test_a_viewer_who_may_only_read_sees_no_buttons():
    async def main() -> None:
        async with opened_pages(crash) as pages:
            job_id = await broken_job(pages)
            await pages.log_in(Scope.READ)
            for path in ("/ui/jobs", f"/ui/jobs/{job_id}", f"/ui/jobs/{job_id}/nodes/second"):
                html = (await pages.get(path)).text
                buttons = re.findall(
                    r"Cancel selected|Resume|Retry this node|Run again|type=\"checkbox\" data-select", html
                )
                assert buttons == [], path
            assert (await pages.get(f"/ui/jobs/{job_id}/resume")).status_code == 403

    asyncio.run(main())


def test_a_job_that_was_resumed_as_another_one_says_so():
    async def main() -> None:
        async with opened_pages(crash) as pages:
            job_id = await broken_job(pages)
            body = {"inputs": {"token": "another"}}
            answer = (await pages.api.post(f"/api/v1/jobs/{job_id}/resume", body)).json()
            newer = answer["job_id"]
            assert newer != job_id
            await pages.api.until(newer, "FAILED")
            assert f"resumed as {newer}" in text_of((await pages.get("/ui/jobs")).text)
            assert f"Resumed as {newer}" in text_of((await pages.get(f"/ui/jobs/{job_id}")).text)
            assert f"Resumed from {job_id}" in text_of((await pages.get(f"/ui/jobs/{newer}")).text)

    asyncio.run(main())


@pytest.mark.parametrize("name", ["a" * 128, "🌍 地図 ﷽", "مرحبا", "x/../y?z#q"])
def test_long_and_foreign_names_are_shown_whole(name):
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.api.publish()
            job_id = await submitted(pages, "hello", "WAITING", name=name)
            assert name in (await pages.get(f"/ui/jobs/{job_id}")).text

    asyncio.run(main())
