"""`OrchContext`: applies tasks and groups to jobs. What is made in it cannot complete before it exits."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Never, Self, TypeVar

from dagmaster.application.commands.control import cancel_job
from dagmaster.application.commands.sending import WAIT_SECONDS
from dagmaster.application.graph_jobs import GraphJobRequest, add_nodes, release_hold, submit_graph
from dagmaster.authoring.graph_parts import GraphPart
from dagmaster.authoring.python.graph_collection import Collected, collect
from dagmaster.authoring.python.graph_items import GraphItem, Task, items_in
from dagmaster.authoring.python.holds import Hold, add_held_groups
from dagmaster.client.system import current_user
from dagmaster.errors import DagmasterError, JobFinished, JobNotFound, NodesRejected
from dagmaster.host.clocks import loop_time
from dagmaster.sdk.json_forms import short_repr
from dagmaster.session.backends import ApplicationBackend, memory_backend, open_backend
from dagmaster.session.concurrent_additions import ConcurrentAdditions
from dagmaster.session.context_places import check_place, place_of_process
from dagmaster.session.job import Job, job_number
from dagmaster.session.reserved_queues import reserved_queue
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from dagmaster.application.views.graph_tasks import AddedNodesView
    from dagmaster.authoring.python.graph_items import Group
    from dagmaster.ports.clock import Clock
    from dagmaster.session.backends import Backend

T = TypeVar("T")
HOLD_SECONDS: Final = 3600.0
"""How long a job waits for a context whose process died."""
RENEWAL_RETRY_SECONDS: Final = 5.0
_MAX_JOBS: Final = 10
_LOGGER = logging.getLogger("dagmaster.session")
CURRENT: Final[contextvars.ContextVar[OrchContext | None]] = contextvars.ContextVar(
    "orch_context", default=None
)
"""The context that the code is in."""


class HeldJob:
    """A job that a context keeps open, and the groups in it."""

    __slots__ = ("groups", "holds")

    def __init__(self) -> None:
        self.holds: list[Hold] = []
        self.groups: list[Group] = []


class OrchContext:
    """Applies tasks and groups to jobs of the database of the settings, or of a server (`url`, `key`).

    A job that is made in it, and its groups, cannot complete before it exits, so more can be added to them.
    If the code in it raises an exception, a job that was made in it is cancelled, since its graph may be half
    built (`retry_failed_tasks` runs it all the same); one that it only added to continues. If this process
    dies, they continue after `hold_seconds`. `job_id`: the job that `apply` adds to. `in_memory`: a database
    of its own, whose jobs `run_job_test` runs, with this `clock`. `local`: orchestrators on the database
    leave its jobs to `run_job_test`, until it exits.
    """

    def __init__(
        self,
        *,
        job_id: int | str | None = None,
        url: str | None = None,
        key: str | None = None,
        hold_seconds: float = HOLD_SECONDS,
        in_memory: bool = False,
        local: bool = False,
        clock: Clock | None = None,
    ) -> None:
        if type(hold_seconds) not in (int, float) or not hold_seconds > 0:
            raise ValueError(
                f"hold_seconds is a number of seconds, more than 0, not {short_repr(hold_seconds)}"
            )
        check_place(url, in_memory=in_memory, local=local, clock=clock)
        self.job_id = None if job_id is None else job_number(job_id)
        self._is_job_given = job_id is not None
        self._jobs: dict[int, str] = {}
        self._made: set[int] = set()
        self.hold_seconds = hold_seconds
        self._place = place_of_process()
        self.is_in_memory = in_memory
        self._is_local = local and not in_memory
        self._queue: str | None = None
        self._reserved: set[int] = set()
        self.held: dict[int, HeldJob] = {}
        self.unconfirmed: dict[int, list[int]] = {}
        """The batches of nodes, by job, that no owner of the job had accepted when they were added."""
        self.blocking: Any = None
        """The context without `await` that this one is part of."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self._open: Callable[[], contextlib.AbstractAsyncContextManager[Backend]] = (
            (lambda: _memory(clock)) if in_memory else (lambda: open_backend(url, key))
        )
        self._backend: Backend | None = None
        self._additions = ConcurrentAdditions()
        self._stack = contextlib.AsyncExitStack()
        self._renewal: asyncio.Task[None] | None = None
        self._tokens: list[contextvars.Token[OrchContext | None]] = []

    @property
    def backend(self) -> Backend:
        if self._backend is None:
            start = "async with" if self.blocking is None else "with"
            raise RuntimeError(f"the context is not entered: write `{start} OrchContext() as ctx:`")
        return self._backend

    @property
    def memory(self) -> ApplicationBackend | None:
        """Return the database of this context if it is in memory."""
        backend = self._backend
        return backend if isinstance(backend, ApplicationBackend) and backend.services is not None else None

    async def __aenter__(self) -> Self:
        await self.open()
        self.enter()
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Let the jobs complete, or cancel those made here if the code raised an exception; then close."""
        self.leave()
        await self.close(error)

    if not TYPE_CHECKING:  # A type checker also says it.

        def __enter__(self) -> Never:
            """Raise: a plain `with` cannot wait for a database."""
            raise TypeError(
                "dagmaster.OrchContext needs `async with`; without await: from dagmaster.blocking import"
                " OrchContext"
            )

        def __exit__(self, *_exception: object) -> None:
            """Do nothing: it was not entered."""

    def enter(self) -> None:
        """Make this the context around the code that follows."""
        self._tokens.append(CURRENT.set(self))

    def leave(self) -> None:
        """End what `enter` began."""
        with contextlib.suppress(ValueError):
            # It was set in another context: in the generator of a fixture.
            CURRENT.reset(self._tokens.pop())

    async def open(self) -> None:
        if self._backend is not None:
            raise RuntimeError("the context is entered already")
        self.loop = asyncio.get_running_loop()
        backend = await self._stack.enter_async_context(self._open())
        try:
            self._queue = await self._reserve_queue(backend) if self._is_local else None
        except BaseException:
            await self._stack.aclose()
            raise
        self._backend = backend

    async def _reserve_queue(self, backend: Backend) -> str:
        if not isinstance(backend, ApplicationBackend):
            message = "local=True is for a database: the jobs of a server run there"
            raise ValueError(message)  # noqa: TRY004 - the argument is wrong, not its type
        return await self._stack.enter_async_context(reserved_queue(backend))

    @property
    def is_open(self) -> bool:
        """Return whether the context is entered."""
        return self._backend is not None

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[Backend]:
        """Provide the database or the server of this context on any event loop, also after it was closed."""
        if self._backend is not None and (self._backend.is_shared or self.loop is asyncio.get_running_loop()):
            yield self._backend
        elif self.is_in_memory:
            raise RuntimeError("the context is closed, and what it had in memory is gone")
        else:
            async with self._open() as backend:
                yield backend

    async def close(self, error: BaseException | None = None) -> None:
        """Let the jobs complete, and close. An error of one job does not keep the others open.

        `error`: what the code raised that makes these jobs. Those that were made here are cancelled.
        """
        is_regular = isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and not error.code)
        reason = None if is_regular else error
        if self._renewal is not None and self._renewal.get_loop() is asyncio.get_running_loop():
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)
        failures: list[DagmasterError] = []
        try:
            await self._additions.finish()
            deadline = loop_time() + WAIT_SECONDS
            for job_id in list(self.held):
                try:
                    if reason is not None and job_id in self._made:
                        await self._cancel(job_id, reason)
                    await self.release(job_id, max(0.0, deadline - loop_time()))
                except DagmasterError as failure:
                    failures.append(failure)
        finally:
            await self._stack.aclose()
            self._backend = None
        for one in failures:
            if error is None:
                raise one
            # What the code raised says more.
            error.add_note(f"a job that the context held continues in at most {self.hold_seconds:g} s: {one}")

    # ── Jobs ──

    async def create_job(self, name: str, entry: Any, *, idempotency_key: str | None = None) -> Job:
        """Store a job with the graph of a task, a group, a list of them, or a function.

        Everything that `entry` is connected to with `>>` is part of it, and what it takes as arguments. All
        or nothing is stored. If the job of this `idempotency_key` exists, it is returned, and the tasks and
        groups get the ids that it was stored with.
        """
        return await self.store_job(name, entry, is_held=True, idempotency_key=idempotency_key)

    async def store_job(
        self, name: str, entry: Any, *, is_held: bool, idempotency_key: str | None = None
    ) -> Job:
        """Store a job, as `create_job` does, and hold it or not."""
        check_job_name(name)
        if not isinstance(idempotency_key, str | None):
            raise NodesRejected(f"job {name}: an idempotency key is text, not {short_repr(idempotency_key)}")
        if isinstance(entry, str) or (callable(entry) and not isinstance(entry, GraphItem)):
            entry = Task(entry)
        backend = self.backend
        collected = collect(entry, default_queue=backend.default_queue, follows=True, with_code=True)
        self._check_importable(collected)
        hold = self._hold(collected) if is_held else None
        request = GraphJobRequest(
            name=name,
            part=collected.part,
            submitted_by=current_user(),
            idempotency_key=idempotency_key,
            queue=self._queue,
        )
        with _naming_what_was_written(entry, follows=True, default_queue=backend.default_queue):
            result = await backend.call(submit_graph, request)
        assert result.job_id is not None  # noqa: S101 - for mypy; a rejected job raises
        job = Job(int(result.job_id), name, self, server=backend.server)
        names = collected.part.names(1)
        collected.mark_applied(job.id, names, result.task_ids)
        if hold is not None:
            self._remember(job.id, hold, collected, names)
        self.job_id = self.job_id or job.id
        self._jobs[job.id] = name
        if result.is_new:
            self._made.add(job.id)
        if self._queue is not None and result.is_new:
            self._reserved.add(job.id)
        view, output = await backend.read_job(result.job_id)
        return job.update(view, output)

    async def apply(self, items: T, job_id: int | str | None = None) -> T:
        """Add tasks and groups to a job, all or none, and return them with their job and node set.

        What they wait for comes along, and so do groups with their members. What is part of the job already
        is not added again. Without `job_id` it is the job of the context, if there is one only.
        """
        job = self._only_job() if job_id is None else job_number(job_id)
        if not self.is_open and not self.is_in_memory:
            # `Context(job_id=…)` without `async with`, as the source systems use it: for this call.
            await self.open()
            try:
                return await self.apply(items, job)
            finally:
                await self.close()
        # Once: it may be a generator.
        tasks = list(items_in(items))
        await self._additions.add(
            lambda: self._collect(tasks, job), lambda new: self._apply_collected(tasks, job, new)
        )
        return items

    def _collect(self, items: Any, job_id: int) -> Collected:
        collected = collect(items, job_id=job_id, default_queue=self.backend.default_queue, with_code=True)
        self._check_importable(collected)
        return collected

    async def _apply_collected(self, items: Any, job_id: int, collected: Collected) -> None:
        if not collected.items and not collected.touched:
            return
        hold = self._hold(collected, job_id)
        with _naming_what_was_written(items, job_id=job_id, default_queue=self.backend.default_queue):
            added = await self._add_nodes(job_id, collected.part)
        collected.mark_applied(job_id, added.names)
        self._remember(job_id, hold, collected, added.names)

    def _only_job(self) -> int:
        """Return the job that was given to the context, or the only one that was made in it."""
        if len(self._jobs) > 1 and not self._is_job_given:
            jobs = ", ".join(f"{name} ({number})" for number, name in islice(self._jobs.items(), _MAX_JOBS))
            count = format_count(len(self._jobs), "job")
            more = ", …" if len(self._jobs) > _MAX_JOBS else ""
            raise NodesRejected(
                f"{count} were made in this context: {jobs}{more}. Name the one to add to: apply(items,"
                " job_id=job.id)"
            )
        if self.job_id is None:
            raise NodesRejected("name the job: apply(items, job_id=job.id), or OrchContext(job_id=…)")
        return self.job_id

    async def add(self, task: Task, job_id: int) -> Task:
        """Add a task to a job, and do not keep the job open."""
        await self._additions.add(
            lambda: self._collect(task, job_id), lambda new: self._add_collected(job_id, new)
        )
        return task

    async def _add_collected(self, job_id: int, collected: Collected) -> None:
        added = await self._add_nodes(job_id, collected.part)
        collected.mark_applied(job_id, added.names)

    def _check_importable(self, collected: Collected) -> None:
        """Raise `NodesRejected` if other processes may run the job and cannot import its functions."""
        if not self.is_in_memory and not self._is_local:
            collected.check_importable()

    async def _add_nodes(self, job_id: int, part: GraphPart) -> AddedNodesView:
        seconds = self.command_seconds(job_id)
        added = await self.backend.call(
            add_nodes, str(job_id), part, sent_by=current_user(), wait_seconds=seconds
        )
        if not added.is_accepted:
            self.unconfirmed.setdefault(job_id, []).append(added.batch)
        return added

    def command_seconds(self, job_id: int) -> float:
        """Return how long to wait for the owner of a job: not for one that only `run_job_test` will run."""
        return 0.0 if job_id in self._reserved else WAIT_SECONDS

    # ── Holds ──

    def _hold(self, collected: Collected, job_id: int | None = None) -> Hold | None:
        """Keep the job and its new groups open; None if a hold of the job does."""
        held = self.held.get(job_id or 0)
        if held is None:
            hold = Hold(self.hold_seconds, is_first=job_id is None, place=self._place)
            collected.add_hold(hold, collected.leaf_groups())
            return hold
        groups = collected.leaf_groups()
        if groups:
            last = held.holds[-1]
            collected.part.known[last.id] = last.node_id or ""
            add_held_groups(collected.part, last, groups)
        return None

    def _remember(self, job_id: int, hold: Hold | None, collected: Collected, names: dict[int, str]) -> None:
        held = self.held.setdefault(job_id, HeldJob())
        held.groups += collected.leaf_groups()
        if hold is not None:
            hold.node_id = names[hold.id]
            held.holds.append(hold)
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._renew_holds())

    async def release(self, job_id: int, wait_seconds: float = 0.0) -> None:
        """Let a job complete, and wait for its owner: it completes a job whose tasks have ended."""
        seconds = min(wait_seconds, self.command_seconds(job_id))
        signals = self.take_signals(job_id)
        for signal in signals:
            is_last = signal is signals[-1]
            with contextlib.suppress(JobFinished, JobNotFound):
                await self.backend.call(
                    release_hold, str(job_id), signal, wait_seconds=seconds if is_last else 0.0
                )

    async def _cancel(self, job_id: int, error: BaseException) -> None:
        comment = f"the code that makes this job raised {type(error).__name__}: its graph may be half built"
        with contextlib.suppress(JobFinished, JobNotFound):
            await self.backend.call(
                cancel_job, str(job_id), sent_by=current_user(), comment=comment, wait_seconds=0.0
            )
            error.add_note(f"job {job_id} ({self._jobs[job_id]}) was cancelled: its graph may be half built")

    def take_signals(self, job_id: int) -> list[str]:
        """Return the signals that let a job complete, once. From now on it has, or gets, an owner."""
        self._reserved.discard(job_id)
        held = self.held.pop(job_id, None)
        return [] if held is None else [hold.signal for hold in held.holds]

    async def _renew_holds(self) -> None:
        """Hold again what is held for half of the time: a hold cannot be prolonged."""
        pause = self.hold_seconds / 2
        while True:
            await asyncio.sleep(pause)
            pause = self.hold_seconds / 2
            for job_id, held in list(self.held.items()):
                try:
                    await self._renew_hold(job_id, held)
                except (JobFinished, JobNotFound):
                    self.held.pop(job_id, None)
                except DagmasterError as error:
                    _LOGGER.warning("could not renew the hold of job %s: %s", job_id, error)
                    pause = min(pause, RENEWAL_RETRY_SECONDS)

    async def _renew_hold(self, job_id: int, held: HeldJob) -> None:
        hold, part = Hold(self.hold_seconds, is_first=False, place=self._place), GraphPart()
        part.tasks.append(hold.to_task())
        add_held_groups(part, hold, held.groups)
        added = await self._add_nodes(job_id, part)
        hold.node_id = added.names[hold.id]
        held.holds.append(hold)


Context = OrchContext
"""Also the name that the source systems use."""


@contextlib.contextmanager
def _naming_what_was_written(items: Any, **options: Any) -> Iterator[None]:
    """Raise the reason of a rejection without the nodes of a hold: a cycle may lead through them."""
    try:
        yield
    except NodesRejected:
        try:
            collect(items, **options).check()
        except NodesRejected as reason:
            raise reason from None
        raise


@contextlib.asynccontextmanager
async def _memory(clock: Clock | None) -> AsyncIterator[Backend]:
    yield memory_backend(clock)


def check_job_name(name: Any) -> None:
    """Raise `NodesRejected` if it cannot be the name of a job."""
    from dagmaster.ports.job_options import MAX_NAME

    if not isinstance(name, str) or not name or len(name) > MAX_NAME or not name.isprintable():
        raise NodesRejected(
            f"the name of a job is text of 1 to {MAX_NAME} printable characters, not {short_repr(name)}"
        )
