"""The job of `dagmaster run`: its services, its display, and Ctrl-C.

The tasks of the job go to a private queue, which only this process serves while it is alive: other workers
may not have its handlers. When this process dies, a stored job waits; `dagmaster dev` picks it up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from dagmaster.cli.main import INTERRUPTED
from dagmaster.cli.render.live import LiveDisplay
from dagmaster.client.system import current_user
from dagmaster.sdk.terminal import echo

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Mapping, Sequence

    from dagmaster.application.views import JobDetailView
    from dagmaster.cli.render.live import PlainDisplay
    from dagmaster.local.runner import Answers, Graph, LocalRunner, LocalServices
    from dagmaster.local.turn_updates import TurnUpdate
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.handler_reports import Progress
    from dagmaster.sdk.handler_registry import Registry
    from dagmaster.settings import Settings


class LocalRun:
    """One job, from its inputs to its result."""

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
        self.settings = settings
        if concurrency is not None:
            self.settings = settings.model_copy(update={"concurrency": concurrency})
        self.answers: Answers | None = None
        self.interrupts = 0
        self._runner: LocalRunner | None = None
        self._is_stored = False

    def cancel(self) -> None:
        if self._runner is not None:
            self._runner.cancel()

    async def run_stored(
        self,
        config: DatabaseConfig,
        blob_dir: pathlib.Path,
        inputs: Mapping[str, Any],
        signals: Mapping[str, Any],
    ) -> JobDetailView:
        from dagmaster.bootstrap import stored_services

        self._is_stored = True
        async with stored_services(
            config,
            self.settings,
            modules=self.modules,
            registry=self.registry,
            blob_dir=blob_dir,
        ) as services:
            return await self._run(services, inputs, signals)

    async def run_ephemeral(
        self, blob_dir: pathlib.Path, inputs: Mapping[str, Any], signals: Mapping[str, Any]
    ) -> JobDetailView:
        from dagmaster.bootstrap import ephemeral_services

        services = ephemeral_services(
            self.settings,
            modules=self.modules,
            registry=self.registry,
            blob_dir=blob_dir,
        )
        return await self._run(services, inputs, signals)

    async def _run(
        self, services: LocalServices, inputs: Mapping[str, Any], signals: Mapping[str, Any]
    ) -> JobDetailView:
        from dagmaster.application.queries.job_detail import job_detail
        from dagmaster.bootstrap import allowed_env
        from dagmaster.local.runner import LocalRunner

        runner = self._runner = LocalRunner(
            services,
            answers=self.answers,
            observer=self,
            on_log=self._print_log,
            user=current_user(),
            is_alone=not self._is_stored,
        )
        for name, payload in signals.items():
            runner.signal(name, payload)
        with self._handling_interrupts(), self.display:
            job_id = await runner.run(
                self.graph, inputs, children=self.children, env=allowed_env(self.settings)
            )
        return await job_detail(services.application, job_id)

    @property
    def note(self) -> str:
        """Return why the runner itself ended the job; empty if it did not."""
        return "" if self._runner is None else self._runner.note

    # ── Updates ──

    def turn(self, update: TurnUpdate) -> None:
        self.display.turn(update)
        if not self._is_stored:
            return
        for node in update.nodes():
            if node.waits_for_signal is not None:
                command = f"dagmaster jobs signal {update.job_id} {node.waits_for_signal}"
                self.display.note(f"{node.node_id} waits for a signal: {command}")

    def progress(self, job_id: str, node_id: str, progress: Progress) -> None:
        self.display.progress(job_id, node_id, progress)

    def _print_log(self, text: str) -> None:
        # On a handler's thread.
        if isinstance(self.display, LiveDisplay):
            self.display.note(text.rstrip("\n"))
        else:
            echo(text, err=True, nl=False)

    # ── Ctrl-C ──

    @contextlib.contextmanager
    def _handling_interrupts(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        try:
            for number in numbers:
                loop.add_signal_handler(number, self._interrupt)
        except NotImplementedError:
            # Windows: Ctrl-C is a KeyboardInterrupt there.
            yield
            return
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _interrupt(self) -> None:
        self.interrupts += 1
        stored = "; the job is stored" if self._is_stored else ""
        if self.interrupts > 1:
            self.display.pause()
            after = "the job is lost"
            if self._is_stored:
                job_id = "" if self._runner is None else self._runner.job_id
                after = (
                    f"job {job_id} is stored and will be cancelled by `dagmaster dev`;"
                    " completed nodes keep their results"
                )
            echo(f"exiting now: {after}", err=True)
            sys.stderr.flush()
            # Handlers may block in something that cannot be interrupted.
            os._exit(INTERRUPTED)
        self.display.note(f"cancelling: waiting for running tasks (Ctrl-C again to exit now{stored})")
        self.cancel()
