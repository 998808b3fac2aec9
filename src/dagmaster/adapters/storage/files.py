"""Blobs as local files.

Not through obstore: its local store does not sync files to the disk, and lists a folder in no order.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from dagmaster.adapters.byte_streams import HashingStream, format_os_error, read_chunks, write_atomically
from dagmaster.errors import BlobNameInvalid, BlobNotFound, BlobsUnavailable
from dagmaster.host import atomic_files
from dagmaster.ports.blob_uris import BlobUri, may_be_named
from dagmaster.ports.storage import BlobInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_NAME_ERRORS: Final = {
    errno.ENAMETOOLONG: "a part of its name is longer than the file system allows",
    errno.ENOTDIR: "a part of its name is a file, not a folder",
    errno.EEXIST: "a part of its name is a file, not a folder",
    errno.EISDIR: "it is a folder",
    errno.ELOOP: "symbolic link loop",
    errno.EILSEQ: "the file system does not allow this name",
    errno.EINVAL: "the file system does not allow this name",
}


class BlobFiles:
    """Files below allowed directories: `zone_roots` are read and written, `roots` are only read.

    Symbolic links are resolved: a link out of these directories is rejected.
    """

    def __init__(self, zone_roots: Sequence[Path], roots: Sequence[Path]) -> None:
        self._zone_roots = [Path(os.path.realpath(root)) for root in zone_roots]
        self._roots = [Path(os.path.realpath(root)) for root in roots]

    def path(self, uri: BlobUri, *, to_write: bool = False) -> Path:
        """Return the path; raise `BlobNameInvalid` if it is not allowed."""
        path = Path(f"/{uri.name}")
        if not self._is_allowed(path, self._zone_roots if to_write else [*self._zone_roots, *self._roots]):
            if to_write and self._is_allowed(path, self._roots):
                raise BlobNameInvalid(f"{uri} is in a read-only directory: write results to a zone")
            raise BlobNameInvalid(
                f"{uri} is outside the allowed directories: upload it to a zone (dagmaster blobs put), or"
                " add its directory to DAGMASTER_FILE_ROOTS"
            )
        return path

    def find(self, uri: BlobUri) -> BlobInfo | None:
        path = self.path(uri)
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _translate_error("be read", uri, error) from error
        return _info(uri, status) if stat.S_ISREG(status.st_mode) else None

    def list_blobs(self, uri: BlobUri) -> Iterator[BlobInfo]:
        """Yield blobs in name order, one folder in memory per level."""
        folder = self.path(uri) if uri.name else Path("/")
        yield from self._in_folder(uri, folder)

    def list_beside(self, uri: BlobUri, *prefixes: str) -> Iterator[BlobInfo]:
        """Yield files of one folder by prefix and name. A link that leads outside is not listed."""
        folder = self.path(uri).parent
        try:
            with os.scandir(folder) as entries:
                siblings = [entry.name for entry in entries if entry.name.startswith(prefixes)]
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _translate_error("be listed", uri, error) from error
        for prefix in prefixes:
            for name in sorted(name for name in siblings if name.startswith(prefix) and name != prefix):
                sibling = BlobUri(uri.scheme, uri.container, f"{uri.name.rpartition('/')[0]}/{name}")
                if may_be_named(sibling.name) and self._is_allowed(
                    folder / name, [*self._zone_roots, *self._roots]
                ):
                    info = self.find(sibling)
                    if info is not None:
                        yield info

    def read(self, uri: BlobUri) -> bytes:
        path = self.path(uri)
        try:
            return path.read_bytes()
        except OSError as error:
            raise _translate_error("be read", uri, error) from error

    def read_chunks(self, uri: BlobUri, size: int) -> Iterator[bytes]:
        with self._open(uri) as file:
            try:
                yield from read_chunks(file, size)
            except OSError as error:
                raise _translate_error("be read", uri, error) from error

    def write(self, uri: BlobUri, data: bytes) -> BlobInfo:
        path = self.path(uri, to_write=True)
        stream = HashingStream()
        try:
            atomic_files.replace(path, lambda file: file.writelines(stream.wrap([data])))
            return _info(uri, path.stat(), sha256=stream.sha256, created=True)
        except OSError as error:
            raise _translate_error("be written", uri, error) from error

    def fetch(self, uri: BlobUri, to: Path, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        stream = HashingStream(on_bytes)
        with self._open(uri) as file:
            write_atomically(stream.wrap(read_chunks(file)), to)
            return _info(uri, os.fstat(file.fileno()), sha256=stream.sha256)

    def publish(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        target = self.path(uri, to_write=True)
        stream = HashingStream(on_bytes)
        created = False
        with path.open("rb") as source:
            try:
                if not target.exists():
                    created = atomic_files.create(
                        target, lambda file: file.writelines(stream.wrap(read_chunks(source)))
                    )
                if created:
                    return _info(uri, target.stat(), sha256=stream.sha256, created=True)
                if target.is_dir():
                    raise BlobNameInvalid(f"{uri} cannot be written: it is a folder")
            except OSError as error:
                raise _translate_error("be written", uri, error) from error
        return self._read_metadata(uri)

    def replace(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        target = self.path(uri, to_write=True)
        stream = HashingStream(on_bytes)
        with path.open("rb") as source:
            try:
                atomic_files.replace(target, lambda file: file.writelines(stream.wrap(read_chunks(source))))
                return _info(uri, target.stat(), sha256=stream.sha256, created=True)
            except OSError as error:
                raise _translate_error("be written", uri, error) from error

    def delete(self, uri: BlobUri) -> bool:
        path = self.path(uri, to_write=True)
        if self.find(uri) is None:
            return False
        try:
            path.unlink()
            atomic_files.sync_folder(path.parent)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _translate_error("be deleted", uri, error) from error
        return True

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────

    def _is_allowed(self, path: Path, roots: Sequence[Path]) -> bool:
        real = Path(os.path.realpath(path))
        return any(real.is_relative_to(root) for root in roots)

    def _open(self, uri: BlobUri) -> IO[bytes]:
        path = self.path(uri)
        try:
            return path.open("rb")
        except OSError as error:
            raise _translate_error("be read", uri, error) from error

    def _read_metadata(self, uri: BlobUri) -> BlobInfo:
        stream = HashingStream()
        with self._open(uri) as file:
            for _ in stream.wrap(read_chunks(file)):
                pass
            return _info(uri, os.fstat(file.fileno()), sha256=stream.sha256)

    def _in_folder(self, uri: BlobUri, folder: Path) -> Iterator[BlobInfo]:
        try:
            with os.scandir(folder) as entries:
                # The slash sorts a folder where the full names of its files sort.
                inside = sorted(
                    (f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name)
                    for entry in entries
                )
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _translate_error("be listed", uri, error) from error
        for name in inside:
            child = BlobUri(uri.scheme, uri.container, f"{uri.name}/{name.rstrip('/')}".lstrip("/"))
            if not may_be_named(child.name):
                continue
            if name.endswith("/"):
                yield from self._in_folder(child, folder / name)
            elif self._is_allowed(folder / name, [*self._zone_roots, *self._roots]):
                info = self.find(child)
                if info is not None:
                    yield info


def _info(uri: BlobUri, status: os.stat_result, *, sha256: str = "", created: bool = False) -> BlobInfo:
    return BlobInfo(
        uri=uri,
        size=status.st_size,
        etag=f"{status.st_mtime_ns:x}-{status.st_size:x}",
        modified=status.st_mtime,
        sha256=sha256,
        created=created,
    )


def _translate_error(action: str, uri: BlobUri, error: OSError) -> Exception:
    if isinstance(error, FileNotFoundError):
        return BlobNotFound(f"there is nothing at {uri}")
    if error.errno in _NAME_ERRORS:
        return BlobNameInvalid(f"{uri} cannot {action}: {_NAME_ERRORS[error.errno]}")
    return BlobsUnavailable(f"{uri} cannot {action}: {format_os_error(error)}")
