"""What the oracle checks of a finished job: its rows, its audit log, and the nodes that were added to it."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagmaster.store.memory.database import MemoryDatabase, StoredJob, StoredNode

FINISHED: Final = ("COMPLETED", "FAILED", "CANCELLED")
TERMINAL: Final = (*FINISHED, "SKIPPED")
# The events that end an attempt, and its status then.
_ENDS: Final = {
    "NodeCompleted": "COMPLETED",
    "AttemptFailed": "FAILED",
    "AttemptLost": "LOST",
    "AttemptReleased": "RELEASED",
}


class Violation(AssertionError):
    """A violation of an invariant."""


def violate(message: str) -> None:
    raise Violation(message)


def check_finished_job(
    job: StoredJob, database: MemoryDatabase, outcome_of: Callable[[str, str, int], str | None]
) -> None:
    """Check a job at the end. `outcome_of`: how an attempt at a node of a job ended, by its report."""
    job_id = job.new.id
    if job.row.status.value not in FINISHED:
        violate(f"job {job_id} is {job.row.status.value} at the end")
    if [event.seq for event in job.events] != list(range(1, len(job.events) + 1)):
        violate(f"the events of job {job_id} have gaps: {[event.seq for event in job.events]}")
    kinds = Counter(event.type for event in job.events)
    if kinds["JobStarted"] != 1 or not 1 <= kinds["JobFinished"] <= job.row.run:
        violate(f"job {job_id} started or finished too often: {dict(kinds)}")
    epochs = [event.data["epoch"] for event in job.events if event.type == "JobClaimed"]
    if epochs != sorted(set(epochs)):
        violate(f"the epochs of job {job_id} do not increase: {epochs}")
    _check_completions(job, outcome_of)
    _check_attempts(job, database)
    _check_nodes(job, database)
    _check_batches(job)


def _check_completions(job: StoredJob, outcome_of: Callable[[str, str, int], str | None]) -> None:
    """Check that a node completes once in a run, by an attempt that was reported as completed."""
    run, completed = 1, set[tuple[str | None, int]]()
    for event in job.events:
        run += event.type == "JobResumed"
        if event.type != "NodeCompleted":
            continue
        if (event.node_id, run) in completed:
            violate(f"node {event.node_id} of job {job.new.id} completed twice in run {run}")
        completed.add((event.node_id, run))
        outcome = outcome_of(job.new.id, event.node_id or "", event.attempt or 0)
        if outcome not in (None, "COMPLETED"):
            name = f"attempt {event.attempt} at node {event.node_id} of job {job.new.id}"
            violate(f"{name} is recorded as completed, and is {outcome}")


def _check_attempts(job: StoredJob, database: MemoryDatabase) -> None:
    """Check that each attempt has one event of its end, with its outcome, unless its report was ignored."""
    ends: dict[tuple[str | None, int | None], list[str]] = {}
    ignored = set[tuple[str | None, int | None]]()
    for event in job.events:
        if event.type == "StaleReportIgnored":
            ignored.add((event.node_id, event.attempt))
        elif event.type in _ENDS:
            ends.setdefault((event.node_id, event.attempt), []).append(_ENDS[event.type])
    for (job_id, node, attempt), stored in database.attempts.items():
        if job_id != job.new.id or (node, attempt) in ignored:
            continue
        outcomes, status = ends.get((node, attempt), []), stored.result.status.value
        if outcomes != [status]:
            violate(
                f"attempt {attempt} at node {node} of job {job_id} is {status}, and its events are {outcomes}"
            )


def _check_batches(job: StoredJob) -> None:
    """Check that each call that added nodes at once was accepted, once; and each success with its nodes."""
    if job.row.status.value != "COMPLETED":
        return
    written = [batch for batch in job.batches.values() if batch.rows is not None]
    calls = set[tuple[str, int]]()
    for batch in written:
        if batch.key is not None and batch.key[:2] in calls:
            violate(f"job {job.new.id}: call {batch.key[1]} of {batch.key[0]} added nodes twice")
        if batch.is_rejected:
            violate(
                f"job {job.new.id}: batch {batch.number}, which was added at once by {batch.key}, was"
                " rejected"
            )
        if batch.key is not None:
            calls.add(batch.key[:2])
        if batch.accepted_order is None:
            violate(f"job {job.new.id} completed without batch {batch.number}, which was stored")
    added = {record.node_id for batch in written for record in (batch.rows.nodes if batch.rows else ())}
    for node_id in added - job.nodes.keys():
        violate(f"job {job.new.id} completed, and node {node_id}, which was added, never ran")


def _check_nodes(job: StoredJob, database: MemoryDatabase) -> None:
    job_id = job.new.id
    for node_id, node in job.nodes.items():
        status = node.row.status.value
        if status not in TERMINAL:
            violate(f"job {job_id} has finished, and its node {node_id} is {status}")
        _check_output(job_id, node_id, node)
        if not any(event.node_id == node_id for event in job.events):
            violate(f"job {job_id}: node {node_id} has no event, and is {status}")
        attempts = sorted(key[2] for key in database.attempts if key[:2] == (job_id, node_id))
        if attempts != list(range(1, len(attempts) + 1)):
            violate(f"job {job_id}: the attempts at {node_id} are {attempts}")
    _check_children(job)


def _check_output(job_id: str, node_id: str, node: StoredNode) -> None:
    if node.output is None or node.task_id is None:
        return
    output = json.loads(node.output.text or "{}")
    if not isinstance(output, dict):
        # Mocks write their attempt into mappings only.
        return
    accepted = node.row.attempt
    attempt = output.get("attempt", accepted)
    if attempt != accepted:
        violate(f"job {job_id}: the output of {node_id} is of attempt {attempt}, not of {accepted}")


def _check_children(job: StoredJob) -> None:
    """Check that the children of each fan-out are numbered without gaps."""
    children: dict[str, list[int]] = {}
    for node in job.nodes.values():
        row = node.row
        if row.parent is not None and row.fan_out_index is not None:
            children.setdefault(row.parent, []).append(row.fan_out_index)
    for fan_id, numbers in children.items():
        if sorted(numbers) != list(range(len(numbers))):
            violate(f"job {job.new.id}: the children of {fan_id} are {sorted(numbers)}")
