"""The values and rows of a job, for tests that run turns without a store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagmaster.engine.model import Job, row_of
from dagmaster.engine.status import NodeStatus
from dagmaster.ports.node_values import ValueKey, ValueKind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dagmaster.engine.graph import Graph
    from dagmaster.engine.stored_rows import JobRow, NodeRow
    from dagmaster.orchestrator.turn import TurnResult
    from dagmaster.ports.handler_reports import Checkpoint
    from dagmaster.ports.json_text import JsonText


@dataclass(slots=True)
class JobRows:
    """The rows of one job."""

    graph: Graph
    row: JobRow
    nodes: dict[str, NodeRow] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, list[Any]] = field(default_factory=dict)
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    result: Any = None
    error: dict[str, Any] | None = None


class TurnRows:
    """Keeps what turns wrote."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobRows] = {}

    def add(self, job: Job) -> JobRows:
        """Store a new job."""
        rows = {node.id: row_of(node) for node in job.nodes.values()}
        stored = self.jobs[job.id] = JobRows(job.graph, job.row(), rows)
        return stored

    def save(self, job: Job, writes: TurnResult) -> None:
        """Write a turn."""
        stored = self.jobs[job.id]
        stored.row = job.row()
        for node in writes.changed:
            stored.nodes[node.id] = row_of(node)
            if node.status is not NodeStatus.COMPLETED:
                stored.outputs.pop(node.id, None)
        stored.outputs.update(writes.outputs)
        stored.sources.update(writes.sources)
        if writes.finished is not None:
            stored.result = writes.finished.result
            stored.error = writes.finished.error

    def rebuild(self, job_id: str) -> Job:
        """Load a job from its rows alone."""
        stored = self.jobs[job_id]
        return Job.rebuild(stored.graph, stored.row, stored.nodes.values())

    async def load_outputs(self, job_id: str, node_ids: Collection[str]) -> Mapping[str, Any]:
        """Return the outputs that are there."""
        outputs = self.jobs[job_id].outputs
        return {node_id: outputs[node_id] for node_id in node_ids if node_id in outputs}

    async def load(self, job_id: str, keys: Collection[ValueKey]) -> Mapping[ValueKey, Any]:
        """Return the values of fan-outs that are there."""
        stored = self.jobs[job_id]
        values: dict[ValueKey, Any] = {}
        for key in keys:
            if key.kind is ValueKind.ITEMS and key.node in stored.sources:
                values[key] = stored.sources[key.node]
            elif key.kind is ValueKind.OUTPUTS:
                values[key] = self._outputs(stored, key.node)
        return values

    async def resolve_value(self, value: JsonText) -> Any:
        """Read a value that is not stored yet."""
        return value.value()

    async def blob_bytes(
        self, job_id: str, node_ids: Collection[str], reported: Collection[JsonText] = ()
    ) -> int:
        """Return 0: there are no blobs."""
        return 0

    def _outputs(self, stored: JobRows, fan_id: str) -> list[Any]:
        row = stored.nodes[fan_id]
        children = (stored.nodes[f"{fan_id}__{index}"] for index in range(row.expanded))
        return [
            self._outputs(stored, child.id)
            if child.total is not None and child.status is NodeStatus.COMPLETED
            else stored.outputs.get(child.id)
            for child in children
        ]
