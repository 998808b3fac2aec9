"""The errors of published workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.errors.base import Category, DagmasterError

if TYPE_CHECKING:
    from collections.abc import Mapping


class WorkflowVersionConflict(DagmasterError):
    """The version of the workflow is published with other content."""

    code = "workflow_version_conflict"
    category = Category.CONFLICT


class WorkflowEditRejected(DagmasterError):
    """The workflow file cannot be edited in this way."""

    code = "workflow_edit_rejected"
    category = Category.INVALID


class WorkflowNotFound(DagmasterError):
    """No published workflow has this id, or not this version."""

    code = "workflow_not_found"
    category = Category.NOT_FOUND


class WorkflowChanged(DagmasterError):
    """The published versions of the workflow are not those that the caller has read."""

    code = "workflow_changed"
    category = Category.CONFLICT
    http_status = 412

    def __init__(self, message: str = "", *, current: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.current = dict(current or {})
        """What is published now."""

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "current": self.current}
