"""What the author of a handler works with: the context of the task.

A handler knows its task and nothing of graphs, stores or queues. A test of a handler creates its own context:
`HandlerContext(params={"name": "Ada"})`.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagmaster.errors import PermanentError, ServicesNotFound
from dagmaster.host import private_files
from dagmaster.ports.handler_reports import Checkpoint, Progress
from dagmaster.sdk.blob_repository import BlobRepository
from dagmaster.sdk.scratch_dirs import process_dir_name

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Mapping, MutableMapping, Sequence
    from concurrent.futures import Future

    from dagmaster.json_types import JsonObject, JsonValue
    from dagmaster.ports.added_nodes import UnstoredNodes
    from dagmaster.ports.catalog import Catalog
    from dagmaster.ports.handler_reports import Artifact, Reporter
    from dagmaster.ports.handler_services import ConnectionPool, Services, Share
    from dagmaster.ports.storage import Storage
    from dagmaster.ports.tables import Tables

    NodeAdder = Callable[[int, JsonObject], Future[JsonObject]]

_LOGGER = logging.getLogger("dagmaster.task")

CURRENT_CONTEXT: ContextVar[HandlerContext | None] = ContextVar("current_context", default=None)
"""The context of the handler that runs here."""


@dataclass(slots=True)
class HandlerContext:
    """What a handler knows about its task. `params` may hold secrets, so no repr shows them."""

    task_id: str = ""
    job_id: str = ""
    node_id: str = ""
    attempt: int = 1
    params: dict[str, Any] = field(default_factory=dict, repr=False)
    last_checkpoint: Checkpoint | None = field(default=None, repr=False)
    reporter: Reporter | None = field(default=None, repr=False)
    services: Services | None = field(default=None, repr=False)
    handler: str = ""
    handler_version: str = ""
    workflow: str = ""
    """The workflow and its version, as `raster_tiled v2`; empty outside a job."""
    fencing_token: int = 1
    """Greater for every later execution of this node. Pass it on with a write, and refuse a write with a
    smaller one: then an execution that was paused and taken for dead cannot overwrite the work of its
    successor."""
    trace_parent: str | None = None
    """The W3C trace context of the submit, if traces are on where the job was submitted."""
    about: str | None = None
    """What the task works on, mostly a file: a failure of kind `invalid_input` that names no place ends with
    it."""
    node_adder: NodeAdder | None = field(default=None, repr=False)
    """Adds nodes to the job at once: set by the worker."""
    added: UnstoredNodes | None = field(default=None, init=False, repr=False)
    """Nodes that become part of the job with the success of this attempt."""
    running_task: Any = field(default=None, init=False, repr=False)
    """What the task can do to its job: see `authoring.python.running_task`."""
    queue: str = ""
    """The queue that the task came from."""
    loop: AbstractEventLoop | None = field(default=None, init=False, repr=False)
    """The event loop that an async handler runs on: other tasks share it, and in a run in one process all
    services."""
    _calls: int = field(default=0, init=False, repr=False)
    _scratch: Path | None = field(default=None, init=False, repr=False)
    _logger: TaskLogger | None = field(default=None, init=False, repr=False)
    _cancelled: bool = field(default=False, init=False, repr=False)
    _saw_cancellation: bool = field(default=False, init=False, repr=False)

    @property
    def logger(self) -> TaskLogger:
        """Return the log of this task. Its records carry task_id, job_id, node_id and attempt."""
        # Created lazily: a fan-out of 100,000 children that log nothing pays nothing.
        if self._logger is None:
            fields = {name: getattr(self, name) for name in ("task_id", "job_id", "node_id", "attempt")}
            self._logger = TaskLogger(_LOGGER, fields)
        return self._logger

    @property
    def idempotency_key(self) -> str:
        """Return a key that is the same in every execution of this node of this job, and of no other.

        A child of a fan-out has its own: its index is part of its node id. Attempts, repeated executions and
        new runs of the job keep the key; a new job, also one that resumes another, has new ones.
        """
        return f"{self.job_id}:{self.node_id}"

    @property
    def checkpoint_data(self) -> dict[str, Any] | None:
        """Return the data of the last checkpoint, of this attempt or of one before it."""
        return None if self.last_checkpoint is None else self.last_checkpoint.data

    @property
    def cancelled(self) -> bool:
        """Return whether this attempt was asked to stop, or has run out of time."""
        self._saw_cancellation = self._saw_cancellation or self._cancelled
        return self._cancelled

    @property
    def saw_cancellation(self) -> bool:
        """Return whether the handler saw the stop request: its result may be partial then."""
        return self._saw_cancellation

    @property
    def blobs(self) -> Storage:
        """Return the storage of blobs by URI."""
        return self._require_services().blobs

    @property
    def catalog(self) -> Catalog:
        """Return the STAC catalog."""
        return self._require_services().catalog

    @property
    def tables(self) -> Tables:
        """Return the feature tables."""
        return self._require_services().tables

    @property
    def pool(self) -> ConnectionPool:
        """Return a pool of connections to the database that the operator lets handlers use.

        `with ctx.pool.connection() as connection` in a plain function, `async with` in a coroutine: psycopg's
        connections, whose rows are dicts. The block is one transaction.
        """
        return self._require_services().pool

    @property
    def blob_repository(self) -> BlobRepository:
        """Return the blobs under the names of the source systems, such as `read_blob(container, path)`."""
        return BlobRepository(self.blobs)

    @property
    def share(self) -> Share:
        """Return the resource limits of this task."""
        return self._require_services().share

    @property
    def param_defaults(self) -> Mapping[str, JsonValue]:
        """Return the operator's defaults of params, by setting."""
        return {} if self.services is None else self.services.share.param_defaults

    @property
    def scratch(self) -> Path:
        """Return the attempt's scratch directory; it is deleted when the attempt ends."""
        if self._scratch is None:
            # One directory per process: when the process is killed, the worker deletes all of it.
            process_dir = self.share.scratch / process_dir_name()
            private_files.make_folder(process_dir)
            self._scratch = Path(tempfile.mkdtemp(prefix="task-", dir=process_dir))
            self._scratch.chmod(private_files.FOLDER_MODE)
        return self._scratch

    def close(self) -> None:
        """Delete the scratch directory. The worker calls this when the attempt ends."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def _require_services(self) -> Services:
        if self.services is None:
            raise ServicesNotFound(
                "this handler needs storage, a catalog or tables, but has no services: run it on a worker, or"
                " create"
                " its context with HandlerContext(services=…)",
                kind="services_missing",
            )
        return self.services

    def progress(self, current: float, total: float | None = None, message: str = "") -> None:
        """Report progress; thread-safe."""
        reporter = self.reporter
        if reporter is not None:
            reporter.progress(Progress(current, total, message))

    def checkpoint(
        self, phase: str, data: dict[str, Any] | None = None, artifacts: Sequence[Artifact] = ()
    ) -> None:
        """Save a checkpoint from which a later attempt resumes; thread-safe.

        `artifacts` names everything written so far that it relies on: URIs, paths, or what
        `ctx.blobs.publish` returned. If one is gone or has changed when another attempt starts, that attempt
        resumes from the newest earlier checkpoint whose artifacts are all there, or from the beginning.
        """
        saved = Checkpoint(phase, {} if data is None else data, artifacts)
        last, reporter = self.last_checkpoint, self.reporter
        if reporter is not None:
            saved.earlier = () if last is None else last.history
            saved = reporter.checkpoint(saved)
        self.last_checkpoint = saved

    def add_nodes(self, part: UnstoredNodes) -> None:
        """Add nodes to the job with the success of this attempt: what a failed attempt added is not added."""
        if self.added is None:
            self.added = part
        else:
            self.added.extend(part)

    def add_nodes_at_once(self, part: UnstoredNodes) -> Future[JsonObject]:
        """Add nodes to the job now; return the future of [id, node id] of each task and group, or an error.

        The same call of a later attempt of this node adds nothing, and gets the same ids.
        """
        if self.node_adder is None:
            raise ServicesNotFound("nodes can be added at once only by a task that runs on a worker")
        call, self._calls = self._calls, self._calls + 1
        return self.node_adder(call, part.to_json())

    def raise_if_cancelled(self) -> None:
        """End the handler here if it was asked to stop: long loops call this once per iteration."""
        if self.cancelled:
            raise PermanentError("the task was asked to stop", kind="cancelled")

    def cancel(self) -> None:
        """Ask the handler to stop. The worker calls this; so may a test of a handler."""
        self._cancelled = True


class TaskLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the task to each record, and keeps what the caller adds."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Merge both extras. Before Python 3.13 a LoggerAdapter drops the caller's."""
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs
