"""Jobs as their owners load them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dagmaster.ports.job_records import ClaimedJob
from dagmaster.store.memory.added_nodes import stored_batches

if TYPE_CHECKING:
    from dagmaster.store.memory.database import StoredJob


def claimed_job(job: StoredJob) -> ClaimedJob:
    """Return a job as its owner loads it."""
    new = job.new
    return ClaimedJob(
        row=job.row,
        workflow_id=new.workflow_id,
        version=new.version,
        content_hash=new.content_hash,
        inputs=json.loads(new.inputs),
        env=json.loads(new.env),
        priority=new.priority,
        epoch=job.epoch,
        event_seq=len(job.events),
        depth=new.depth,
        queue=new.queue,
        workflows=json.loads(new.workflows),
        parent=new.parent,
        nodes=tuple(node.row for node in job.nodes.values()),
        tasks={node_id: node.task_id for node_id, node in job.nodes.items() if node.task_id is not None},
        resumed_from=new.resumed_from,
        redo=new.redo,
        trace_parent=new.trace_parent,
        batches=stored_batches(job),
    )
