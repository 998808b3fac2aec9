"""Callbacks: endpoints with their health, and what became of each callback; dead ones are sent again here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.records.callbacks import CallbackRecord, DeliveryStatus, EndpointRecord
from dagmaster.ui.pages.addresses import request_path
from dagmaster.ui.pages.job_rows import job_path
from dagmaster.ui.pages.list_pages import ListPage, ListQuery, StatusChoice
from dagmaster.ui.pages.times import Moment, moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.views import Page

PATH: Final = "/ui/callbacks"
_LOOKS: Final = {
    DeliveryStatus.WAITING: ("clock", "waiting"),
    DeliveryStatus.DELIVERED: ("check", "ok"),
    DeliveryStatus.DEAD: ("cross", "failed"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbacksQuery(ListQuery):
    """The filters of callbacks."""

    address = PATH
    status: str = ""
    endpoint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackRow:
    """A callback. `next`: when it is sent, if it waits."""

    record: CallbackRecord
    icon: str
    tone: str
    subject: str
    href: str
    at: Moment | None
    next: Moment | None

    @property
    def can_replay(self) -> bool:
        return self.record.status is not DeliveryStatus.WAITING


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRow:
    """An endpoint. `state`: healthy, failing or paused."""

    record: EndpointRecord
    state: str
    icon: str
    tone: str
    since: Moment | None
    href: str

    @property
    def is_paused(self) -> bool:
        return self.state == "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbacksPage(ListPage[CallbacksQuery, CallbackRow]):
    """The endpoints, and callbacks, newest first."""

    noun = "callback"
    endpoints: tuple[EndpointRow, ...]
    choices: tuple[StatusChoice, ...]
    has_tenants: bool


def callbacks_page(
    query: CallbacksQuery,
    page: Page[CallbackRecord],
    endpoints: Sequence[EndpointRecord],
    *,
    now: float,
    cursor: str | None,
) -> CallbacksPage:
    tenants = {one.tenant for one in page.items} | {one.tenant for one in endpoints}
    return CallbacksPage(
        query=query,
        rows=tuple(callback_row(record, now) for record in page.items),
        cursor=cursor,
        next_cursor=page.next_cursor,
        endpoints=tuple(_endpoint(record, query, now) for record in endpoints),
        choices=tuple(
            StatusChoice(one.value, one.value, one.value == query.status) for one in DeliveryStatus
        ),
        has_tenants=len(tenants) > 1,
    )


def callback_row(record: CallbackRecord, now: float) -> CallbackRow:
    icon, tone = _LOOKS[record.status]
    if record.request_id is None:
        subject, href = f"job {record.job_id}", job_path(record.job_id or "")
    else:
        subject, href = f"request {record.request_id}", request_path(record.request_id)
    return CallbackRow(
        record=record,
        icon=icon,
        tone=tone,
        subject=subject,
        href=href,
        at=moment(record.occurred_at, now),
        next=moment(record.next_attempt_at, now),
    )


def _endpoint(record: EndpointRecord, query: CallbacksQuery, now: float) -> EndpointRow:
    state, icon, tone, since = "healthy", "check", "ok", None
    if record.paused_at is not None:
        state, icon, tone, since = "paused", "pause", "failed", record.paused_at
    elif record.failing_since is not None:
        state, icon, tone, since = "failing", "alert", "warning", record.failing_since
    return EndpointRow(
        record=record,
        state=state,
        icon=icon,
        tone=tone,
        since=moment(since, now),
        href=query.path(endpoint=record.endpoint),
    )
