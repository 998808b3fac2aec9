"""`dagmaster blobs`: bring data to where workflows find it, and get results from where they leave them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pathlib
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import data_dir_option
from dagmaster.errors import BlobMissing, DagmasterError
from dagmaster.ports.storage import ZONES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dagmaster.ports.storage import BlobInfo, BlobUri, Storage

zone_option = click.option(
    "--zone",
    type=click.Choice(ZONES),
    default="bronze",
    show_default=True,
    help="bronze: as it came; silver: results; gold: for others.",
)


@click.group()
def blobs() -> None:
    """Bring data, and look at results.

    Data lies in three zones. bronze is what came in: workflows find it there by its name. silver is what they made of
    it, gold what is made for others. Each is a folder, or a place in S3, Azure or Google Cloud: DAGMASTER_BRONZE_URL
    and its kin, which `dagmaster config` shows.
    """


@blobs.command(epilog="Exit codes: 0 it is there, 2 bad usage or bad input, 3 the storage does not answer.")
@click.argument("file", type=click.Path(path_type=pathlib.Path, dir_okay=False, exists=True, readable=True))
@click.argument("name", required=False)
@zone_option
@data_dir_option
def put(file: pathlib.Path, name: str | None, *, zone: str, data_dir: pathlib.Path | None) -> int:
    """Put a file into a zone, under its own name or another.

    It appears there whole or not at all. What is there already stays: the same file again is no mistake, another one
    under the same name is. The URI that is printed may be given to a workflow; in bronze the name is enough.

    \b
    Examples:
      dagmaster blobs put scene.tif
      dagmaster blobs put scene.tif landsat/2000/scene.tif
      dagmaster blobs put scene.tif landsat/2000/          the folder, with the file's own name
    """
    name = f"{name}{file.name}" if name is not None and name.endswith("/") else name or file.name
    with _told(), _storage(data_dir) as storage:
        uri = storage.in_zone(zone, name)
        with _shown(f"to {zone}", file.stat().st_size) as on_bytes:
            info = storage.publish(file, uri, on_bytes)
    if not info.created and info.sha256 != _sha256(file):
        raise click.ClickException(f"something else is at {uri}, and stays: give another name")
    click.echo(str(uri))
    said = "is there" if info.created else "was there already, the same"
    click.echo(f"{_size(info.size)}, {said}. A workflow finds it as {name if zone == 'bronze' else uri}", err=True)
    return COMPLETED


@blobs.command(name="list", epilog="Exit codes: 0 listed, 2 bad usage or bad input, 3 the storage does not answer.")
@click.argument("prefix", required=False)
@zone_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@data_dir_option
def list_blobs(prefix: str | None, *, zone: str, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """List what is in a zone, or in a folder of it.

    PREFIX is a folder, or a URI of any place. The list is in order of names; what is half written is not in it.

    \b
    Examples:
      dagmaster blobs list
      dagmaster blobs list cogs --zone silver
      dagmaster blobs list s3://bucket/landsat
    """
    count = size = 0
    documents = []
    with _told(), _storage(data_dir) as storage:
        place = _place(storage, prefix, zone)
        for info in storage.under(place) if prefix is None else _below(storage, place):
            count, size = count + 1, size + info.size
            if as_json:
                documents.append(
                    {"uri": str(info.uri), "size": info.size, "etag": info.etag, "modified": _when(info) or None}
                )
            else:
                click.echo(f"{_size(info.size):>10}  {_when(info):20}  {info.uri}")
    if as_json:
        click.echo(json.dumps(documents, ensure_ascii=False))
    elif count == 0:
        click.echo(f"there is nothing in {place}", err=True)
    else:
        click.echo(f"{count:,} blob{'s' if count != 1 else ''}, {_size(size)}", err=True)
    return COMPLETED


@blobs.command(epilog="Exit codes: 0 it is here, 2 bad usage or bad input, 3 the storage does not answer.")
@click.argument("uri")
@click.argument("file", type=click.Path(path_type=pathlib.Path))
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@data_dir_option
def get(uri: str, file: pathlib.Path, *, force: bool, data_dir: pathlib.Path | None) -> int:
    """Copy a blob to a local file.

    URI is what `dagmaster blobs list` and the outputs of a job say; a name alone is looked for in bronze. FILE may be a
    folder. The file is whole or not there.

    \b
    Examples:
      dagmaster blobs get scene.tif .
      dagmaster blobs get s3://bucket/cogs/scene-0f3a.tif scene.tif
    """
    with _told(), _storage(data_dir) as storage:
        place = storage.resolve(uri)
        to = file / place.name.rpartition("/")[2] if file.is_dir() else file
        if to.exists() and not force:
            raise click.UsageError(f"{to} is there already: give another name, or --force")
        if not to.parent.is_dir():
            raise click.UsageError(f"there is no folder {to.parent}")
        found = storage.find(place)
        if found is None:
            raise BlobMissing(f"there is nothing at {place}: `dagmaster blobs list` tells what is there")
        with _shown(f"from {place}", found.size) as on_bytes:
            info = storage.fetch(place, to, on_bytes)
    click.echo(str(to))
    click.echo(f"{_size(info.size)}, sha256 {info.sha256}", err=True)
    return COMPLETED


def _place(storage: Storage, prefix: str | None, zone: str) -> BlobUri:
    if prefix is None:
        return storage.in_zone(zone)
    prefix = prefix.rstrip("/")
    return storage.resolve(prefix) if "://" in prefix else storage.in_zone(zone, prefix)


def _below(storage: Storage, place: BlobUri) -> Iterator[BlobInfo]:
    """The blob of that name, if there is one, and everything below."""
    itself = storage.find(place) if place.name else None
    if itself is not None:
        yield itself
    yield from storage.under(place)


@contextlib.contextmanager
def _storage(data_dir: pathlib.Path | None) -> Iterator[Storage]:
    """The zones that the workers of these settings have."""
    from dagmaster.bootstrap import blob_directory, lending  # noqa: PLC0415 - slow to import
    from dagmaster.settings import load_settings  # noqa: PLC0415 - likewise

    settings = load_settings()
    is_alone = settings.database_url is None or data_dir is not None
    yield lending(settings, blob_directory(settings, data_dir), is_alone=is_alone).open().blobs


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except DagmasterError as error:
        raise click.ClickException(str(error)) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise click.ClickException(f"{error.filename or 'the file'}: {error.strerror or error}") from error


@contextlib.contextmanager
def _shown(what: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """How far it is, for who sits at a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415 - likewise

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)


def _sha256(file: pathlib.Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004 - as disks are sold
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def _when(info: BlobInfo) -> str:
    return "" if info.modified is None else datetime.fromtimestamp(info.modified, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
