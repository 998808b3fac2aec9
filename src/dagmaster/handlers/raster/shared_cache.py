"""A folder that outlives a task: sources that several tasks or attempts read are copied there once.

It lies beside the tasks' own folders, `mount/` in the worker's scratch folder. Where that is a share, workers on other
machines find the copies too. A name there tells which version of the blob it is; what nobody used for long goes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dagmaster.errors import BlobNotFound, BlobsUnavailable, PermanentError
from dagmaster.handlers.result_uris import plain_name
from dagmaster.handlers.source_files import LocalFile, no_file

if TYPE_CHECKING:
    from dagmaster.authoring.handler_context import HandlerContext
    from dagmaster.ports.storage import BlobUri

FOLDER = "mount"
KEEP_HOURS = 72.0
LEAST_HOURS = 24.0
"""No task runs so long: a copy that is being read is not taken away, whatever is asked."""


def mounted(ctx: HandlerContext, uri: BlobUri, *, keep_hours: float = KEEP_HOURS) -> LocalFile:
    """A copy of the blob in the mount: the one that is there, or a new one, whole or not there.

    `keep_hours` is of this copy, and what somebody asked for longer stays longer.
    """
    info = ctx.blobs.find(uri)
    if info is None:
        raise no_file(ctx, uri)
    if info.size > ctx.share.max_file_mb * 1_000_000:
        raise PermanentError(
            f"{uri} has {info.size / 1e6:,.0f} MB: at most {ctx.share.max_file_mb:,} MB are read"
            " (DAGMASTER_RASTER_MAX_FILE_MB)",
            kind="invalid_input",
        )
    home = ctx.share.scratch / FOLDER
    said = f"{uri}\n{info.etag}\n{info.size}\n{info.modified}"
    place = home / hashlib.sha256(said.encode()).hexdigest()[:16] / plain_name(uri.name.rpartition("/")[2])
    try:
        _forget_old(home)
        used = time.time() + (max(keep_hours, LEAST_HOURS) - KEEP_HOURS) * 3600
        if place.exists():
            used = max(used, place.parent.stat().st_mtime)
        else:
            _copy(ctx, uri, info.size, place)
        os.utime(place.parent, (used, used))
        with place.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BlobsUnavailable(f"{uri} cannot be copied to the mount {home}: {error}") from error
    return LocalFile(uri=uri, path=place, size=info.size, sha256=sha256)


def _copy(ctx: HandlerContext, uri: BlobUri, size: int, place: Path) -> None:
    """Under a name beside, then in place in one step: two who copy at once leave one."""
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    try:
        fetched = ctx.blobs.fetch(uri, beside, lambda done: ctx.progress(done, max(size, 1), f"fetching {uri}"))
        if fetched.size != size:
            raise BlobsUnavailable(f"{uri} changed while it was copied")
        with contextlib.suppress(FileExistsError):
            os.link(beside, place)
    except BlobNotFound as error:
        raise PermanentError(str(error), kind="invalid_input") from error
    finally:
        beside.unlink(missing_ok=True)


def _forget_old(home: Path) -> None:
    """Take away what nobody asked for in the hours that it is kept: its folder's time tells how many."""
    oldest = time.time() - KEEP_HOURS * 3600
    with contextlib.suppress(OSError):
        for folder in home.iterdir():
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime < oldest:
                    shutil.rmtree(folder, ignore_errors=True)
