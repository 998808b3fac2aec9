"""The turn of one job: from its pending events to the rows to commit. Nothing is stored here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.orchestrator.added_nodes import load_added
from dagmaster.orchestrator.audit_log import to_audit_events
from dagmaster.orchestrator.turn import recover, run_turn
from dagmaster.orchestrator.turn_commit import to_commit

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from dagmaster.engine.events import EngineEvent
    from dagmaster.engine.graph import DefaultLimits
    from dagmaster.orchestrator.child_jobs import ChildJobs
    from dagmaster.orchestrator.inbox import PendingEvents
    from dagmaster.orchestrator.owned_job import OwnedJob
    from dagmaster.orchestrator.turn import TurnResult
    from dagmaster.ports.job_records import NewJob
    from dagmaster.ports.orchestrator_store import OrchestratorStore
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.turn_records import TurnCommit


class JobAdvancer:
    """Advances owned jobs."""

    def __init__(
        self,
        store: OrchestratorStore,
        *,
        children: ChildJobs,
        limits: DefaultLimits | None,
        blobs: OutputBlobs,
    ) -> None:
        self._store, self._children, self._limits = store, children, limits
        self._blobs = blobs

    async def advance(
        self, owned: OwnedJob, pending: PendingEvents, now: float
    ) -> tuple[TurnCommit, OwnedJob, TurnResult]:
        """Run the turn of a job; return the commit, the job and the decisions."""
        if pending.batches:
            await load_added(pending, owned.job.id, self._store, self._limits)
        if pending.needs_recovery:
            result = await _recover(owned, pending, now)
        else:
            result = await _run(owned, pending.events, pending.reported, now)
        jobs: list[NewJob] = []
        if result.child_jobs:
            result, jobs = await self._start_children(owned, result, now)
        children = {child.parent.node_id: child.id for child in jobs if child.parent is not None}
        commit = await to_commit(owned, result, ids=self._store.ids, blobs=self._blobs, now=now)
        commit.children = jobs
        commit.results, commit.notified_results = pending.results, pending.notified
        commit.commands = pending.commands
        commit.rejections = pending.rejections(result.decisions)
        commit.started |= pending.starts_except(commit.task_ids)
        commit.events = [*pending.audit_events, *to_audit_events(owned.job, result, children, pending)]
        owned.event_seq += len(commit.events)
        commit.event_seq = owned.event_seq
        owned.keep_sources(result.sources)
        return commit, owned, result

    async def _start_children(
        self, owned: OwnedJob, result: TurnResult, now: float
    ) -> tuple[TurnResult, list[NewJob]]:
        """Return the result of a turn that starts child jobs, and these."""
        jobs: list[NewJob] = []
        # A child job that is rejected, or whose result is reused, ends its node at once. What follows that
        # node may be another child job.
        while result.child_jobs:
            created, events = await self._children.start(owned, result)
            jobs += created
            result = result.merge(await _run(owned, events, {}, now))
        return result, jobs


async def _recover(owned: OwnedJob, pending: PendingEvents, now: float) -> TurnResult:
    """Answer the open needs of a job that was just loaded, and apply the events."""
    result = await recover(owned.job, scopes=owned.scopes, values=owned.values, now=now, reuse=owned.reuse)
    if not pending.events:
        return result
    return result.merge(await _run(owned, pending.events, pending.reported, now))


def _run(
    owned: OwnedJob, events: Iterable[EngineEvent], reported: Mapping[tuple[str, int], Any], now: float
) -> Coroutine[Any, Any, TurnResult]:
    return run_turn(
        owned.job,
        events,
        reported=reported,
        scopes=owned.scopes,
        values=owned.values,
        now=now,
        reuse=owned.reuse,
    )
