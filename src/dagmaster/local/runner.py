"""Run one job in this process: the orchestrator's own service and a worker, over any stores.

`dagmaster run` runs it over PostgreSQL, `dagmaster run --ephemeral` and `run_workflow` over the stores in
memory. The runner submits the job, answers its approvals, sends its commands and waits for its end. It
decides nothing about nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from dagmaster.application.submission import JobRequest, JobSubmitter
from dagmaster.engine.approvals_and_waits import forbidden_answer, may_answer
from dagmaster.engine.graph import ApprovalSpec, Graph, WaitSpec
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import DatabaseUnavailable
from dagmaster.local.turn_updates import TurnUpdate
from dagmaster.orchestrator.turn import ApprovalRequest
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.job_options import MAX_SUBMITTER
from dagmaster.ports.run_queues import run_queue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence

    from dagmaster.application.context import Application
    from dagmaster.engine.model import Job, Node
    from dagmaster.host.snowflakes import Snowflakes
    from dagmaster.local.idle_clock import IdleClock
    from dagmaster.orchestrator.service import Orchestrator
    from dagmaster.orchestrator.turn import TurnResult
    from dagmaster.ports.handler_reports import Progress
    from dagmaster.ports.task_messages import TaskMessage
    from dagmaster.worker.service import Worker

__all__ = ["Answers", "ApprovalRequest", "Graph", "LocalRunner", "LocalServices", "Observer"]

CHECK_SECONDS: Final = 2.0
"""How often the store is asked whether the job has finished: another orchestrator may own it."""

RESEND_SECONDS: Final = 0.5
"""How long a command waits that could not be sent because the database was unavailable."""


class Answers(Protocol):
    """Answers approvals."""

    async def approval(self, request: ApprovalRequest) -> tuple[bool, str, str] | None:
        """Return (approved, person, comment), or None to leave the approval open."""


class Observer(Protocol):
    """Observes a run. Called on the event loop or on a handler's thread: it must be quick."""

    def turn(self, update: TurnUpdate) -> None:
        """Observe a committed turn."""

    def progress(self, job_id: str, node_id: str, progress: Progress) -> None:
        """Observe the progress of a handler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServices:
    """The stores of a run, and how its services are made."""

    application: Application
    ids: Snowflakes
    make_orchestrator: Callable[[str], Orchestrator]
    """Make an orchestrator that owns only the jobs of this queue."""
    make_worker: Callable[[str], Worker]
    """Make a worker that serves only this queue."""
    clock: IdleClock | None = None
    """The clock of stores that only this process can write to; None if other processes share them."""


class LocalRunner:
    """Runs jobs to their end, one after another."""

    def __init__(
        self,
        services: LocalServices,
        *,
        answers: Answers | None = None,
        observer: Observer | None = None,
        on_log: Callable[[str], None] | None = None,
        user: str = "",
        is_alone: bool = False,
    ) -> None:
        self.services = services
        self.answers = answers
        self.observer = observer
        self.on_log = on_log
        self.user = user
        # Nothing else will call `signal` or `cancel`: a job that waits for that waits forever, and is
        # cancelled.
        self.is_alone = is_alone
        self.note = ""
        self.job_id = ""
        self._failure: BaseException | None = None
        self._orchestrator: Orchestrator | None = None
        self._finished = asyncio.Event()
        self._commands: asyncio.Queue[_Command] = asyncio.Queue()
        self._questions: dict[asyncio.Task[None], tuple[str, str]] = {}

    def cancel(self) -> None:
        self._send(CommandKind.CANCEL, {})

    def signal(self, name: str, payload: Any = None) -> None:
        self._send(CommandKind.SIGNAL, {"name": name, "payload": payload})

    async def run(
        self,
        graph: Graph,
        inputs: Mapping[str, Any],
        *,
        children: Sequence[Graph] = (),
        env: Mapping[str, str] | None = None,
    ) -> str:
        """Run a job to its end and return its id. `children`: the workflows that its child jobs may need.

        Raise `InputsInvalid` before anything starts if the inputs do not fit.
        """
        services = self.services
        submitter = JobSubmitter(
            services.application.client, services.ids, env=env, vault=services.application.vault
        )
        queue = run_queue(services.ids.new())
        request = JobRequest(
            inputs=inputs, submitted_by=self.user[:MAX_SUBMITTER], queue=queue, child_graphs=children
        )
        await submitter.make_job(request, graph)
        for child in children:
            await submitter.store_graph(child)
        self._reset()
        async with self._run_services(queue):
            self.job_id = (await submitter.submit(graph, request))[0].job_id
            await self._until_finished()
        if self._failure is not None:
            raise self._failure
        return self.job_id

    async def run_stored(self, job_id: str) -> bool:
        """Run a stored job to its end, unless an orchestrator has it; return whether it was run."""
        client, queue = self.services.application.client, run_queue(self.services.ids.new())
        self._reset()
        async with self._run_services(queue):
            self.job_id = job_id
            is_assigned = await client.assign_queue(job_id, queue)
            if is_assigned:
                await self._until_finished()
        if self._failure is not None:
            raise self._failure
        return is_assigned

    def _reset(self) -> None:
        self._finished.clear()
        self.job_id, self.note, self._failure = "", "", None

    async def _until_finished(self) -> None:
        background = [asyncio.create_task(self._send_commands()), asyncio.create_task(self._check_finished())]
        try:
            await self._finished.wait()
        finally:
            for task in (*background, *self._questions):
                task.cancel()
            await asyncio.gather(*background, *self._questions, return_exceptions=True)

    # ── Services ──

    @contextlib.asynccontextmanager
    async def _run_services(self, queue: str) -> AsyncIterator[None]:
        """Run an orchestrator and a worker of this queue.

        Other services leave its jobs alone while they are alive.
        """
        orchestrator, worker = self.services.make_orchestrator(queue), self.services.make_worker(queue)
        orchestrator.observer = self
        worker.telemetry.on_progress = self._on_progress
        worker.telemetry.on_log = self._on_log
        self._orchestrator = orchestrator
        if self.services.clock is not None:
            self.services.clock.attach(is_waiting=lambda: bool(self._questions), on_idle=self._on_idle)
        tasks = [asyncio.create_task(orchestrator.run()), asyncio.create_task(worker.run())]
        for task in tasks:
            task.add_done_callback(self._on_service_end)
        try:
            for ready in (orchestrator.ready, worker.ready):
                await _first_of(ready.wait(), tasks)
            yield
        finally:
            orchestrator.stop()
            worker.stop()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._orchestrator = None

    def _on_service_end(self, service: asyncio.Task[None]) -> None:
        """End the run when one of its services failed: it would wait forever."""
        if not service.cancelled() and service.exception() is not None:
            self.note = f"a service of this run failed: {service.exception()}"
            self._finished.set()

    async def _check_finished(self) -> None:
        """Ask the store now and then: the turn that ended the job may be another orchestrator's."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            with contextlib.suppress(DatabaseUnavailable):
                read = self.services.application.read
                job = await read.job(self.job_id)
                # A finished job with a command may be about to run again.
                if (
                    job is not None
                    and job.is_finished
                    and not await read.pending_commands(job.job_id, limit=1)
                ):
                    self._finished.set()

    # ── Commands ──

    def _send(
        self, kind: CommandKind, body: dict[str, Any], *, job_id: str = "", sent_by: str | None = None
    ) -> None:
        self._commands.put_nowait(_Command(kind, body, job_id, self.user if sent_by is None else sent_by))

    async def _send_commands(self) -> None:
        while True:
            command = await self._commands.get()
            job_id = command.job_id or self.job_id
            while True:
                try:
                    await self.services.application.client.send(
                        job_id, command.kind, command.body, command.sent_by
                    )
                except DatabaseUnavailable:
                    await asyncio.sleep(RESEND_SECONDS)
                else:
                    break

    # ── What services report ──

    def turn(self, job: Job, writes: TurnResult) -> None:
        """Pass a committed turn on, and ask for the approvals that it requested."""
        if self.observer is not None:
            self.observer.turn(TurnUpdate(job, writes))
        for request in writes.approvals:
            self._request_answer(job.id, request)
        if self._questions:
            for question, (job_id, node_id) in list(self._questions.items()):
                if job_id == job.id and job.nodes[node_id].is_terminal:
                    question.cancel()
        if writes.finished is not None and job.id == self.job_id:
            self._finished.set()

    def _on_progress(self, task: TaskMessage, progress: Progress) -> None:
        if self.observer is not None:
            self.observer.progress(task.job_id, task.node_id, progress)

    def _on_log(self, _task: TaskMessage, text: str) -> None:
        if self.on_log is not None:
            self.on_log(text)

    def _on_idle(self, has_timer: bool) -> None:  # noqa: FBT001 - a callback
        """End a job that nothing can move any more."""
        orchestrator = self._orchestrator
        if orchestrator is None or not self.job_id or self._finished.is_set():
            return
        if orchestrator.quarantined:
            reasons = ", ".join(orchestrator.quarantined.values())
            self._fail(
                RuntimeError(
                    f"job {self.job_id} could not be advanced ({reasons}); the log has the traceback"
                )
            )
        elif self.is_alone and not has_timer and not self.note:
            jobs = [owned.job for owned in orchestrator.jobs.values()]
            nodes = [node for job in jobs for node in job.nodes.values() if node.status is NodeStatus.WAITING]
            self.note = _why_stuck(nodes)
            self.cancel()

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._finished.set()

    # ── Approvals ──

    def _request_answer(self, job_id: str, request: ApprovalRequest) -> None:
        if self.answers is not None:
            question = asyncio.create_task(self._answer(self.answers, job_id, request))
            self._questions[question] = (job_id, request.node)
            question.add_done_callback(self._on_answered)

    async def _answer(self, answers: Answers, job_id: str, request: ApprovalRequest) -> None:
        answer = await answers.approval(request)
        if answer is None:
            return
        approved, person, comment = answer
        if not may_answer(request.approval, person):
            self.note = forbidden_answer(request.approval, request.node, person)
            self.cancel()
            return
        kind = CommandKind.APPROVE if approved else CommandKind.REJECT
        self._send(kind, {"node": request.node, "comment": comment}, job_id=job_id, sent_by=person)

    def _on_answered(self, question: asyncio.Task[None]) -> None:
        self._questions.pop(question, None)
        if not question.cancelled() and (error := question.exception()) is not None:
            self._fail(error)
        if self._orchestrator is not None:
            # An approval that stays open may leave nothing that can move the job.
            self._orchestrator.store.wakeup.set()


def _why_stuck(nodes: Sequence[Node]) -> str:
    """Return what waiting nodes wait for, and how a run receives it."""
    waiting = f"{', '.join(node.id for node in nodes)} {'waits' if len(nodes) == 1 else 'wait'}"
    approvals = [node.id for node in nodes if isinstance(node.spec, ApprovalSpec)]
    signals = [node.spec.signal for node in nodes if isinstance(node.spec, WaitSpec) and node.spec.signal]
    options = [*(f"--approve {name}" for name in approvals), *(f"--signal {name}" for name in signals)]
    note = f"the job cannot continue: {waiting} for an approval or a signal that this run cannot receive"
    if options:
        note += f"; `dagmaster run {' '.join(options)}` sends {'it' if len(options) == 1 else 'them'}"
    if approvals:
        note += f", run_workflow(…, answers={dict.fromkeys(approvals, True)}) of dagmaster.testing approves"
    return note


@dataclass(frozen=True, slots=True)
class _Command:
    """A command to send; without a job id, to the job of the run."""

    kind: CommandKind
    body: dict[str, Any]
    job_id: str
    sent_by: str


async def _first_of(work: Coroutine[Any, Any, Any], services: Sequence[asyncio.Task[None]]) -> None:
    """Wait for this, or for the failure of a service, which is raised."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task, *services], return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
    for service in services:
        if service.done():
            service.result()
