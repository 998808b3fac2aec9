"""`dagmaster blobs`: list and fetch blobs; `blobs_write` has the other commands."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import click

from dagmaster.cli.commands.blobs_write import put, rm
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import zone_option
from dagmaster.cli.storage_access import (
    format_blob,
    format_modified,
    open_services,
    resolve_prefix,
    show_progress,
    storage_errors,
)
from dagmaster.errors import BlobNotFound
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json
from dagmaster.text_format import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.json_types import JsonValue
    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.ports.storage import BlobInfo, Storage


@click.group()
def blobs() -> None:
    """Store data for workflows, and fetch results.

    Data is kept in three zones. bronze is raw data: workflows refer to it by name. silver is what workflows
    made of it, gold what is published. A zone is a folder, or a location in S3, Azure or Google Cloud: see
    DAGMASTER_BRONZE_URL, DAGMASTER_SILVER_URL and DAGMASTER_GOLD_URL in `dagmaster config show`.
    """


blobs.add_command(put)
blobs.add_command(rm)


@blobs.command(
    name="list", epilog="Exit codes: 0 listed, 2 bad usage or bad input, 3 the storage is unavailable."
)
@click.argument("prefix", required=False)
@zone_option
@json_option
@data_dir_option
def list_blobs(prefix: str | None, *, zone: str, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """List the blobs of a zone, or of a folder in it, by name.

    PREFIX is a folder, or any URI. Blobs that are still being written are not listed.

    \b
    Examples:
      dagmaster blobs list
      dagmaster blobs list cogs --zone silver
      dagmaster blobs list s3://bucket/landsat
    """
    count = size = 0
    documents: list[dict[str, JsonValue]] = []
    with storage_errors():
        storage = open_services(data_dir).blobs
        uri = storage.in_zone(zone) if prefix is None else resolve_prefix(storage, prefix, zone)
        for info in storage.list_blobs(uri) if prefix is None else _blob_and_below(storage, uri):
            count, size = count + 1, size + info.size
            if as_json:
                modified = format_modified(info) or None
                documents.append(
                    {"uri": str(info.uri), "size": info.size, "etag": info.etag, "modified": modified}
                )
            else:
                echo(format_blob(info))
    if as_json:
        echo_json(documents)
    elif count == 0:
        echo(f"{uri} has no blobs", err=True)
    else:
        echo(f"{format_count(count, 'blob')}, {format_bytes(size)}", err=True)
    return COMPLETED


@blobs.command(epilog="Exit codes: 0 fetched, 2 bad usage or bad input, 3 the storage is unavailable.")
@click.argument("uri")
@click.argument("file", type=click.Path(path_type=pathlib.Path))
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@data_dir_option
def get(uri: str, file: pathlib.Path, *, force: bool, data_dir: pathlib.Path | None) -> int:
    """Copy a blob to a local file.

    URI is one that `dagmaster blobs list` or the output of a job shows, or the name of a blob in bronze. FILE
    may be a folder. The file is written atomically.

    \b
    Examples:
      dagmaster blobs get scene.tif .
      dagmaster blobs get s3://bucket/cogs/scene-0f3a.tif scene.tif
    """
    with storage_errors():
        storage = open_services(data_dir).blobs
        source = storage.resolve(uri)
        target = file / source.name.rpartition("/")[2] if file.is_dir() else file
        if target.exists() and not force:
            raise click.UsageError(f"{target} exists: use another name, or --force")
        if not target.parent.is_dir():
            raise click.UsageError(f"there is no folder {target.parent}")
        blob = storage.find(source)
        if blob is None:
            raise BlobNotFound(f"there is no blob at {source}: `dagmaster blobs list` lists the blobs")
        with show_progress(f"from {source}", blob.size) as on_bytes:
            info = storage.fetch(source, target, on_bytes)
    echo(str(target))
    echo(f"{format_bytes(info.size)}, sha256 {info.sha256}", err=True)
    return COMPLETED


def _blob_and_below(storage: Storage, uri: BlobUri) -> Iterator[BlobInfo]:
    blob = storage.find(uri) if uri.name else None
    if blob is not None:
        yield blob
    yield from storage.list_blobs(uri)
