"""Run a claimed task: decode it, fill secrets, execute, redact, store the output, report."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.expressions.templates import attach_secrets, fill_secrets
from dagmaster.engine.status import AttemptStatus
from dagmaster.errors import DagmasterError, PermanentError
from dagmaster.ports.handler_reports import Checkpoint
from dagmaster.ports.json_text import MAX_INLINE, JsonText
from dagmaster.ports.task_ledger import TaskReport
from dagmaster.ports.task_messages import Failed, Outcome, Released, Succeeded, TaskMessage
from dagmaster.redaction import redact_outcome
from dagmaster.worker.task_outcomes import failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.worker.executor import Executor
    from dagmaster.worker.telemetry_buffer import TelemetryBuffer

UNKNOWN_HANDLER_SECONDS: Final = 1.0
"""How long a worker keeps a task whose handler it does not have, before it releases it for another worker."""


class TaskRunner:
    """Runs claimed tasks on one executor."""

    def __init__(
        self,
        executor: Executor,
        *,
        telemetry: TelemetryBuffer,
        blobs: OutputBlobs,
        secrets: Callable[[str], str | None],
        other_worker_has_handler: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        self.executor = executor
        self._other_worker_has_handler = other_worker_has_handler
        self._telemetry = telemetry
        self._blobs = blobs
        self._secrets = secrets

    async def run(self, task: ClaimedTask) -> TaskReport:
        """Run a task and return its report. Every error is in the report."""
        self._telemetry.begin(task.task_id, task.token)
        if self.executor.version_of(task.handler) is None and self._other_worker_has_handler is not None:
            return await self._unknown(task, self._other_worker_has_handler)
        hidden: set[str] = set()
        try:
            message = self._message(task, hidden)
        except PermanentError as error:
            return await self._report(task, failed(error.kind, str(error), permanent=True))
        self._telemetry.hide(task.task_id, hidden)
        outcome = await self.executor.execute(message)
        report = await self._report(task, redact_outcome(outcome, hidden))
        report.has_checkpoints = self._telemetry.has_checkpoints(task.task_id)
        return report

    async def _unknown(self, task: ClaimedTask, is_served: Callable[[str], Awaitable[bool]]) -> TaskReport:
        """Release a task to a worker that has its handler (during a deployment), or fail it."""
        try:
            has_other = await is_served(task.task_id)
        except DagmasterError:
            # Unknown: the next worker that claims it checks again.
            has_other = True
        if has_other:
            # Not at once: a free worker claims it again, perhaps this one.
            await asyncio.sleep(UNKNOWN_HANDLER_SECONDS)
            return await self._report(task, Released("another worker has its handler"))
        outcome = await self.executor.execute(TaskMessage(task.task_id, task.job_id, task.node_id, task.handler))
        if isinstance(outcome, Failed):
            outcome.error["message"] += (
                f". Worker {socket.gethostname()}:{os.getpid()} serves its queue without it, and no other has it:"
                " start a worker with `--handlers`, and resume the job"
            )
        return await self._report(task, outcome)

    def _message(self, task: ClaimedTask, hidden: set[str]) -> TaskMessage:
        params: Any = json.loads(task.params)
        if task.secrets is not None:
            references = json.loads(task.secrets)
            hidden.update(references["hide"])

            def secret(name: str) -> str:
                value = self._secrets(name)
                if value is None:
                    message = f"there is no secret {name!r}: set DAGMASTER_SECRET_{name} where the worker runs"
                    raise PermanentError(message, kind="secret_missing")
                hidden.add(value)
                return value

            params = fill_secrets(attach_secrets(params, references["places"]), secret)
        checkpoint = None if task.checkpoint is None else Checkpoint.from_stored(json.loads(task.checkpoint))
        return TaskMessage(
            task_id=task.task_id,
            job_id=task.job_id,
            node_id=task.node_id,
            handler=task.handler,
            params=params,
            timeout_seconds=task.timeout_seconds,
            retry_count=task.attempt - 1,
            attempt=task.attempt,
            checkpoint=checkpoint,
            workflow=task.workflow,
            fencing_token=task.fencing_token,
            trace_parent=task.trace_parent,
            own_params=True,
            isolation=task.isolation,
        )

    async def _report(self, task: ClaimedTask, outcome: Outcome) -> TaskReport:
        match outcome:
            case Succeeded():
                return await self._success(task, outcome)
            case Failed():
                error = json.dumps(outcome.error)
                return TaskReport(
                    task.task_id, task.token, AttemptStatus.FAILED, permanent=outcome.permanent, error=error,
                    running_seconds=outcome.running_seconds,
                )  # fmt: skip
            case Released():
                return TaskReport(
                    task.task_id, task.token, AttemptStatus.RELEASED, running_seconds=outcome.running_seconds
                )

    async def _success(self, task: ClaimedTask, outcome: Succeeded) -> TaskReport:
        text = json.dumps(outcome.output)
        metrics = json.dumps(outcome.metrics) if outcome.metrics else None
        report = TaskReport(
            task.task_id, task.token, AttemptStatus.COMPLETED, metrics=metrics, running_seconds=outcome.running_seconds
        )
        report.handler_version = self.executor.version_of(task.handler)
        if len(text) <= MAX_INLINE:
            report.output = JsonText(text)
            return report
        # Named by the claim: the blob of a rejected report is unreferenced.
        name = f"jobs/{task.job_id}/{task.node_id}/{task.attempt}-{task.token}.json"
        try:
            await self._blobs.write(name, text.encode())
        except DagmasterError as error:
            problem = failed("blobs_unavailable", f"the output could not be stored: {error}")
            return TaskReport(
                task.task_id, task.token, AttemptStatus.FAILED, error=json.dumps(problem.error),
                running_seconds=outcome.running_seconds,
            )  # fmt: skip
        report.output = JsonText(ref=name)
        return report
