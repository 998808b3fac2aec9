"""What is new in many jobs, as messages: events after a number, and the jobs and nodes they are about."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.application.job_snapshot import JobSnapshot
from dagmaster.application.node_lookup import child_of
from dagmaster.application.queries.events_and_logs import event_view
from dagmaster.application.secret_inputs import redactor_of
from dagmaster.application.stream_messages import EndReason, MessageType, StreamMessage, end, message
from dagmaster.engine.graph import Kind
from dagmaster.engine.groups import is_group_start
from dagmaster.engine.shown_graph import shown_graph
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import DatabaseUnavailable
from dagmaster.records.redacted import redacted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dagmaster.application.context import Application
    from dagmaster.application.secret_inputs import JobRedactor
    from dagmaster.engine.graph import Graph
    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.ports.job_feed import EventPosition, JobFeed, NodeKey
    from dagmaster.records.jobs import JobRecord
    from dagmaster.records.nodes import ChildCounts, NodeRecord

MAX_EVENTS: Final = 500
"""The most events of one message."""
MAX_TASKS: Final = 100
"""The most tasks of one message."""
_LOGGER = logging.getLogger("dagmaster.streams")


@dataclass(frozen=True, slots=True)
class JobContext:
    """What never changes about a job: its graph, and which values are secret."""

    job_id: str
    graph: Graph
    redact: JobRedactor

    @staticmethod
    async def load(app: Application, job: JobRecord) -> JobContext:
        """Return the context of a job that was loaded with its inputs."""
        graph = shown_graph(await app.outlines.of_job(job))
        return JobContext(job.job_id, graph, redactor_of(graph.inputs, job))

    def workflow_nodes(self, events: Iterable[StoredEvent]) -> set[str]:
        """Return the nodes of the workflow that events are about: for a child of a fan-out, the fan-out."""
        nodes = {self._workflow_node(event.node_id) for event in events if event.node_id is not None}
        return {node_id for node_id in nodes if node_id in self.graph.specs or not is_group_start(node_id)}

    def _workflow_node(self, node_id: str) -> str:
        parent = None if node_id in self.graph.specs else child_of(node_id)
        return node_id if parent is None else self._workflow_node(parent[0])


@dataclass(frozen=True, slots=True)
class Delta:
    """The messages after a position, and the position after them. `nodes_total`: the size of the job."""

    messages: list[StreamMessage]
    last: int
    nodes_total: int = 0
    has_more: bool = False


class DeltaReader:
    """Reads deltas of many jobs, with one query for each kind of record."""

    def __init__(self, app: Application, feed: JobFeed) -> None:
        self._app = app
        self._feed = feed

    async def read(self, contexts: Mapping[EventPosition, JobContext]) -> dict[EventPosition, Delta]:
        """Return the delta after each position that has one.

        Events are read first, so that jobs and nodes are never older than them.
        """
        pages = await self._feed.events(list(contexts), limit=MAX_EVENTS)
        events = {position: page for position, page in zip(contexts, pages, strict=True) if page}
        if not events:
            return {}
        jobs = {record.job_id: record for record in await self._feed.jobs({job_id for job_id, _ in events})}
        keys = {
            (position[0], node_id)
            for position, page in events.items()
            for node_id in contexts[position].workflow_nodes(page)
        }
        nodes: dict[str, dict[str, NodeRecord]] = {job_id: {} for job_id in jobs}
        for record in await self._feed.nodes(keys) if keys else ():
            nodes.setdefault(record.job_id, {})[record.node_id] = record
        children = await self._count_children(nodes)
        deltas: dict[EventPosition, Delta] = {}
        for position, page in events.items():
            job_id, after = position
            job = jobs.get(job_id)
            if job is None:
                deltas[position] = Delta([end(EndReason.REMOVED, "the job was deleted", after)], after)
                continue
            try:
                snapshot = await self._partial_snapshot(
                    contexts[position], job, nodes[job_id], children[job_id]
                )
                deltas[position] = _delta(snapshot, page, contexts[position].workflow_nodes(page))
            except DatabaseUnavailable:
                raise
            except Exception:
                # One job that cannot be shown must not end the streams of all others.
                _LOGGER.exception("the stream of job %s failed", job_id)
                failed = end(EndReason.FAILED, "the server failed; its log has the reason", after)
                deltas[position] = Delta([failed], after)
        return deltas

    async def read_tasks(self, contexts: Sequence[JobContext]) -> list[StreamMessage]:
        tasks: dict[str, list[dict[str, object]]] = {context.job_id: [] for context in contexts}
        redactors = {context.job_id: context.redact for context in contexts}
        for record in await self._feed.claimed_tasks(list(tasks), limit=MAX_TASKS) if tasks else ():
            tasks[record.job_id].append(redacted(record, redactors[record.job_id]).to_dict())
        return [message(MessageType.TASKS, {"tasks": tasks[context.job_id]}) for context in contexts]

    async def _count_children(
        self, nodes: Mapping[str, Mapping[str, NodeRecord]]
    ) -> Mapping[str, Mapping[str, ChildCounts]]:
        fan_outs: list[NodeKey] = [
            (job_id, record.node_id)
            for job_id, records in nodes.items()
            for record in records.values()
            if record.source_count is not None
        ]
        children: dict[str, dict[str, ChildCounts]] = {job_id: {} for job_id in nodes}
        for (job_id, fan_out), counts in (
            await self._feed.child_counts(fan_outs) if fan_outs else {}
        ).items():
            children[job_id][fan_out] = counts
        return children

    async def _partial_snapshot(
        self,
        context: JobContext,
        job: JobRecord,
        nodes: Mapping[str, NodeRecord],
        children: Mapping[str, ChildCounts],
    ) -> JobSnapshot:
        """Return a snapshot with some nodes.

        Few deltas have waits and child jobs: these are read for one job.
        """
        read, specs = self._app.read, context.graph.specs
        waiting = [node_id for node_id, record in nodes.items() if record.status is NodeStatus.WAITING]
        has_child_jobs = any(node_id in specs and specs[node_id].kind is Kind.WORKFLOW for node_id in nodes)
        return JobSnapshot(
            job=job,
            graph=context.graph,
            redact=context.redact,
            lease_seconds=read.lease_seconds,
            nodes=nodes,
            children=children,
            waits=await read.waits(job.job_id, waiting) if waiting else {},
            child_jobs=await read.child_jobs(job.job_id) if has_child_jobs else {},
        )


def finish(job: JobRecord) -> StreamMessage:
    return end(EndReason.FINISHED, f"the job is {job.status}", job.event_seq)


def _delta(snapshot: JobSnapshot, events: list[StoredEvent], node_ids: set[str]) -> Delta:
    job, redact, last = snapshot.job, snapshot.redact, events[-1].seq
    data = {
        "job": redacted(job, redact).to_dict(),
        "events": [event_view(job.job_id, event, redact).to_dict() for event in events],
        "nodes": {
            node_id: snapshot.node_view(snapshot.node(node_id)).to_dict() for node_id in sorted(node_ids)
        },
    }
    messages = [message(MessageType.DELTA, data, last)]
    if job.is_finished and last == job.event_seq:
        messages.append(finish(job))
    return Delta(messages, last, job.nodes_total, has_more=len(events) == MAX_EVENTS)
