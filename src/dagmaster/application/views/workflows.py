"""Views of published workflows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from dagmaster.json_types import JsonObject, JsonValue
from dagmaster.records.record import READ_AT, Record, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowView(Record):
    """A published workflow. New jobs get the active version."""

    workflow_id: str
    name: str | None
    tags: tuple[str, ...]
    versions_total: int
    newest_version: int
    active_version: int | None
    published_at: Timestamp
    read_at: Timestamp = field(metadata=READ_AT)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionView(Record):
    """A published version of a workflow."""

    workflow_id: str
    version: int
    content_hash: str
    is_active: bool
    published_at: Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowDetailView(VersionView):
    """One version of a workflow with its definition, and all its versions."""

    definition: JsonObject
    versions: tuple[VersionView, ...]


class ChangeKind(StrEnum):
    """What became of a part of a definition."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChangeView(Record):
    """A part of a definition that differs. `path`: its keys from the top, as `nodes.fetch.params.url`."""

    path: str
    kind: ChangeKind
    before: JsonValue
    after: JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDiffView(Record):
    """What differs between two versions of a workflow."""

    workflow_id: str
    before: int
    after: int
    changes: tuple[DefinitionChangeView, ...]
