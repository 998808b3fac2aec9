"""Blobs in object stores: S3, Azure, Google Cloud, and memory, through obstore.

How something appears at once or not at all, and only where nothing is. Tried against moto 5.2 and Azurite 3.37 with
obstore 0.12 in November 2026:

- up to one piece: `put(mode="create")`, one request with If-None-Match. All four have it.
- larger: `put` in parts under a name beside, then `copy(overwrite=False)`, which the store does by itself, and the name
  beside is taken away. `put(mode="create")` would hold all of it in memory: obstore has no condition on the end of an
  upload in parts. On S3 the copy is an upload of one part that is completed with If-None-Match
  (`copy_if_not_exists="multipart"`); S3's own copy has no such condition.
  Azure may say that a copy goes on after its answer, which it does between accounts; ours stays within one, and its
  size is asked for before it is told of.
- larger than 5 GiB on S3: more than one copied part may hold. It is uploaded in parts under its own name, after a look
  whether something is there. It still appears at once; of twins in that moment the last stays, and names are made of
  what a result is made from, so both are the same.
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

from dagmaster.adapters.byte_streams import PIECE, Passing, keep, pieces_of
from dagmaster.adapters.storage.config import open_store, secrets_hidden
from dagmaster.errors import BlobNotFound, BlobsUnavailable
from dagmaster.ports.storage import UNFINISHED, BlobInfo, BlobUri, may_be_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


MOST_COPIED: Final = 5 * 1024**3
MOST_PARTS: Final = 9_000
"""S3 takes 10,000."""
AT_ONCE: Final = 4
"""Parts in flight: with `PIECE`, what an upload holds in memory."""
FORGOTTEN_SECONDS: Final = 86_400
"""A name beside is needed for minutes after it was written. After a day its process was killed."""

UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
E = TypeVar("E", BlobNotFound, BlobsUnavailable)

_ASKED_FOR_KEYS: Final = ("169.254.169.254", "metadata.google.internal", "identity/oauth2")
"""Where keys are asked for on machines of a cloud when the environment has none."""
_WORDS: Final = {"s3": "bucket", "gs": "bucket", "az": "container", "memory": "container"}
_KEYS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "az": "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
}


class BlobStores:
    """Each container or bucket is opened when it is first named. `homes` are the places of the zones."""

    def __init__(self, homes: Sequence[BlobUri]) -> None:
        self._homes = homes
        self._stores: dict[tuple[str, str], Any] = {}
        self._seen: set[tuple[str, str]] = set()
        self._swept: set[str] = set()

    def find(self, uri: BlobUri) -> BlobInfo | None:
        """Ask for its size."""
        try:
            info = _info(uri, obstore.head(self._store(uri), uri.name))
        except FileNotFoundError:
            self._require_container(uri, BlobNotFound)
            return None
        except (BaseError, OSError) as error:
            raise self._refused("be read", uri, error) from error
        self._seen.add((uri.scheme, uri.container))
        return info

    def under(self, uri: BlobUri) -> Iterator[BlobInfo]:
        """As the store lists it: all of them list by name, some thousand at a time."""
        try:
            for batch in obstore.list(self._store(uri), f"{uri.name}/" if uri.name else None):
                for meta in batch:
                    if may_be_named(meta["path"]):
                        yield _info(BlobUri(uri.scheme, uri.container, meta["path"]), meta)
        except (BaseError, OSError) as error:
            if _status(error) == NOT_FOUND:
                raise self._no_container(uri, BlobNotFound) from None
            raise self._refused("be listed", uri, error) from error

    def read(self, uri: BlobUri) -> bytes:
        """Return all of it."""
        try:
            return bytes(obstore.get(self._store(uri), uri.name).bytes())
        except FileNotFoundError:
            raise self._missing(uri) from None
        except (BaseError, OSError) as error:
            raise self._refused("be read", uri, error) from error

    def write(self, uri: BlobUri, data: bytes) -> BlobInfo:
        """Over what was there."""
        passing = Passing()
        self._put(uri, uri.name, b"".join(passing.see([data])))
        return BlobInfo(uri=uri, size=len(data), sha256=passing.sha256, created=True)

    def fetch(self, uri: BlobUri, to: Path, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Stream it into a file."""
        passing = Passing(on_bytes)
        meta = self._stream(uri, lambda pieces: keep(passing.see(pieces), to))
        return _info(uri, meta, sha256=passing.sha256)

    def publish(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Stream it there; see above."""
        with path.open("rb") as file:
            size = path.stat().st_size
            passing = Passing(on_bytes)
            pieces = passing.see(pieces_of(file))
            if self._look(uri) is not None:
                created = False
            elif size <= PIECE:
                created = self._put(uri, uri.name, b"".join(pieces), mode="create")
            elif uri.scheme == "s3" and size > MOST_COPIED:
                created = self._put(uri, uri.name, pieces, size=size)
            else:
                created = self._through(uri, pieces, size)
        return self._published(uri, passing) if created else self._described(uri)

    def replace(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Stream it there: a store shows an upload when it is whole."""
        with path.open("rb") as file:
            passing = Passing(on_bytes)
            self._put(uri, uri.name, passing.see(pieces_of(file)), size=path.stat().st_size)
        return self._published(uri, passing)

    def delete(self, uri: BlobUri) -> bool:
        """Look, and take it away."""
        if self.find(uri) is None:
            return False
        try:
            obstore.delete(self._store(uri), uri.name)
        except FileNotFoundError:
            return False
        except (BaseError, OSError) as error:
            raise self._refused("be deleted", uri, error) from error
        return True

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _put(self, uri: BlobUri, name: str, data: Any, *, mode: Any = None, size: int = 0) -> bool:
        part = max(PIECE, -(-size // MOST_PARTS))
        try:
            obstore.put(self._store(uri), name, data, mode=mode, chunk_size=part, max_concurrency=AT_ONCE)
        except AlreadyExistsError:
            return False
        except FileNotFoundError as error:
            self._require_container(uri, BlobsUnavailable)
            raise self._refused("be written", uri, error) from error
        except (BaseError, OSError) as error:
            raise self._refused("be written", uri, error) from error
        return True

    def _through(self, uri: BlobUri, pieces: Iterator[bytes], size: int) -> bool:
        folder = self._unfinished(uri)
        self._sweep(uri, folder)
        beside = f"{folder}/{secrets.token_hex(12)}"
        try:
            self._put(uri, beside, pieces, size=size)
            try:
                obstore.copy(self._store(uri), beside, uri.name, overwrite=False)
            except AlreadyExistsError:
                return False
            except (BaseError, OSError) as error:
                raise self._refused("be written", uri, error) from error
            return True
        finally:
            with contextlib.suppress(BaseError, OSError):
                obstore.delete(self._store(uri), beside)

    def _unfinished(self, uri: BlobUri) -> str:
        """Return where names beside go: one folder a zone, so that a rule of the store may clear it too."""
        zones = [home.name for home in self._homes if _is_in(uri, home)]
        folder = max(zones, key=len) if zones else uri.name.rpartition("/")[0]
        return f"{folder}/{UNFINISHED}".lstrip("/")

    def _sweep(self, uri: BlobUri, folder: str) -> None:
        """Take away what killed processes left, once a process: it is never shown, but it is paid for."""
        if f"{uri.container}/{folder}" in self._swept:
            return
        self._swept.add(f"{uri.container}/{folder}")
        with contextlib.suppress(BaseError, OSError):
            store = self._store(uri)
            for batch in obstore.list(store, f"{folder}/"):
                old = [
                    one["path"] for one in batch if time.time() - one["last_modified"].timestamp() > FORGOTTEN_SECONDS
                ]
                if old:
                    obstore.delete(store, old)

    def _look(self, uri: BlobUri) -> BlobInfo | None:
        try:
            return self.find(uri)
        except BlobNotFound as error:
            raise BlobsUnavailable(f"{uri} cannot be written: {error}") from error

    def _published(self, uri: BlobUri, passing: Passing) -> BlobInfo:
        info = self.find(uri)
        if info is None or info.size != passing.done:
            raise BlobsUnavailable(f"{uri} was changed or deleted by another client after it was written")
        return replace(info, sha256=passing.sha256, created=True)

    def _described(self, uri: BlobUri) -> BlobInfo:
        """Return what is there, with its checksum."""
        passing = Passing()

        def drain(pieces: Iterator[bytes]) -> None:
            for _ in passing.see(pieces):
                pass

        try:
            meta = self._stream(uri, drain)
        except BlobNotFound as error:
            raise BlobsUnavailable(f"{uri} was deleted by another client while it was published") from error
        return _info(uri, meta, sha256=passing.sha256)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _stream(self, uri: BlobUri, take: Callable[[Iterator[Any]], None]) -> Any:
        try:
            result = obstore.get(self._store(uri), uri.name)
            take(iter(result.stream(min_chunk_size=PIECE)))
        except FileNotFoundError:
            raise self._missing(uri) from None
        except BaseError as error:
            raise self._refused("be read", uri, error) from error
        return result.meta

    def _missing(self, uri: BlobUri) -> BlobNotFound:
        self._require_container(uri, BlobNotFound)
        return BlobNotFound(f"there is nothing at {uri}")

    def _require_container(self, uri: BlobUri, kind: type[E]) -> None:
        """Raise if the bucket is missing: stores answer alike for a missing blob and a missing bucket."""
        key = (uri.scheme, uri.container)
        if key in self._seen:
            return
        try:
            for _ in obstore.list(self._store(uri), f"{UNFINISHED}/", chunk_size=1):
                break
        except (BaseError, OSError) as error:
            if _status(error) == NOT_FOUND:
                raise self._no_container(uri, kind) from None
            # It may be forbidden to list. What was asked first has its answer.
            return
        self._seen.add(key)

    def _no_container(self, uri: BlobUri, kind: type[E]) -> E:
        word = _WORDS[uri.scheme]
        return kind(f"there is no {word} {uri.container!r}: make it, or look whether {uri} is spelled right")

    def _store(self, uri: BlobUri) -> Any:
        key = (uri.scheme, uri.container)
        if key not in self._stores:
            self._stores[key] = open_store(uri.scheme, uri.container)
        return self._stores[key]

    def _refused(self, action: str, uri: BlobUri, error: BaseException) -> BlobsUnavailable:
        text = str(error)
        if any(place in text for place in _ASKED_FOR_KEYS):
            why = f"there are no credentials. They come from {_KEYS.get(uri.scheme)}"
        elif _status(error) in (UNAUTHORIZED, FORBIDDEN):
            why = f"the storage refuses the credentials. They come from {_KEYS.get(uri.scheme)}"
        elif _status(error) == 0 and "HTTP error" in text:
            match = re.search(r"https?://([^/@\s]+)/", text)
            why = f"there is no connection to the storage{f' at {match[1]}' if match else ''}"
        else:
            why = f"the storage does not answer as it should: {secrets_hidden(text)}"
        return BlobsUnavailable(f"{uri} cannot {action}: {why}")


def _status(error: BaseException) -> int:
    """Return what the server answered. A missing bucket is no error of its own in obstore when it is listed."""
    match = re.search(r"status code: (\d{3})", str(error))
    return int(match[1]) if match else 0


def _is_in(uri: BlobUri, home: BlobUri) -> bool:
    same = (uri.scheme, uri.container) == (home.scheme, home.container)
    return same and (not home.name or uri.name.startswith(f"{home.name}/"))


def _info(uri: BlobUri, meta: Any, *, sha256: str = "", created: bool = False) -> BlobInfo:
    return BlobInfo(
        uri=uri,
        size=meta["size"],
        # Azure has no quotes around it in a list, and has them elsewhere.
        etag=(meta["e_tag"] or "").strip('"'),
        modified=meta["last_modified"].timestamp(),
        sha256=sha256,
        created=created,
    )
