"""Reads of jobs that are resumed, in memory: by orchestrators in turns, by clients for dry runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from dagmaster.engine.status import JobStatus, NodeStatus
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.reusable_results import KnownHandlers, SourceJob, SourceNode
from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.store.memory.added_nodes import stored_batches
from dagmaster.store.memory.job_rows import claimed_job

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dagmaster.engine.stored_rows import NodeRow
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.added_nodes import StoredBatch
    from dagmaster.ports.job_records import ClaimedJob, StoredWorkflow
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.store.memory.database import MemoryDatabase, StoredJob


class MemoryReusableResults:
    """Reads jobs. It claims and writes nothing."""

    def __init__(
        self, database: MemoryDatabase, blobs: OutputBlobs | None = None, *, worker_lease_seconds: float = 6.0
    ) -> None:
        self._database = database
        self._blobs = blobs or database.blobs
        self._worker_lease_seconds = worker_lease_seconds

    def for_tenant(self, tenant: str) -> MemoryReusableResults:
        del tenant
        return self

    async def load_job(self, job_id: str) -> ClaimedJob | None:
        job = self._database.jobs.get(job_id)
        return None if job is None else claimed_job(job)

    async def load_source_job(self, job_id: str) -> SourceJob:
        rows = [node.row for node in self._database.jobs[job_id].nodes.values()]
        return SourceJob(job_id, [node for row in rows if (node := _source_node(row)) is not None])

    async def known_handlers(self) -> KnownHandlers:
        versions: dict[str, frozenset[str]] = {}
        served: set[str] = set()
        for _, worker in sorted(self._database.workers.items(), key=lambda item: -int(item[0])):
            alive = worker.stopped_at is None and self._database.is_fresh(worker, self._worker_lease_seconds)
            for handler, version in worker.handlers.items():
                if alive:
                    versions[handler] = frozenset({version}) | (
                        versions[handler] if handler in served else frozenset()
                    )
                    served.add(handler)
                else:
                    versions.setdefault(handler, frozenset({version}))
        return KnownHandlers(versions, frozenset(served))

    async def unfinished_children(self, nodes: Collection[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
        last: dict[tuple[str, str], StoredJob] = {}
        for child in self._database.jobs.values():
            parent = child.new.parent
            if parent is not None and (place := (parent.job_id, parent.node_id)) in nodes:
                last[place] = max(child, last.get(place, child), key=lambda job: int(job.new.id))
        unfinished = (JobStatus.FAILED, JobStatus.CANCELLED)
        return {place: child.new.id for place, child in last.items() if child.row.status in unfinished}

    async def load_source_outputs(self, job_id: str, nodes: Collection[SourceNode]) -> Mapping[str, JsonText]:
        stored = self._database.jobs[job_id].nodes
        outputs: dict[str, JsonText] = {}
        for node in nodes:
            record = stored[node.node_id]
            if _source_node(record.row) == node:
                outputs[node.node_id] = JsonText() if record.output is None else replace(record.output)
        return outputs

    async def definition(self, content_hash: str) -> Mapping[str, JsonValue] | None:
        text = self._database.graphs.get(content_hash)
        return None if text is None else json.loads(text)

    async def find_workflow(
        self, workflow_id: str, version: int | None, tenant: str = DEFAULT_TENANT
    ) -> StoredWorkflow | None:
        del tenant  # One process, one tenant.
        number = self._database.active.get(workflow_id) if version is None else version
        return None if number is None else self._database.workflows.get((workflow_id, number))

    async def load_batches(self, job_id: str, numbers: Collection[int] | None = None) -> list[StoredBatch]:
        return stored_batches(self._database.jobs[job_id], numbers)

    async def resolve_value(self, value: JsonText) -> JsonValue:
        return json.loads(await self._blobs.read(value.ref)) if value.ref is not None else value.value()


def _source_node(row: NodeRow) -> SourceNode | None:
    if row.status is not NodeStatus.COMPLETED or row.fingerprint is None:
        return None
    return SourceNode(row.id, row.fingerprint, row.handler_version, row.attempt)
