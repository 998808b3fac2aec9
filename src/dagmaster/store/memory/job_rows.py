"""Jobs as their owners load them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.ports.job_records import ClaimedJob
from dagmaster.store.memory.added_nodes import stored_batches

if TYPE_CHECKING:
    from dagmaster.store.memory.database import StoredJob


def claimed_job(job: StoredJob) -> ClaimedJob:
    return ClaimedJob(
        new=job.new,
        row=job.row,
        epoch=job.epoch,
        event_seq=len(job.events),
        nodes=tuple(node.row for node in job.nodes.values()),
        tasks={node_id: node.task_id for node_id, node in job.nodes.items() if node.task_id is not None},
        batches=stored_batches(job),
    )
