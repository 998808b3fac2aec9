"""Find the graph of a published workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.application.queries.workflows import list_versions
from dagmaster.errors import WorkflowNotFound

if TYPE_CHECKING:
    from dagmaster.application.context import Application
    from dagmaster.engine.graph import Graph


async def find_published_graph(app: Application, workflow_id: str, version: int | None = None) -> Graph:
    """Return the graph of a published version, the active one if none is named; raise `WorkflowNotFound`."""
    versions = await list_versions(app, workflow_id)
    for view in versions:
        if view.version == version or (version is None and view.is_active):
            return await app.graphs.get(view.content_hash)
    missing = "no active version" if version is None else f"no version {version}"
    numbers = ", ".join(str(view.version) for view in versions)
    raise WorkflowNotFound(f"workflow {workflow_id!r} has {missing}: its versions are {numbers}")
