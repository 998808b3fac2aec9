"""A job in an orchestrator's hands: the engine's job, and what the shell keeps beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.engine.model import FanOut, Job
from dagmaster.engine.status import JobStatus
from dagmaster.orchestrator.expression_scopes import ExpressionScopes
from dagmaster.orchestrator.result_reuse import ResultReuse
from dagmaster.ports.node_values import ValueKey, ValueKind
from dagmaster.redaction import secret_texts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from dagmaster.engine.graph import Graph
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.ports.json_text import JsonText
    from dagmaster.ports.node_values import Values
    from dagmaster.ports.reusable_results import ReusableResults, SourceJob


class OwnedJob:
    """One owned job. On any doubt it is dropped, and loaded again from its rows."""

    __slots__ = (
        "depth",
        "epoch",
        "event_seq",
        "is_fresh",
        "job",
        "parent",
        "priority",
        "queue",
        "recall",
        "scopes",
        "secrets",
        "sources",
        "stored",
        "tasks",
        "values",
        "workflows",
    )

    def __init__(
        self,
        claimed: ClaimedJob,
        graph: Graph,
        values: Values,
        *,
        past: SourceJob | None = None,
        pasts: ReusableResults | None = None,
    ) -> None:
        self.is_fresh = claimed.row.status is JobStatus.PENDING and not claimed.nodes
        self.job = Job.rebuild(graph, claimed.row, claimed.nodes)
        self.scopes = ExpressionScopes(self.job, claimed.inputs, claimed.env)
        self.recall = ResultReuse(self.job, claimed.inputs, past=past, pasts=pasts, redo=claimed.redo)
        self.epoch = claimed.epoch
        self.event_seq = claimed.event_seq
        self.priority = claimed.priority
        self.depth = claimed.depth
        self.queue = claimed.queue
        self.workflows = claimed.workflows
        self.parent = claimed.parent
        # Nodes that have a row, and the tasks that are out by node.
        self.stored = {row.id for row in claimed.nodes}
        self.tasks = dict(claimed.tasks)
        self.secrets = secret_texts(graph.inputs, claimed.inputs)
        # The frozen lists of fan-outs that still start children: read once, not once a turn.
        self.sources: dict[str, list[Any]] = {}
        self.values = CachedValues(self, values)

    def timers(self) -> Iterator[tuple[float, str]]:
        """Every timer that is set. The job's deadline is the one of node ''."""
        for node in self.job.nodes.values():
            if node.wake_at is not None:
                yield node.wake_at, node.id
        if self.job.deadline_at is not None:
            yield self.job.deadline_at, ""

    def is_due(self, node_id: str, now: float) -> bool:
        """Whether a timer that was set is still there, and its time has come."""
        if not node_id:
            return self.job.deadline_at is not None and self.job.deadline_at <= now
        node = self.job.nodes.get(node_id)
        return node is not None and node.wake_at is not None and node.wake_at <= now

    def keep_sources(self, sources: Mapping[str, list[Any]]) -> None:
        """Remember lists that were just frozen, and forget those of fan-outs that are over."""
        self.sources.update(sources)
        if self.sources:
            over = [fan for fan in self.sources if self.job.nodes[fan].is_terminal]
            for fan in over:
                del self.sources[fan]


class CachedValues:
    """The values of one job: what is at hand, else what the store has."""

    __slots__ = ("_held", "_store")

    def __init__(self, held: OwnedJob, store: Values) -> None:
        self._held = held
        self._store = store

    async def load(self, job_id: str, keys: Collection[ValueKey]) -> Mapping[ValueKey, Any]:
        """Give the values that are there."""
        sources = self._held.sources
        found: dict[ValueKey, Any] = {
            key: sources[key.node] for key in keys if key.kind is ValueKind.ITEMS and key.node in sources
        }
        missing = [key for key in keys if key not in found]
        if missing:
            loaded = await self._store.load(job_id, missing)
            found.update(loaded)
            self._keep(loaded)
        return found

    async def resolve_value(self, value: JsonText) -> Any:
        """Read a value that is not stored yet."""
        return await self._store.resolve_value(value)

    def _keep(self, loaded: Mapping[ValueKey, Any]) -> None:
        nodes = self._held.job.nodes
        for key, value in loaded.items():
            if key.kind is ValueKind.ITEMS and isinstance(nodes[key.node], FanOut) and not nodes[key.node].is_terminal:
                self._held.sources[key.node] = value
