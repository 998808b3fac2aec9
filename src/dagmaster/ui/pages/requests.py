"""Requests of partners: what was asked, and the job that it led to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagmaster.application.views import JobStatus, RequestStatus
from dagmaster.ui.pages.addresses import REQUESTS as PATH
from dagmaster.ui.pages.addresses import request_path
from dagmaster.ui.pages.callbacks import CallbackRow, callback_row
from dagmaster.ui.pages.job_rows import job_path
from dagmaster.ui.pages.list_pages import ListPage, ListQuery
from dagmaster.ui.pages.times import Moment, moment
from dagmaster.ui.pages.workflow_rows import workflow_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import Page, RequestRecord
    from dagmaster.records.callbacks import CallbackRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsQuery(ListQuery):
    """The filters of requests."""

    address = PATH
    status: str = ""
    workflow_id: str = ""
    platform_id: str = ""
    tenant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """A request. `refs`: its identifiers on the platform; `problem`: why no job could start."""

    record: RequestRecord
    href: str
    look: JobStatus
    refs: str
    problem: str
    job_href: str
    workflow_href: str
    submitted: Moment | None
    ended: Moment | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsPage(ListPage[RequestsQuery, RequestRow]):
    """Requests, newest first. `has_tenants`: they are of several tenants."""

    noun = "request"
    has_tenants: bool
    statuses: tuple[str, ...] = tuple(RequestStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPage:
    """A request: what was asked, its job or why it has no job, and its callbacks."""

    row: RequestRow
    callbacks: tuple[CallbackRow, ...]
    title: str = "Request"


def request_page(record: RequestRecord, callbacks: Sequence[CallbackRecord], *, now: float) -> RequestPage:
    return RequestPage(
        row=_row(record, now), callbacks=tuple(callback_row(callback, now) for callback in callbacks)
    )


def requests_page(
    query: RequestsQuery, page: Page[RequestRecord], *, now: float, cursor: str | None, problem: str = ""
) -> RequestsPage:
    return RequestsPage(
        query=query,
        rows=tuple(_row(record, now) for record in page.items),
        cursor=cursor,
        next_cursor=page.next_cursor,
        problem=problem,
        has_tenants=bool(query.tenant) or len({record.tenant for record in page.items}) > 1,
    )


def _row(record: RequestRecord, now: float) -> RequestRow:
    refs = record.platform_refs or {}
    return RequestRow(
        record=record,
        href=request_path(record.request_id),
        look=JobStatus(record.status.value.upper()),
        refs=", ".join(f"{name} {value}" for name, value in refs.items()),
        problem="" if record.rejection is None else str(record.rejection["message"]),
        job_href="" if record.job_id is None else job_path(record.job_id),
        workflow_href=workflow_path(record.workflow_id),
        submitted=moment(record.submitted_at, now),
        ended=None if record.completed_at is None else moment(record.completed_at, now),
    )
