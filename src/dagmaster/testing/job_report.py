"""The report of a job that a test ran: the unredacted values of all nodes, children of fan-outs too."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dagmaster.errors import BlobNotFound
from dagmaster.text_format import traceback_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dagmaster.ports.json_text import JsonText
    from dagmaster.store.memory.database import MemoryDatabase


@dataclass(frozen=True, slots=True)
class JobReport:
    """A finished job. A node has the keys `status`, `attempts`, `output` and `error`."""

    job_id: str
    workflow_id: str
    version: int
    status: str
    result: Any
    error: dict[str, Any] | None
    duration_seconds: float
    nodes: dict[str, dict[str, Any]] = field(repr=False)
    note: str = ""
    """Why the runner itself ended the job; empty if it did not."""

    @property
    def traceback(self) -> str | None:
        """Return the traceback of the task that failed the job."""
        return traceback_of(self.error)


async def load_report(
    database: MemoryDatabase, job_id: str, *, node_order: Iterable[str] = (), note: str = ""
) -> JobReport:
    """Read the report of a job: nodes in this order, then the others by index and name."""
    job = database.jobs[job_id]
    by_index = sorted(job.nodes, key=lambda node_id: (job.nodes[node_id].row.fan_out_index, node_id))
    nodes = {}
    for node_id in dict.fromkeys((*(node_id for node_id in node_order if node_id in job.nodes), *by_index)):
        node = job.nodes[node_id]
        nodes[node_id] = {
            "status": node.row.status.value,
            "attempts": node.row.attempt,
            "output": await _load(database, node.output),
            "error": node.row.error,
        }
    return JobReport(
        job_id=job_id,
        workflow_id=job.new.workflow_id,
        version=job.new.version,
        status=job.row.status.value,
        result=await _load(database, job.result),
        error=job.error,
        duration_seconds=round((job.finished_at or job.created_at) - job.created_at, 6),
        nodes=nodes,
        note=note,
    )


async def _load(database: MemoryDatabase, value: JsonText | None) -> Any:
    if value is None or value.ref is None:
        return None if value is None else value.value()
    try:
        return json.loads(await database.blobs.read(value.ref))
    except BlobNotFound:
        # The job has finished, and its error names the value that was missing.
        return None
