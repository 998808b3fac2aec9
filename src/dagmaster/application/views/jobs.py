"""Views of jobs. A job has the same keys in a list, alone, in an explanation and after a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dagmaster.application.views.events_and_logs import CommandView
from dagmaster.engine.diagnosis.reasons import ReasonCode
from dagmaster.engine.status import TERMINAL_JOB, NodeStatus
from dagmaster.json_types import JsonObject, JsonValue
from dagmaster.ports.command_kinds import RUN_AGAIN
from dagmaster.records.jobs import JobRecord, JobStatusRecord
from dagmaster.records.nodes import ChildrenRecord, NodeCountsRecord, NodeRecord, NodeStatusRecord
from dagmaster.records.record import SECRET_INPUTS, SECRETS, Record, Timestamp, derived


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingReasonView(Record):
    """Something that a job waits for: a sentence, and the code and data of its reason, if it has one."""

    sentence: str
    code: ReasonCode | None
    node_id: str | None
    data: JsonObject


def _statuses(values: Mapping[str, Any], _read_at: float) -> dict[str, NodeStatus]:
    nodes = {node_id: values["nodes"][node_id] for node_id in values["dependencies"]}
    return {node_id: node.status for node_id, node in nodes.items() if node.status is not NodeStatus.PENDING}


def _fan_outs(values: Mapping[str, Any], _read_at: float) -> tuple[str, ...]:
    return tuple(node_id for node_id, node in values["nodes"].items() if node.children is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetailView(JobRecord):
    """A job with its values and nodes. Secret inputs are redacted.

    `attempts`: the number of attempts whose handlers have started, finished or still running; and of those
    that failed before. A task that was released or lost before its handler started is not counted. `counts`:
    nodes by status, with children of fan-outs. `blocking_reasons`: what the job waits for. `dependencies`:
    the nodes that each node of the workflow waits for, in topological order.
    """

    inputs: JsonObject = field(metadata=SECRET_INPUTS)
    result: JsonValue = field(metadata=SECRETS)
    attempts: int
    counts: Mapping[str, int]
    blocking_reasons: tuple[BlockingReasonView, ...]
    pending_commands: tuple[CommandView, ...]
    nodes: Mapping[str, NodeRecord]
    dependencies: Mapping[str, tuple[str, ...]]
    statuses: Mapping[str, NodeStatus] = field(metadata=derived(_statuses))
    """The status of each node of the workflow that is not PENDING; much cheaper than `nodes`."""
    fan_outs: tuple[str, ...] = field(metadata=derived(_fan_outs))
    """The fan-outs that have children."""

    @property
    def is_settled(self) -> bool:
        """Return whether the job has ended, and no command waits after which it runs again."""
        return self.is_finished and not any(command.kind in RUN_AGAIN for command in self.pending_commands)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgressView(JobStatusRecord):
    """How far a job is: small enough to be polled."""

    duration_seconds: float | None

    @property
    def is_finished(self) -> bool:
        return self.status in TERMINAL_JOB


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateView(Record):
    """When a job or node may end, if it continues at the pace it had so far."""

    remaining_seconds: float
    finishes_at: Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentTaskView(Record):
    """A task that a worker has claimed."""

    node_id: str
    task_id: str
    attempt: int
    progress_percent: float | None
    progress_message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgressReportView(JobProgressView):
    """How far a job is, what runs (`current_tasks`: the first 20), and an estimate of its end."""

    overall_percent: float
    nodes: NodeCountsRecord
    current_tasks: tuple[CurrentTaskView, ...]
    estimate: EstimateView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProgressReportView(NodeStatusRecord, order={"job_id": ""}):
    """How far a node is: what its handler reported, or how many of its children have finished."""

    job_id: str
    percent: float | None
    message: str
    children: ChildrenRecord | None
    estimate: EstimateView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountsView(Record):
    """How many jobs have which displayed status. A status without jobs is 0."""

    counts: Mapping[str, int]
    total: int
