"""The page of requests: rows, filters in the address, and what it says when there are none."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from dagmaster.application.views import Page, RequestRecord, RequestStatus
from dagmaster.ports.api_keys import Scope
from dagmaster.ui.pages.requests import RequestsQuery, request_page, requests_page
from tests.unit.http.test_callbacks import DEAD
from tests.unit.ui.page_client import opened_pages


def a_request(**changes: object) -> RequestRecord:
    values = {
        "request_id": "r1", "status": RequestStatus.FAILED, "tenant": "acme", "workflow_id": "w", "actor": "acme/key:k",
        "job_id": None, "rejection": {"code": "inputs_invalid", "message": "size: not a number"}, "is_sandbox": False,
        "submitted_at": 100.0, "completed_at": 100.0, "platform_id": "ddh", "platform_refs": {"dataset_id": "d"},
    }  # fmt: skip
    return RequestRecord(**{**values, **changes})  # type: ignore[arg-type]


def test_a_row_has_its_identifiers_its_job_and_why_no_job_could_start():
    accepted = a_request(job_id="7", rejection=None, status=RequestStatus.RUNNING, tenant="default")
    query = RequestsQuery(status="failed")
    page = requests_page(query, Page(items=(a_request(), accepted), next_cursor="n"), now=160.0, cursor=None)
    rejected, running = page.rows
    assert (rejected.problem, rejected.job_href, rejected.refs) == ("size: not a number", "", "dataset_id d")
    assert (running.job_href, running.problem, running.look.value) == ("/ui/jobs/7", "", "RUNNING")
    assert (page.has_tenants, page.next) == (True, "/ui/requests?status=failed&cursor=n")


def test_the_page_of_a_request_has_its_job_why_there_is_none_and_its_callbacks():
    callback = replace(DEAD, request_id="r1", job_id=None)
    page = request_page(a_request(), [callback], now=160.0)
    assert (page.row.problem, page.row.job_href) == ("size: not a number", "")
    assert [(one.record.callback_id, one.href) for one in page.callbacks] == [
        (DEAD.callback_id, "/ui/requests/r1")
    ]

    async def main() -> None:
        async with opened_pages() as pages:
            await pages.log_in(Scope.ADMIN)
            assert (await pages.get("/ui/requests/unknown")).status_code == 404

    asyncio.run(main())


def test_an_empty_page_says_what_to_do_and_a_wrong_filter_what_is_wrong():
    async def main() -> None:
        async with opened_pages() as pages:
            await pages.log_in(Scope.ADMIN)
            empty = (await pages.get("/ui/requests")).text
            assert "No requests yet" in empty
            assert 'href="/ui/keys"' in empty
            assert "No request matches" in (await pages.get("/ui/requests?tenant=acme")).text
            assert "not a status of a request" in (await pages.get("/ui/requests?status=waiting")).text

    asyncio.run(main())
