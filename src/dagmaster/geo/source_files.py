"""The source file of a handler: the params that name it, and its local copy."""

from __future__ import annotations

import contextlib
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from dagmaster.errors import BlobNotFound, BlobsUnavailable, PermanentError, invalid_input
from dagmaster.geo.stac_inputs import collect_items
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.ports.storage import BlobInfo
    from dagmaster.sdk.handler_context import HandlerContext

CHUNK_BYTES = 8 * 1024 * 1024
MAX_FILE_NAME_BYTES = 200
_EPSG_CODE = re.compile(r"[0-9]{4,6}")
HREF_KEYS = ("href", "source_url", "source_path", "input_path", "blob_path")


def _prefix_epsg(value: Any) -> Any:
    """Read a bare number as an EPSG code, also as text: `-p target_crs=4326` passes that."""
    is_code = isinstance(value, int) and not isinstance(value, bool)
    return f"EPSG:{value}" if is_code or (isinstance(value, str) and _EPSG_CODE.fullmatch(value)) else value


CrsName = Annotated[str, BeforeValidator(_prefix_epsg)]


class SourceParams(BaseModel):
    """One file: by `href` or one of its aliases, by container and name, or as an asset of a STAC item."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    href: str | None = Field(
        default=None, description="The file: a URI, a name in bronze, or an allowed path."
    )
    source_url: str | None = Field(default=None, description="Alias of href.")
    source_path: str | None = Field(default=None, description="Alias of href.")
    input_path: str | None = Field(default=None, description="Alias of href.")
    blob_path: str | None = Field(default=None, description="Alias of href.")
    container_name: str | None = Field(
        default=None, description="A zone or container; with blob_name or file_name."
    )
    blob_name: str | None = Field(default=None, description="The name in the container.")
    file_name: str | None = Field(default=None, description="Alias of blob_name.")
    item: dict[str, Any] | str | None = Field(
        default=None,
        description="A STAC item whose data asset is the file; its href; or an ItemCollection or payload"
        " with one.",
    )

    @model_validator(mode="after")
    def _one_file(self) -> Self:
        names = [
            name for name in (*HREF_KEYS, "blob_name", "file_name", "item") if getattr(self, name) is not None
        ]
        if len(names) != 1:
            problem = "none is set" if not names else f"{' and '.join(names)} are set"
            raise ValueError(f"name one file, by href or by container_name and blob_name: {problem}")
        if self.container_name is not None and names[0] not in ("blob_name", "file_name", "blob_path"):
            raise ValueError(f"container_name goes with blob_name or file_name, not with {names[0]}")
        return self

    def uri(self, ctx: HandlerContext) -> BlobUri:
        """Resolve the blob and set it as the subject of the task."""
        texts = [getattr(self, name) for name in (*HREF_KEYS, "blob_name", "file_name")]
        text = next((text for text in texts if text is not None), None)
        try:
            uri = ctx.blobs.resolve(
                data_href(_single_item(ctx, self.item)) if text is None else text,
                container=self.container_name,
            )
        except BlobNotFound as error:
            raise invalid_input(str(error)) from error
        ctx.about = str(uri)
        return uri


def _single_item(ctx: HandlerContext, value: dict[str, Any] | str | None) -> dict[str, Any]:
    # An object with assets is enough; it need not be a complete item.
    items = [value] if isinstance(value, dict) and "assets" in value else collect_items(ctx, value)
    if len(items) != 1:
        raise invalid_input(
            f"item contains {format_count(len(items), 'item')}, expected one: fan out over them"
        )
    return items[0]


def data_href(item: dict[str, Any]) -> str:
    """Return the href of an item's data asset: by role, by name, or its only asset."""
    assets = item.get("assets")
    if not isinstance(assets, dict):
        assets = {}
    assets = {name: asset for name, asset in assets.items() if isinstance(asset, dict)}
    by_role = [asset for asset in assets.values() if "data" in (asset.get("roles") or ())]
    named = [assets[name] for name in ("data", "cog", "asset") if name in assets]
    for asset in [*by_role, *named, *(assets.values() if len(assets) == 1 else ())]:
        if asset.get("href"):
            return str(asset["href"])
    raise invalid_input(
        f"the item {item.get('id')!r} has no asset with the role 'data': its assets are"
        f" {', '.join(assets) or 'none'}"
    )


def modified_at(ctx: HandlerContext, uri: BlobUri) -> float | None:
    info = ctx.blobs.find(uri)
    return None if info is None else info.modified


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """A source on this machine. `sha256` is the checksum of its bytes."""

    uri: BlobUri
    path: Path
    size: int
    sha256: str


def local_file(ctx: HandlerContext, uri: BlobUri) -> LocalFile:
    """Return the source as a local file: in place on this machine, else fetched to the scratch folder.

    A missing or too large file is `invalid_input`; a storage that does not answer is retried.
    """
    try:
        info = ctx.blobs.find(uri)
        if info is None:
            raise file_not_found(ctx, uri)
        check_file_size(ctx, info)
        total = max(info.size, 1)

        def on_bytes(done: int) -> None:
            ctx.progress(done, total, f"reading {uri}")
            ctx.raise_if_cancelled()

        path = ctx.blobs.local_path(uri)
        if path is not None:
            return LocalFile(uri=uri, path=path, size=info.size, sha256=_compute_sha256(uri, path, on_bytes))
        target = _fetch_path(ctx, uri)
        fetched = ctx.blobs.fetch(uri, target, on_bytes)
    except BlobNotFound as error:
        raise invalid_input(str(error)) from error
    return LocalFile(uri=uri, path=target, size=fetched.size, sha256=fetched.sha256)


@contextlib.contextmanager
def name_in_errors(uri: BlobUri) -> Iterator[None]:
    """Append a URI to `invalid_input` errors about a second file, which is not the subject of the task."""
    try:
        yield
    except PermanentError as error:
        if error.kind != "invalid_input" or "://" in str(error):
            raise
        raise PermanentError(f"{error} [{uri}]", kind=error.kind, **error.details) from error


def file_not_found(ctx: HandlerContext, uri: BlobUri) -> PermanentError:
    """Build the error for a missing file.

    A bare name is looked up in two places; its URI shows only one of them.
    """
    is_bronze = str(uri).startswith(f"{ctx.blobs.in_zone('bronze')}/")
    hint = ", nor a file of that name below a readable directory (DAGMASTER_FILE_ROOTS)" if is_bronze else ""
    return invalid_input(f"there is no file at {uri}{hint}")


def check_file_size(ctx: HandlerContext, info: BlobInfo) -> None:
    """Reject a file larger than the operator allows."""
    limit_mb = ctx.share.max_file_mb
    if info.size > limit_mb * 1_000_000:
        raise invalid_input(
            f"{info.uri} has {info.size / 1e6:,.0f} MB: at most {limit_mb:,} MB are allowed"
            " (DAGMASTER_RASTER_MAX_FILE_MB)"
        )


def _fetch_path(ctx: HandlerContext, uri: BlobUri) -> Path:
    # Keep the file name, since some formats encode their place in it; in a separate folder, since two may
    # share it.
    folder = ctx.scratch / hashlib.sha256(str(uri).encode()).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    name = uri.name.rpartition("/")[2]
    # A file system allows 255 bytes, a bucket more. Keep the end: it tells the format.
    return folder / (name if len(name.encode()) <= MAX_FILE_NAME_BYTES else f"long{name[-50:]}")


def _compute_sha256(uri: BlobUri, path: Path, on_bytes: Callable[[int], None]) -> str:
    digest, done = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                done += len(chunk)
                on_bytes(done)
    except FileNotFoundError:
        raise BlobNotFound(f"there is nothing at {uri}") from None
    except OSError as error:
        raise BlobsUnavailable(f"{uri} cannot be read: {error.strerror or error}") from error
    return digest.hexdigest()
