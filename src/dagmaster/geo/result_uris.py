"""Where results are stored: names with a fingerprint of the sources, the params and the handler version."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.ports.storage import BlobInfo
    from dagmaster.sdk.handler_context import HandlerContext

UNDATED_ID: Final = "dagmaster:undated_id"
"""A property of an item whose id comes from its content alone; its datetime joins the id once it is known."""
_MAX_NAME_CHARACTERS: Final = 100
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
    producer: tuple[str, str] | None = None,
) -> BlobUri:
    """Return the URI of a result: `silver/folder/name-fingerprint.suffix`.

    The fingerprint covers the handler and its version, the params that change the result and the checksums of
    its sources. A retry therefore finds the existing file, and a corrected handler never reuses a stale one.
    `producer` is another handler and its version: a planner uses it to see whether that handler's work is
    already done.
    """
    name_and_version = producer or (ctx.handler, ctx.handler_version)
    text = json.dumps([*name_and_version, dict(params), list(sources)], sort_keys=True, default=str)
    fingerprint = hashlib.sha256(text.encode()).hexdigest()[:16]
    # Cut a long name, never its fingerprint: that alone tells two results apart.
    stem = f"{safe_name(name)[: _MAX_NAME_CHARACTERS - len(fingerprint) - 1]}-{fingerprint}"
    folders = [safe_name(part) for part in folder.split("/") if part]
    return ctx.blobs.in_zone(zone, f"{'/'.join((*folders, stem))}{suffix}")


def safe_name(text: str) -> str:
    """Return text as one part of a path: letters, digits, '.', '_' and '-'."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text).strip("._")[:_MAX_NAME_CHARACTERS] or "unnamed"


def has_fingerprint(href: str) -> bool:
    """Return whether a file is named by its content, so that equal rasters of two days are one file."""
    return _FINGERPRINT.search(href.rpartition("/")[2]) is not None


def strip_fingerprint(stem: str) -> str:
    """Return a name without the fingerprint that an earlier step appended."""
    return _FINGERPRINT.sub("", stem) or stem


def dated_id(item_id: str, datetime_text: str) -> str:
    """Extend an id that covers only the content by the datetime (RFC 3339) of the measurement."""
    return f"{item_id}-{hashlib.sha256(datetime_text.encode()).hexdigest()[:8]}"


def publish_file(ctx: HandlerContext, path: Path, uri: BlobUri) -> BlobInfo:
    """Publish a finished local file. An existing one stays: it was made from the same sources."""
    total = max(path.stat().st_size, 1)

    def on_bytes(done: int) -> None:
        ctx.progress(done, total, f"publishing {uri}")
        ctx.raise_if_cancelled()

    return ctx.blobs.publish(path, uri, on_bytes)
