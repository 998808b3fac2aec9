"""The audit trail: who changed what, and in which request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dagmaster.text_format import format_count
from dagmaster.ui.pages.addresses import with_query
from dagmaster.ui.pages.job_rows import job_path
from dagmaster.ui.pages.times import Moment, moment
from dagmaster.ui.pages.workflow_rows import workflow_path

if TYPE_CHECKING:
    from dagmaster.application.views import AuditEntryView, Page

PATH: Final = "/ui/audit"
MAX_DETAIL: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """What the address asks for."""

    actor: str = ""
    action: str = ""
    object_kind: str = ""
    object_id: str = ""

    def path(self, **changes: str) -> str:
        """Return the address of this list, or of another one."""
        names = ("actor", "action", "object_kind", "object_id")
        return with_query(PATH, **{name: getattr(self, name) for name in names} | changes)

    @property
    def is_filtered(self) -> bool:
        """Return whether anything is left out."""
        return self.path() != PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """A change. `details`: what was changed, as names and texts."""

    at: Moment | None
    actor: str
    actor_href: str
    key_id: str
    action: str
    action_href: str
    object_kind: str
    object_id: str
    object_href: str
    details: tuple[tuple[str, str], ...]
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """A page of the trail."""

    query: AuditQuery
    rows: tuple[AuditRow, ...]
    summary: str
    first: str
    next: str
    title: str = "Audit"


def audit_page(query: AuditQuery, page: Page[AuditEntryView], *, now: float, cursor: str | None) -> AuditPage:
    """Return the trail, newest first."""
    return AuditPage(
        query=query,
        rows=tuple(_row(view, query, now) for view in page.items),
        summary=f"{format_count(len(page.items), 'change')} on this page",
        first="" if cursor is None else query.path(),
        next="" if page.next_cursor is None else query.path(cursor=page.next_cursor),
    )


def _row(view: AuditEntryView, query: AuditQuery, now: float) -> AuditRow:
    return AuditRow(
        at=moment(view.at, now),
        actor=view.actor,
        actor_href=query.path(actor=view.actor),
        key_id=view.key_id or "",
        action=view.action,
        action_href=query.path(action=view.action),
        object_kind=view.object_kind,
        object_id=view.object_id,
        object_href=_object_path(view.object_kind, view.object_id),
        details=tuple(
            (name, _detail(name, value)) for name, value in view.details.items() if value is not None
        ),
        request_id=view.request_id or "",
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
