"""Storage on obstore: files, Azure, S3, Google Cloud, and memory, alike."""

from __future__ import annotations

import hashlib
import os
import secrets
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, MemoryStore, from_url

from dagmaster.errors import BlobMissing, BlobNameInvalid, BlobsUnavailable
from dagmaster.ports.storage import ZONES, BlobInfo, BlobUri, GdalPath, check_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PIECE: Final = 8 * 1024 * 1024


class ObjectStorage:
    """`zones` maps bronze, silver and gold to URLs; files below `roots` may be read too."""

    def __init__(self, zones: Mapping[str, str], *, roots: Sequence[Path] = ()) -> None:
        self._zones = {zone: BlobUri.parse(f"{url.rstrip('/')}/x") for zone, url in zones.items()}
        self._roots = [Path(root) for root in roots]
        self._stores: dict[tuple[str, str], Any] = {}

    def resolve(self, text: str, *, container: str | None = None) -> BlobUri:
        """A URI as it is; a name in its container or in bronze; a path, where the directory is allowed."""
        if container is not None:
            return self._in_container(container, text)
        if "://" in text:
            return self._allowed(BlobUri.parse(text))
        if text.startswith("/"):
            return self._allowed(BlobUri("file", "", check_name(text[1:])))
        name = check_name(text)
        in_bronze = self.in_zone("bronze", name)
        if self.find(in_bronze) is not None:
            return in_bronze
        for root in self._roots:
            if (root / name).is_file():
                return self._allowed(BlobUri("file", "", str((root / name).absolute())[1:]))
        return in_bronze

    def in_zone(self, zone: str, name: str = "") -> BlobUri:
        """The zone's place, and the name below it."""
        if zone not in self._zones:
            raise BlobNameInvalid(f"there is no zone {zone!r}: the zones are {', '.join(ZONES)}")
        inside = self._zones[zone]
        folder = inside.name[:-1].rstrip("/")
        joined = "/".join(part for part in (folder, name and check_name(name)) if part)
        return BlobUri(inside.scheme, inside.container, joined)

    def find(self, uri: BlobUri) -> BlobInfo | None:
        """Ask for its size."""
        try:
            meta = obstore.head(self._store(uri), uri.name)
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise self._unavailable("be read", uri, error) from error
        return self._info(uri, meta)

    def under(self, uri: BlobUri) -> Iterator[BlobInfo]:
        """List what is below."""
        found: list[BlobInfo] = []
        try:
            for batch in obstore.list(self._store(uri), f"{uri.name.rstrip('/')}/" if uri.name else None):
                found += [self._info(BlobUri(uri.scheme, uri.container, meta["path"]), meta) for meta in batch]
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise self._unavailable("be listed", uri, error) from error
        yield from sorted(found, key=lambda info: info.uri)

    def read(self, uri: BlobUri) -> bytes:
        """All of it."""
        try:
            return bytes(obstore.get(self._store(uri), uri.name).bytes())
        except FileNotFoundError:
            raise BlobMissing(f"there is nothing at {uri}") from None
        except (BaseError, OSError) as error:
            raise self._unavailable("be read", uri, error) from error

    def write(self, uri: BlobUri, data: bytes) -> BlobInfo:
        """Over what was there."""
        try:
            obstore.put(self._store(uri), uri.name, data)
        except (BaseError, OSError) as error:
            raise self._unavailable("be written", uri, error) from error
        return BlobInfo(uri=uri, size=len(data), sha256=hashlib.sha256(data).hexdigest(), created=True)

    def fetch(self, uri: BlobUri, to: Path, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Stream it into a file."""
        digest, done = hashlib.sha256(), 0
        try:
            result = obstore.get(self._store(uri), uri.name)
            with to.open("wb") as file:
                for piece in result.stream(min_chunk_size=PIECE):
                    file.write(piece)
                    digest.update(piece)
                    done += len(piece)
                    if on_bytes is not None:
                        on_bytes(done)
        except FileNotFoundError:
            raise BlobMissing(f"there is nothing at {uri}") from None
        except (BaseError, OSError) as error:
            raise self._unavailable("be read", uri, error) from error
        info = self._info(uri, result.meta)
        return BlobInfo(uri=uri, size=done, etag=info.etag, modified=info.modified, sha256=digest.hexdigest())

    def publish(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Stream it under a name beside, then put it in place unless something is there."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
        store = self._store(uri)
        folder, _, word = uri.name.rpartition("/")
        beside = f"{folder}/.{word}.{secrets.token_hex(8)}".lstrip("/")
        try:
            obstore.put(store, beside, path)
            try:
                obstore.copy(store, beside, uri.name, overwrite=False)
                created = True
            except AlreadyExistsError:
                created = False
            obstore.delete(store, beside)
        except (BaseError, OSError) as error:
            raise self._unavailable("be written", uri, error) from error
        size = path.stat().st_size
        if on_bytes is not None:
            on_bytes(size)
        return BlobInfo(uri=uri, size=size, sha256=digest.hexdigest(), created=created)

    def delete(self, uri: BlobUri) -> bool:
        """Look, and take it away."""
        if self.find(uri) is None:
            return False
        try:
            obstore.delete(self._store(uri), uri.name)
        except FileNotFoundError:
            return False
        except (BaseError, OSError) as error:
            raise self._unavailable("be deleted", uri, error) from error
        return True

    def local_path(self, uri: BlobUri) -> Path | None:
        """The file itself."""
        return Path(f"/{uri.name}") if uri.scheme == "file" else None

    def gdal_path(self, uri: BlobUri) -> GdalPath:
        """A file's path, or the name of GDAL's own reader for this scheme."""
        if uri.scheme == "file":
            return GdalPath(path=f"/{uri.name}")
        readers = {"s3": "/vsis3/", "az": "/vsiaz/", "gs": "/vsigs/"}
        if uri.scheme not in readers:
            raise BlobNameInvalid(f"GDAL cannot read {uri} in place: fetch it first")
        return GdalPath(path=f"{readers[uri.scheme]}{uri.container}/{uri.name}")

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _in_container(self, container: str, name: str) -> BlobUri:
        if container in self._zones:
            return self.in_zone(container, name)
        bronze = self._zones["bronze"]
        if bronze.scheme in ("file", "memory"):
            return self.in_zone("bronze", f"{check_name(container)}/{check_name(name)}")
        return BlobUri.parse(f"{bronze.scheme}://{container}/{name}")

    def _allowed(self, uri: BlobUri) -> BlobUri:
        """A file has to lie in a zone or below a root, wherever links lead."""
        if uri.scheme != "file":
            return uri
        path = Path(os.path.realpath(f"/{uri.name}"))
        homes = [Path(os.path.realpath(root)) for root in [*self._roots, *self._zone_folders]]
        if not any(path.is_relative_to(home) for home in homes):
            raise BlobNameInvalid(
                f"{uri} is outside of what may be read: put it into a zone, or name its directory in"
                " DAGMASTER_FILE_ROOTS"
            )
        return uri

    @cached_property
    def _zone_folders(self) -> list[Path]:
        inside = [self.in_zone(zone) for zone in self._zones]
        return [Path(f"/{uri.name}") for uri in inside if uri.scheme == "file"]

    def _store(self, uri: BlobUri) -> Any:
        key = (uri.scheme, uri.container)
        if key not in self._stores:
            if uri.scheme == "file":
                self._stores[key] = LocalStore("/")
            elif uri.scheme == "memory":
                self._stores[key] = MemoryStore()
            else:
                self._stores[key] = from_url(f"{uri.scheme}://{uri.container}")
        return self._stores[key]

    def _info(self, uri: BlobUri, meta: Any) -> BlobInfo:
        return BlobInfo(
            uri=uri, size=meta["size"], etag=meta["e_tag"] or "", modified=meta["last_modified"].timestamp()
        )

    def _unavailable(self, what: str, uri: BlobUri, error: BaseException) -> BlobsUnavailable:
        return BlobsUnavailable(f"{uri} cannot {what}: {error}")
