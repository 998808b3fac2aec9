"""The URIs of blobs, and which names a blob may have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from dagmaster.errors import BlobNameInvalid

SCHEMES: Final = ("file", "az", "s3", "gs", "memory")
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
    """The URI of a blob.

    `container` is a bucket or container; a file has none, and its name begins at the root.
    """

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
                f"{shown!r}: a container or bucket is letters, digits, '.', '_' and '-'. Keys do not belong"
                " in a"
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
    try:
        return bool(check_name(name))
    except BlobNameInvalid:
        return False


def is_unfinished(name: str) -> bool:
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
