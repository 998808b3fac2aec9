"""Queries about published workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.application.cursors import CursorKind, next_cursor, start_page
from dagmaster.application.secret_inputs import redact_definition
from dagmaster.application.views.page import Page
from dagmaster.application.views.workflows import VersionView, WorkflowDetailView, WorkflowView
from dagmaster.application.workflow_lookup import find_version, load_versions, workflow_not_found

if TYPE_CHECKING:
    from dagmaster.application.context import Application
    from dagmaster.ports.read_store import VersionRecord


async def list_workflows(
    app: Application, *, tag: str | None = None, cursor: str | None = None, limit: int = 100
) -> Page[WorkflowView]:
    """List the published workflows by id; with `tag`, those that have it."""
    records = await app.read.workflows(tag=tag, after=start_page(CursorKind.WORKFLOWS, cursor, limit), limit=limit)
    items = tuple(
        WorkflowView(
            workflow_id=record.workflow_id,
            name=record.name,
            tags=record.tags,
            versions_total=record.versions,
            newest_version=record.newest_version,
            active_version=record.active_version,
            published_at=record.published_at,
            read_at=record.now,
        )
        for record in records
    )
    return Page(
        items=items,
        next_cursor=next_cursor(CursorKind.WORKFLOWS, records, limit, lambda record: (record.workflow_id,)),
    )


async def list_versions(
    app: Application, workflow_id: str, *, cursor: str | None = None, limit: int = 100
) -> Page[VersionView]:
    """List the versions of a workflow, oldest first; raise `WorkflowNotFound` if it is not published."""
    after = start_page(CursorKind.VERSIONS, cursor, limit)
    records = await app.read.versions(workflow_id, after=after, limit=limit)
    if after is None and not records:
        raise await workflow_not_found(app, workflow_id)
    return Page(
        items=tuple(map(_version_view, records)),
        next_cursor=next_cursor(CursorKind.VERSIONS, records, limit, lambda record: (record.version,)),
    )


async def workflow_detail(app: Application, workflow_id: str, version: int | None = None) -> WorkflowDetailView:
    """Return a version of a workflow (default: the active one, else the newest) with its redacted definition."""
    versions = await load_versions(app, workflow_id)
    if version is None and not any(record.is_active for record in versions):
        version = versions[-1].version
    chosen = find_version(versions, version)
    return WorkflowDetailView(
        workflow_id=workflow_id,
        version=chosen.version,
        content_hash=chosen.content_hash,
        is_active=chosen.is_active,
        published_at=chosen.published_at,
        definition=redact_definition(await app.read.definition(chosen.content_hash) or {}),
        versions=tuple(map(_version_view, versions)),
    )


def _version_view(record: VersionRecord) -> VersionView:
    return VersionView(
        workflow_id=record.workflow_id,
        version=record.version,
        content_hash=record.content_hash,
        is_active=record.is_active,
        published_at=record.published_at,
    )
