"""The storage of handlers: blobs by URI, in zones.

Only `Storage.resolve` turns a user's text into a `BlobUri`. Outputs of nodes that are too long for a row have a port of
their own, `ports/output_blobs.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from dagmaster.errors import BlobNameInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

SCHEMES: Final = ("file", "az", "s3", "gs", "memory")
ZONES: Final = ("bronze", "silver", "gold")
"""Raw; processed; published."""
MAX_NAME: Final = 1024
"""In bytes of UTF-8: the limit of S3."""
UNFINISHED: Final = ".publishing"
"""The prefix of the names of unfinished files."""
_CONTAINER: Final = re.compile(r"\$?[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_SIGNED: Final = re.compile(
    r"[?&](sig|sv|se|X-Amz-[A-Za-z]+|X-Goog-[A-Za-z]+|AWSAccessKeyId|Signature|token)=", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, order=True)
class BlobUri:
    """The URI of a blob. `container` is a bucket or container; a file has none, and its name begins at the root."""

    scheme: str
    container: str
    name: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.container}/{self.name}"

    @property
    def stem(self) -> str:
        """Return the last part of the name, up to its first dot."""
        return self.name.rpartition("/")[2].partition(".")[0]

    @property
    def suffix(self) -> str:
        """Return the extension of the last part of the name, with the dot, in lower case."""
        word = self.name.rpartition("/")[2]
        return f".{word.rpartition('.')[2].lower()}" if "." in word else ""

    def child(self, name: str) -> BlobUri:
        """Return a blob below this one."""
        return BlobUri(self.scheme, self.container, f"{self.name.rstrip('/')}/{check_name(name)}".lstrip("/"))

    def is_below(self, root: BlobUri) -> bool:
        """Return whether this is `root` or a blob below it. A root without a name is the whole container."""
        if (self.scheme, self.container) != (root.scheme, root.container):
            return False
        return not root.name or f"{self.name}/".startswith(f"{root.name}/")

    @classmethod
    def parse(cls, text: str) -> BlobUri:
        """Parse a URI literally, without percent-decoding; raise `BlobNameInvalid` if it is invalid."""
        scheme, mark, rest = text.partition("://")
        shown = shorten_uri(text)
        if not mark or scheme not in SCHEMES:
            schemes = ", ".join(f"{one}://" for one in SCHEMES)
            raise BlobNameInvalid(f"{shown!r} is not a data URI: it has to begin with one of {schemes}")
        container, _, name = rest.partition("/")
        if scheme == "file" and container:
            raise BlobNameInvalid(f"{shown!r}: a file has three slashes, file:///folder/name")
        if scheme != "file" and not container:
            raise BlobNameInvalid(f"{shown!r}: a container or bucket is missing, {scheme}://container/name")
        if container and not _CONTAINER.fullmatch(container):
            raise BlobNameInvalid(
                f"{shown!r}: a container or bucket is letters, digits, '.', '_' and '-'. Keys do not belong in a"
                " URI: they come from the environment"
            )
        if _SIGNED.search(name):
            raise BlobNameInvalid(
                f"{shown!r} is a signed URL: remove the part after '?'; keys come from the environment"
            )
        return cls(scheme, container, check_name(name))


def check_name(name: str) -> str:
    """Check the name of a blob; raise `BlobNameInvalid` for a name that escapes its prefix."""
    shown = shorten_uri(name)
    words = name.split("/")
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise BlobNameInvalid(f"{shown!r} is not valid text: it has a lone surrogate")
    size = len(name.encode())
    if not name or size > MAX_NAME:
        raise BlobNameInvalid(f"a blob name has 1 to {MAX_NAME:,} bytes, not {size:,}")
    if name.startswith("/") or _DRIVE.match(name):
        raise BlobNameInvalid(f"{shown!r} is absolute: a blob name is relative to its container")
    if "\\" in name or _CONTROL.search(name):
        raise BlobNameInvalid(f"{shown!r} has a backslash or a control character")
    if any(word in ("", ".", "..") for word in words):
        raise BlobNameInvalid(f"{shown!r} has an empty, '.' or '..' part, which a blob name may not have")
    if words[0].lower().startswith("vsi"):
        raise BlobNameInvalid(f"{shown!r} is a GDAL path: name the blob itself")
    if is_unfinished(name):
        raise BlobNameInvalid(
            f"{shown!r} has a part that begins with {UNFINISHED!r}, which is reserved for unfinished files"
        )
    return name


def may_be_named(name: str) -> bool:
    """Return whether a blob has a usable name and is not a temporary file."""
    try:
        return bool(check_name(name))
    except BlobNameInvalid:
        return False


def is_unfinished(name: str) -> bool:
    """Return whether this is the name of an unfinished file, which users may not use."""
    return name.startswith(UNFINISHED) or f"/{UNFINISHED}" in name


def shorten_uri(text: str) -> str:
    """Return a user's text for an error message: at most 200 characters, without keys."""
    return without_keys(text)[:200]


def without_keys(text: str) -> str:
    """Return a URI without a key before '@' or a signature after '?'."""
    scheme, mark, rest = text.partition("://")
    host, slash, name = rest.partition("/")
    if mark and "@" in host:
        text = f"{scheme}://***@{host.rpartition('@')[2]}{slash}{name}"
    match = _SIGNED.search(text)
    return f"{text[: match.start()]}?***" if match else text


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobInfo:
    """The metadata of a blob. `sha256`: if it was read or written here; `created`: it did not exist before."""

    uri: BlobUri
    size: int
    etag: str = ""
    modified: float | None = None
    """In seconds since 1970."""
    sha256: str = ""
    created: bool = False

    @property
    def version(self) -> str:
        """Return text that changes with the content: size and etag, which a storage knows without reading the blob."""
        return f"{self.size}-{self.etag}"


IN_PLACE: Final = "DAGMASTER_IN_PLACE"
"""An option of a path that GDAL reads over the network. GDAL does not know it; `gdal_env` does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GdalPath:
    """The path and options with which GDAL reads a blob in place."""

    path: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


class Storage(Protocol):
    """Blobs by URI. Its methods block: handlers are plain functions. A blob is written completely or not at all.

    Methods raise `BlobNotFound` if the blob or its container does not exist; `BlobsUnavailable` if the storage does not
    respond, is full, rejects the credentials, or has no such container to write to: a retry may help; and
    `BlobNameInvalid`, for which a retry does not help.
    """

    def resolve(self, text: str, *, container: str | None = None) -> BlobUri:
        """Resolve a user's text: a URI, a name in a container or zone, or a path below an allowed directory."""

    def in_zone(self, zone: str, name: str = "") -> BlobUri:
        """Return a URI in a zone; without a name that of the zone itself."""

    def find(self, uri: BlobUri) -> BlobInfo | None:
        """Return the metadata of a blob, if it exists; raise `BlobNotFound` if its container does not."""

    def list_blobs(self, uri: BlobUri) -> Iterator[BlobInfo]:
        """Yield all blobs below a URI by name."""

    def list_beside(self, uri: BlobUri, *prefixes: str) -> Iterator[BlobInfo]:
        """Yield the blobs in the folder of a blob whose last names begin with a prefix and go on, by prefix and name.

        No prefix may begin with another.
        """

    def read(self, uri: BlobUri) -> bytes:
        """Return all of a small blob."""

    def write(self, uri: BlobUri, data: bytes) -> BlobInfo:
        """Write a small blob; replace an existing one."""

    def fetch(self, uri: BlobUri, to: Path, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Copy a blob of any size to a local file in chunks, with its checksum. `on_bytes` gets the bytes so far."""

    def publish(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Upload a local file of any size in chunks, unless the blob exists; return the metadata of the stored blob.

        If two callers publish at the same time, one creates the blob, and both get the same metadata. `on_bytes` gets
        the bytes so far; it must not use the storage, which is locked meanwhile.
        """

    def replace(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Upload a local file of any size, and replace an existing blob once the new one is complete.

        Only on a person's request. A handler publishes, because others may be reading.
        """

    def delete(self, uri: BlobUri) -> bool:
        """Delete a blob; return whether it existed."""

    def local_path(self, uri: BlobUri) -> Path | None:
        """Return the path of a local blob, or None."""

    def gdal_path(self, uri: BlobUri) -> GdalPath:
        """Return the path with which GDAL reads a blob in place."""
