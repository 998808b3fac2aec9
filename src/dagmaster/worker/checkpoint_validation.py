"""Check the checkpoint of an earlier attempt before its handler resumes: what it relies on may be gone.

An artifact is looked up in the storage, or as a local file where the storage does not serve its path. Its
content is not read: size and etag tell whether it was replaced.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dagmaster.errors import BlobNameInvalid, BlobNotFound

if TYPE_CHECKING:
    from dagmaster.ports.handler_reports import Checkpoint
    from dagmaster.sdk.handler_context import HandlerContext

_FILE_SCHEME = "file://"


def needs_validation(context: HandlerContext) -> bool:
    return context.last_checkpoint is not None and bool(context.last_checkpoint.artifacts)


def discard_stale_checkpoint(context: HandlerContext) -> None:
    """Replace the checkpoint by the newest one whose artifacts all exist unchanged; log what is wrong.

    It blocks while the storage answers; `BlobsUnavailable` fails the attempt, because the answer decides what
    is done.
    """
    history = () if context.last_checkpoint is None else context.last_checkpoint.history
    for number, checkpoint in enumerate(history):
        problem = _stale_artifact(context, checkpoint)
        if problem is None:
            context.last_checkpoint = replace(checkpoint, earlier=history[number + 1 :])
            if number:
                context.logger.warning("the task resumes from the earlier checkpoint %r", checkpoint.phase)
            return
        context.logger.warning("the checkpoint %r is discarded: %s", checkpoint.phase, problem)
    context.last_checkpoint = None
    context.logger.warning("the task starts from the beginning: no checkpoint is valid")


def _stale_artifact(context: HandlerContext, checkpoint: Checkpoint) -> str | None:
    """Return in words which artifact of a checkpoint is missing or has changed; None without one."""
    for artifact in map(str, checkpoint.artifacts):
        problem = _problem(context, artifact, checkpoint.versions.get(artifact))
        if problem is not None:
            return f"the artifact {artifact} {problem}"
    return None


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
