"""Blobs in object stores: S3, Azure, Google Cloud, and memory, through obstore.

Atomic create-if-absent, tested with moto 5.2 and Azurite 3.37 with obstore 0.12 in November 2026:

- small blobs, up to one chunk: a conditional put, `put(mode="create")`: one request with If-None-Match, which
  all four support.
- larger: uploaded in parts under a temporary name, copied conditionally by the store
  (`copy(overwrite=False)`), and the temporary name is deleted. `put(mode="create")` would hold the whole blob
  in memory: obstore has no condition on the completion of a multipart upload. On S3 the copy is a multipart
  upload of one part, completed with If-None-Match (`copy_if_not_exists="multipart"`); the plain copy of S3
  has no such condition. Azure may report a copy as pending, which happens between accounts; ours stays within
  one, and the size is verified before success is reported.
- above 5 GiB on S3, the limit of a copied part: the name is checked first, and the blob is uploaded in parts
  under its own name. It still appears at once. Of two concurrent uploads the last wins; names are derived
  from the sources of a result, so both have the same content.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError

from dagmaster.adapters.byte_streams import CHUNK_BYTES, HashingStream, read_chunks, write_atomically
from dagmaster.adapters.storage.config import open_store, redact_secrets
from dagmaster.errors import BlobNotFound, BlobsUnavailable
from dagmaster.ports.blob_uris import UNFINISHED, BlobUri, may_be_named
from dagmaster.ports.storage import BlobInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

MAX_COPY_BYTES: Final = 5 * 1024**3
MAX_PARTS: Final = 9_000
"""S3 allows 10,000."""
MAX_CONCURRENT_PARTS: Final = 4
"""Parts in flight: times `CHUNK_BYTES`, the memory of an upload."""
STALE_AFTER_SECONDS: Final = 86_400
"""A temporary name is needed for minutes after it was written. After a day, its process was killed."""
LISTED_AT_ONCE: Final = 100
LAST_CHARACTER: Final = "\U0010fffd"
"""Sorts after every other character of a name."""

UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
E = TypeVar("E", BlobNotFound, BlobsUnavailable)

_METADATA_ENDPOINTS: Final = ("169.254.169.254", "metadata.google.internal", "identity/oauth2")
"""Metadata services of clouds, which are asked for credentials if the environment has none."""
_CONTAINER_NOUNS: Final = {"s3": "bucket", "gs": "bucket", "az": "container", "memory": "container"}
_CREDENTIALS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "az": "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
}


class BlobStores:
    """Containers and buckets, each opened on first use. `zone_roots` are the URIs of the zones."""

    def __init__(self, zone_roots: Sequence[BlobUri]) -> None:
        self._zone_roots = zone_roots
        self._stores: dict[tuple[str, str], Any] = {}
        self._existing_containers: set[tuple[str, str]] = set()
        self._cleaned_folders: set[str] = set()

    def find(self, uri: BlobUri) -> BlobInfo | None:
        try:
            info = _info(uri, obstore.head(self._store(uri), uri.name))
        except FileNotFoundError:
            self._require_container(uri, BlobNotFound)
            return None
        except (BaseError, OSError) as error:
            raise self._translate_error("be read", uri, error) from error
        self._existing_containers.add((uri.scheme, uri.container))
        return info

    def list_blobs(self, uri: BlobUri) -> Iterator[BlobInfo]:
        """Yield blobs in name order, streaming: every store lists by name, in pages."""
        try:
            for batch in obstore.list(self._store(uri), f"{uri.name}/" if uri.name else None):
                for meta in batch:
                    if may_be_named(meta["path"]):
                        yield _info(BlobUri(uri.scheme, uri.container, meta["path"]), meta)
        except (BaseError, OSError) as error:
            if _status(error) == NOT_FOUND:
                raise self._no_container(uri, BlobNotFound) from None
            raise self._translate_error("be listed", uri, error) from error

    def list_beside(self, uri: BlobUri, *prefixes: str) -> Iterator[BlobInfo]:
        """Yield blobs of one folder by prefix and name: list from a prefix on, skip folders, stop after it.

        S3 begins to list there by itself; for a store that cannot, obstore drops the names before.
        """
        folder, slash, _ = uri.name.rpartition("/")
        try:
            for prefix in prefixes:
                first = f"{folder}{slash}{prefix}"
                start: str | None = first
                while start is not None:
                    start = yield from self._list_from(uri, folder, start, first)
        except (BaseError, OSError) as error:
            if _status(error) == NOT_FOUND:
                raise self._no_container(uri, BlobNotFound) from None
            raise self._translate_error("be listed", uri, error) from error

    def _list_from(
        self, uri: BlobUri, folder: str, start: str, prefix: str
    ) -> Generator[BlobInfo, None, str | None]:
        """Yield blobs until a folder or the end; return where to go on, or None."""
        listing = obstore.list(self._store(uri), folder or None, offset=start, chunk_size=LISTED_AT_ONCE)
        for batch in listing:
            for meta in batch:
                name = meta["path"]
                if not name.startswith(prefix):
                    return None
                inside = name.find("/", len(prefix))
                if inside >= 0:
                    return f"{name[: inside + 1]}{LAST_CHARACTER}"
                if may_be_named(name):
                    yield _info(BlobUri(uri.scheme, uri.container, name), meta)
        return None

    def read(self, uri: BlobUri) -> bytes:
        try:
            return bytes(obstore.get(self._store(uri), uri.name).bytes())
        except FileNotFoundError:
            raise self._not_found(uri) from None
        except (BaseError, OSError) as error:
            raise self._translate_error("be read", uri, error) from error

    def read_chunks(self, uri: BlobUri, size: int) -> Iterator[bytes]:
        try:
            for arrived in obstore.get(self._store(uri), uri.name).stream(min_chunk_size=size):
                view = memoryview(arrived)
                for start in range(0, len(view), size):
                    yield bytes(view[start : start + size])
        except FileNotFoundError:
            raise self._not_found(uri) from None
        except (BaseError, OSError) as error:
            raise self._translate_error("be read", uri, error) from error

    def write(self, uri: BlobUri, data: bytes) -> BlobInfo:
        stream = HashingStream()
        stored = self._put(uri, uri.name, b"".join(stream.wrap([data]))) or {}
        return BlobInfo(uri=uri, size=len(data), etag=_etag(stored), sha256=stream.sha256, created=True)

    def fetch(self, uri: BlobUri, to: Path, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        stream = HashingStream(on_bytes)
        meta = self._stream(uri, lambda chunks: write_atomically(stream.wrap(chunks), to))
        return _info(uri, meta, sha256=stream.sha256)

    def publish(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        with path.open("rb") as file:
            size = path.stat().st_size
            stream = HashingStream(on_bytes)
            chunks = stream.wrap(read_chunks(file))
            if self._find_before_write(uri) is not None:
                created = False
            elif size <= CHUNK_BYTES:
                created = self._put(uri, uri.name, b"".join(chunks), mode="create") is not None
            elif uri.scheme == "s3" and size > MAX_COPY_BYTES:
                created = self._put(uri, uri.name, chunks, size=size) is not None
            else:
                created = self._upload_and_copy(uri, chunks, size)
        return self._verify_published(uri, stream) if created else self._read_metadata(uri)

    def replace(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Upload, replacing: a store shows an upload once it is complete."""
        with path.open("rb") as file:
            stream = HashingStream(on_bytes)
            self._put(uri, uri.name, stream.wrap(read_chunks(file)), size=path.stat().st_size)
        return self._verify_published(uri, stream)

    def delete(self, uri: BlobUri) -> bool:
        if self.find(uri) is None:
            return False
        try:
            obstore.delete(self._store(uri), uri.name)
        except FileNotFoundError:
            return False
        except (BaseError, OSError) as error:
            raise self._translate_error("be deleted", uri, error) from error
        return True

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────

    def _put(self, uri: BlobUri, name: str, data: Any, *, mode: Any = None, size: int = 0) -> Any:
        """Write a blob; return the store's answer, or None if the blob exists and may not be replaced."""
        part = max(CHUNK_BYTES, -(-size // MAX_PARTS))
        try:
            return obstore.put(
                self._store(uri), name, data, mode=mode, chunk_size=part, max_concurrency=MAX_CONCURRENT_PARTS
            )
        except AlreadyExistsError:
            return None
        except FileNotFoundError as error:
            self._require_container(uri, BlobsUnavailable)
            raise self._translate_error("be written", uri, error) from error
        except (BaseError, OSError) as error:
            raise self._translate_error("be written", uri, error) from error

    def _upload_and_copy(self, uri: BlobUri, chunks: Iterator[bytes], size: int) -> bool:
        folder = self._temp_folder(uri)
        self._delete_stale_uploads(uri, folder)
        temp_name = f"{folder}/{secrets.token_hex(12)}"
        try:
            self._put(uri, temp_name, chunks, size=size)
            try:
                obstore.copy(self._store(uri), temp_name, uri.name, overwrite=False)
            except AlreadyExistsError:
                return False
            except (BaseError, OSError) as error:
                raise self._translate_error("be written", uri, error) from error
            return True
        finally:
            with contextlib.suppress(BaseError, OSError):
                obstore.delete(self._store(uri), temp_name)

    def _temp_folder(self, uri: BlobUri) -> str:
        """Return the folder of temporary names: one per zone, so that a lifecycle rule can expire it too."""
        zones = [root.name for root in self._zone_roots if uri.is_below(root)]
        folder = max(zones, key=len) if zones else uri.name.rpartition("/")[0]
        return f"{folder}/{UNFINISHED}".lstrip("/")

    def _delete_stale_uploads(self, uri: BlobUri, folder: str) -> None:
        """Delete uploads of killed processes, once per process: no list shows them, and they cost storage."""
        if f"{uri.container}/{folder}" in self._cleaned_folders:
            return
        self._cleaned_folders.add(f"{uri.container}/{folder}")
        with contextlib.suppress(BaseError, OSError):
            store = self._store(uri)
            for batch in obstore.list(store, f"{folder}/"):
                limit = time.time() - STALE_AFTER_SECONDS
                stale = [meta["path"] for meta in batch if meta["last_modified"].timestamp() < limit]
                if stale:
                    obstore.delete(store, stale)

    def _find_before_write(self, uri: BlobUri) -> BlobInfo | None:
        try:
            return self.find(uri)
        except BlobNotFound as error:
            raise BlobsUnavailable(f"{uri} cannot be written: {error}") from error

    def _verify_published(self, uri: BlobUri, stream: HashingStream) -> BlobInfo:
        info = self.find(uri)
        if info is None or info.size != stream.total:
            raise BlobsUnavailable(f"{uri} was changed or deleted by another client after it was written")
        return replace(info, sha256=stream.sha256, created=True)

    def _read_metadata(self, uri: BlobUri) -> BlobInfo:
        stream = HashingStream()

        def drain(chunks: Iterator[bytes]) -> None:
            for _ in stream.wrap(chunks):
                pass

        try:
            meta = self._stream(uri, drain)
        except BlobNotFound as error:
            raise BlobsUnavailable(f"{uri} was deleted by another client while it was published") from error
        return _info(uri, meta, sha256=stream.sha256)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────

    def _stream(self, uri: BlobUri, consume: Callable[[Iterator[Any]], None]) -> Any:
        try:
            result = obstore.get(self._store(uri), uri.name)
            consume(iter(result.stream(min_chunk_size=CHUNK_BYTES)))
        except FileNotFoundError:
            raise self._not_found(uri) from None
        except BaseError as error:
            raise self._translate_error("be read", uri, error) from error
        return result.meta

    def _not_found(self, uri: BlobUri) -> BlobNotFound:
        self._require_container(uri, BlobNotFound)
        return BlobNotFound(f"there is nothing at {uri}")

    def _require_container(self, uri: BlobUri, kind: type[E]) -> None:
        """Raise if the bucket is missing: stores answer alike for a missing blob and a missing bucket."""
        key = (uri.scheme, uri.container)
        if key in self._existing_containers:
            return
        try:
            for _ in obstore.list(self._store(uri), f"{UNFINISHED}/", chunk_size=1):
                break
        except (BaseError, OSError) as error:
            if _status(error) == NOT_FOUND:
                raise self._no_container(uri, kind) from None
            # Listing may be forbidden: the container is assumed to exist.
            return
        self._existing_containers.add(key)

    def _no_container(self, uri: BlobUri, kind: type[E]) -> E:
        noun = _CONTAINER_NOUNS[uri.scheme]
        return kind(f"there is no {noun} {uri.container!r}: create it, or check the spelling of {uri}")

    def _store(self, uri: BlobUri) -> Any:
        key = (uri.scheme, uri.container)
        if key not in self._stores:
            self._stores[key] = open_store(uri.scheme, uri.container)
        return self._stores[key]

    def _translate_error(self, action: str, uri: BlobUri, error: BaseException) -> BlobsUnavailable:
        text = str(error)
        if any(endpoint in text for endpoint in _METADATA_ENDPOINTS):
            reason = f"there are no credentials, which are read from {_CREDENTIALS.get(uri.scheme)}"
        elif _status(error) in (UNAUTHORIZED, FORBIDDEN):
            reason = (
                f"the storage rejected the credentials, which are read from {_CREDENTIALS.get(uri.scheme)}"
            )
        elif _status(error) == 0 and "HTTP error" in text:
            match = re.search(r"https?://([^/@\s]+)/", text)
            reason = f"there is no connection to the storage{f' at {match[1]}' if match else ''}"
        else:
            reason = f"unexpected response from the storage: {redact_secrets(text)}"
        return BlobsUnavailable(f"{uri} cannot {action}: {reason}")


def _status(error: BaseException) -> int:
    """Return the HTTP status in an error message: obstore has no exception for listing a missing bucket."""
    match = re.search(r"status code: (\d{3})", str(error))
    return int(match[1]) if match else 0


def _info(uri: BlobUri, meta: Any, *, sha256: str = "", created: bool = False) -> BlobInfo:
    return BlobInfo(
        uri=uri,
        size=meta["size"],
        etag=_etag(meta),
        modified=meta["last_modified"].timestamp(),
        sha256=sha256,
        created=created,
    )


def _etag(meta: Any) -> str:
    # Azure has no quotes around it in a list, and has them elsewhere.
    return (meta.get("e_tag") or "").strip('"')
