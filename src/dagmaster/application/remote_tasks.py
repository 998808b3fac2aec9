"""Tasks for workers that speak only HTTP: register, long-poll claims, renew, report progress and results.

A server keeps nothing of a worker: any of them may get its next request. Every report is fenced by the lease
token of its task. What is redacted, stored as a blob or cut is what a worker with a connection redacts,
stores and cuts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.views.remote_tasks import (
    ClaimedTasksView,
    DeregistrationView,
    HeartbeatView,
    RegistrationView,
    TaskProgressView,
    TaskResultView,
)
from dagmaster.application.worker_admission import NO_LIMITS, WorkerQuotas, check_quota, check_worker
from dagmaster.engine.status import AttemptStatus
from dagmaster.errors import LeaseLost, PermanentError, WorkerExpired
from dagmaster.host.clocks import loop_time, wait_at_most
from dagmaster.ports.handler_reports import data_to_store
from dagmaster.ports.secret_vault import ClosedVault
from dagmaster.ports.task_journal import CheckpointWrite, LogChunk
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.ports.task_messages import Failed, Released
from dagmaster.redaction import redact_outcome, redact_value
from dagmaster.text_format import format_seconds
from dagmaster.worker.error_truncation import truncate_details
from dagmaster.worker.report_delivery import counter_of
from dagmaster.worker.task_conversion import (
    SecretReplaced,
    fingerprint_secrets,
    make_message,
    make_report,
    secret_values,
)
from dagmaster.worker.task_outcomes import failed
from dagmaster.worker.telemetry_buffer import with_checkpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from dagmaster.json_types import JsonObject
    from dagmaster.ports.api_keys import KeyLimits
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.remote_workers import HeldTask, NewWorker, RemoteWorker, RemoteWorkers
    from dagmaster.ports.secret_vault import SecretVault
    from dagmaster.ports.task_ledger import HeartbeatAnswer
    from dagmaster.ports.task_messages import Outcome
    from dagmaster.ports.task_source import ClaimedTask

MAX_CLAIM: Final = 100
MAX_WAIT_SECONDS: Final = 30.0
_HEARTBEATS_PER_LEASE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """A request for tasks. `task_ids`: those that the worker holds already."""

    worker_id: str
    task_ids: Sequence[str] = ()
    limit: int = 1
    wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport:
    """What a worker reports of a task that runs. `checkpoint` is JSON; `log` a numbered chunk."""

    worker_id: str
    task_id: str
    lease_token: int
    progress: JsonObject | None = None
    checkpoint: JsonObject | None = None
    log: tuple[int, str] | None = None


@dataclass(slots=True)
class RemoteTasks:
    """The tasks of workers that speak HTTP.

    `secrets`: from the environment of the server, which fills them in. `vault`: reads secret inputs.
    `shipped`: the names of handlers that ship with dagmaster, which no caller owns by being first.
    """

    workers: RemoteWorkers
    blobs: OutputBlobs
    secrets: Callable[[str], str | None]
    lease_seconds: float
    quotas: WorkerQuotas = field(default_factory=WorkerQuotas)
    vault: SecretVault = field(default_factory=ClosedVault)
    shipped: frozenset[str] = frozenset()
    _polls: set[asyncio.Event] = field(default_factory=set)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _views: dict[str, RemoteTasks] = field(default_factory=dict)

    def for_tenant(self, tenant: str) -> RemoteTasks:
        """Return the same for the workers of a tenant, which claim its tasks alone."""
        if tenant not in self._views:
            self._views[tenant] = replace(self, workers=self.workers.for_tenant(tenant))
        return self._views[tenant]

    @property
    def heartbeat_seconds(self) -> float:
        return self.lease_seconds / _HEARTBEATS_PER_LEASE

    def stop(self) -> None:
        """End all requests that wait for tasks: the server stops."""
        self._stopping.set()
        for wakeup in self._polls:
            wakeup.set()

    async def register(self, worker: NewWorker, limits: KeyLimits = NO_LIMITS) -> RegistrationView:
        """Register a worker with the handlers that it may have; raise `KeyNarrowed` or `QuotaExceeded`.

        A worker of a key that is narrowed to queues, and that names none, serves these.
        """
        check_worker(worker, limits)
        if worker.offer is not None:
            check_quota(
                worker,
                await self.workers.contracts.usage(worker.registered_by, worker.offer.actor),
                self.quotas,
            )
            admitted = await self.workers.contracts.offer(worker.offer._replace(reserved=self.shipped))
            handlers = {name: version for name, version in worker.offered.items() if name in admitted}
            worker = replace(worker, handlers=handlers, queues=worker.queues or limits.queues)
        worker_id = await self.workers.register(worker)
        return RegistrationView(
            worker_id=worker_id,
            lease_seconds=self.lease_seconds,
            heartbeat_seconds=self.heartbeat_seconds,
            untrusted_handlers=_sorted(worker.offered.keys() - worker.handlers.keys()),
        )

    async def deregister(self, worker_id: str, caller: str) -> DeregistrationView:
        await (await self._find(worker_id, caller)).deregister()
        return DeregistrationView(worker_id=worker_id)

    async def heartbeat(self, worker_id: str, task_ids: Sequence[str], caller: str) -> HeartbeatView:
        """Renew the lease of a worker and of the tasks that it holds; return the tasks to stop."""
        answer = await self._renew(await self._find(worker_id, caller), task_ids)
        return HeartbeatView(
            worker_id=worker_id,
            stop=_sorted(answer.stops),
            lease_seconds=self.lease_seconds,
            drain=answer.drain is not None,
        )

    # ── Claiming ──

    async def claim(
        self, request: ClaimRequest, caller: str, is_connected: Callable[[], Awaitable[bool]]
    ) -> ClaimedTasksView:
        """Claim tasks; wait for some if there are none.

        A worker that waits is alive: its lease is renewed.
        """
        worker = await self._find(request.worker_id, caller)
        deadline = loop_time() + request.wait_seconds
        answer = await self._renew(worker, request.task_ids)
        tasks: list[ClaimedTask] | None = None
        while tasks is None:
            # A worker that drains must not be woken instead of another one.
            waiting = worker.waiting() if answer.drain is None else contextlib.nullcontext(asyncio.Event())
            with waiting as wakeup, self._poll(wakeup):
                tasks, answer = await self._claim_until(
                    worker, request, answer, wakeup, deadline=deadline, is_connected=is_connected
                )
        if tasks and not await is_connected():
            await worker.release(
                [TaskReport(task.task_id, task.token, AttemptStatus.RELEASED) for task in tasks]
            )
            return self._claimed(request, answer, [])
        return self._claimed(request, answer, await self._start(worker, tasks))

    async def _claim_until(
        self,
        worker: RemoteWorker,
        request: ClaimRequest,
        answer: HeartbeatAnswer,
        wakeup: asyncio.Event,
        *,
        deadline: float,
        is_connected: Callable[[], Awaitable[bool]],
    ) -> tuple[list[ClaimedTask] | None, HeartbeatAnswer]:
        """Return claimed tasks, or None when a drain begins or ends; and the newest answer to a heartbeat.

        A wake-up that is left set is passed on to the next that waits.
        """
        is_draining, renewed_at, is_woken = answer.drain is not None, loop_time(), False
        while True:
            wakeup.clear()
            tasks = [] if is_draining else await _claim(worker, request, answer)
            if is_woken and not tasks and not is_draining:
                # Another one claimed them, or this worker drains and never gets any: they are for the next.
                answer, renewed_at = await self._renew_listed(worker, request), loop_time()
                if answer.drain is not None:
                    wakeup.set()
                    return None, answer
            if tasks or answer.stops or self._is_over(deadline):
                if len(tasks) == request.limit:
                    # There may be more.
                    wakeup.set()
                return tasks, answer
            await wait_at_most(wakeup, min(deadline - loop_time(), self.heartbeat_seconds))
            if not await is_connected():
                return [], answer
            is_woken = wakeup.is_set()
            if not is_woken:
                worker.rescan_queues()
            if loop_time() >= renewed_at + self.heartbeat_seconds:
                answer, renewed_at = await self._renew_listed(worker, request), loop_time()
                if (answer.drain is not None) != is_draining:
                    return None, answer

    def _is_over(self, deadline: float) -> bool:
        return self._stopping.is_set() or loop_time() >= deadline

    async def _renew_listed(self, worker: RemoteWorker, request: ClaimRequest) -> HeartbeatAnswer:
        await worker.refresh_handlers()
        # A parallel request may have claimed tasks since: what is not in this list may run.
        return await self._stop_overdue(worker, request.task_ids, await worker.renew(request.task_ids))

    @contextlib.contextmanager
    def _poll(self, wakeup: asyncio.Event) -> Any:
        self._polls.add(wakeup)
        try:
            yield
        finally:
            self._polls.discard(wakeup)

    async def _start(self, worker: RemoteWorker, tasks: Sequence[ClaimedTask]) -> list[JsonObject]:
        """Return the messages of claimed tasks, which start now. One that lacks a secret fails here."""
        messages: list[JsonObject] = []
        starts: dict[str, tuple[int, float]] = {}
        fingerprints: dict[str, tuple[int, dict[str, str]]] = {}
        rejected: list[TaskReport] = []
        for task in tasks:
            try:
                messages.append(self._message(task))
                starts[task.task_id] = (task.token, 0.0)
                if prints := fingerprint_secrets(task.secrets, self.secrets):
                    fingerprints[task.task_id] = (task.token, prints)
            except PermanentError as error:
                outcome = failed(error.kind, str(error), permanent=True)
                rejected.append(await make_report(task, outcome, self.blobs, None))
        worker.count("claimed", len(tasks))
        if rejected:
            await _report(worker, rejected)
        if fingerprints:
            await worker.keep_fingerprints(fingerprints)
        if starts:
            await worker.mark_started(starts)
        return messages

    def _claimed(
        self, request: ClaimRequest, answer: HeartbeatAnswer, messages: Sequence[JsonObject]
    ) -> ClaimedTasksView:
        return ClaimedTasksView(
            worker_id=request.worker_id,
            tasks=tuple(messages),
            stop=_sorted(answer.stops),
            lease_seconds=self.lease_seconds,
            drain=answer.drain is not None,
        )

    # ── Reporting ──

    async def progress(self, report: ProgressReport, caller: str) -> TaskProgressView:
        """Store progress, checkpoint and a part of the log of a running task; return whether it must stop."""
        worker = await self._find(report.worker_id, caller)
        task_id, token = report.task_id, report.lease_token
        task = await worker.held_task(task_id, token)
        if task is None:
            raise _lease_lost(task_id)
        try:
            hidden = self._hidden(task)
        except SecretReplaced:
            # Nothing of it can be stored; its result says why.
            return TaskProgressView(task_id=task_id, stop=task.is_stopping)
        document = json.loads(task.progress or "{}") | redact_value(report.progress or {}, hidden)
        if report.checkpoint is not None:
            clean = redact_value(report.checkpoint, hidden)
            artifacts = tuple(clean["artifacts"])
            data = json.dumps(data_to_store(clean))
            await worker.checkpoint([CheckpointWrite(task_id, token, clean["phase"], data, artifacts)])
            document = with_checkpoint(document, clean["phase"], task.running_seconds)
        if report.log is not None:
            chunk, text = report.log
            await worker.append_logs([LogChunk(task_id, token, chunk, redact_value(text, hidden))])
        if report.progress is not None or report.checkpoint is not None:
            await worker.progress({task_id: (token, json.dumps(document))})
        return TaskProgressView(task_id=task_id, stop=task.is_stopping)

    async def report(
        self, worker_id: str, task_id: str, lease_token: int, outcome: Outcome, caller: str
    ) -> TaskResultView:
        """Report a task's outcome, once for each lease token: the same report again gets the same answer."""
        worker = await self.workers.find(worker_id, caller)
        task = None if worker is None else await worker.held_task(task_id, lease_token)
        if worker is not None and task is not None:
            outcome = self._redact(_storable(outcome), task)
            report = await make_report(task, outcome, self.blobs, worker.handlers.get(task.handler))
            report.has_checkpoints = "checkpoints" in json.loads(task.progress or "{}")
            if await worker.report_with_receipts([report]):
                worker.count(counter_of(report))
                return _result(task, report.status)
        # The answer to an earlier delivery was lost, or another server is a moment ahead.
        status = await self.workers.receipt(task_id, lease_token)
        if status is not None:
            return TaskResultView(task_id=task_id, lease_token=str(lease_token), status=status)
        raise _worker_expired(worker_id) if worker is None else _lease_lost(task_id)

    def _redact(self, outcome: Outcome, task: HeldTask) -> Outcome:
        """Return an outcome without secrets; one that cannot be redacted fails, but can be retried."""
        try:
            return redact_outcome(outcome, self._hidden(task))
        except SecretReplaced as error:
            if isinstance(outcome, Released):
                return outcome
            is_permanent = isinstance(outcome, Failed) and outcome.permanent
            unknown = failed("secret_replaced", str(error), permanent=is_permanent)
            return replace(unknown, running_seconds=outcome.running_seconds)

    def _message(self, task: ClaimedTask) -> JsonObject:
        return make_message(task, self.secrets, set(), vault=self.vault, place="server").to_json()

    def _hidden(self, task: HeldTask) -> set[str]:
        return secret_values(task.job_id, task.secrets, self.secrets, self.vault)

    # ── Workers ──

    async def _find(self, worker_id: str, caller: str) -> RemoteWorker:
        worker = await self.workers.find(worker_id, caller)
        if worker is None:
            raise _worker_expired(worker_id)
        return worker

    async def _renew(self, worker: RemoteWorker, task_ids: Sequence[str]) -> HeartbeatAnswer:
        await worker.refresh_handlers()
        answer = await worker.heartbeat(task_ids, {"running": len(task_ids)})
        return await self._stop_overdue(worker, task_ids, answer)

    async def _stop_overdue(
        self, worker: RemoteWorker, task_ids: Sequence[str], answer: HeartbeatAnswer | None
    ) -> HeartbeatAnswer:
        """Add the tasks that run for too long to what a worker has to stop; raise if it has expired.

        A worker that drains has to stop all of them when its grace period is over.
        """
        if answer is None:
            raise _worker_expired(worker.id)
        if (
            answer.drain is not None
            and answer.drain.seconds_left is not None
            and answer.drain.seconds_left <= 0
        ):
            held = await worker.overdue_tasks(task_ids, -inf)
            releases = [TaskReport(task.task_id, task.token, AttemptStatus.RELEASED) for task in held]
            return (
                answer._replace(stops=answer.stops | await _report(worker, releases)) if releases else answer
            )
        # The worker ends a handler that takes too long. One that does not must not hold up its job.
        overdue = await worker.overdue_tasks(task_ids, self.lease_seconds)
        if not overdue:
            return answer
        reports = [await make_report(task, _timed_out(task), self.blobs, None) for task in overdue]
        return answer._replace(stops=answer.stops | await _report(worker, reports))


async def _report(worker: RemoteWorker, reports: Sequence[TaskReport]) -> set[str]:
    """Report what a server decided about tasks of a worker; return the tasks that were still held."""
    accepted = await worker.report(reports)
    for report in reports:
        if report.task_id in accepted:
            worker.count(counter_of(report))
    return accepted


async def _claim(worker: RemoteWorker, request: ClaimRequest, answer: HeartbeatAnswer) -> list[ClaimedTask]:
    if answer.has_exclusive:
        exclusive = await worker.claim_exclusive()
        if exclusive is not None:
            return [exclusive]
    return await worker.claim_handled(request.limit)


def _storable(outcome: Outcome) -> Outcome:
    """Return an outcome of a worker with its error cut as that of a handler."""
    if not isinstance(outcome, Failed):
        return outcome
    details = {key: value for key, value in outcome.error.items() if key not in ("kind", "message")}
    error = failed(outcome.error["kind"], outcome.error["message"]).error
    return replace(outcome, error={**truncate_details(details), **error})


def _timed_out(task: HeldTask) -> Failed:
    within = f"within {format_seconds(task.timeout_seconds)}"
    return failed("timeout", f"the handler did not finish {within}, and its worker did not stop it")


def _result(task: HeldTask, status: AttemptStatus) -> TaskResultView:
    return TaskResultView(task_id=task.task_id, lease_token=str(task.token), status=status)


def _worker_expired(worker_id: str) -> WorkerExpired:
    return WorkerExpired(
        f"worker {worker_id} is not registered by this key, or was silent for longer than its lease: its"
        " tasks run elsewhere. Stop them, and register again"
    )


def _lease_lost(task_id: str) -> LeaseLost:
    return LeaseLost(
        f"task {task_id} is not held by this worker under this lease token: it finished, was stopped, or was"
        " lost and given to another worker. Drop the result"
    )


def _sorted(task_ids: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(task_ids))
