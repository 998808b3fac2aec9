"""Where data lies: blobs by URI, in zones. What handlers read and write.

A user's text becomes a `BlobUri` at one door, `Storage.resolve`, and nothing else opens what a user wrote. Outputs of
nodes that are too long for a row have a port of their own, `ports/output_blobs.py`.
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
"""As they came; processed; made for others."""
MAX_NAME: Final = 1024
"""In bytes of UTF-8: what S3 takes."""
UNFINISHED: Final = ".publishing"
"""How a part of a name begins that is half written."""
_CONTAINER: Final = re.compile(r"\$?[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_SIGNED: Final = re.compile(
    r"[?&](sig|sv|se|X-Amz-[A-Za-z]+|X-Goog-[A-Za-z]+|AWSAccessKeyId|Signature|token)=", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, order=True)
class BlobUri:
    """The place of one blob. `container` is a bucket or container; a file has none, and its name begins at the root."""

    scheme: str
    container: str
    name: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.container}/{self.name}"

    @property
    def stem(self) -> str:
        """Return the last word of the name, without what follows its first dot."""
        return self.name.rpartition("/")[2].partition(".")[0]

    @property
    def suffix(self) -> str:
        """Return what follows the last dot of the last word, with the dot, in lower case."""
        word = self.name.rpartition("/")[2]
        return f".{word.rpartition('.')[2].lower()}" if "." in word else ""

    def child(self, name: str) -> BlobUri:
        """Return a blob below this one."""
        return BlobUri(self.scheme, self.container, f"{self.name.rstrip('/')}/{check_name(name)}".lstrip("/"))

    @classmethod
    def parse(cls, text: str) -> BlobUri:
        """Read a URI, letter by letter: a percent sign is a percent sign. `BlobNameInvalid` says what is wrong."""
        scheme, mark, rest = text.partition("://")
        shown = shown_place(text)
        if not mark or scheme not in SCHEMES:
            schemes = ", ".join(f"{one}://" for one in SCHEMES)
            raise BlobNameInvalid(f"{shown!r} is not a place of data: it has to begin with one of {schemes}")
        container, _, name = rest.partition("/")
        if scheme == "file" and container:
            raise BlobNameInvalid(f"{shown!r}: a file has three slashes, file:///folder/name")
        if scheme != "file" and not container:
            raise BlobNameInvalid(f"{shown!r}: a container or bucket is missing, {scheme}://container/name")
        if container and not _CONTAINER.fullmatch(container):
            raise BlobNameInvalid(
                f"{shown!r}: a container or bucket is letters, digits, '.', '_' and '-'. Keys do not belong into a"
                " place of data: they come from the environment"
            )
        if _SIGNED.search(name):
            raise BlobNameInvalid(
                f"{shown!r} is a signed link: name the blob without what follows '?'; keys come from the environment"
            )
        return cls(scheme, container, check_name(name))


def check_name(name: str) -> str:
    """Check the name of a blob; raise `BlobNameInvalid` for a name that escapes its prefix."""
    shown = shown_place(name)
    words = name.split("/")
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise BlobNameInvalid(f"{shown!r} is no text: it has half of a character")
    size = len(name.encode())
    if not name or size > MAX_NAME:
        raise BlobNameInvalid(f"a name of a blob has 1 to {MAX_NAME:,} bytes, not {size:,}")
    if name.startswith("/") or _DRIVE.match(name):
        raise BlobNameInvalid(f"{shown!r} is absolute: a blob is named from its container on")
    if "\\" in name or _CONTROL.search(name):
        raise BlobNameInvalid(f"{shown!r} has a backslash or a control character")
    if any(word in ("", ".", "..") for word in words):
        raise BlobNameInvalid(f"{shown!r} has an empty, '.' or '..' part: a name leads straight to its blob")
    if words[0].lower().startswith("vsi"):
        raise BlobNameInvalid(f"{shown!r} looks like a path of GDAL's: name the blob itself")
    if is_unfinished(name):
        raise BlobNameInvalid(f"{shown!r} has a part that begins with {UNFINISHED!r}: what is half written is so named")
    return name


def may_be_named(name: str) -> bool:
    """Return whether a blob has a usable name and is not a temporary file."""
    try:
        return bool(check_name(name))
    except BlobNameInvalid:
        return False


def is_unfinished(name: str) -> bool:
    """Return whether this is the name of something half written. Nobody may name it."""
    return name.startswith(UNFINISHED) or f"/{UNFINISHED}" in name


def shown_place(text: str) -> str:
    """Return a user's text in an error: at most 200 letters, and no keys."""
    return without_keys(text)[:200]


def without_keys(text: str) -> str:
    """Return a place without a key before '@' or a signature after '?'."""
    scheme, mark, rest = text.partition("://")
    host, slash, name = rest.partition("/")
    if mark and "@" in host:
        text = f"{scheme}://***@{host.rpartition('@')[2]}{slash}{name}"
    found = _SIGNED.search(text)
    return f"{text[: found.start()]}?***" if found else text


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobInfo:
    """What is known of a blob. `sha256` where it was read or written here; `created`: it was not there before."""

    uri: BlobUri
    size: int
    etag: str = ""
    modified: float | None = None
    """In seconds since 1970."""
    sha256: str = ""
    created: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GdalPath:
    """How GDAL reads a blob in place: a path that we made, and the options that go with it."""

    path: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


class Storage(Protocol):
    """Blobs by URI. It blocks: handlers are plain functions. What it writes is whole, or not there.

    `BlobMissing`: what is to be read is not there, or its container is not. `BlobsUnavailable`: the storage does not
    answer, has no room, refuses the credentials, or has no container to write to; trying again may help, once somebody
    has mended it. `BlobNameInvalid`: trying again does not help.
    """

    def resolve(self, text: str, *, container: str | None = None) -> BlobUri:
        """Resolve a user's text: a URI, a name in a container or zone, or a path below an allowed directory."""

    def in_zone(self, zone: str, name: str = "") -> BlobUri:
        """Return a place in a zone; without a name the zone itself."""

    def find(self, uri: BlobUri) -> BlobInfo | None:
        """Return what is there, if anything. `BlobMissing`: not even its container is."""

    def under(self, uri: BlobUri) -> Iterator[BlobInfo]:
        """Everything below a place, in order of names."""

    def read(self, uri: BlobUri) -> bytes:
        """Return all of a small blob."""

    def write(self, uri: BlobUri, data: bytes) -> BlobInfo:
        """Put a small blob there, over what was there."""

    def fetch(self, uri: BlobUri, to: Path, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Copy a blob of any size to a local file, piece by piece, with its checksum. `on_bytes` hears the sum."""

    def publish(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Put a local file of any size there, piece by piece, unless something is there already: that stays.

        The answer is about what is there then. Of twins that publish at once one creates, and both hear the same.
        `on_bytes` hears the sum, and does not ask the storage for anything: it is called from inside of it.
        """

    def replace(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Put a local file of any size there, over what was there, which stays until the new one is whole.

        For a person who says so. A handler publishes, for others may be reading.
        """

    def delete(self, uri: BlobUri) -> bool:
        """Take it away. False: it was not there."""

    def local_path(self, uri: BlobUri) -> Path | None:
        """Return where it lies on this machine, if it does."""

    def gdal_path(self, uri: BlobUri) -> GdalPath:
        """Return how GDAL may read it where it lies."""
