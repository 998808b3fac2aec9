"""Queries about published workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.application.cursors import CursorKind, next_cursor, start_page
from dagmaster.application.secret_inputs import redact_definition
from dagmaster.application.views.workflows import (
    ChangeKind,
    DefinitionChangeView,
    VersionDiffView,
    WorkflowDetailView,
)
from dagmaster.application.workflow_lookup import (
    choose_version,
    find_version,
    load_shown_versions,
    seen_by_readers,
    workflow_not_found,
)
from dagmaster.authoring.input_schema import inputs_schema
from dagmaster.records.page import Page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.application.context import Application
    from dagmaster.json_types import JsonObject
    from dagmaster.records.workflows import VersionRecord, WorkflowRecord


async def list_workflows(
    app: Application, *, tag: str | None = None, cursor: str | None = None, limit: int = 100
) -> Page[WorkflowRecord]:
    """List the published workflows by id; with `tag`, those that have it."""
    records = await app.read.workflows(
        tag=tag, after=start_page(CursorKind.WORKFLOWS, cursor, limit), limit=limit
    )
    return Page(
        items=tuple(records),
        next_cursor=next_cursor(CursorKind.WORKFLOWS, records, limit, _position),
    )


def _position(record: WorkflowRecord) -> tuple[str]:
    return (f"{record.workflow_id} {record.tenant}",)


async def list_versions(
    app: Application, workflow_id: str, *, cursor: str | None = None, limit: int = 100
) -> Page[VersionRecord]:
    """List the versions of a workflow, oldest first; raise `WorkflowNotFound` if it is not published."""
    after = start_page(CursorKind.VERSIONS, cursor, limit)
    app = await seen_by_readers(app, workflow_id)
    records = await app.read.versions(workflow_id, after=after, limit=limit)
    if after is None and not records:
        raise await workflow_not_found(app, workflow_id)
    return Page(
        items=tuple(records),
        next_cursor=next_cursor(CursorKind.VERSIONS, records, limit, lambda record: (record.version,)),
    )


async def workflow_detail(
    app: Application, workflow_id: str, version: int | None = None
) -> WorkflowDetailView:
    """Return a version of a workflow (default: the active one, else the newest), redacted."""
    versions = await load_shown_versions(app, workflow_id)
    chosen = choose_version(versions, version)
    return WorkflowDetailView(
        workflow_id=workflow_id,
        version=chosen.version,
        content_hash=chosen.content_hash,
        is_active=chosen.is_active,
        published_at=chosen.published_at,
        definition=redact_definition(await app.read.definition(chosen.content_hash) or {}),
        versions=tuple(versions),
    )


async def workflow_inputs_schema(
    app: Application, workflow_id: str, version: int | None = None
) -> JsonObject:
    """Return the JSON Schema of the inputs of a version; by default of the active one, else of the newest."""
    definition: dict[str, Any] = (await workflow_detail(app, workflow_id, version)).definition
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": workflow_id,
        **inputs_schema(
            {name: declared or {} for name, declared in (definition.get("inputs") or {}).items()}
        ),
    }


async def compare_versions(app: Application, workflow_id: str, before: int, after: int) -> VersionDiffView:
    """Compare the definitions of two versions; raise `WorkflowNotFound` if one is not published."""
    versions = await load_shown_versions(app, workflow_id)
    definitions = [
        redact_definition(await app.read.definition(find_version(versions, version).content_hash) or {})
        for version in (before, after)
    ]
    changes = tuple(
        DefinitionChangeView(path=path, before=old, after=new, kind=_change_kind(old, new))
        for path, old, new in _differences("", *definitions)
    )
    return VersionDiffView(workflow_id=workflow_id, before=before, after=after, changes=changes)


def _differences(path: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield what differs, key by key; a list is one value."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        if old != new:
            yield path, old, new
        return
    for key in dict.fromkeys([*old, *new]):
        yield from _differences(f"{path}.{key}" if path else str(key), old.get(key), new.get(key))


def _change_kind(old: Any, new: Any) -> ChangeKind:
    if old is None:
        return ChangeKind.ADDED
    return ChangeKind.REMOVED if new is None else ChangeKind.CHANGED
