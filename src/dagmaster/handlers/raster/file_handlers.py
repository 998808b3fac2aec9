"""Handlers about files of rasters: which there are, and copies that outlive a task."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from dagmaster.authoring.handlers import handler
from dagmaster.handlers.queues import HEAVY, LIGHT
from dagmaster.handlers.raster.mounts import KEEP_HOURS, mounted
from dagmaster.handlers.sources import SourceParams
from dagmaster.ports.handler import HandlerContext
from dagmaster.ports.storage import BlobUri

SUFFIXES = [".tif", ".tiff", ".jp2", ".png", ".jpg", ".jpeg", ".hgt"]


class ListParams(BaseModel):
    """Where to look, and for what."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    container_name: str = Field(default="bronze", description="A zone or container.")
    prefix: str = Field(default="", max_length=1024, description="What the names begin with.")
    suffixes: list[str] = Field(default=SUFFIXES, min_length=1, description="What they end with.")
    limit: int = Field(default=1_000, ge=1, le=100_000, description="More are not listed.")


class Listed(BaseModel):
    """The rasters that are there."""

    files: list[dict[str, Any]] = Field(description="For each: href, name, size_mb, modified.")
    hrefs: list[str] = Field(description="For a fan-out.")
    count: int
    truncated: bool = Field(description="There are more than limit.")


@handler("raster.list_files", queue=LIGHT, timeout_seconds=600, aliases=["list_raster_files", "raster_list_files"])
def list_files(ctx: HandlerContext, params: ListParams) -> Listed:
    """List the rasters of a container or zone, by prefix and suffix, in order of their names."""
    # The container's own place: below its first word, whatever that is.
    inside = ctx.blobs.resolve("x", container=params.container_name)
    home = inside.name.rpartition("/")[0]
    folder, _, _ = params.prefix.rpartition("/")
    if params.prefix:
        ctx.blobs.resolve(params.prefix.strip("/") or "x", container=params.container_name)
    place = BlobUri(inside.scheme, inside.container, "/".join(part for part in (home, folder) if part))
    beginning = f"{home}/{params.prefix}".lstrip("/") if home else params.prefix
    wanted = tuple(suffix.lower() for suffix in params.suffixes)
    files: list[dict[str, Any]] = []
    truncated = False
    for info in ctx.blobs.under(place):
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
                "name": name[len(home) :].lstrip("/"),
                "size_mb": round(info.size / 1e6, 6),
                "modified": info.modified,
            }
        )
    return Listed(files=files, hrefs=[file["href"] for file in files], count=len(files), truncated=truncated)


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
