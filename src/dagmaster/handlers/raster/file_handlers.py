"""Handlers about files of rasters: which there are, and copies that outlive a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dagmaster.authoring.handler_context import HandlerContext
from dagmaster.authoring.handler_registry import handler
from dagmaster.errors import BlobNotFound, PermanentError
from dagmaster.handlers.queues import HEAVY, LIGHT
from dagmaster.handlers.raster.shared_cache import KEEP_HOURS, mounted
from dagmaster.handlers.source_files import SourceParams
from dagmaster.ports.storage import ZONES, BlobUri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.ports.storage import BlobInfo

SUFFIXES = [".tif", ".tiff", ".jp2", ".png", ".jpg", ".jpeg", ".hgt"]


class ListParams(BaseModel):
    """Where to look, and for what."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    container_name: str = Field(default="bronze", description="A zone, a container, or an allowed folder.")
    prefix: str = Field(default="", max_length=1024, description="What the names begin with.")
    suffixes: list[str] = Field(default=SUFFIXES, min_length=1, description="What they end with.")
    limit: int = Field(default=1_000, ge=1, le=100_000, description="More are not listed.")
    min_count: int = Field(default=0, ge=0, description="Fail when fewer are found: an empty list may be a wrong name.")

    @model_validator(mode="after")
    def _can_be_enough(self) -> Self:
        if self.min_count > self.limit:
            raise ValueError(f"min_count is {self.min_count}, and no more than {self.limit} are listed: raise limit")
        return self


class Listed(BaseModel):
    """The rasters that are there."""

    files: list[dict[str, Any]] = Field(description="For each: href, name, size_mb, modified.")
    hrefs: list[str] = Field(description="For a fan-out.")
    count: int
    truncated: bool = Field(description="There are more than limit.")


@handler(
    "raster.list_files",
    version="2",
    queue=LIGHT,
    timeout_seconds=600,
    aliases=["list_raster_files", "raster_list_files"],
)
def list_files(ctx: HandlerContext, params: ListParams) -> Listed:
    """List the rasters of a container, zone or folder, by prefix and suffix, in order of their names."""
    home = _home(ctx, params.container_name)
    folder, _, _ = params.prefix.rpartition("/")
    if params.prefix.strip("/"):
        ctx.blobs.resolve(str(home.child(params.prefix.strip("/"))))
    place = BlobUri(home.scheme, home.container, "/".join(part for part in (home.name, folder) if part))
    beginning = f"{home.name}/{params.prefix}".lstrip("/")
    wanted = tuple(suffix.lower() for suffix in params.suffixes)
    files: list[dict[str, Any]] = []
    truncated = False
    for info in _under(ctx, place):
        name = info.uri.name
        # What begins with a dot is being written.
        is_wanted = name.startswith(beginning) and name.lower().endswith(wanted)
        if not is_wanted or name.rpartition("/")[2].startswith("."):
            continue
        if len(files) == params.limit:
            truncated = True
            break
        files.append(
            {
                "href": str(info.uri),
                "name": name[len(home.name) :].lstrip("/"),
                "size_mb": round(info.size / 1e6, 6),
                "modified": info.modified,
            }
        )
    if len(files) < params.min_count:
        raise PermanentError(
            f"{len(files):,} files that end with {', '.join(params.suffixes)} are below {home}/{params.prefix}, and at"
            f" least {params.min_count:,} are expected (min_count)",
            kind="invalid_input",
        )
    return Listed(files=files, hrefs=[file["href"] for file in files], count=len(files), truncated=truncated)


def _home(ctx: HandlerContext, container: str) -> BlobUri:
    """The place of a container, zone or folder. One that is not there, where that can be known, is bad input."""
    if container.startswith(("/", "file://")):
        home = ctx.blobs.resolve(container.rstrip("/"))
    else:
        # A bucket has no name of its own, and what lies in it has.
        text = container.rstrip("/")
        inside = ctx.blobs.resolve(f"{text}/x") if "://" in text else ctx.blobs.resolve("x", container=text)
        home = BlobUri(inside.scheme, inside.container, inside.name[:-1].rstrip("/"))
    path = ctx.blobs.local_path(home)
    if path is None or path.is_dir() or container in ZONES:
        return home
    if path.is_file():
        raise PermanentError(f"{home} is a file, and a folder or container is expected", kind="invalid_input")
    raise PermanentError(
        f"there is no container or folder {container!r}: nothing is at {home}. Expected a zone ({', '.join(ZONES)}), a"
        " folder in bronze, or one below a directory that may be read (DAGMASTER_FILE_ROOTS)",
        kind="invalid_input",
    )


def _under(ctx: HandlerContext, place: BlobUri) -> Iterator[BlobInfo]:
    try:
        yield from ctx.blobs.under(place)
    except BlobNotFound as error:
        raise PermanentError(str(error), kind="invalid_input") from error


class MountParams(SourceParams):
    """The file to copy."""

    keep_hours: float = Field(
        default=KEEP_HOURS,
        gt=0,
        le=8_760,
        description="When nobody used it for so long, it goes; after a day at least.",
    )


class Mounted(BaseModel):
    """A copy, and what it is of."""

    mount_path: str = Field(description="The copy: pass it on as source_path, to a worker that sees the same mount.")
    blob_url: str = Field(description="What it is a copy of.")
    size_mb: float
    sha256: str


@handler("raster.blob_to_mount", queue=HEAVY, timeout_seconds=7200, aliases=["raster_blob_to_mount"])
def blob_to_mount(ctx: HandlerContext, params: MountParams) -> Mounted:
    """Copy a file to the mount, a folder that outlives the task. One that is there already is not copied again."""
    file = mounted(ctx, params.uri(ctx), keep_hours=params.keep_hours)
    return Mounted(
        mount_path=f"file://{file.path.absolute()}",
        blob_url=str(file.uri),
        size_mb=round(file.size / 1e6, 6),
        sha256=file.sha256,
    )
