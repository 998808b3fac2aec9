"""Find the job that a caller names, and load its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.application.access import reaches
from dagmaster.errors import DagmasterError, JobNotFound

if TYPE_CHECKING:
    from dagmaster.application.context import Application
    from dagmaster.records.jobs import JobRecord

SHOWN_BYTES: Final = 4 * 1024 * 1024
"""The largest value that a page or a stream of a job contains: reading one of 200 MB takes seconds and
gigabytes."""

LAST: Final = "last"
"""Stands for the newest job that is not a child job; of a caller with a key or token, its own newest."""


async def find_job(app: Application, job_id: str | None) -> JobRecord:
    """Return a job by its id; the newest one for None or `last`. Raise `JobNotFound` if it does not exist.

    A caller's newest job is its own: a server has many callers, and nobody cancels the job of another by
    `last`.
    """
    if job_id in (None, LAST):
        actor = None if app.caller is None else app.caller.actor
        job_id = await app.read.newest_job_id(submitted_by=actor)
        if job_id is None:
            none = "there is no job yet" if actor is None else f"{actor} has submitted no job"
            raise JobNotFound(none)
    record = await app.read.job(job_id) if job_id.isascii() and job_id.isdigit() else None
    if record is None or not reaches(app.caller, record.submitted_by):
        is_own = app.caller is not None and app.caller.limits.is_own
        raise JobNotFound(f"there is no job {job_id!r}{' that this key submitted' if is_own else ''}")
    return record


async def load_value(app: Application, value: Any, ref: str | None, *, max_bytes: int | None = None) -> Any:
    """Return a value that is stored in its row, or in a blob.

    An unreadable blob becomes an object that says so.

    `max_bytes`: a larger blob is not read, and also becomes such an object.
    """
    if ref is None:
        return value
    from dagmaster.json_types import read_json

    try:
        if max_bytes is not None and (size := await app.blobs.size(ref)) > max_bytes:
            return {"blob": ref, "bytes": size, "unreadable": "it is too large to be shown here: download it"}
        return read_json((await app.blobs.read(ref)).decode())
    except (DagmasterError, ValueError) as error:
        return {"blob": ref, "unreadable": str(error)}
