"""The mount: a folder that outlives a task, for sources that several tasks or attempts read.

It is `mount/` in the worker's scratch directory; if that is a share, workers on other machines use the copies
too. The folder of a copy is named by the version of its blob. Copies expire some time after their last use.
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

from dagmaster.errors import BlobNotFound, BlobsUnavailable, invalid_input
from dagmaster.geo.result_uris import safe_name
from dagmaster.geo.source_files import LocalFile, check_file_size, file_not_found
from dagmaster.host import private_files
from dagmaster.text_format import library_words

if TYPE_CHECKING:
    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.ports.storage import BlobInfo
    from dagmaster.sdk.handler_context import HandlerContext

FOLDER = "mount"
KEEP_HOURS = 72.0
MIN_KEEP_HOURS = 24.0
"""Longer than any task runs, so that a copy in use is never deleted, whatever keep_hours says."""


def copy_to_mount(ctx: HandlerContext, *uris: BlobUri, keep_hours: float = KEEP_HOURS) -> list[LocalFile]:
    """Return copies of blobs in one folder of the mount: existing ones or new ones, all or none.

    The first is a file, the others belong to it. `keep_hours` may extend the lifetime of existing copies,
    never shorten it.
    """
    infos = [_find(ctx, uri) for uri in uris]
    root = ctx.share.scratch / FOLDER
    version = "\n".join(f"{info.uri}\n{info.etag}\n{info.size}\n{info.modified}" for info in infos)
    folder = root / hashlib.sha256(version.encode()).hexdigest()[:16]
    stem = _stem(uris[0])
    try:
        _delete_expired(root)
        # The folder's mtime encodes the expiry: it is deleted KEEP_HOURS later.
        used_at = time.time() + (max(keep_hours, MIN_KEEP_HOURS) - KEEP_HOURS) * 3600
        files = []
        for info in infos:
            path = folder / f"{safe_name(stem)}{info.uri.name.rpartition('/')[2][len(stem) :]}"
            if path.exists():
                used_at = max(used_at, folder.stat().st_mtime)
            else:
                _copy(ctx, info.uri, info.size, path)
            with path.open("rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            files.append(LocalFile(uri=info.uri, path=path, size=info.size, sha256=sha256))
        os.utime(folder, (used_at, used_at))
    except OSError as error:
        raise BlobsUnavailable(
            f"{uris[0]} cannot be copied to the mount {root}: check its free space and permissions"
            f"{library_words('the system', error)}"
        ) from error
    return files


def _find(ctx: HandlerContext, uri: BlobUri) -> BlobInfo:
    info = ctx.blobs.find(uri)
    if info is None:
        raise file_not_found(ctx, uri)
    check_file_size(ctx, info)
    return info


def _stem(uri: BlobUri) -> str:
    name = uri.name.rpartition("/")[2]
    return name.rpartition(".")[0] or name


def _copy(ctx: HandlerContext, uri: BlobUri, size: int, path: Path) -> None:
    """Copy under a temporary name, then link atomically: of two concurrent copies one stays."""
    private_files.make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        fetched = ctx.blobs.fetch(
            uri, temporary, lambda done: ctx.progress(done, max(size, 1), f"fetching {uri}")
        )
        if fetched.size != size:
            raise BlobsUnavailable(
                f"{uri} changed while it was copied: it is copied again at the next attempt"
            )
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    except BlobNotFound as error:
        raise invalid_input(str(error)) from error
    finally:
        temporary.unlink(missing_ok=True)


def _delete_expired(root: Path) -> None:
    oldest = time.time() - KEEP_HOURS * 3600
    with contextlib.suppress(OSError):
        for folder in root.iterdir():
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime < oldest:
                    shutil.rmtree(folder, ignore_errors=True)
