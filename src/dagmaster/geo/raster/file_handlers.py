"""Handlers for raster files: list them, and copy them to the mount."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dagmaster.errors import BlobNotFound, invalid_input
from dagmaster.geo.optional_imports import require_extra
from dagmaster.geo.queues import HEAVY, LIGHT
from dagmaster.geo.raster.shared_cache import KEEP_HOURS, copy_to_mount
from dagmaster.geo.source_files import SourceParams
from dagmaster.ports.blob_uris import BlobUri
from dagmaster.ports.storage import ZONES
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.ports.storage import BlobInfo

SUFFIXES = [
    *(".tif", ".tiff", ".jp2", ".png", ".jpg", ".jpeg", ".hgt"),
    *(".nc", ".h5", ".hdf5", ".grb", ".grib", ".grb2", ".grib2", ".img", ".asc"),
]


class ListParams(BaseModel):
    """Where to search, and for what."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    container_name: str = Field(default="bronze", description="A zone, a container, or an allowed folder.")
    prefix: str = Field(default="", max_length=1024, description="The prefix of the names.")
    suffixes: list[str] = Field(default=SUFFIXES, min_length=1, description="The suffixes of the names.")
    limit: int = Field(default=1_000, ge=1, le=100_000, description="The maximum number of files listed.")
    min_count: int = Field(
        default=0, ge=0, description="Fail if there are fewer files: an empty list may be a wrong name."
    )

    @model_validator(mode="after")
    def _limit_covers_min_count(self) -> Self:
        if self.min_count > self.limit:
            raise ValueError(
                f"min_count is {self.min_count}, but at most {self.limit} files are listed: raise limit"
            )
        return self


class Listed(BaseModel):
    """The raster files."""

    files: list[dict[str, Any]] = Field(description="For each: href, name, size_mb, modified.")
    hrefs: list[str] = Field(description="To fan out over.")
    count: int
    truncated: bool = Field(description="Whether there are more files than limit.")


@handler(
    "raster.list_files",
    version="2",
    queue=LIGHT,
    timeout_seconds=600,
    aliases=["list_raster_files", "raster_list_files"],
)
def list_files(ctx: HandlerContext, params: ListParams) -> Listed:
    """List the rasters of a container, zone or folder by prefix and suffix, sorted by name."""
    root = _resolve_root(ctx, params.container_name)
    folder, _, _ = params.prefix.rpartition("/")
    if params.prefix.strip("/"):
        ctx.blobs.resolve(str(root.child(params.prefix.strip("/"))))
    start = BlobUri(root.scheme, root.container, "/".join(part for part in (root.name, folder) if part))
    prefix = f"{root.name}/{params.prefix}".lstrip("/")
    suffixes = tuple(suffix.lower() for suffix in params.suffixes)
    files: list[dict[str, Any]] = []
    truncated = False
    for info in _list_blobs(ctx, start):
        name = info.uri.name
        is_match = name.startswith(prefix) and name.lower().endswith(suffixes)
        # A name with a leading dot is still being written.
        if not is_match or name.rpartition("/")[2].startswith("."):
            continue
        if len(files) == params.limit:
            truncated = True
            break
        files.append(
            {
                "href": str(info.uri),
                "name": name[len(root.name) :].lstrip("/"),
                "size_mb": round(info.size / 1e6, 6),
                "modified": info.modified,
            }
        )
    if len(files) < params.min_count:
        raise invalid_input(
            f"{format_count(len(files), 'file')} with suffix {', '.join(params.suffixes)} are below"
            f" {root}/{params.prefix}, expected at least {params.min_count:,} (min_count)"
        )
    return Listed(files=files, hrefs=[file["href"] for file in files], count=len(files), truncated=truncated)


def _resolve_root(ctx: HandlerContext, container: str) -> BlobUri:
    """Return the URI of a container, zone or folder; `invalid_input` if it is known not to exist."""
    if container.startswith(("/", "file://")):
        root = ctx.blobs.resolve(container.rstrip("/"))
    else:
        # A bucket alone is not a blob name, so resolve a blob in it.
        text = container.rstrip("/")
        inside = ctx.blobs.resolve(f"{text}/x") if "://" in text else ctx.blobs.resolve("x", container=text)
        root = BlobUri(inside.scheme, inside.container, inside.name[:-1].rstrip("/"))
    path = ctx.blobs.local_path(root)
    if path is None or path.is_dir() or container in ZONES:
        return root
    if path.is_file():
        raise invalid_input(f"{root} is a file, expected a folder or container")
    raise invalid_input(
        f"there is no container or folder {container!r} at {root}. Expected a zone ({', '.join(ZONES)}), a"
        " folder in bronze, or one below a readable directory (DAGMASTER_FILE_ROOTS)"
    )


def _list_blobs(ctx: HandlerContext, start: BlobUri) -> Iterator[BlobInfo]:
    try:
        yield from ctx.blobs.list_blobs(start)
    except BlobNotFound as error:
        raise invalid_input(str(error)) from error


class MountParams(SourceParams):
    """The file to copy."""

    keep_hours: float = Field(
        default=KEEP_HOURS,
        gt=0,
        le=8_760,
        description="Delete the copy after so many hours without use, but not within a day.",
    )


class Mounted(BaseModel):
    """A copy in the mount."""

    mount_path: str = Field(
        description="The copy; pass it on as source_path to a worker with the same mount."
    )
    blob_url: str = Field(description="The URI of the original.")
    size_mb: float
    sha256: str


@handler("raster.blob_to_mount", queue=HEAVY, timeout_seconds=7200, aliases=["raster_blob_to_mount"])
def blob_to_mount(ctx: HandlerContext, params: MountParams) -> Mounted:
    """Copy a file and its companions to the mount, which outlives the task, unless they are there."""
    with require_extra("raster"):
        from dagmaster.geo.raster.sidecars import find_sidecars
    uri = params.uri(ctx)
    sidecars = [sidecar.uri for sidecar in find_sidecars(ctx, uri)]
    file, *_ = copy_to_mount(ctx, uri, *sidecars, keep_hours=params.keep_hours)
    return Mounted(
        mount_path=f"file://{file.path.absolute()}",
        blob_url=str(file.uri),
        size_mb=round(file.size / 1e6, 6),
        sha256=file.sha256,
    )
