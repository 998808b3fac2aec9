"""One node with its attempts and values."""

from __future__ import annotations

from dataclasses import dataclass, field

from dagmaster.json_types import JsonValue
from dagmaster.records.nodes import NodeRecord
from dagmaster.records.record import READ_AT, SECRETS, Timestamp
from dagmaster.records.tasks import AttemptRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDetailView(NodeRecord, order={"version": "workflow_id"}):
    """A node with its attempts and values, without secrets.

    `attempts`: the last 100, oldest first. `params` are known while its task is in flight. `has_item`: it is
    a child of a fan-out whose item is known.
    """

    workflow_id: str
    version: int
    handler_version: str | None
    attempts: tuple[AttemptRecord, ...]
    has_item: bool
    item: JsonValue = field(metadata=SECRETS)
    params: JsonValue = field(metadata=SECRETS)
    output: JsonValue = field(metadata=SECRETS)
    read_at: Timestamp = field(metadata=READ_AT)
