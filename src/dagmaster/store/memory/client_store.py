"""The client's door in memory, with the meaning of the one to PostgreSQL: both pass `tests/conformance`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dagmaster.errors import BlobNotFound, JobNotFound
from dagmaster.ports.job_records import Accepted, JobReport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.ports.command_kinds import CommandKind
    from dagmaster.ports.ids import Ids
    from dagmaster.ports.job_records import NewJob, StoredWorkflow
    from dagmaster.ports.json_text import JsonText
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.store.memory.database import MemoryDatabase


class MemoryClientStore:
    """The client's door."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self.ids = database.new_ids()

    async def lease_ids(self) -> Ids:
        """Return a source of unique ids."""
        return self.ids

    async def put_graph(self, content_hash: str, definition: str) -> None:
        """Keep a graph, if it is not there yet."""
        self._database.graphs.setdefault(content_hash, definition)

    async def submit(self, jobs: Sequence[NewJob]) -> list[Accepted]:
        """Store jobs; look up those whose key was taken."""
        database = self._database
        accepted: list[Accepted] = []
        for job in jobs:
            earlier = database.keys.get((job.submitted_by, job.idempotency_key or ""))
            if earlier is None:
                database.add_job(job, database.clock.now(), job.submitted_by or "somebody")
                accepted.append(Accepted(job.id, is_new=True))
            else:
                same = database.jobs[earlier].new.body_hash == job.body_hash
                accepted.append(Accepted(earlier, is_new=False, same=same))
        if any(each.is_new for each in accepted):
            database.tell("jobs")
        return accepted

    async def find_duplicates(self, jobs: Sequence[NewJob]) -> list[Accepted]:
        """Return what a submit would say of those whose key is taken already."""
        database = self._database
        found: list[Accepted] = []
        for job in jobs:
            earlier = database.keys.get((job.submitted_by, job.idempotency_key or ""))
            if job.idempotency_key is not None and earlier is not None:
                same = database.jobs[earlier].new.body_hash == job.body_hash
                found.append(Accepted(earlier, is_new=False, same=same))
        return found

    async def send(self, job_id: str, kind: CommandKind, body: Mapping[str, Any], sent_by: str) -> bool:
        """Put a command into a job's inbox."""
        if job_id not in self._database.jobs:
            return False
        self._database.add_command(job_id, kind, json.dumps(body), sent_by, self._database.clock.now())
        return True

    async def report(self, job_id: str, blobs: OutputBlobs) -> JobReport:
        """Return how a job ended, with all its nodes."""
        job = self._database.jobs.get(job_id)
        if job is None:
            raise JobNotFound(f"there is no job {job_id}")
        nodes = {
            node_id: {
                "status": node.row.status.value,
                "attempts": node.row.attempt,
                "output": await _value(node.output, blobs),
                "error": node.row.error,
            }
            for node_id, node in sorted(job.nodes.items(), key=lambda item: (item[1].row.fan_out_index, item[0]))
        }
        return JobReport(
            job_id=job_id,
            workflow_id=job.new.workflow_id,
            version=job.new.version,
            status=job.row.status.value,
            result=await _value(job.result, blobs),
            error=job.error,
            duration_seconds=round((job.finished_at or job.created_at) - job.created_at, 6),
            nodes=nodes,
        )

    async def is_finished(self, job_id: str) -> bool:
        """Return whether a job has finished."""
        job = self._database.jobs.get(job_id)
        return job is not None and not job.is_open

    async def versions(self, workflow_id: str) -> list[tuple[StoredWorkflow, bool]]:
        """Return the published versions of a workflow, and which is active."""
        active = self._database.active.get(workflow_id)
        found = [each for _, each in sorted(self._database.workflows.items()) if each.workflow_id == workflow_id]
        return [(each, each.version == active) for each in found]

    async def publish(self, *workflows: StoredWorkflow, activate: bool = True) -> None:
        """Publish versions; with `activate` each becomes the active one."""
        for workflow in workflows:
            key = (workflow.workflow_id, workflow.version)
            if self._database.workflows.get(key) != workflow:
                self._database.published_at[key] = self._database.clock.now()
            self._database.workflows[key] = workflow
            if activate:
                self._database.active[workflow.workflow_id] = workflow.version

    async def activate(self, workflow_id: str, version: int) -> None:
        """Make a published version the active one."""
        if (workflow_id, version) in self._database.workflows:
            self._database.active[workflow_id] = version


async def _value(value: JsonText | None, blobs: OutputBlobs) -> Any:
    if value is None or value.ref is None:
        return None if value is None else value.value()
    try:
        return json.loads(await blobs.read(value.ref))
    except BlobNotFound:
        # The job has finished, and its error names the value that was missing.
        return None
