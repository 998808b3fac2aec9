"""Run a job that was made in Python to its end in this process: for tests, scripts and notebooks.

No server needed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from dagmaster.application.graph_jobs import release_hold
from dagmaster.authoring.python.graph_items import APPLIED
from dagmaster.authoring.python.process_functions import ProcessRegistry
from dagmaster.client.system import current_user
from dagmaster.errors import CommandRejected, JobFinished, JobNotFound, NodesRejected
from dagmaster.host.event_loops import run_blocking
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.sdk.handler_mocks import with_mocks
from dagmaster.sdk.json_forms import short_repr
from dagmaster.session.backends import ApplicationBackend
from dagmaster.session.job import Job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from dagmaster.application.context import Application
    from dagmaster.local.runner import LocalServices

WAIT_SECONDS: Final = 2.0
NODES_AT_ONCE: Final = 1_000


def run_job_test(job: Job) -> Job:
    """Run a job to its end in this process, and return it: its status is COMPLETED, FAILED or CANCELLED.

    A task whose function cannot be imported fails with the reason. The orchestrator and the worker are the
    real ones, on the database of the job. Functions of a script or a notebook also work. It may be called
    where a loop is running, and in an `OrchContext`, whose hold on the job ends. A job of an
    `OrchContext(in_memory=True)` is gone when that is closed: `JobNotFound`. One of a server runs there:
    `CommandRejected`. `NodesRejected` is raised at the end if what its context added to it could not become
    part of it.

    What tasks print is on the terminal, and in the database if the job has one: `dagmaster jobs logs` prints
    it again. With `DAGMASTER_LOG_DIR` it is in the files there, not on the terminal.
    """
    return run_blocking(run_job_test_async(job))


async def run_job_test_async(job: Job) -> Job:
    """Run a job as `run_job_test` does, on the running loop."""
    if not isinstance(job, Job):
        raise TypeError(
            f"run_job_test takes a job, as create_job and get_job return it, not {short_repr(job)}"
        )
    if job.server is not None:
        raise CommandRejected(
            f"job {job.id} is on the server {job.server}, and runs there: wait for it with"
            " Client(url, key).wait(str(job.id)), or make it in an OrchContext(local=True) or in_memory=True"
        )
    async with _services(job) as services:
        backend = ApplicationBackend(services.application, None)
        for signal in [] if job.context is None else job.context.take_signals(job.id):
            with contextlib.suppress(JobFinished):
                await backend.call(release_hold, str(job.id), signal)
        await _run(services, str(job.id))
        view, result = await backend.read_job(str(job.id))
        job.update(view, result)
        await _refresh_tasks(services.application, job.id)
        if job.context is not None:
            await _check_added(services.application, job.id, job.context.unconfirmed.pop(job.id, []))
    return job


async def _refresh_tasks(app: Application, job_id: int) -> None:
    """Set the status of the tasks of a job that this process has made."""
    tasks = {task.node_id: task for task in list(APPLIED.values()) if task.job_id == job_id and task.node_id}
    names = list(tasks)
    for first in range(0, len(names), NODES_AT_ONCE):
        for record in await app.read.nodes(str(job_id), names[first : first + NODES_AT_ONCE]):
            tasks[record.node_id].status = record.status


async def _check_added(app: Application, job_id: int, batches: Collection[int]) -> None:
    """Raise `NodesRejected` if a batch of nodes that was added before the run is not part of the job."""
    if set(batches) <= set(await app.read.added_nodes.accepted_batches(str(job_id)) if batches else ()):
        return
    seq, reasons = 0, []
    while events := await app.read.events(str(job_id), after=seq, node_ids=()):
        seq = events[-1].seq
        # One with a node is that of a task, which fails with the reason.
        rejected = (
            one.data for one in events if one.type == EventType.COMMAND_REJECTED and one.node_id is None
        )
        reasons += [str(data["reason"]) for data in rejected if data.get("command") == CommandKind.ADD_NODES]
    raise NodesRejected(
        f"job {job_id}: nodes that were added before it ran are not part of it: {'; '.join(reasons)}"
    )


async def _run(services: LocalServices, job_id: str) -> None:
    from dagmaster.local.runner import LocalRunner

    app = services.application
    record = await app.read.job(job_id)
    if record is not None and record.is_finished and not await app.read.pending_commands(job_id, limit=1):
        return
    runner = LocalRunner(services, user=current_user(), is_alone=services.clock is not None)
    if not await runner.run_stored(job_id):
        await _wait(app, job_id)
    elif runner.note:
        raise CommandRejected(f"job {job_id}: {runner.note}")


async def _wait(app: Application, job_id: str) -> None:
    async with app.read.subscribe(job_id) as subscription:
        while True:
            record = await app.read.job(job_id)
            if record is None or record.is_finished:
                return
            if (await app.read.fleet_counts()).orchestrators == 0:
                raise CommandRejected(
                    f"job {job_id} is {record.status}, and the process that started it is gone: start"
                    " `dagmaster dev`,"
                    " or make a new job"
                )
            await subscription.wait(WAIT_SECONDS)


@contextlib.asynccontextmanager
async def _services(job: Job) -> AsyncIterator[LocalServices]:
    """Open the services that run a job, in its memory or on the database of the settings."""
    memory = None if job.context is None else job.context.memory
    if memory is None and job.context is not None and job.context.is_in_memory:
        raise JobNotFound(
            f"job {job.id} was made in an OrchContext(in_memory=True) that is closed, and its database with"
            " it: call"
            " run_job_test in the context, or make the job in an OrchContext() with a database, as one in the"
            " folder"
            " that DAGMASTER_DATA_DIR names"
        )
    if memory is not None and memory.services is not None:
        if memory.functions is not None:
            memory.functions.forget_missing()
        yield memory.services
        return
    from dagmaster.bootstrap import blob_directory, find_handlers, open_database, stored_services
    from dagmaster.session.backends import entered
    from dagmaster.settings import load_settings
    from dagmaster.settings.groups import NO_LOG_FILES
    from dagmaster.settings.log_directory import script_logs_dir

    settings = load_settings().model_copy(update={"log_dir": script_logs_dir() or NO_LOG_FILES})
    async with (
        entered(open_database(settings)) as config,
        stored_services(
            config,
            settings,
            modules=(),
            registry=with_mocks(ProcessRegistry(find_handlers)),
            blob_dir=blob_directory(settings),
            in_process=True,
        ) as services,
    ):
        yield services
