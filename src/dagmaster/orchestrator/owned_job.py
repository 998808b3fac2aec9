"""A job that an orchestrator owns: the engine's job, and what the orchestrator keeps next to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.events import BacklogDue, TimerFired
from dagmaster.engine.model import FanOut, Job
from dagmaster.engine.status import JobStatus
from dagmaster.orchestrator.expression_scopes import ExpressionScopes
from dagmaster.orchestrator.result_reuse import ResultReuse
from dagmaster.ports.node_values import ValueKey, ValueKind
from dagmaster.ports.secret_vault import read_sealed
from dagmaster.redaction import secret_texts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from dagmaster.engine.events import EngineEvent
    from dagmaster.engine.graph import Graph
    from dagmaster.engine.model import Node
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.job_records import ClaimedJob
    from dagmaster.ports.json_text import JsonText
    from dagmaster.ports.node_values import Values
    from dagmaster.ports.reusable_results import ReusableResults, SourceJob


_DEADLINE: Final = ""
_BACKLOG: Final = "*"
"""The timers of a job itself, besides the nodes' timers."""


class OwnedJob:
    """One owned job. On any doubt it is dropped and loaded again from its rows."""

    __slots__ = (
        "clear_secrets",
        "epoch",
        "event_seq",
        "is_fresh",
        "job",
        "last_batch_order",
        "new",
        "reuse",
        "scopes",
        "secret_inputs",
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
        source: SourceJob | None = None,
        reusable: ReusableResults | None = None,
    ) -> None:
        self.is_fresh = claimed.row.status is JobStatus.PENDING and not claimed.nodes
        self.job = Job.rebuild(graph, claimed.row, claimed.nodes)
        self.new, inputs = claimed.new, claimed.inputs
        self.scopes = ExpressionScopes(self.job, inputs, claimed.env, self.new.tenant)
        self.reuse = ResultReuse(self.job, inputs, source=source, reusable=reusable, redo=claimed.new.redo)
        self.epoch = claimed.epoch
        self.event_seq = claimed.event_seq
        self.workflows = claimed.workflows
        # Nodes that have a row, and the tasks in flight by node.
        self.stored = {row.id for row in claimed.nodes}
        self.last_batch_order = max((batch.accepted_order or 0 for batch in claimed.batches), default=0)
        self.tasks = dict(claimed.tasks)
        # Encrypted: a task gets them as they are. Not encrypted, by an earlier version: texts to redact.
        self.secret_inputs: dict[str, JsonValue] = {}
        self.clear_secrets: list[str] = []
        if self.scopes.secret_inputs:
            self._keep_secrets(graph, inputs)
        # The frozen lists of fan-outs that still start children: read once, not once a turn.
        self.sources: dict[str, list[JsonValue]] = {}
        self.values = CachedValues(self, values)

    def _keep_secrets(self, graph: Graph, inputs: Mapping[str, JsonValue]) -> None:
        names = self.scopes.secret_inputs
        secrets = {name: value for name, value in inputs.items() if name in names}
        self.secret_inputs = {name: value for name, value in secrets.items() if read_sealed(value)}
        clear = {name: value for name, value in secrets.items() if name not in self.secret_inputs}
        self.clear_secrets = secret_texts(graph.inputs, clear) if clear else []

    def timers(self) -> Iterator[tuple[float, str]]:
        """Yield every timer that is set: its time, and the id of its node, or a name for one of the job."""
        yield from self.timers_after(self.job.nodes.values(), has_deadline=True)

    def timers_after(self, changed: Iterable[Node], *, has_deadline: bool) -> Iterator[tuple[float, str]]:
        """Yield the timers that a turn may have set. `has_deadline`: it may have set the deadline."""
        for node in changed:
            if node.wake_at is not None:
                yield node.wake_at, node.id
        if has_deadline and self.job.deadline_at is not None:
            yield self.job.deadline_at, _DEADLINE
        if self.job.backlog:
            # At once, but after the events of other jobs.
            yield 0.0, _BACKLOG

    def is_due(self, name: str, now: float) -> bool:
        if name == _BACKLOG:
            return bool(self.job.backlog)
        if name == _DEADLINE:
            return self.job.deadline_at is not None and self.job.deadline_at <= now
        node = self.job.nodes.get(name)
        return node is not None and node.wake_at is not None and node.wake_at <= now

    @staticmethod
    def timer_event(name: str) -> EngineEvent:
        if name == _BACKLOG:
            return BacklogDue()
        return TimerFired(None if name == _DEADLINE else name)

    def keep_sources(self, sources: Mapping[str, list[JsonValue]]) -> None:
        """Cache lists that were just frozen, and drop the lists of finished fan-outs."""
        self.sources.update(sources)
        if self.sources:
            finished = [fan for fan in self.sources if self.job.nodes[fan].is_terminal]
            for fan in finished:
                del self.sources[fan]


class CachedValues:
    """The values of one job: from the cache, else from the store."""

    __slots__ = ("_owned", "_store")

    def __init__(self, owned: OwnedJob, store: Values) -> None:
        self._owned = owned
        self._store = store

    async def load_outputs(self, job_id: str, node_ids: Collection[str]) -> Mapping[str, JsonValue]:
        return await self._store.load_outputs(job_id, node_ids)

    async def load(self, job_id: str, keys: Collection[ValueKey]) -> Mapping[ValueKey, JsonValue]:
        """Return the values of fan-outs that exist."""
        sources = self._owned.sources
        values: dict[ValueKey, JsonValue] = {
            key: sources[key.node] for key in keys if key.kind is ValueKind.ITEMS and key.node in sources
        }
        missing = [key for key in keys if key not in values]
        if missing:
            loaded = await self._store.load(job_id, missing)
            values.update(loaded)
            self._cache(loaded)
        return values

    async def resolve_value(self, value: JsonText) -> Any:
        """Read a value that is not stored yet."""
        return await self._store.resolve_value(value)

    async def blob_bytes(
        self, job_id: str, node_ids: Collection[str], reported: Collection[JsonText] = ()
    ) -> int:
        return await self._store.blob_bytes(job_id, node_ids, reported)

    def _cache(self, loaded: Mapping[ValueKey, Any]) -> None:
        nodes = self._owned.job.nodes
        for key, value in loaded.items():
            if (
                key.kind is ValueKind.ITEMS
                and isinstance(nodes[key.node], FanOut)
                and not nodes[key.node].is_terminal
            ):
                self._owned.sources[key.node] = value
