"""The audit trail: who changed what, and in which request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dagmaster.ui.pages.job_rows import job_path
from dagmaster.ui.pages.list_pages import ListPage, ListQuery
from dagmaster.ui.pages.times import Moment, moment
from dagmaster.ui.pages.workflow_rows import workflow_path

if TYPE_CHECKING:
    from dagmaster.application.views import AuditRecord, Page

PATH: Final = "/ui/audit"
MAX_DETAIL: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery(ListQuery):
    """The filters of changes."""

    address = PATH
    actor: str = ""
    action: str = ""
    object_kind: str = ""
    object_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """A change. `details`: what was changed, as names and texts."""

    record: AuditRecord
    at: Moment | None
    actor_href: str
    action_href: str
    object_href: str
    details: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage(ListPage[AuditQuery, AuditRow]):
    """The trail, newest first."""

    noun = "change"

    @property
    def title(self) -> str:
        return "Audit"


def audit_page(query: AuditQuery, page: Page[AuditRecord], *, now: float, cursor: str | None) -> AuditPage:
    rows = tuple(_row(entry, query, now) for entry in page.items)
    return AuditPage(query=query, rows=rows, cursor=cursor, next_cursor=page.next_cursor)


def _row(entry: AuditRecord, query: AuditQuery, now: float) -> AuditRow:
    return AuditRow(
        record=entry,
        at=moment(entry.at, now),
        actor_href=query.path(actor=entry.actor),
        action_href=query.path(action=entry.action),
        object_href=_object_path(entry.object_kind, entry.object_id),
        details=tuple(
            (name, _detail(name, value)) for name, value in entry.details.items() if value is not None
        ),
    )


def _object_path(kind: str, object_id: str) -> str:
    if kind == "job":
        return job_path(object_id)
    return workflow_path(object_id) if kind == "workflow" else ""


def _detail(name: str, value: Any) -> str:
    at = moment(value, value) if name.endswith("_at") and isinstance(value, float) else None
    return _text(value) if at is None else at.absolute


def _text(value: Any) -> str:
    text = str(value)
    if isinstance(value, list):
        text = ", ".join(map(_text, value))
    elif isinstance(value, dict):
        text = ", ".join(f"{name}: {_text(part)}" for name, part in value.items())
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    return f"{text[:MAX_DETAIL]}…" if len(text) > MAX_DETAIL else text
