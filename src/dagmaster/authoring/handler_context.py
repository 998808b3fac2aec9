"""What the author of a handler works with: the context of the task.

A handler knows its task and nothing of graphs, stores or queues. A context can be made by hand, for a test of a
handler: `HandlerContext(params={"name": "Ada"})`.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagmaster.errors import PermanentError, ServicesNotFound
from dagmaster.ports.handler_reports import Checkpoint, Progress
from dagmaster.scratch_dirs import process_dir_name

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from dagmaster.ports.catalog import Catalog
    from dagmaster.ports.handler_reports import Reporter
    from dagmaster.ports.handler_services import Services, Share
    from dagmaster.ports.storage import Storage
    from dagmaster.ports.tables import Tables

_LOGGER = logging.getLogger("dagmaster.task")


@dataclass(slots=True)
class HandlerContext:
    """What a handler knows about the task it works on. `params` may hold secrets, so no repr shows them."""

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
    about: str | None = None
    """What the task works on, mostly a file: a failure of kind `invalid_input` that names no place ends with it."""
    _scratch: Path | None = field(default=None, init=False, repr=False)
    _logger: TaskLogger | None = field(default=None, init=False, repr=False)
    _cancelled: bool = field(default=False, init=False, repr=False)
    _noticed: bool = field(default=False, init=False, repr=False)

    @property
    def logger(self) -> TaskLogger:
        """Return the log of this task. Its records carry task_id, job_id, node_id and attempt."""
        # Made when it is asked for: a fan-out of 100,000 children that log nothing pays nothing.
        if self._logger is None:
            fields = {name: getattr(self, name) for name in ("task_id", "job_id", "node_id", "attempt")}
            self._logger = TaskLogger(_LOGGER, fields)
        return self._logger

    @property
    def checkpoint_data(self) -> dict[str, Any] | None:
        """Return the data of the last checkpoint, of this attempt or of one before it."""
        return None if self.last_checkpoint is None else self.last_checkpoint.data

    @property
    def cancelled(self) -> bool:
        """Return whether this attempt was asked to stop, or has run out of time."""
        self._noticed = self._noticed or self._cancelled
        return self._cancelled

    @property
    def noticed(self) -> bool:
        """Return whether the handler noticed a stop request: its result may be partial then."""
        return self._noticed

    @property
    def blobs(self) -> Storage:
        """Data by URI: what is read, and where results go."""
        return self._lent().blobs

    @property
    def catalog(self) -> Catalog:
        """Return the STAC catalog."""
        return self._lent().catalog

    @property
    def tables(self) -> Tables:
        """Tables of features."""
        return self._lent().tables

    @property
    def share(self) -> Share:
        """Return what this task may use of the machine."""
        return self._lent().share

    @property
    def scratch(self) -> Path:
        """Return an empty folder of this attempt alone. It is gone when the attempt is over."""
        if self._scratch is None:
            # One folder a process: when that is killed, the worker takes all of it away.
            home = self.share.scratch / process_dir_name()
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._scratch = Path(tempfile.mkdtemp(prefix="task-", dir=home))
        return self._scratch

    def close(self) -> None:
        """Take the scratch folder away. The worker calls this when the attempt is over."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def _lent(self) -> Services:
        if self.services is None:
            raise ServicesNotFound(
                "this handler asks for storage, a catalog or tables, and was called without them: run it on a worker,"
                " or make its context with HandlerContext(services=…)",
                kind="services_missing",
            )
        return self.services

    def progress(self, current: float, total: float | None = None, message: str = "") -> None:
        """Report how far the work is, from a coroutine or from any thread."""
        reporter = self.reporter
        if reporter is not None:
            reporter.progress(Progress(current, total, message))

    def checkpoint(self, phase: str, data: dict[str, Any] | None = None, artifacts: Sequence[str] = ()) -> None:
        """Save a place from which another attempt can go on, from a coroutine or from any thread."""
        saved = Checkpoint(phase, {} if data is None else data, artifacts)
        reporter = self.reporter
        self.last_checkpoint = saved if reporter is None else reporter.checkpoint(saved)

    def raise_if_cancelled(self) -> None:
        """End the handler here if it was asked to stop: long loops call this once a round."""
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
