"""Views of explanations: why a job or a node has the status that it has.

Codes are in docs/reference/reasons.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dagmaster.application.views.jobs import BlockingReasonView
from dagmaster.engine.diagnosis.reasons import ReasonCode
from dagmaster.engine.status import NodeStatus
from dagmaster.json_types import JsonObject
from dagmaster.records.jobs import JobRecord
from dagmaster.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonView(Record):
    """A reason: a code for programs, a sentence for people. `because`: the nodes that it follows from."""

    code: ReasonCode
    sentence: str
    data: JsonObject
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReasonView(ReasonView):
    """The reason of one node."""

    status: NodeStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkView(ReasonView):
    """A link of a chain of causes. Without a node it is the job's reason."""

    node_id: str | None
    status: NodeStatus | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView(Record):
    """Nodes that have the same reason, children of one fan-out if `fan_out` is set.

    `examples`: some of them.
    """

    code: ReasonCode
    subject: str
    sentence: str
    count: int
    fan_out: str | None
    status: NodeStatus
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildJobWhyView(Record):
    """A child job that the explanation leads to, and its own reason."""

    job_id: str
    workflow_id: str
    reason: ReasonView


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWhyView(Record):
    """Why a job has its status: the reason that matters most, then all nodes, grouped and one by one."""

    job: JobRecord
    reason: ReasonView
    child_jobs: tuple[ChildJobWhyView, ...]
    groups: tuple[GroupView, ...]
    nodes: Mapping[str, NodeReasonView]
    commands: tuple[BlockingReasonView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWhyView(Record):
    """Why a node has its status, link by link to the root cause."""

    job: JobRecord
    node_id: str
    chain: tuple[LinkView, ...]
    child_jobs: tuple[ChildJobWhyView, ...]
    commands: tuple[BlockingReasonView, ...]
