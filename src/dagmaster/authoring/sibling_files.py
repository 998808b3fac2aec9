"""Workflow files in one folder: the file of a workflow id, and the ids that the nodes of a document run."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from dagmaster.authoring.source_document import read_file
from dagmaster.errors import WorkflowInvalid

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator


class SiblingFiles:
    """The workflow files of a directory, read on first use."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory

    def newest(self, workflow_id: str, version: int | None) -> pathlib.Path | None:
        files = [
            (number, file) for number, file in self._files.get(workflow_id, ()) if version in (None, number)
        ]
        return max(files, key=lambda one: one[0], default=(0, None))[1]

    @functools.cached_property
    def _files(self) -> dict[str, list[tuple[int, pathlib.Path]]]:
        """Return files by the id of their workflow, with its version.

        Those that cannot be read are left out.
        """
        files: dict[str, list[tuple[int, pathlib.Path]]] = {}
        for file in sorted([*self._directory.glob("*.yaml"), *self._directory.glob("*.yml")]):
            with contextlib.suppress(WorkflowInvalid):
                data = read_file(file).data
                if isinstance(data, dict):
                    version = data.get("version")
                    number = version if isinstance(version, int) else 1
                    files.setdefault(workflow_id_of(data), []).append((number, file))
        return files


def workflow_id_of(data: dict[str, Any]) -> str:
    return str(data.get("workflow_id") or data.get("name"))


def child_workflows(data: Any) -> Iterator[tuple[str, int | None]]:
    """Yield the workflows that the nodes of a document run as child jobs, with the version if named."""
    nodes = data.get("nodes") if isinstance(data, dict) else None
    pending = list(nodes.values()) if isinstance(nodes, dict) else []
    while pending:
        node = pending.pop(0)
        if isinstance(node, dict):
            pending.append(node.get("task"))
            if node.get("type") == "workflow" and isinstance(node.get("workflow_id"), str):
                version = node.get("version")
                yield node["workflow_id"], version if isinstance(version, int) else None
