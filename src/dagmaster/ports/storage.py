"""Where data lies: blobs by URI, in zones. What handlers read and write.

A user's text becomes a `BlobUri` at one door, `Storage.resolve`, and nothing else opens what a user wrote. Outputs of
nodes that are too long for a row have a port of their own, `ports/blobs.py`.
"""

from __future__ import annotations

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
        """The last word of the name, without what follows its first dot."""
        return self.name.rpartition("/")[2].partition(".")[0]

    @property
    def suffix(self) -> str:
        """What follows the last dot of the last word, with the dot, in lower case."""
        word = self.name.rpartition("/")[2]
        return f".{word.rpartition('.')[2].lower()}" if "." in word else ""

    def child(self, name: str) -> BlobUri:
        """A blob below this one."""
        return BlobUri(self.scheme, self.container, f"{self.name.rstrip('/')}/{check_name(name)}".lstrip("/"))

    @classmethod
    def parse(cls, text: str) -> BlobUri:
        """Read a URI. `BlobNameInvalid` says what is wrong with it."""
        scheme, mark, rest = text.partition("://")
        if not mark or scheme not in SCHEMES:
            schemes = ", ".join(f"{one}://" for one in SCHEMES)
            raise BlobNameInvalid(f"{text[:200]!r} is not a place of data: it has to begin with one of {schemes}")
        container, _, name = rest.partition("/")
        if scheme == "file" and container:
            raise BlobNameInvalid(f"{text[:200]!r}: a file has three slashes, file:///folder/name")
        if scheme != "file" and not container:
            raise BlobNameInvalid(f"{text[:200]!r}: a container or bucket is missing, {scheme}://container/name")
        check_name(container or "x")
        return cls(scheme, container, check_name(name))


def check_name(name: str) -> str:
    """A name of a blob is words between slashes. `BlobNameInvalid` for what leads elsewhere."""
    words = name.split("/")
    if not name or len(name) > MAX_NAME:
        raise BlobNameInvalid(f"a name of a blob has 1 to {MAX_NAME:,} characters, not {len(name):,}")
    if name.startswith("/") or (len(words[0]) == len("C:") and words[0].endswith(":")):
        raise BlobNameInvalid(f"{name[:200]!r} is absolute: a blob is named from its container on")
    if any(word in ("", ".", "..") for word in words):
        raise BlobNameInvalid(f"{name[:200]!r} has an empty, '.' or '..' part: a name leads straight to its blob")
    if "\\" in name or any(ord(letter) < ord(" ") or letter == "\x7f" for letter in name):
        raise BlobNameInvalid(f"{name[:200]!r} has a backslash or a control character")
    if words[0].lower().startswith("vsi"):
        raise BlobNameInvalid(f"{name[:200]!r} looks like a path of GDAL's: name the blob itself")
    return name


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

    `BlobMissing`: it is not there, nor is its container. `BlobsUnavailable`: the storage does not answer, has no room
    or refuses the credentials; trying again may help. `BlobNameInvalid`: trying again does not help.
    """

    def resolve(self, text: str, *, container: str | None = None) -> BlobUri:
        """The blob that a user means: a URI, a name in a container or zone, or a path below an allowed directory."""

    def in_zone(self, zone: str, name: str = "") -> BlobUri:
        """A place in a zone; without a name the zone itself."""

    def find(self, uri: BlobUri) -> BlobInfo | None:
        """What is there, if anything."""

    def under(self, uri: BlobUri) -> Iterator[BlobInfo]:
        """Everything below a place, in order of names."""

    def read(self, uri: BlobUri) -> bytes:
        """All of a small blob."""

    def write(self, uri: BlobUri, data: bytes) -> BlobInfo:
        """Put a small blob there, over what was there."""

    def fetch(self, uri: BlobUri, to: Path, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Copy a blob of any size to a local file, piece by piece, with its checksum. `on_bytes` hears the sum."""

    def publish(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Put a local file of any size there, piece by piece, unless something is there already: that stays."""

    def delete(self, uri: BlobUri) -> bool:
        """Take it away. False: it was not there."""

    def local_path(self, uri: BlobUri) -> Path | None:
        """Where it lies on this machine, if it does."""

    def gdal_path(self, uri: BlobUri) -> GdalPath:
        """How GDAL may read it where it lies."""
