"""Storage: files, Azure, S3, Google Cloud, and memory, alike. Here is the door; the rooms are beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dagmaster.adapters.storage.files import BlobFiles
from dagmaster.errors import BlobNameInvalid
from dagmaster.ports.storage import BlobInfo, BlobUri, GdalPath, check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dagmaster.adapters.storage.object_stores import BlobStores


class ObjectStorage:
    """`zones` maps bronze, silver and gold to URLs. Files below `roots` may be read too, and blobs in `containers`.

    `closed` are places that no user may name, though they lie in such a container.
    """

    def __init__(
        self,
        zones: Mapping[str, str],
        *,
        roots: Sequence[Path] = (),
        containers: Sequence[str] = (),
        closed: Sequence[str] = (),
    ) -> None:
        self._zones = {zone: _place(url) for zone, url in zones.items()}
        homes = [*self._zones.values(), *map(_place, containers)]
        self._containers = {(home.scheme, home.container) for home in homes if home.scheme != "file"}
        self._closed = [place for place in map(_place, closed) if place.scheme != "file" and place.name]
        self._roots = [Path(root).absolute() for root in roots]
        folders = [Path(f"/{home.name}") for home in self._zones.values() if home.scheme == "file"]
        self._files = BlobFiles(folders, self._roots)
        self._stores: BlobStores | None = None

    def resolve(self, text: str, *, container: str | None = None) -> BlobUri:
        """Return a URI as it is; a name in its container or in bronze; a path, where the directory is allowed."""
        if container is not None:
            return self._allowed(self._in_container(container, text))
        if "://" in text:
            return self._allowed(BlobUri.parse(text))
        if text.startswith("/"):
            return self._allowed(BlobUri("file", "", check_name(text[1:])))
        name = check_name(text.removeprefix("./"))
        in_bronze = self._allowed(self.in_zone("bronze", name))
        for root in self._roots:
            if (root / name).is_file() and self.find(in_bronze) is None:
                return self._allowed(BlobUri("file", "", str(root / name)[1:]))
        return in_bronze

    def in_zone(self, zone: str, name: str = "") -> BlobUri:
        """Return the zone's place, and the name below it."""
        if zone not in self._zones:
            raise BlobNameInvalid(f"there is no zone {zone!r}: the zones are {', '.join(self._zones)}")
        home = self._zones[zone]
        joined = "/".join(part for part in (home.name, name and check_name(name)) if part)
        return BlobUri(home.scheme, home.container, joined)

    def find(self, uri: BlobUri) -> BlobInfo | None:
        """Ask for its size."""
        return self._room(uri).find(uri)

    def under(self, uri: BlobUri) -> Iterator[BlobInfo]:
        """In order of names, and never all of them in memory."""
        return self._room(uri).under(uri)

    def read(self, uri: BlobUri) -> bytes:
        """Return all of it."""
        return self._room(uri).read(uri)

    def write(self, uri: BlobUri, data: bytes) -> BlobInfo:
        """Over what was there."""
        return self._room(uri).write(uri, data)

    def fetch(self, uri: BlobUri, to: Path, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Stream it into a file, which is whole or not there."""
        return self._room(uri).fetch(uri, to, on_bytes)

    def publish(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Stream it there, unless something is there."""
        return self._room(uri).publish(path, uri, on_bytes)

    def replace(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Stream it there, over what is there."""
        return self._room(uri).replace(path, uri, on_bytes)

    def delete(self, uri: BlobUri) -> bool:
        """Look, and take it away."""
        return self._room(uri).delete(uri)

    def local_path(self, uri: BlobUri) -> Path | None:
        """Return the file itself."""
        return self._files.path(uri) if uri.scheme == "file" else None

    def gdal_path(self, uri: BlobUri) -> GdalPath:
        """Return a file's path, or that of GDAL's own reader for this scheme."""
        from dagmaster.adapters.storage.config import gdal_path

        return gdal_path(self._allowed(uri))

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _in_container(self, container: str, name: str) -> BlobUri:
        if container in self._zones:
            return self.in_zone(container, name)
        bronze = self._zones["bronze"]
        if bronze.scheme in ("file", "memory"):
            joined = f"{check_name(container.removeprefix('./'))}/{check_name(name)}"
            return self._folder_of_root(bronze, container, joined) or self.in_zone("bronze", joined)
        return BlobUri.parse(f"{bronze.scheme}://{container}/{name}")

    def _folder_of_root(self, bronze: BlobUri, container: str, joined: str) -> BlobUri | None:
        """As with a file: what bronze does not have may lie below a directory that may be read."""
        if bronze.scheme != "file" or Path(f"/{bronze.name}", container).exists():
            return None
        roots = (root for root in self._roots if (root / container).is_dir())
        return next((BlobUri("file", "", str(root / joined)[1:]) for root in roots), None)

    def _allowed(self, uri: BlobUri) -> BlobUri:
        """Check that a file is in a zone or below a root, links resolved, and a blob in an allowed container.

        The worker's credentials may open many more than its users have a right to.
        """
        if uri.scheme == "file":
            self._files.path(uri)
            return uri
        if (uri.scheme, uri.container) not in self._containers:
            raise BlobNameInvalid(
                f"{uri.scheme}://{uri.container} may not be used here: it is the container of no zone, and"
                " DAGMASTER_STORAGE_CONTAINERS does not name it"
            )
        if any(_is_below(uri, place) for place in self._closed):
            raise BlobNameInvalid(f"{uri} may not be used here: outputs of jobs are kept there")
        return uri

    def _room(self, uri: BlobUri) -> BlobFiles | BlobStores:
        if uri.scheme == "file":
            return self._files
        if self._stores is None:
            from dagmaster.adapters.storage.object_stores import BlobStores

            self._stores = BlobStores([home for home in self._zones.values() if home.scheme != "file"])
        return self._stores


def _is_below(uri: BlobUri, place: BlobUri) -> bool:
    same = (uri.scheme, uri.container) == (place.scheme, place.container)
    return same and f"{uri.name}/".startswith(f"{place.name}/")


def _place(url: str) -> BlobUri:
    """Return a zone's place: of what stands for a whole bucket the name is empty."""
    inside = BlobUri.parse(f"{url.rstrip('/')}/x")
    return BlobUri(inside.scheme, inside.container, inside.name[:-1].rstrip("/"))
