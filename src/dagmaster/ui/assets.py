"""Static files: read once, served under a path with the hash of all of them, so that browsers keep them."""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

_TYPES: Final = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file, and the digest of its content."""

    content: bytes
    media_type: str
    etag: str


class Assets:
    """The files of `static/`. Modules import each other by relative paths, which keep the hash."""

    def __init__(self) -> None:
        self.files: Mapping[str, Asset] = dict(_read(files("dagmaster.ui").joinpath("static")))
        digest = hashlib.sha256("".join(asset.etag for asset in self.files.values()).encode())
        self.version = digest.hexdigest()[:12]
        self.base = f"/ui/static/{self.version}"


def _read(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Asset]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _read(entry, f"{prefix}{entry.name}/")
            continue
        content = entry.read_bytes()
        suffix = f".{entry.name.rpartition('.')[2]}"
        media_type = _TYPES.get(suffix) or mimetypes.guess_type(entry.name)[0] or "application/octet-stream"
        yield prefix + entry.name, Asset(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
