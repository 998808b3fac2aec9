"""`dagmaster blobs put` and `blobs rm`: store files in a zone, and delete blobs."""

from __future__ import annotations

import functools
import hashlib
import pathlib
import sys
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import click

from dagmaster.cli.main import COMPLETED, FAILED
from dagmaster.cli.options import zone_option
from dagmaster.cli.storage_access import (
    format_blob,
    open_services,
    resolve_prefix,
    show_progress,
    storage_errors,
)
from dagmaster.errors import BlobNotFound
from dagmaster.sdk.command_line import data_dir_option
from dagmaster.sdk.products import load, products
from dagmaster.sdk.terminal import confirm, echo
from dagmaster.text_format import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.ports.handler_services import Services
    from dagmaster.ports.storage import BlobInfo, Storage

MAX_SHOWN: Final = 10
"""How many blobs are listed before the confirmation of a delete."""


class PutOutcome(StrEnum):
    """What became of a file."""

    STORED = "stored"
    UNCHANGED = "unchanged"
    REPLACED = "replaced"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class PutResult:
    """One file after `put`. `replaced` is the blob that had the name before."""

    uri: BlobUri
    name: str
    size: int
    outcome: PutOutcome
    replaced: BlobInfo | None = None


@click.command(epilog="Exit codes: 0 all are stored, 2 bad usage or bad input, 3 the storage is unavailable.")
@click.argument("files", nargs=-1, required=True, metavar="FILE... [NAME]")
@click.option("--replace", is_flag=True, help="Replace a blob of the same name that has other content.")
@zone_option
@data_dir_option
def put(files: tuple[str, ...], *, replace: bool, zone: str, data_dir: pathlib.Path | None) -> int:
    """Store files and folders in a zone, under their own names or another one.

    Each file is stored atomically. A blob with the same content is left unchanged; a blob with other content
    is kept, and the command fails, unless you use --replace. A folder is stored with everything in it except
    hidden files. Workflows accept the URIs that are printed; in bronze the name is enough.

    The last argument is NAME if no file or folder of that name exists. NAME needs exactly one file or folder
    before it; a NAME that ends with / may follow several.

    \b
    Examples:
      dagmaster blobs put scene.tif
      dagmaster blobs put scene.tif landsat/2000/scene.tif
      dagmaster blobs put scene.tif landsat/2000/          in a folder, under its own name
      dagmaster blobs put *.tif landsat/2000/
      dagmaster blobs put countries/                       the files of a shapefile
      dagmaster blobs put scene.tif --replace              a corrected file
    """
    results: list[PutResult] = []
    with storage_errors():
        storage = open_services(data_dir).blobs
        targets = [(file, storage.in_zone(zone, name), name) for file, name in _named_files(files)]
        with show_progress(f"to {zone}", sum(file.stat().st_size for file, _, _ in targets)) as on_bytes:
            done = 0
            for file, uri, name in targets:
                on_file = None if on_bytes is None else functools.partial(_add_bytes, on_bytes, done)
                results.append(_put(storage, file, uri, name, on_file, replace=replace))
                done += file.stat().st_size
    rejected = [result for result in results if result.outcome is PutOutcome.REJECTED]
    for result in results:
        if result not in rejected:
            echo(str(result.uri))
    _print_put_summary(results, zone)
    if rejected:
        more = f", and of {len(rejected) - 1:,} more" if len(rejected) > 1 else ""
        raise click.ClickException(
            f"other content has the name of {rejected[0].uri}{more}, and was kept: use another name, or"
            " --replace"
        )
    return COMPLETED


def _put(
    storage: Storage,
    file: pathlib.Path,
    uri: BlobUri,
    name: str,
    on_bytes: Callable[[int], None] | None,
    *,
    replace: bool,
) -> PutResult:
    info = storage.publish(file, uri, on_bytes)
    if info.created:
        return PutResult(uri, name, info.size, PutOutcome.STORED)
    if info.sha256 == _sha256(file):
        return PutResult(uri, name, info.size, PutOutcome.UNCHANGED)
    if not replace:
        return PutResult(uri, name, info.size, PutOutcome.REJECTED)
    return PutResult(uri, name, storage.replace(file, uri, on_bytes).size, PutOutcome.REPLACED, info)


def _named_files(arguments: tuple[str, ...]) -> list[tuple[pathlib.Path, str]]:
    sources, destination = _split_destination(arguments)
    files: list[tuple[pathlib.Path, str]] = []
    for source in sources:
        if not source.exists():
            raise click.UsageError(f"{str(source)!r} does not exist: name files and folders of this machine")
        target = destination
        if not destination or destination.endswith("/"):
            target += source.resolve().name if source.is_dir() else source.name
        if source.is_dir():
            files += [(file, f"{target}/{relative}") for file, relative in _files_in(source)]
        else:
            files.append((source, target))
    duplicates = [target for target, count in Counter(target for _, target in files).items() if count > 1]
    if duplicates:
        raise click.UsageError(f"two files would be {duplicates[0]}: store them one by one, under two names")
    if not files:
        raise click.UsageError("the folder has no files")
    return files


def _split_destination(arguments: tuple[str, ...]) -> tuple[list[pathlib.Path], str]:
    """Return the sources, and the last argument if it names a blob or, with a slash, a folder."""
    *sources, last = map(pathlib.Path, arguments)
    is_name = not last.exists() and (len(sources) == 1 or arguments[-1].endswith("/"))
    if sources and is_name:
        return sources, arguments[-1]
    return [*sources, last], ""


def _files_in(folder: pathlib.Path) -> Iterator[tuple[pathlib.Path, str]]:
    for file in sorted(folder.rglob("*")):
        relative = file.relative_to(folder)
        if file.is_file() and not any(part.startswith(".") for part in relative.parts):
            yield file, relative.as_posix()


def _add_bytes(on_bytes: Callable[[int], None], before: int, done: int) -> None:
    on_bytes(before + done)


def _print_put_summary(results: list[PutResult], zone: str) -> None:
    for result in results:
        if result.replaced is not None:
            old = result.replaced
            echo(f"replaced {result.uri}: it was {format_bytes(old.size)}, sha256 {old.sha256}", err=True)
    if len(results) == 1 and results[0].outcome is not PutOutcome.REJECTED:
        (result,) = results
        reference = result.name if zone == "bronze" else result.uri
        echo(f"{format_bytes(result.size)} {result.outcome}. Workflows refer to it as {reference}", err=True)
    elif len(results) > 1:
        counts = Counter(result.outcome for result in results)
        size = sum(result.size for result in results if result.outcome is not PutOutcome.REJECTED)
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items())
        echo(f"{format_count(len(results), 'file')}: {outcomes}; {format_bytes(size)}", err=True)


@click.command(
    epilog="Exit codes: 0 they are deleted, 2 bad usage or bad input, 3 the storage is unavailable."
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-r", "--recursive", is_flag=True, help="Also delete everything in a folder of that name.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--force", is_flag=True, help="Also delete blobs that the catalog refers to.")
@zone_option
@data_dir_option
def rm(
    names: tuple[str, ...],
    *,
    recursive: bool,
    yes: bool,
    force: bool,
    zone: str,
    data_dir: pathlib.Path | None,
) -> int:
    """Delete blobs permanently.

    NAME is a name in the zone, or a URI. The command asks for confirmation. Blobs that an item of the catalog
    refers to are kept unless you use --force: the item would refer to nothing.

    \b
    Examples:
      dagmaster blobs rm landsat/old.tif
      dagmaster blobs rm -r landsat/2000 --yes
      dagmaster blobs rm -r ndvi-parts --zone silver
    """
    with storage_errors():
        services = open_services(data_dir)
        storage = services.blobs
        if not all(name.strip("/") for name in names):
            raise click.UsageError("name a blob or a folder: a whole zone cannot be deleted")
        uris = [resolve_prefix(storage, name, zone) for name in names]
        blobs = {info.uri: info for uri in uris for info in _find_matching(storage, uri, recursive=recursive)}
        if not force:
            _require_unreferenced(services, list(blobs))
        size = format_bytes(sum(info.size for info in blobs.values()))
        summary = f"{format_count(len(blobs), 'blob')}, {size}"
        if not yes and not _confirm_delete(list(blobs.values()), summary):
            echo("nothing was deleted", err=True)
            return FAILED
        for uri in blobs:
            if storage.delete(uri):
                echo(str(uri))
    echo(f"{summary}: deleted", err=True)
    return COMPLETED


def _confirm_delete(blobs: list[BlobInfo], summary: str) -> bool:
    for info in blobs[:MAX_SHOWN]:
        echo(format_blob(info), err=True)
    more = f" ({len(blobs) - MAX_SHOWN:,} more are not shown)" if len(blobs) > MAX_SHOWN else ""
    try:
        return confirm(f"Delete {summary}{more} permanently?")
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.ClickException("the question was not answered: use --yes to skip it") from None


def _find_matching(storage: Storage, uri: BlobUri, *, recursive: bool) -> list[BlobInfo]:
    blob = storage.find(uri)
    below = [*storage.list_blobs(uri)] if recursive else []
    if blob is None and not below:
        is_folder = not recursive and next(iter(storage.list_blobs(uri)), None) is not None
        hint = "it is a folder: use -r" if is_folder else "`dagmaster blobs list` lists the blobs"
        raise BlobNotFound(f"there is no blob at {uri}: {hint}")
    return [*([blob] if blob else []), *below]


def _require_unreferenced(services: Services, uris: list[BlobUri]) -> None:
    """Raise if an item refers to a blob.

    Blobs in bronze are not checked: results identify them by checksum.
    """
    bronze = f"{services.blobs.in_zone('bronze')}/"
    checked = [uri for uri in uris if not str(uri).startswith(bronze)]
    if not checked:
        return
    from dagmaster.sdk.handler_context import HandlerContext

    context = HandlerContext(services=services)
    targets = [product.blob_users for product in products() if product.blob_users]
    try:
        users = {uri: user for target in targets for uri, user in load(target)(context).items()}
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"the catalog cannot be read, because {error.name} is not installed: --force skips this check"
        ) from error
    referenced = [uri for uri in checked if uri in users]
    if referenced:
        more = f", and items refer to {len(referenced) - 1:,} more" if len(referenced) > 1 else ""
        raise click.ClickException(
            f"{users[referenced[0]]} refers to {referenced[0]}{more}: nothing was deleted. Use --force to"
            " delete it anyway"
        )


def _sha256(file: pathlib.Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
