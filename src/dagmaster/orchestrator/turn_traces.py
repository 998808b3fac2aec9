"""Commits turns as parts of the traces of their jobs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from dagmaster.telemetry import traces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.orchestrator.owned_job import OwnedJob
    from dagmaster.ports.orchestrator_store import OrchestratorStore
    from dagmaster.ports.turn_records import TurnCommit


async def commit_turns(
    store: OrchestratorStore, turns: Sequence[TurnCommit], jobs: Mapping[str, OwnedJob], now: float
) -> set[str]:
    """Commit turns. Each is a span of the job's trace, if it has one; the statement is a part of the last."""
    if not traces.is_tracing():
        return await store.commit_turns(turns, now)
    with ExitStack() as stack:
        for turn in turns:
            job_id = turn.job.id
            trace_parent = jobs[job_id].new.trace_parent if job_id in jobs else None
            if trace_parent is not None:
                status, tasks = turn.job.status.value, len(turn.tasks)
                stack.enter_context(
                    traces.span("turn", trace_parent, job_id=job_id, status=status, tasks=tasks)
                )
        return await store.commit_turns(turns, now)
