"""Records of published workflows and their versions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dagmaster.records.record import READ_AT, Record, Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRecord(Record):
    """A published workflow. New jobs get the active version."""

    workflow_id: str
    tenant: str
    """Who published it: a tenant, or `default` for the installation."""
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


def state_of(versions: Iterable[VersionRecord]) -> str:
    """Return what is published of a workflow as a text: "" for nothing. Stores compare it with their rows."""
    ordered = sorted(versions, key=lambda one: one.version)
    return ",".join(f"{one.version} {one.content_hash} {'t' if one.is_active else 'f'}" for one in ordered)


def state_tag(versions: Iterable[VersionRecord]) -> str:
    """Return the digest of what is published of a workflow, which changes with every change of it."""
    return hashlib.sha256(state_of(versions).encode()).hexdigest()[:32]
