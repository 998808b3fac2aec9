"""Where a handler's data comes from: the names under which the sources of a workflow give a file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dagmaster.errors import BlobMissing, PermanentError

if TYPE_CHECKING:
    from pathlib import Path

    from dagmaster.ports.handler import HandlerContext
    from dagmaster.ports.storage import BlobUri

ONE_OF = ("href", "source_url", "source_path", "input_path", "blob_path")


class SourceParams(BaseModel):
    """One file: by `href` or one of its other names, by container and name, or as an asset of a STAC item."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    href: str | None = Field(default=None, description="The file: a URI, a name in bronze, or an allowed path.")
    source_url: str | None = Field(default=None, description="Another name of href.")
    source_path: str | None = Field(default=None, description="Another name of href.")
    input_path: str | None = Field(default=None, description="Another name of href.")
    blob_path: str | None = Field(default=None, description="Another name of href.")
    container_name: str | None = Field(default=None, description="A zone or container; with blob_name or file_name.")
    blob_name: str | None = Field(default=None, description="The name in the container.")
    file_name: str | None = Field(default=None, description="Another name of blob_name.")
    item: dict[str, Any] | None = Field(default=None, description="A STAC item: its data asset is the file.")

    @model_validator(mode="after")
    def _one_file(self) -> Self:
        given = [name for name in (*ONE_OF, "blob_name", "file_name", "item") if getattr(self, name) is not None]
        if len(given) != 1:
            said = "none is given" if not given else f"{' and '.join(given)} are given"
            raise ValueError(f"name one file, by href or by container_name and blob_name: {said}")
        if self.container_name is not None and given[0] not in ("blob_name", "file_name", "blob_path"):
            raise ValueError(f"container_name goes with blob_name or file_name, not with {given[0]}")
        return self

    def uri(self, ctx: HandlerContext) -> BlobUri:
        """The blob that is meant."""
        text = next((value for name in (*ONE_OF, "blob_name", "file_name") if (value := getattr(self, name))), None)
        return ctx.blobs.resolve(text or data_href(self.item or {}), container=self.container_name)


def data_href(item: dict[str, Any]) -> str:
    """The asset of an item that holds its data: the one with that role, named so, or the only one."""
    assets: dict[str, Any] = item.get("assets") or {}
    by_role = [asset for asset in assets.values() if "data" in (asset.get("roles") or ())]
    named = [assets[name] for name in ("data", "cog", "asset") if name in assets]
    for asset in [*by_role, *named, *(assets.values() if len(assets) == 1 else ())]:
        if asset.get("href"):
            return str(asset["href"])
    raise PermanentError(
        f"the item {item.get('id')!r} has no asset with the role 'data': it has {', '.join(assets) or 'none'}",
        kind="invalid_input",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """A source on this machine. `sha256` is of its bytes."""

    uri: BlobUri
    path: Path
    size: int
    sha256: str


def local_file(ctx: HandlerContext, uri: BlobUri) -> LocalFile:
    """The source as a local file: in place if it lies here, else fetched into the scratch folder."""
    info = ctx.blobs.find(uri)
    if info is None:
        raise PermanentError(f"there is no file at {uri}", kind="invalid_input")
    most = ctx.share.max_file_mb
    if info.size > most * 1_000_000:
        raise PermanentError(
            f"{uri} has {info.size / 1e6:,.0f} MB: at most {most:,} MB are read (DAGMASTER_RASTER_MAX_FILE_MB)",
            kind="invalid_input",
        )
    path = ctx.blobs.local_path(uri)
    if path is not None:
        with path.open("rb") as file:
            return LocalFile(uri=uri, path=path, size=info.size, sha256=hashlib.file_digest(file, "sha256").hexdigest())
    to = ctx.scratch / uri.name.rpartition("/")[2]
    total = max(info.size, 1)
    try:
        fetched = ctx.blobs.fetch(uri, to, lambda done: ctx.progress(done, total, f"fetching {uri}"))
    except BlobMissing as error:
        raise PermanentError(str(error), kind="invalid_input") from error
    return LocalFile(uri=uri, path=to, size=fetched.size, sha256=fetched.sha256)
