"""Where a handler's data comes from: the names under which the sources of a workflow give a file."""

from __future__ import annotations

import contextlib
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from dagmaster.errors import BlobNotFound, BlobsUnavailable, PermanentError
from dagmaster.handlers.stac_inputs import collect_items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dagmaster.authoring.handler_context import HandlerContext
    from dagmaster.ports.storage import BlobInfo, BlobUri

PIECE = 8 * 1024 * 1024
LONGEST_WORD = 200
_NUMBER = re.compile(r"[0-9]{4,6}")
ONE_OF = ("href", "source_url", "source_path", "input_path", "blob_path")


def _epsg(said: Any) -> Any:
    """A number is a code of EPSG, also as text: `-p target_crs=4326` gives that."""
    is_code = isinstance(said, int) and not isinstance(said, bool)
    return f"EPSG:{said}" if is_code or (isinstance(said, str) and _NUMBER.fullmatch(said)) else said


CrsName = Annotated[str, BeforeValidator(_epsg)]


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
    item: dict[str, Any] | str | None = Field(
        default=None,
        description="A STAC item, whose data asset is the file; its href; or an ItemCollection or payload with one.",
    )

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
        """The blob that is meant: it is what the task is about."""
        texts = [getattr(self, name) for name in (*ONE_OF, "blob_name", "file_name")]
        text = next((text for text in texts if text is not None), None)
        try:
            uri = ctx.blobs.resolve(
                data_href(_only(ctx, self.item)) if text is None else text, container=self.container_name
            )
        except BlobNotFound as error:
            raise PermanentError(str(error), kind="invalid_input") from error
        ctx.about = str(uri)
        return uri


def _only(ctx: HandlerContext, given: dict[str, Any] | str | None) -> dict[str, Any]:
    """The item in what was given. Its assets are enough."""
    items = [given] if isinstance(given, dict) and "assets" in given else collect_items(ctx, given)
    if len(items) != 1:
        raise PermanentError(
            f"{len(items):,} items are given as item, and one is expected: fan out over them", kind="invalid_input"
        )
    return items[0]


def data_href(item: dict[str, Any]) -> str:
    """The asset of an item that holds its data: the one with that role, named so, or the only one."""
    given = item.get("assets")
    assets = {name: each for name, each in given.items() if isinstance(each, dict)} if isinstance(given, dict) else {}
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
    """The source as a local file: in place if it lies here, else fetched into the scratch folder.

    What is not there, or too large, is the user's to mend. A storage that does not answer is tried again.
    """
    try:
        info = ctx.blobs.find(uri)
        if info is None:
            raise no_file(ctx, uri)
        check_file_size(ctx, info)
        total = max(info.size, 1)

        def on_bytes(done: int) -> None:
            ctx.progress(done, total, f"reading {uri}")
            ctx.raise_if_cancelled()

        path = ctx.blobs.local_path(uri)
        if path is not None:
            return LocalFile(uri=uri, path=path, size=info.size, sha256=_sha256(uri, path, on_bytes))
        to = _place_for(ctx, uri)
        fetched = ctx.blobs.fetch(uri, to, on_bytes)
    except BlobNotFound as error:
        raise PermanentError(str(error), kind="invalid_input") from error
    return LocalFile(uri=uri, path=to, size=fetched.size, sha256=fetched.sha256)


@contextlib.contextmanager
def beside(uri: BlobUri) -> Iterator[None]:
    """Read a file beside the one that the task is about: what is wrong with it ends with its name."""
    try:
        yield
    except PermanentError as error:
        if error.kind != "invalid_input" or "://" in str(error):
            raise
        raise PermanentError(f"{error} [{uri}]", kind=error.kind, **error.details) from error


def no_file(ctx: HandlerContext, uri: BlobUri) -> PermanentError:
    """There is nothing. A name is looked for in two places, and only one of them is in its URI."""
    is_bronze = str(uri).startswith(f"{ctx.blobs.in_zone('bronze')}/")
    nor = ", nor a file of that name below a directory that may be read (DAGMASTER_FILE_ROOTS)" if is_bronze else ""
    return PermanentError(f"there is no file at {uri}{nor}", kind="invalid_input")


def check_file_size(ctx: HandlerContext, info: BlobInfo) -> None:
    """Refuse what is larger than the operator has read."""
    most = ctx.share.max_file_mb
    if info.size > most * 1_000_000:
        raise PermanentError(
            f"{info.uri} has {info.size / 1e6:,.0f} MB: at most {most:,} MB are read (DAGMASTER_RASTER_MAX_FILE_MB)",
            kind="invalid_input",
        )


def _place_for(ctx: HandlerContext, uri: BlobUri) -> Path:
    """Under its last word, for some formats tell their place in it; in a folder of its own, for two may share it."""
    folder = ctx.scratch / hashlib.sha256(str(uri).encode()).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    word = uri.name.rpartition("/")[2]
    # A disk takes 255 bytes, a bucket more. The end tells the format.
    return folder / (word if len(word.encode()) <= LONGEST_WORD else f"long{word[-50:]}")


def _sha256(uri: BlobUri, path: Path, on_bytes: Callable[[int], None]) -> str:
    digest, done = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
                done += len(piece)
                on_bytes(done)
    except FileNotFoundError:
        raise BlobNotFound(f"there is nothing at {uri}") from None
    except OSError as error:
        raise BlobsUnavailable(f"{uri} cannot be read: {error.strerror or error}") from error
    return digest.hexdigest()
