"""How a command reaches the zones and the other services that workers with the same settings use."""

from __future__ import annotations

import contextlib
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from dagmaster.cli.errors import command_errors
from dagmaster.sdk.terminal import open_console
from dagmaster.text_format import format_bytes

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator

    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.ports.handler_services import Services
    from dagmaster.ports.storage import BlobInfo, Storage


def open_services(data_dir: pathlib.Path | None) -> Services:
    """Open the handler services that workers with these settings use."""
    from dagmaster.bootstrap import blob_directory
    from dagmaster.bootstrap.services_config import handler_services_config
    from dagmaster.settings import load_settings

    settings = load_settings()
    is_alone = settings.database_url is None or data_dir is not None
    return handler_services_config(settings, blob_directory(settings, data_dir), is_alone=is_alone).open()


def services_config(data_dir: pathlib.Path | None) -> dict[str, Any]:
    from dagmaster.bootstrap import blob_directory
    from dagmaster.bootstrap.services_config import handler_services_config
    from dagmaster.settings import load_settings

    settings = load_settings()
    return handler_services_config(settings, blob_directory(settings, data_dir)).config


@contextlib.contextmanager
def storage_errors() -> Iterator[None]:
    """Turn errors of dagmaster and of the file system into errors of a command."""
    try:
        with command_errors():
            yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise click.ClickException(f"{error.filename or 'the file'}: {error.strerror or error}") from error


@contextlib.contextmanager
def show_progress(description: str, total_bytes: int) -> Iterator[Callable[[int], None] | None]:
    """Yield a callback that draws the number of transferred bytes on a terminal; None elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=open_console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=total_bytes)
        yield lambda done: progress.update(task, completed=done)


def resolve_prefix(storage: Storage, prefix: str, zone: str) -> BlobUri:
    """Return the URI of a name in a zone; a URI is resolved as it is."""
    prefix = prefix.rstrip("/")
    return storage.resolve(prefix) if "://" in prefix else storage.in_zone(zone, prefix)


def format_blob(info: BlobInfo) -> str:
    """Format a blob as a line of a list: size, time of the last change, URI."""
    return f"{format_bytes(info.size):>10}  {format_modified(info):20}  {info.uri}"


def format_modified(info: BlobInfo) -> str:
    """Format the time of the last change; empty if it is unknown."""
    if info.modified is None:
        return ""
    return datetime.fromtimestamp(info.modified, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
