"""Check the checkpoint of an earlier attempt before its handler resumes: what it relies on may be gone.

An artifact is looked up in the storage, or as a local file where the storage does not serve its path. Its content is
not read: size and etag tell whether it was replaced.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dagmaster.errors import BlobNameInvalid, BlobNotFound

if TYPE_CHECKING:
    from dagmaster.authoring.handler_context import HandlerContext

_FILE_SCHEME = "file://"


def needs_validation(context: HandlerContext) -> bool:
    """Return whether the context has a checkpoint that names artifacts."""
    return context.last_checkpoint is not None and bool(context.last_checkpoint.artifacts)


def discard_stale_checkpoint(context: HandlerContext) -> None:
    """Remove the checkpoint from the context if an artifact is missing or has changed, and log which.

    It blocks while the storage answers; `BlobsUnavailable` fails the attempt, because the answer decides what is done.
    """
    checkpoint = context.last_checkpoint
    if checkpoint is None:
        return
    for artifact in map(str, checkpoint.artifacts):
        problem = _problem(context, artifact, checkpoint.versions.get(artifact))
        if problem is not None:
            context.logger.warning(
                "the checkpoint %r is discarded, and its work starts again: the artifact %s %s",
                checkpoint.phase, artifact, problem,
            )  # fmt: skip
            context.last_checkpoint = None
            return


def _problem(context: HandlerContext, artifact: str, version: str | None) -> str | None:
    """Return what is wrong with an artifact, or None. Without storage only local files can be checked."""
    path = artifact.removeprefix(_FILE_SCHEME)
    if context.services is None:
        return "does not exist" if path.startswith("/") and not Path(path).exists() else None
    try:
        uri = context.blobs.resolve(artifact)
        info = context.blobs.find(uri)
        if info is None and next(iter(context.blobs.list_blobs(uri)), None) is not None:
            # A folder, which has no version.
            return None
    except BlobNotFound:
        info = None
    except BlobNameInvalid as error:
        # Not the storage's: a path that the handler uses by itself, such as one on a shared disk.
        if not path.startswith("/"):
            return f"cannot be looked up: {error}"
        return None if Path(path).exists() else "does not exist"
    if info is None:
        return "does not exist"
    return "has changed" if version is not None and version != info.version else None
