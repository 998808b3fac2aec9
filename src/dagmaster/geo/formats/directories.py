"""Datasets that are directories in a storage: all their files, below one of our folders."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.errors import BlobNotFound, invalid_input
from dagmaster.geo.source_files import local_file
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from pathlib import Path

    from dagmaster.geo.formats.driver_rules import FileType
    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.sdk.handler_context import HandlerContext

MAX_FILES: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedDirectory:
    """A local directory. `sha256` covers the names and the content of its files."""

    path: Path
    size: int
    sha256: str
    modified: float | None


def is_directory(ctx: HandlerContext, uri: BlobUri) -> bool:
    try:
        return next(iter(ctx.blobs.list_blobs(uri)), None) is not None
    except BlobNotFound:
        return False


def fetch_directory(ctx: HandlerContext, uri: BlobUri, file_type: FileType, target: Path) -> FetchedDirectory:
    checksums, size, modified = [], 0, 0.0
    limit = ctx.share.max_file_mb * 1_000_000
    for count, info in enumerate(ctx.blobs.list_blobs(uri), 1):
        size += info.size
        if count > MAX_FILES or size > limit:
            raise invalid_input(
                f"{uri} has more than {MAX_FILES:,} files or {limit / 1e6:,.0f} MB"
                " (DAGMASTER_RASTER_MAX_FILE_MB): split it"
            )
        name = info.uri.name[len(uri.name) :].lstrip("/")
        # Resolve it through the storage: a symbolic link in the directory may lead elsewhere.
        file = local_file(ctx, ctx.blobs.resolve(str(info.uri)))
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(file.path)
        checksums.append(f"{name}:{file.sha256}")
        modified = max(modified, info.modified or 0.0)
    if not any((target / marker).exists() for marker in file_type.markers):
        raise invalid_input(
            f"{uri} is not a complete {file_type.suffix} directory: it has"
            f" {format_count(len(checksums), 'file')}, and none of them is {' or '.join(file_type.markers)}"
        )
    return FetchedDirectory(
        path=target,
        size=size,
        sha256=hashlib.sha256("\n".join(sorted(checksums)).encode()).hexdigest(),
        modified=modified or None,
    )
