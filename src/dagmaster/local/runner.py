"""Runs jobs to their end in this process: the real engine, turns and handlers over a store in memory.

For trying a workflow and for users' tests. Nothing survives the process. People and child jobs are the caller's: it
says who answers approvals (`Answers`) and where other workflows are found.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from dagmaster.authoring.inputs import accept_inputs
from dagmaster.engine.approvals_and_waits import rfc3339
from dagmaster.engine.decisions import Fail, WaitUntil
from dagmaster.engine.events import (
    Approved,
    CancelRequested,
    ChildJobFinished,
    DispatchRejected,
    EngineEvent,
    JobStarted,
    Rejected,
    SignalReceived,
    TaskFailed,
    TaskReleased,
    TaskSucceeded,
    TimerFired,
)
from dagmaster.engine.expressions.templates import fill_secrets, has_secrets
from dagmaster.engine.graph import ApprovalSpec
from dagmaster.engine.model import Job
from dagmaster.engine.status import NodeStatus
from dagmaster.engine.step import failure
from dagmaster.errors import DagmasterError, PermanentError, WorkflowInvalid
from dagmaster.local.memory_values import MemoryStore
from dagmaster.orchestrator.expression_scopes import ExpressionScopes
from dagmaster.orchestrator.turn import ApprovalRequest, ChildJobRequest, ResolvedTask, TurnResult, run_turn
from dagmaster.ports.clock import Clock, SystemClock
from dagmaster.ports.ids import Snowflakes
from dagmaster.ports.job_records import JobReport
from dagmaster.ports.task_messages import Failed, Outcome, Released, Succeeded, TaskMessage
from dagmaster.redaction import redact_value, redacted
from dagmaster.worker.executor import Executor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from dagmaster.authoring.handler_registry import Registry
    from dagmaster.engine.graph import Graph
    from dagmaster.ports.handler_context import Checkpoint, Progress
    from dagmaster.ports.handler_services import Services

MAX_DEPTH: Final = 8


class Answers(Protocol):
    """Who answers approvals."""

    async def approval(self, request: ApprovalRequest) -> tuple[bool, str, str] | None:
        """Give (yes or no, by whom, comment), or None if nobody is there to answer."""


class Observer(Protocol):
    """Who watches a run. Called in the loop: it must be quick."""

    def turn(self, job: Job, writes: TurnResult) -> None:
        """A turn was taken."""

    def progress(self, job_id: str, node_id: str, progress: Progress) -> None:
        """A handler reported how far it is."""


@dataclass(slots=True)
class _Queued:
    run: _Run
    task: ResolvedTask
    task_id: str


class InProcessRunner:
    """A store, workers and a clock; jobs are run one after another, their children inside them."""

    def __init__(  # noqa: PLR0913 - what is wired together stands in one place
        self,
        handlers: Registry,
        *,
        workflows: Callable[[str, int | None], Graph | None] = lambda _workflow_id, _version: None,
        answers: Answers | None = None,
        observer: Observer | None = None,
        clock: Clock | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Callable[[str], str | None] = lambda _name: None,
        services: Services | None = None,
        concurrency: int = 32,
        alone: bool = False,
    ) -> None:
        self.clock = clock or SystemClock()
        self.ids = Snowflakes(self.clock)
        self.store = MemoryStore()
        self.workflows = workflows
        self.answers = answers
        self.observer = observer
        self.env = dict(env or {})
        self.secrets = secrets
        self.services = services
        self.concurrency = concurrency
        # Alone: nobody will call `signal` or `cancel`, so a job that waits for that waits for ever.
        self.alone = alone
        self.note = ""
        self.handlers = handlers
        self.executor = Executor(handlers)
        self._main: _Run | None = None
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: dict[str, _Queued] = {}

    async def run(self, graph: Graph, inputs: Mapping[str, Any]) -> JobReport:
        """Run a job to its end. Inputs that do not fit are `InputsInvalid`, and nothing runs."""
        accepted = accept_inputs(graph, inputs)
        self.executor = Executor(self.handlers, reports=self, services=self.services, threads=self.concurrency)
        workers = [asyncio.create_task(self._work()) for _ in range(self.concurrency)]
        try:
            self._main = _Run(self, graph, accepted, depth=0)
            return await self._main.drive()
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await self.executor.close()

    def stuck(self, run: _Run) -> None:
        """End a job that nothing can move any more: nobody is there to send what it waits for."""
        waits = ", ".join(node.id for node in run.job.nodes.values() if node.status is NodeStatus.WAITING)
        self.note = f"nothing can go on: {waits} wait for what nobody here sends (an approval, a signal)"
        run.tell(CancelRequested())

    def not_an_approver(self, run: _Run, request: ApprovalRequest, by: str) -> None:
        """End a job whose approval was answered by somebody who may not."""
        self.note = f"{by} may not answer {request.node}: its approvers are {', '.join(request.approval.approvers)}"
        run.tell(CancelRequested())

    def cancel(self) -> None:
        """Ask the job to stop."""
        if self._main is not None:
            self._main.tell(CancelRequested())

    def signal(self, name: str, payload: Any = None) -> None:
        """Send a signal to the job."""
        if self._main is not None:
            self._main.tell(SignalReceived(name, payload))

    # ── The queue and its workers ──

    def enqueue(self, run: _Run, task: ResolvedTask) -> str:
        """Put a task where a worker will find it."""
        queued = _Queued(run, task, self.ids.new())
        self._queued[queued.task_id] = queued
        self._queue.put_nowait(queued.task_id)
        return queued.task_id

    def withdraw(self, task_id: str) -> bool:
        """Take a task back that no worker holds."""
        return self._queued.pop(task_id, None) is not None

    def stop(self, task_id: str) -> None:
        """Ask the worker of a task to stop it."""
        self.executor.stop(task_id)

    async def _work(self) -> None:
        while True:
            task_id = await self._queue.get()
            queued = self._queued.pop(task_id, None)
            if queued is None:
                continue
            queued.run.report(queued, await self._execute(queued))

    async def _execute(self, queued: _Queued) -> Outcome:
        task, run = queued.task, queued.run
        params, secrets = task.params, set(run.secrets)

        def secret(name: str) -> str:
            value = self._secret(name)
            secrets.add(value)
            return value

        if has_secrets(params):
            try:
                params = fill_secrets(params, secret)
            except PermanentError as error:
                return Failed(failure(error.kind, str(error)), permanent=True)
        message = TaskMessage(
            task_id=queued.task_id,
            job_id=run.job.id,
            node_id=task.node,
            handler=task.task.handler,
            params=params,
            timeout_seconds=task.task.timeout_seconds,
            retry_count=task.attempt - 1,
            attempt=task.attempt,
            checkpoint=run.stored.checkpoints.get(task.node),
            workflow=f"{run.job.graph.workflow_id} v{run.job.graph.version}",
        )
        return redacted(await self.executor.execute(message), secrets)

    def _secret(self, name: str) -> str:
        value = self.secrets(name)
        if value is None:
            raise PermanentError(f"there is no secret {name!r}: set DAGMASTER_SECRET_{name}", kind="secret_missing")
        return value

    # ── What handlers report on the way ──

    def progress(self, task: TaskMessage, progress: Progress) -> None:
        """Pass progress on to who watches."""
        if self.observer is not None:
            self.observer.progress(task.job_id, task.node_id, progress)

    def checkpoint(self, task: TaskMessage, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint for the next attempt."""
        self.store.jobs[task.job_id].checkpoints[task.node_id] = checkpoint

    def log(self, task: TaskMessage, text: str) -> None:
        """Do nothing: a run in one process captures no logs, they go to the screen."""

    def dump(self, task: TaskMessage, text: str) -> None:
        """Do nothing: there is no process but this one."""


class _Run:
    """One job: what happened to it, its timers, and what is out for it."""

    def __init__(self, process: InProcessRunner, graph: Graph, inputs: Mapping[str, Any], *, depth: int) -> None:
        self.process = process
        self.depth = depth
        self.job = Job(process.ids.new(), graph)
        self.stored = process.store.add(self.job)
        self.scopes = ExpressionScopes(self.job, inputs, process.env)
        self.wake = asyncio.Event()
        self.inbox: deque[EngineEvent] = deque([JobStarted()])
        self.reported: dict[tuple[str, int], Any] = {}
        self.timers: list[tuple[float, str | None]] = []
        self.out: dict[str, str] = {}
        self.children: dict[str, _Run] = {}
        self.side: dict[asyncio.Task[None], str] = {}
        self.trouble: BaseException | None = None
        self.secrets = [
            value for name, value in inputs.items() if isinstance(value, str) and graph.inputs[name].get("secret")
        ]

    async def drive(self) -> JobReport:
        """Take turns until the job is over."""
        clock, started = self.process.clock, self.process.clock.now()
        while True:
            self._ring()
            if self.trouble is not None:
                raise self.trouble
            if not self.inbox:
                self.wake.clear()
                until = self.timers[0][0] if self.timers else None
                idle = not self.out and not self.side
                if idle and until is None and self.process.alone:
                    self.process.stuck(self)
                await clock.wait(self.wake, until, idle=idle)
                continue
            writes = await self._turn(clock.now())
            self._give_up_questions(writes)
            if writes.finished is not None:
                for task in self.side:
                    task.cancel()
                return self._report(clock.now() - started)
            # Others may be ready: workers, and the screen.
            await asyncio.sleep(0)

    async def _turn(self, now: float) -> TurnResult:
        happenings, self.inbox = self.inbox, deque()
        reported, self.reported = self.reported, {}
        process = self.process
        writes = await run_turn(
            self.job, happenings, reported=reported, scopes=self.scopes, values=process.store, now=now
        )
        self._keep_secrets(writes)
        process.store.save(self.job, writes)
        self._carry_out(writes)
        if process.observer is not None:
            process.observer.turn(self.job, writes)
        return writes

    def _carry_out(self, writes: TurnResult) -> None:
        for task in writes.tasks:
            self.out[task.node] = self.process.enqueue(self, task)
        for decision in writes.decisions:
            if isinstance(decision, WaitUntil):
                heapq.heappush(self.timers, (decision.at, decision.node or ""))
        for withdrawal in writes.withdrawals:
            if self.process.withdraw(self.out.get(withdrawal.node, "")):
                self.out.pop(withdrawal.node, None)
                self.tell(withdrawal.then)
        for stop in writes.stops:
            self._stop(stop.node, stop.attempt)
        stopped = {(stop.node, stop.attempt) for stop in writes.stops}
        for request in writes.child_jobs:
            if (request.node, request.attempt) in stopped:
                # It was started and stopped in one turn: it never was.
                error = failure("cancelled", "the child job was stopped before it started")
                self.tell(ChildJobFinished(request.node, request.attempt, "CANCELLED", None, error))
            else:
                self._aside(request.node, self._child_job(request))
        for approval in writes.approvals:
            self._aside(approval.node, self._approval(approval))

    def _keep_secrets(self, writes: TurnResult) -> None:
        """Take the secret inputs out of what the engine says went wrong. What handlers say was cleaned before."""
        if self.secrets:
            for decision in writes.decisions:
                if isinstance(decision, Fail):
                    decision.error = redact_value(decision.error, self.secrets)
                    self.job.nodes[decision.node].error = decision.error
            if writes.finished is not None:
                writes.finished.error = redact_value(writes.finished.error, self.secrets)

    def _give_up_questions(self, writes: TurnResult) -> None:
        """Ask nobody any more about a node that does not wait any more: its time may be over."""
        over = {node.id for node in writes.changed if isinstance(node.spec, ApprovalSpec) and node.is_terminal}
        for task, node_id in self.side.items():
            if node_id in over:
                task.cancel()

    def _ring(self) -> None:
        now = self.process.clock.now()
        while self.timers and self.timers[0][0] <= now:
            _, node_id = heapq.heappop(self.timers)
            self.inbox.append(TimerFired(node_id or None))

    def tell(self, happening: EngineEvent) -> None:
        """Let something happen to the job."""
        self.inbox.append(happening)
        self.wake.set()

    def report(self, queued: _Queued, outcome: Outcome) -> None:
        """Take the outcome of an attempt."""
        node, attempt = queued.task.node, queued.task.attempt
        self.out.pop(node, None)
        if isinstance(outcome, Succeeded):
            self.reported[node, attempt] = outcome.output
            self.tell(TaskSucceeded(node, attempt))
        elif isinstance(outcome, Failed):
            self.tell(TaskFailed(node, attempt, outcome.error, outcome.permanent))
        elif isinstance(outcome, Released):
            self.tell(TaskReleased(node, attempt))

    def _stop(self, node: str, attempt: int) -> None:
        child = self.children.get(node)
        if child is not None:
            child.tell(CancelRequested())
            return
        task_id = self.out.get(node, "")
        if self.process.withdraw(task_id):
            self.out.pop(node, None)
            self.tell(TaskReleased(node, attempt))
        else:
            self.process.stop(task_id)

    # ── What the caller answers ──

    def _aside(self, node_id: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.side[task] = node_id
        task.add_done_callback(self._is_aside_no_more)

    def _is_aside_no_more(self, task: asyncio.Task[None]) -> None:
        """Let nothing that went wrong beside the job be lost: the job would wait for ever."""
        del self.side[task]
        if not task.cancelled() and task.exception() is not None:
            self.trouble = task.exception()
        self.wake.set()

    async def _approval(self, request: ApprovalRequest) -> None:
        answers = self.process.answers
        answer = None if answers is None else await answers.approval(request)
        if answer is None:
            return
        yes, by, comment = answer
        allowed = request.approval.approvers
        if allowed and by not in allowed:
            self.process.not_an_approver(self, request, by)
            return
        happening = (Approved if yes else Rejected)(request.node, by, rfc3339(self.process.clock.now()), comment)
        self.tell(happening)

    async def _child_job(self, request: ChildJobRequest) -> None:
        wanted, node, attempt = request.workflow, request.node, request.attempt
        try:
            graph = self.process.workflows(wanted.workflow_id, wanted.version)
        except WorkflowInvalid as problem:
            error = failure("invalid_workflow", f"workflow {wanted.workflow_id!r} cannot run: {problem}")
            self.tell(DispatchRejected(node, attempt, error))
            return
        if self.depth + 1 >= MAX_DEPTH:
            error = failure("too_deep", f"child jobs nest at most {MAX_DEPTH} deep")
        elif graph is None:
            version = f" version {wanted.version}" if wanted.version is not None else ""
            error = failure("unknown_workflow", f"no workflow {wanted.workflow_id!r}{version} was found")
        else:
            try:
                inputs = accept_inputs(graph, request.inputs)
            except DagmasterError as problem:
                error = failure("invalid_inputs", str(problem))
            else:
                await self._run_child(node, attempt, graph, inputs)
                return
        self.tell(DispatchRejected(node, attempt, error))

    async def _run_child(self, node: str, attempt: int, graph: Graph, inputs: Mapping[str, Any]) -> None:
        child = self.children[node] = _Run(self.process, graph, inputs, depth=self.depth + 1)
        report = await child.drive()
        del self.children[node]
        self.tell(ChildJobFinished(node, attempt, report.status, report.result, report.error))

    def _report(self, duration: float) -> JobReport:
        stored, graph = self.stored, self.job.graph
        return JobReport(
            job_id=self.job.id,
            workflow_id=graph.workflow_id,
            version=graph.version,
            status=stored.row.status.value,
            result=stored.result,
            error=stored.error,
            duration_seconds=round(duration, 6),
            nodes=dict(_nodes(stored.nodes.values(), stored.outputs)),
            note=self.process.note,
        )


def _nodes(rows: Iterable[Any], outputs: Mapping[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    for row in rows:
        output = outputs.get(row.id)
        yield row.id, {"status": row.status.value, "attempts": row.attempt, "output": output, "error": row.error}
