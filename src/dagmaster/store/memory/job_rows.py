"""Jobs as their owners load them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from dagmaster.ports.job_columns import Use, column_names
from dagmaster.ports.job_records import ClaimedJob
from dagmaster.store.memory.added_nodes import stored_batches

if TYPE_CHECKING:
    from dagmaster.store.memory.database import StoredJob

_COPIED: Final = tuple(
    name for name in column_names(Use.CLAIM, Use.SUBMIT) if name in ClaimedJob.__dataclass_fields__
)
_TEXTS: Final = ("inputs", "env", "workflows")


def claimed_job(job: StoredJob) -> ClaimedJob:
    fields = {name: getattr(job.new, name) for name in _COPIED}
    fields |= {name: json.loads(fields[name]) for name in _TEXTS}
    return ClaimedJob(
        **fields,
        row=job.row,
        epoch=job.epoch,
        event_seq=len(job.events),
        depth=job.new.depth,
        parent=job.new.parent,
        nodes=tuple(node.row for node in job.nodes.values()),
        tasks={node_id: node.task_id for node_id, node in job.nodes.items() if node.task_id is not None},
        batches=stored_batches(job),
    )
