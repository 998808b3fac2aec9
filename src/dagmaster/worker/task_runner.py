"""Run a claimed task: decode it, fill secrets, execute, redact, store the output, report."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Final

from dagmaster.errors import DagmasterError, PermanentError
from dagmaster.errors.suggestions import nearest, similar_handlers
from dagmaster.ports.task_messages import Failed, Released, TaskMessage
from dagmaster.redaction import redact_outcome
from dagmaster.worker.code_comparison import describe_difference, own_fingerprint, with_difference
from dagmaster.worker.task_conversion import make_message, make_report
from dagmaster.worker.task_outcomes import failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Protocol

    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.secret_vault import SecretVault
    from dagmaster.ports.task_ledger import TaskReport
    from dagmaster.ports.task_messages import Outcome
    from dagmaster.ports.task_source import ClaimedTask
    from dagmaster.worker.executor import Executor
    from dagmaster.worker.telemetry_buffer import TelemetryBuffer

    class OtherWorkerHasHandler(Protocol):
        """`TaskLedger.other_worker_has_handler`."""

        def __call__(self, task_id: str, /, *, by_package: bool = ...) -> Awaitable[bool]:
            """Return whether another worker has the handler of a task."""


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
        vault: SecretVault,
        other_worker_has_handler: OtherWorkerHasHandler | None = None,
    ) -> None:
        self.executor = executor
        self._other_worker_has_handler = other_worker_has_handler
        self._telemetry = telemetry
        self._blobs = blobs
        self._secrets, self._vault = secrets, vault

    async def run(self, task: ClaimedTask) -> TaskReport:
        """Run a task and return its report. Every error is in the report."""
        self._telemetry.begin(task.task_id, task.token)
        version = self.executor.version_of(task.handler)
        if version is None and self._other_worker_has_handler is not None:
            return await self._unknown(task, self._other_worker_has_handler)
        hidden: set[str] = set()
        try:
            message = make_message(task, self._secrets, hidden, vault=self._vault)
        except PermanentError as error:
            return await self._report(task, failed(error.kind, str(error), permanent=True))
        self._telemetry.hide(task.task_id, hidden)
        if message.code_fingerprint is None:
            outcome = await self.executor.execute(message)
        else:
            outcome = await self._execute_and_compare(message)
        report = await make_report(task, redact_outcome(outcome, hidden), self._blobs, version)
        report.has_checkpoints = self._telemetry.has_checkpoints(task.task_id)
        return report

    async def _execute_and_compare(self, message: TaskMessage) -> Outcome:
        own = own_fingerprint(message, self.executor.registry.find(message.handler))
        if own is None:
            return await self.executor.execute(message)
        self._telemetry.log(message, describe_difference(message, own))
        return with_difference(await self.executor.execute(message), message, own)

    async def _unknown(self, task: ClaimedTask, is_served: OtherWorkerHasHandler) -> TaskReport:
        """Release a task to a worker that has its handler (during a deployment), or fail it."""
        is_allowed = self.executor.registry.allows(task.handler)
        try:
            # This worker has the package of an entrypoint, and no such function. Another that only has the
            # package would release the task to this one again, and so on.
            has_other = await is_served(task.task_id, by_package=not is_allowed)
        except DagmasterError:
            # Unknown: the next worker that claims it checks again.
            has_other = True
        if has_other:
            # Not at once: another one without the handler may claim it. This one leaves it to others now.
            await asyncio.sleep(UNKNOWN_HANDLER_SECONDS)
            return await self._report(task, Released("another worker has its handler"))
        outcome = await self.executor.execute(
            TaskMessage(task.task_id, task.job_id, task.node_id, task.handler)
        )
        if isinstance(outcome, Failed):
            # An entrypoint has its module in its name; a handler may be defined anywhere.
            module = task.handler.rpartition(".")[0] or "MODULE"
            todo = (
                "correct the name, or deploy the module that has it to the workers"
                if is_allowed
                else f"start one with `--handlers {module}`, or with the module or file that defines it"
                f" (`dagmaster worker --queue {task.queue} --handlers …`, `dagmaster dev --handlers …`),"
                " and resume the job"
            )
            message = outcome.error["message"]
            # The message is a line in lists; `jobs why` shows the details instead.
            end = "" if message.endswith("?") else "."
            outcome.error["details"] = (
                f"{message}{end} Worker {socket.gethostname()}:{os.getpid()} serves its queue without it, and"
                " no other"
                f" has it: {todo}"
            )
            outcome.error["message"] = message if is_allowed else self._format_missing(task.handler)
        return await self._report(task, outcome)

    def _format_missing(self, handler: str) -> str:
        near = nearest(handler, similar_handlers(handler, self.executor.registry.served_names()))
        module = handler.rpartition(".")[0]
        if near:
            hint = f"did you mean {near!r}?"
        elif module:
            hint = f"start one with `--handlers {module}`, or correct the name."
        else:
            hint = (
                "start a worker with the module or file that defines it (`--handlers`), or correct the name."
            )
        return (
            f"no worker of its queue has the handler {handler!r}: {hint} `dagmaster handlers list` lists them"
        )

    async def _report(self, task: ClaimedTask, outcome: Outcome) -> TaskReport:
        return await make_report(task, outcome, self._blobs, self.executor.version_of(task.handler))
