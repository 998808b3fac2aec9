"""Views of published workflows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dagmaster.json_types import JsonObject, JsonValue
from dagmaster.records.record import Record, shown
from dagmaster.records.workflows import VersionRecord, state_tag


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowDetailView(VersionRecord):
    """One version of a workflow with its definition, and all its versions."""

    definition: JsonObject
    versions: tuple[VersionRecord, ...]

    @property
    @shown(after="versions")
    def state(self) -> str:
        """Return what names the versions as they are now: a change can require that they still are."""
        return state_tag(self.versions)


class ChangeKind(StrEnum):
    """What became of a part of a definition."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionChangeView(Record):
    """A difference of two definitions. `path`: its keys from the top, such as `nodes.fetch.params.url`."""

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
