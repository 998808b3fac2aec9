"""Route each URI to the backend of its scheme: files or an object store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dagmaster.adapters.storage.files import BlobFiles
from dagmaster.errors import BlobNameInvalid
from dagmaster.ports.blob_uris import BlobUri, check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dagmaster.adapters.storage.object_stores import BlobStores
    from dagmaster.ports.storage import BlobInfo, GdalPath


class ObjectStorage:
    """The storage of all schemes. `zones` maps bronze, silver and gold to URLs.

    Files below `roots` and blobs in `containers` may be read too. `closed` are URLs in such a container that
    users may not use.
    """

    def __init__(
        self,
        zones: Mapping[str, str],
        *,
        roots: Sequence[Path] = (),
        containers: Sequence[str] = (),
        closed: Sequence[str] = (),
    ) -> None:
        self._zones = {zone: _parse_root(url) for zone, url in zones.items()}
        allowed = [*self._zones.values(), *map(_parse_root, containers)]
        self._containers = {(root.scheme, root.container) for root in allowed if root.scheme != "file"}
        self._closed = [root for root in map(_parse_root, closed) if root.scheme != "file" and root.name]
        self._roots = [Path(root).absolute() for root in roots]
        folders = [Path(f"/{root.name}") for root in self._zones.values() if root.scheme == "file"]
        self._files = BlobFiles(folders, self._roots)
        self._stores: BlobStores | None = None

    def resolve(self, text: str, *, container: str | None = None) -> BlobUri:
        """Resolve a URI; a name in its container or in bronze; or a path below an allowed directory."""
        if container is not None:
            return self._check_allowed(self._in_container(container, text))
        if "://" in text:
            return self._check_allowed(BlobUri.parse(text))
        if text.startswith("/"):
            return self._check_allowed(BlobUri("file", "", check_name(text[1:])))
        name = check_name(text.removeprefix("./"))
        in_bronze = self._check_allowed(self.in_zone("bronze", name))
        for root in self._roots:
            if (root / name).is_file() and self.find(in_bronze) is None:
                return self._check_allowed(BlobUri("file", "", str(root / name)[1:]))
        return in_bronze

    def in_zone(self, zone: str, name: str = "") -> BlobUri:
        if zone not in self._zones:
            raise BlobNameInvalid(f"there is no zone {zone!r}: the zones are {', '.join(self._zones)}")
        root = self._zones[zone]
        joined = "/".join(part for part in (root.name, name and check_name(name)) if part)
        return BlobUri(root.scheme, root.container, joined)

    def find(self, uri: BlobUri) -> BlobInfo | None:
        return self._backend(uri).find(uri)

    def list_blobs(self, uri: BlobUri) -> Iterator[BlobInfo]:
        """Yield blobs in name order, streaming."""
        return self._backend(uri).list_blobs(uri)

    def list_beside(self, uri: BlobUri, *prefixes: str) -> Iterator[BlobInfo]:
        return self._backend(uri).list_beside(uri, *prefixes)

    def read(self, uri: BlobUri) -> bytes:
        return self._backend(uri).read(uri)

    def read_chunks(self, uri: BlobUri, size: int) -> Iterator[bytes]:
        return self._backend(uri).read_chunks(uri, size)

    def write(self, uri: BlobUri, data: bytes) -> BlobInfo:
        return self._backend(uri).write(uri, data)

    def fetch(self, uri: BlobUri, to: Path, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        return self._backend(uri).fetch(uri, to, on_bytes)

    def publish(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        return self._backend(uri).publish(path, uri, on_bytes)

    def replace(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        return self._backend(uri).replace(path, uri, on_bytes)

    def delete(self, uri: BlobUri) -> bool:
        return self._backend(uri).delete(uri)

    def local_path(self, uri: BlobUri) -> Path | None:
        return self._files.path(uri) if uri.scheme == "file" else None

    def gdal_path(self, uri: BlobUri) -> GdalPath:
        """Return the path and options with which GDAL reads a blob in place."""
        from dagmaster.adapters.storage.config import gdal_path

        return gdal_path(self._check_allowed(uri))

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────

    def _in_container(self, container: str, name: str) -> BlobUri:
        if container in self._zones:
            return self.in_zone(container, name)
        bronze = self._zones["bronze"]
        if bronze.scheme in ("file", "memory"):
            joined = f"{check_name(container.removeprefix('./'))}/{check_name(name)}"
            return self._folder_of_root(bronze, container, joined) or self.in_zone("bronze", joined)
        return BlobUri.parse(f"{bronze.scheme}://{container}/{name}")

    def _folder_of_root(self, bronze: BlobUri, container: str, joined: str) -> BlobUri | None:
        """Return the URI below a readable directory that has this folder, unless bronze has it."""
        if bronze.scheme != "file" or Path(f"/{bronze.name}", container).exists():
            return None
        roots = (root for root in self._roots if (root / container).is_dir())
        return next((BlobUri("file", "", str(root / joined)[1:]) for root in roots), None)

    def _check_allowed(self, uri: BlobUri) -> BlobUri:
        """Check that a file is in a zone or below a root, links resolved, and a blob in an allowed container.

        The credentials of a worker may open more containers than its users have a right to.
        """
        if uri.scheme == "file":
            self._files.path(uri)
            return uri
        if (uri.scheme, uri.container) not in self._containers:
            raise BlobNameInvalid(
                f"{uri.scheme}://{uri.container} may not be used here: it is not the container of a zone, and"
                " DAGMASTER_STORAGE_CONTAINERS does not name it"
            )
        if any(uri.is_below(root) for root in self._closed):
            raise BlobNameInvalid(f"{uri} may not be used here: outputs of jobs are kept there")
        return uri

    def _backend(self, uri: BlobUri) -> BlobFiles | BlobStores:
        if uri.scheme == "file":
            return self._files
        if self._stores is None:
            from dagmaster.adapters.storage.object_stores import BlobStores

            self._stores = BlobStores([root for root in self._zones.values() if root.scheme != "file"])
        return self._stores


def _parse_root(url: str) -> BlobUri:
    """Parse the URL of a zone or container; the name of a whole bucket is empty."""
    inside = BlobUri.parse(f"{url.rstrip('/')}/x")
    return BlobUri(inside.scheme, inside.container, inside.name[:-1].rstrip("/"))
