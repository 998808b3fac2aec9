"""Records of published workflows and their versions."""

from __future__ import annotations

from dataclasses import dataclass, field

from dagmaster.records.record import READ_AT, Record, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRecord(Record):
    """A published workflow. New jobs get the active version."""

    workflow_id: str
    name: str | None
    """Name and tags come from the active version, else from the newest one."""
    tags: tuple[str, ...]
    versions_total: int
    newest_version: int
    active_version: int | None
    published_at: Timestamp
    read_at: Timestamp = field(metadata=READ_AT)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord(Record):
    """A published version of a workflow."""

    workflow_id: str
    version: int
    content_hash: str
    is_active: bool
    published_at: Timestamp
