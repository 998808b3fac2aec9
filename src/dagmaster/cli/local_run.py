"""A run that is stored: orchestrator and worker in this process, the job in PostgreSQL.

The tasks of the job go to a queue of its own, which only this process serves while it lives: others may not have its
handlers. When this process dies, the job waits; `dagmaster dev` picks it up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from dagmaster.cli.main import INTERRUPTED
from dagmaster.cli.options import current_user
from dagmaster.cli.render.live import LiveDisplay
from dagmaster.engine.graph import WaitSpec
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import DatabaseUnavailable
from dagmaster.ports.command_kinds import CommandKind

if TYPE_CHECKING:
    import pathlib
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from dagmaster.authoring.handler_registry import Registry
    from dagmaster.cli.render.live import PlainDisplay
    from dagmaster.engine.graph import Graph
    from dagmaster.engine.model import Job
    from dagmaster.local.runner import Answers
    from dagmaster.orchestrator.turn import ApprovalRequest, TurnResult
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.handler_context import Progress
    from dagmaster.ports.job_records import JobReport
    from dagmaster.ports.output_blobs import OutputBlobs
    from dagmaster.ports.task_messages import TaskMessage
    from dagmaster.settings import Settings
    from dagmaster.store.postgres.client_store import PostgresClientStore

LOOK_SECONDS = 2.0


class LocalRun:
    """One job from its inputs to its end."""

    def __init__(
        self,
        graphs: Sequence[Graph],
        *,
        registry: Registry,
        modules: tuple[str, ...],
        display: LiveDisplay | PlainDisplay,
        concurrency: int | None,
        settings: Settings,
    ) -> None:
        self.graph, *self.children = graphs
        self.registry = registry
        self.modules = modules
        self.display = display
        self.concurrency = concurrency
        self.settings = settings
        self.answers: Answers | None = None
        self.interrupts = 0
        self.job_id = ""
        self.note = ""
        self._asking: dict[asyncio.Task[None], tuple[str, str]] = {}
        self._over = asyncio.Event()
        self._commands: asyncio.Queue[tuple[str, CommandKind, dict[str, Any]]] = asyncio.Queue()

    def cancel(self) -> None:
        """Ask the job to stop."""
        self._commands.put_nowait((self.job_id, CommandKind.CANCEL, {}))

    async def run(
        self, address: DatabaseConfig, blob_dir: pathlib.Path, given: Mapping[str, Any], signals: Mapping[str, Any]
    ) -> JobReport:
        """Submit the job, run it, and give its report."""
        from dagmaster.application.submission import JobSubmitter, Submission
        from dagmaster.bootstrap import allowed_env, ensure_schema, large_outputs
        from dagmaster.store.postgres.client_store import PostgresClientStore

        await ensure_schema(address, migrate=address.is_embedded)
        client = PostgresClientStore(address, "dagmaster run")
        await client.open()
        blobs = large_outputs(self.settings, blob_dir)
        intake = JobSubmitter(client, client.identity.ids)
        submission = Submission(
            graph=self.graph,
            inputs=given,
            env=allowed_env(self.settings),
            submitted_by=current_user()[:64],
            queue=f"run:{client.identity.ids.new()}",
            workflows={child.workflow_id: child.content_hash for child in self.children},
        )
        # Inputs that do not fit are refused before anything starts.
        intake.job(submission)
        for child in self.children:
            await intake.keep(child)
        try:
            async with self._services(address, blobs, blob_dir, str(submission.queue)):
                self.job_id = (await intake.submit([submission]))[0].job_id
                for name, payload in signals.items():
                    await client.send(
                        self.job_id, CommandKind.SIGNAL, {"name": name, "payload": payload}, current_user()
                    )
                beside = [asyncio.create_task(self._send(client)), asyncio.create_task(self._look(client))]
                with self._listening(), self.display:
                    await self._over.wait()
                for each in (*beside, *self._asking):
                    each.cancel()
            report = await client.report(self.job_id, blobs)
        finally:
            await client.close()
        in_order = [*(each for each in self.graph.specs if each in report.nodes), *report.nodes]
        return replace(report, nodes={each: report.nodes[each] for each in in_order}, note=self.note)

    @contextlib.asynccontextmanager
    async def _services(
        self, address: DatabaseConfig, blobs: OutputBlobs, blob_dir: pathlib.Path, queue: str
    ) -> AsyncIterator[None]:
        """An orchestrator and a worker of this queue. Others leave its jobs alone once the worker is known."""
        from dagmaster.bootstrap import make_orchestrator, make_worker

        orchestrator = make_orchestrator(address, blobs, self.settings, queue=queue, observer=self)
        worker = make_worker(
            address,
            blobs,
            self.settings,
            modules=self.modules,
            registry=self.registry,
            queues=[queue],
            concurrency=self.concurrency,
            home=blob_dir,
        )
        worker.notes.on_progress = self._progress
        worker.notes.on_log = self._log
        services = [asyncio.create_task(orchestrator.run()), asyncio.create_task(worker.run())]
        for service in services:
            service.add_done_callback(self._service_ended)
        try:
            for ready in (orchestrator.ready, worker.ready):
                waiting = asyncio.create_task(ready.wait())
                await asyncio.wait([waiting, *services], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                for ended in services:
                    if ended.done():
                        ended.result()
            yield
        finally:
            orchestrator.stop()
            worker.stop()
            await asyncio.gather(*services, return_exceptions=True)

    def _service_ended(self, service: asyncio.Task[None]) -> None:
        """A service that ends by a mistake of ours must not leave the run waiting for ever."""
        if not service.cancelled() and service.exception() is not None:
            self.note = f"a service of this run failed: {service.exception()}"
            self._over.set()

    async def _look(self, client: PostgresClientStore) -> None:
        """The net under the turns: another orchestrator may have the job."""
        while not self._over.is_set():
            await asyncio.sleep(LOOK_SECONDS)
            with contextlib.suppress(DatabaseUnavailable):
                if await client.is_finished(self.job_id):
                    self._over.set()

    async def _send(self, client: PostgresClientStore) -> None:
        while True:
            job_id, kind, body = await self._commands.get()
            try:
                await client.send(job_id, kind, body, current_user())
            except DatabaseUnavailable:
                # It comes back; what was asked is not forgotten.
                self._commands.put_nowait((job_id, kind, body))
                await asyncio.sleep(0.5)

    # ── What happens ──

    def turn(self, job: Job, writes: TurnResult) -> None:
        """A turn was written: show it, ask current_user is to be asked."""
        self.display.turn(job, writes)
        for request in writes.approvals:
            question = asyncio.create_task(self._ask(job.id, request))
            self._asking[question] = (job.id, request.node)
            question.add_done_callback(lambda done: self._asking.pop(done, None))
        for node in writes.changed:
            if isinstance(node.spec, WaitSpec) and node.spec.signal and node.status is NodeStatus.WAITING:
                signal_name = node.spec.signal
                self.display.note(f"{node.id} waits: dagmaster jobs signal {job.id} {signal_name}")
        for question, (job_id, node_id) in list(self._asking.items()):
            if job_id == job.id and job.nodes[node_id].is_terminal:
                question.cancel()
        if writes.finished is not None and job.id == self.job_id:
            self._over.set()

    def _progress(self, task: TaskMessage, progress: Progress) -> None:
        # On a handler's thread.
        self.display.progress(task.job_id, task.node_id, progress)

    def _log(self, _task: TaskMessage, text: str) -> None:
        # On a handler's thread, too. It is stored as well; here it is for current_user watches.
        if isinstance(self.display, LiveDisplay):
            self.display.note(text.rstrip("\n"))
        else:
            click.echo(text, err=True, nl=False)

    async def _ask(self, job_id: str, request: ApprovalRequest) -> None:
        answer = None if self.answers is None else await self.answers.approval(request)
        if answer is None:
            return
        yes, person, comment = answer
        allowed = request.approval.approvers
        if allowed and person not in allowed:
            self.note = f"{person} may not answer {request.node}: its approvers are {', '.join(allowed)}"
            self.cancel()
            return
        kind = CommandKind.APPROVE if yes else CommandKind.REJECT
        self._commands.put_nowait((job_id, kind, {"node": request.node, "comment": comment}))

    # ── Ctrl-C ──

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self._interrupt)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _interrupt(self) -> None:
        self.interrupts += 1
        if self.interrupts > 1:
            self.display.pause()
            click.echo(
                f"leaving at once: the job {self.job_id} is stored, and is to be cancelled. `dagmaster dev` finishes"
                " that; what was done stays done",
                err=True,
            )
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        self.display.note("cancelling: waiting for what runs (Ctrl-C again to leave at once; the job is stored)")
        self.cancel()
