"""Where a handler's results go: names that tell what they were made of, and how, and by what."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dagmaster.authoring.handler_context import HandlerContext
    from dagmaster.ports.storage import BlobInfo, BlobUri

UNDATED: Final = "dagmaster:undated_id"
"""Of an item: its id comes from content and knows no moment. Who tells the moment later makes it a part of the id."""
_LONGEST: Final = 100
_FINGERPRINT: Final = re.compile(r"-[0-9a-f]{16}(?=$|\.[A-Za-z0-9]+$)")


def result_uri(
    ctx: HandlerContext,
    name: str,
    suffix: str,
    *,
    sources: Sequence[str],
    params: Mapping[str, Any],
    folder: str = "",
    zone: str = "silver",
    made_by: tuple[str, str] | None = None,
) -> BlobUri:
    """The place of a result: `silver/folder/name-fingerprint.suffix`.

    The fingerprint is of the handler and its version, the params that shape the result and the checksums of what it is
    made from. So a retry finds what is there, and a corrected handler never keeps a stale file. `made_by` is another
    handler and its version: who plans its work looks whether that is done.
    """
    name_and_version = made_by or (ctx.handler, ctx.handler_version)
    said = json.dumps([*name_and_version, dict(params), list(sources)], sort_keys=True, default=str)
    fingerprint = hashlib.sha256(said.encode()).hexdigest()[:16]
    # A long name is cut before the fingerprint, never the fingerprint: that alone tells two results apart.
    word = f"{plain_name(name)[: _LONGEST - len(fingerprint) - 1]}-{fingerprint}"
    folders = [plain_name(one) for one in folder.split("/") if one]
    return ctx.blobs.in_zone(zone, f"{'/'.join((*folders, word))}{suffix}")


def plain_name(text: str) -> str:
    """Text as a word of a path: letters, digits, '.', '_' and '-'."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).strip("._")[:_LONGEST] or "unnamed"


def is_named_by_content(href: str) -> bool:
    """Whether a place is named after what lies there: equal rasters of two days are one file."""
    return _FINGERPRINT.search(href.rpartition("/")[2]) is not None


def without_fingerprint(stem: str) -> str:
    """A name as it was before a step put a fingerprint behind it."""
    return _FINGERPRINT.sub("", stem) or stem


def dated(item_id: str, moment: str) -> str:
    """The id of what was measured at a moment (as RFC 3339), where the id alone tells only of its content."""
    return f"{item_id}-{hashlib.sha256(moment.encode()).hexdigest()[:8]}"


def publish(ctx: HandlerContext, path: Path, uri: BlobUri) -> BlobInfo:
    """Put a finished local file in its place. What is there already stays: it was made of the same."""
    total = max(path.stat().st_size, 1)

    def on_bytes(done: int) -> None:
        ctx.progress(done, total, f"publishing {uri}")
        ctx.raise_if_cancelled()

    return ctx.blobs.publish(path, uri, on_bytes)
