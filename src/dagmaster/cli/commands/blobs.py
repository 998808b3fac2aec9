"""`dagmaster blobs`: bring data to where workflows find it, and get results from where they leave them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import pathlib
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from dagmaster.cli.errors import CommandError
from dagmaster.cli.main import COMPLETED, FAILED
from dagmaster.cli.options import data_dir_option, json_option
from dagmaster.errors import BlobNotFound, DagmasterError
from dagmaster.ports.storage import ZONES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dagmaster.ports.handler_services import Services
    from dagmaster.ports.storage import BlobInfo, BlobUri, Storage

CREATED: Final = "new"
SAME: Final = "the same as before"
REPLACED: Final = "replaced"
REFUSED: Final = "refused"
_OF_ONE: Final = {
    CREATED: "is there",
    SAME: "was there already, the same",
    REPLACED: "is there in the place of another",
}
SHOWN: Final = 10
"""Blobs that are named before somebody is asked about all of them."""

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


@blobs.command(epilog="Exit codes: 0 all are there, 2 bad usage or bad input, 3 the storage does not answer.")
@click.argument("files", nargs=-1, required=True, metavar="FILE... [NAME]")
@click.option("--replace", "replaces", is_flag=True, help="Put it in the place of another one that has the name.")
@zone_option
@data_dir_option
def put(files: tuple[str, ...], *, replaces: bool, zone: str, data_dir: pathlib.Path | None) -> int:
    """Put files and folders into a zone, under their own names or another.

    Each appears there whole or not at all. What is there already stays: the same file again is no mistake, another one
    under the same name is, unless --replace says so. Of a folder goes all that is in it, without hidden files. The URIs
    that are printed may be given to a workflow; in bronze the name is enough.

    NAME is what is no file here. It goes with one file or folder; one that ends with / goes with many.

    \b
    Examples:
      dagmaster blobs put scene.tif
      dagmaster blobs put scene.tif landsat/2000/scene.tif
      dagmaster blobs put scene.tif landsat/2000/          the folder, with the file's own name
      dagmaster blobs put *.tif landsat/2000/
      dagmaster blobs put countries/                       the files of a shapefile
      dagmaster blobs put scene.tif --replace              it was mended
    """
    outcomes: list[_Put] = []
    with _told(), _storage(data_dir) as storage:
        wanted = [(file, storage.in_zone(zone, name), name) for file, name in _named(files)]
        with _shown(f"to {zone}", sum(file.stat().st_size for file, _, _ in wanted)) as on_bytes:
            done = 0
            for file, uri, name in wanted:
                each = None if on_bytes is None else functools.partial(_further, on_bytes, done)
                outcomes.append(_put(storage, file, uri, name, each, replaces=replaces))
                done += file.stat().st_size
    for one in outcomes:
        if one.said != REFUSED:
            click.echo(str(one.uri))
    _say_put(outcomes, zone)
    refused = [one for one in outcomes if one.said == REFUSED]
    if refused:
        more = f", and at {len(refused) - 1:,} more" if len(refused) > 1 else ""
        raise click.ClickException(
            f"something else is at {refused[0].uri}{more}, and stays: give another name, or --replace"
        )
    return COMPLETED


@dataclass(frozen=True, slots=True)
class _Put:
    uri: BlobUri
    name: str
    size: int
    said: str
    old: BlobInfo | None = None


def _put(
    storage: Storage,
    file: pathlib.Path,
    uri: BlobUri,
    name: str,
    on_bytes: Callable[[int], None] | None,
    *,
    replaces: bool,
) -> _Put:
    info = storage.publish(file, uri, on_bytes)
    if info.created:
        return _Put(uri, name, info.size, CREATED)
    if info.sha256 == _sha256(file):
        return _Put(uri, name, info.size, SAME)
    if not replaces:
        return _Put(uri, name, info.size, REFUSED)
    return _Put(uri, name, storage.replace(file, uri, on_bytes).size, REPLACED, info)


def _named(given: tuple[str, ...]) -> list[tuple[pathlib.Path, str]]:
    """Return the files, each with the name it gets."""
    *sources, last = given
    name = None
    if sources and not pathlib.Path(last).exists() and (len(sources) == 1 or last.endswith("/")):
        name = last
    else:
        sources.append(last)
    found: list[tuple[pathlib.Path, str]] = []
    for source in map(pathlib.Path, sources):
        if not source.exists():
            raise click.UsageError(f"{str(source)!r} does not exist: name files and folders of this machine")
        own = source.resolve().name if source.is_dir() else source.name
        to = f"{name}{own}" if name is not None and name.endswith("/") else name or own
        found += [(source, to)] if not source.is_dir() else [(file, f"{to}/{rest}") for file, rest in _inside(source)]
    twice = [to for to, count in Counter(to for _, to in found).items() if count > 1]
    if twice:
        raise click.UsageError(f"two files would be {twice[0]}: put them one after the other, under two names")
    if not found:
        raise click.UsageError("there is no file in it")
    return found


def _inside(folder: pathlib.Path) -> Iterator[tuple[pathlib.Path, str]]:
    for file in sorted(folder.rglob("*")):
        rest = file.relative_to(folder)
        if file.is_file() and not any(word.startswith(".") for word in rest.parts):
            yield file, rest.as_posix()


def _further(on_bytes: Callable[[int], None], before: int, done: int) -> None:
    on_bytes(before + done)


def _say_put(outcomes: list[_Put], zone: str) -> None:
    for one in outcomes:
        if one.old is not None:
            click.echo(f"replaced {one.uri}: it was {_size(one.old.size)}, sha256 {one.old.sha256}", err=True)
    if len(outcomes) == 1 and outcomes[0].said != REFUSED:
        one = outcomes[0]
        place = one.name if zone == "bronze" else one.uri
        click.echo(f"{_size(one.size)}, {_OF_ONE[one.said]}. A workflow finds it as {place}", err=True)
    elif len(outcomes) > 1:
        counts = Counter(one.said for one in outcomes)
        size = sum(one.size for one in outcomes if one.said != REFUSED)
        said = ", ".join(f"{count:,} {each}" for each, count in counts.items())
        click.echo(f"{len(outcomes):,} files: {said}; {_size(size)}", err=True)


@blobs.command(epilog="Exit codes: 0 they are gone, 2 bad usage or bad input, 3 the storage does not answer.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-r", "--recursive", is_flag=True, help="Also all that is in a folder of that name.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Also what the catalog speaks of.")
@zone_option
@data_dir_option
def rm(
    names: tuple[str, ...], *, recursive: bool, yes: bool, force: bool, zone: str, data_dir: pathlib.Path | None
) -> int:
    """Take blobs away, for good.

    NAME is a name in the zone, or a URI. It asks first. What an item of the catalog speaks of stays, unless --force
    says so: who finds the item would find nothing behind it.

    \b
    Examples:
      dagmaster blobs rm landsat/old.tif
      dagmaster blobs rm -r landsat/2000 --yes
      dagmaster blobs rm -r ndvi-parts --zone silver
    """
    with _told(), _services(data_dir) as services:
        storage = services.blobs
        if not all(name.strip("/") for name in names):
            raise click.UsageError("name a blob or a folder: a whole zone is not taken away")
        found = [info for name in names for info in _meant(storage, _place(storage, name, zone), recursive=recursive)]
        found = list({info.uri: info for info in found}.values())
        if not force:
            _require_unspoken(services, [info.uri for info in found])
        said = f"{len(found):,} blob{'s' if len(found) != 1 else ''}, {_size(sum(info.size for info in found))}"
        if not yes:
            for info in found[:SHOWN]:
                click.echo(f"{_size(info.size):>10}  {_when(info):20}  {info.uri}", err=True)
            more = f" ({len(found) - SHOWN:,} more are not shown)" if len(found) > SHOWN else ""
            if not _confirmed(f"Take away {said}{more}, for good?"):
                click.echo("nothing is taken away", err=True)
                return FAILED
        for info in found:
            if storage.delete(info.uri):
                click.echo(str(info.uri))
    click.echo(f"{said}: gone", err=True)
    return COMPLETED


def _confirmed(question: str) -> bool:
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.ClickException("nobody is there to answer: --yes does not ask") from None


def _meant(storage: Storage, place: BlobUri, *, recursive: bool) -> list[BlobInfo]:
    itself = storage.find(place)
    below = [*storage.under(place)] if recursive else []
    if itself is None and not below:
        inside = next(iter(storage.under(place)), None) if not recursive else None
        hint = "it is a folder, say -r" if inside else "`dagmaster blobs list` tells what is there"
        raise BlobNotFound(f"there is no blob at {place}: {hint}")
    return [*([itself] if itself else []), *below]


def _require_unspoken(services: Services, uris: list[BlobUri]) -> None:
    """Refuse what an item speaks of. In bronze it is a source, and results know it by its checksum."""
    bronze = f"{services.blobs.in_zone('bronze')}/"
    asked = [uri for uri in uris if not str(uri).startswith(bronze)]
    if not asked:
        return
    from dagmaster.authoring.handler_context import HandlerContext
    from dagmaster.handlers.stac.asset_references import referenced_blobs

    try:
        known = referenced_blobs(HandlerContext(services=services))
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"the catalog cannot be asked, for {error.name} is not installed: --force does not ask it"
        ) from error
    spoken = [uri for uri in asked if uri in known]
    if spoken:
        item = known[spoken[0]]
        raise click.ClickException(
            f"the item {item['id']} of {item.get('collection')} speaks of {spoken[0]}"
            f"{f', and others of {len(spoken) - 1:,} more' if len(spoken) > 1 else ''}: nothing is taken away."
            " --force takes it away all the same"
        )


@blobs.command(name="list", epilog="Exit codes: 0 listed, 2 bad usage or bad input, 3 the storage does not answer.")
@click.argument("prefix", required=False)
@zone_option
@json_option
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
            raise BlobNotFound(f"there is nothing at {place}: `dagmaster blobs list` tells what is there")
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
    """Return the blob of that name, if there is one, and everything below."""
    itself = storage.find(place) if place.name else None
    if itself is not None:
        yield itself
    yield from storage.under(place)


@contextlib.contextmanager
def _storage(data_dir: pathlib.Path | None) -> Iterator[Storage]:
    """Return the zones that the workers of these settings have."""
    with _services(data_dir) as services:
        yield services.blobs


@contextlib.contextmanager
def _services(data_dir: pathlib.Path | None) -> Iterator[Services]:
    """Return the handler services that workers with these settings use."""
    from dagmaster.bootstrap import blob_directory, lending
    from dagmaster.settings import load_settings

    settings = load_settings()
    is_alone = settings.database_url is None or data_dir is not None
    yield lending(settings, blob_directory(settings, data_dir), is_alone=is_alone).open()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except DagmasterError as error:
        raise CommandError(error) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise click.ClickException(f"{error.filename or 'the file'}: {error.strerror or error}") from error


@contextlib.contextmanager
def _shown(what: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """Print progress on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

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
