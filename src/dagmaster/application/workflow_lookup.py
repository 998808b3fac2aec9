"""Find the versions of a published workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.application.node_lookup import suggest_name
from dagmaster.errors import WorkflowNotFound
from dagmaster.ports.tenants import ALL_TENANTS
from dagmaster.text_format import format_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.application.context import Application
    from dagmaster.engine.graph import Graph
    from dagmaster.records.workflows import VersionRecord

_KNOWN_WORKFLOWS: Final = 1_000
_BEFORE_TENANTS: Final = "!"
"""A text that comes before each name of a tenant."""


async def load_versions(app: Application, workflow_id: str, *, is_own: bool = False) -> list[VersionRecord]:
    """Return all versions of a workflow, oldest first; raise `WorkflowNotFound` if it is not published.

    `is_own`: by the caller's tenant itself.
    """
    versions = await app.read.versions(workflow_id, is_own=is_own)
    if not versions:
        raise await workflow_not_found(app, workflow_id)
    return versions


async def seen_by_readers(app: Application, workflow_id: str) -> Application:
    """Return the application that sees the versions of a workflow which are shown to the caller.

    An administrator of the installation, whose lists have the workflows of all tenants, reads one of them
    by its id as well, unless the installation has one of this id.
    """
    is_for_all = app.caller is None or app.caller.sees == ALL_TENANTS
    if not is_for_all or await app.read.versions(workflow_id, limit=1):
        return app
    records = await app.read.workflows(after=(f"{workflow_id} {_BEFORE_TENANTS}",), limit=1)
    if not records or records[0].workflow_id != workflow_id:
        return app
    return app.for_tenant(records[0].tenant)


async def load_shown_versions(app: Application, workflow_id: str) -> list[VersionRecord]:
    """Return all versions of a workflow that are shown to the caller; raise `WorkflowNotFound`."""
    return await load_versions(await seen_by_readers(app, workflow_id), workflow_id)


def find_version(versions: Sequence[VersionRecord], version: int | None) -> VersionRecord:
    """Return a version of a workflow, the active one if none is named; raise `WorkflowNotFound`."""
    for record in versions:
        if record.version == version or (version is None and record.is_active):
            return record
    missing = "no active version" if version is None else f"no version {version}"
    numbers = format_list([str(record.version) for record in reversed(versions)])
    raise WorkflowNotFound(f"workflow {versions[0].workflow_id!r} has {missing}: its versions are {numbers}")


async def find_shown_version(app: Application, workflow_id: str, version: int | None = None) -> VersionRecord:
    """Return a version of a workflow, default the active one, else the newest; raise `WorkflowNotFound`."""
    return choose_version(await load_shown_versions(app, workflow_id), version)


def choose_version(versions: Sequence[VersionRecord], version: int | None) -> VersionRecord:
    """Return a version, by default the active one, else the newest; raise `WorkflowNotFound`."""
    if version is None and not any(record.is_active for record in versions):
        version = versions[-1].version
    return find_version(versions, version)


async def find_published_graph(app: Application, workflow_id: str, version: int | None = None) -> Graph:
    """Return the graph of a published version, the active one if none is named; raise `WorkflowNotFound`."""
    return await app.graphs.get(find_version(await load_versions(app, workflow_id), version).content_hash)


async def workflow_not_found(app: Application, workflow_id: str) -> WorkflowNotFound:
    """Return the error about a workflow that is not published, with the nearest name."""
    known = [record.workflow_id for record in await app.read.workflows(limit=_KNOWN_WORKFLOWS)]
    hint = suggest_name(workflow_id, known) if known else "None is published yet."
    return WorkflowNotFound(f"no workflow {workflow_id!r} is published. {hint}".strip())
