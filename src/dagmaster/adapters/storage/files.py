"""Blobs that are files.

By hand and not through obstore: its local store syncs nothing to the disk, and lists a folder in no order.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from dagmaster.adapters import atomic_files
from dagmaster.adapters.byte_streams import Passing, error_text, keep, pieces_of
from dagmaster.errors import BlobNameInvalid, BlobNotFound, BlobsUnavailable
from dagmaster.ports.storage import BlobInfo, BlobUri, may_be_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_NO_NAME: Final = {
    errno.ENAMETOOLONG: "a part of its name is longer than this disk takes",
    errno.ENOTDIR: "a part of its name is a file, not a folder",
    errno.EEXIST: "a part of its name is a file, not a folder",
    errno.EISDIR: "it is a folder",
    errno.ELOOP: "its links lead in a circle",
    errno.EILSEQ: "this disk does not take such a name",
    errno.EINVAL: "this disk does not take such a name",
}


class BlobFiles:
    """Files below some folders: those in `homes` are read and written, those in `roots` read.

    Wherever links lead, what is touched lies below one of them.
    """

    def __init__(self, homes: Sequence[Path], roots: Sequence[Path]) -> None:
        self._homes = [Path(os.path.realpath(home)) for home in homes]
        self._roots = [Path(os.path.realpath(root)) for root in roots]

    def path(self, uri: BlobUri, *, to_write: bool = False) -> Path:
        """Return where it lies. `BlobNameInvalid`: it is none of ours."""
        path = Path(f"/{uri.name}")
        if not self._is_ours(path, self._homes if to_write else [*self._homes, *self._roots]):
            if to_write and self._is_ours(path, self._roots):
                raise BlobNameInvalid(f"{uri} is in a directory that is only read: results go into a zone")
            raise BlobNameInvalid(
                f"{uri} is outside of what may be read: put it into a zone (dagmaster blobs put), or name its directory"
                " in DAGMASTER_FILE_ROOTS"
            )
        return path

    def find(self, uri: BlobUri) -> BlobInfo | None:
        """Look at it."""
        path = self.path(uri)
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _refused("be read", uri, error) from error
        return _info(uri, status) if stat.S_ISREG(status.st_mode) else None

    def under(self, uri: BlobUri) -> Iterator[BlobInfo]:
        """Folder by folder, so that no more than one path of them is in memory."""
        folder = self.path(uri) if uri.name else Path("/")
        yield from self._in_folder(uri, folder)

    def read(self, uri: BlobUri) -> bytes:
        """Return all of it."""
        path = self.path(uri)
        try:
            return path.read_bytes()
        except OSError as error:
            raise _refused("be read", uri, error) from error

    def write(self, uri: BlobUri, data: bytes) -> BlobInfo:
        """Over what was there."""
        path = self.path(uri, to_write=True)
        passing = Passing()
        try:
            atomic_files.replace(path, lambda file: file.writelines(passing.see([data])))
            return _info(uri, path.stat(), sha256=passing.sha256, created=True)
        except OSError as error:
            raise _refused("be written", uri, error) from error

    def fetch(self, uri: BlobUri, to: Path, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Copy it."""
        passing = Passing(on_bytes)
        with self._opened(uri) as file:
            keep(passing.see(pieces_of(file)), to)
            return _info(uri, os.fstat(file.fileno()), sha256=passing.sha256)

    def publish(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Copy it to a file without a name, and give it the name if that is free."""
        there = self.path(uri, to_write=True)
        passing = Passing(on_bytes)
        created = False
        with path.open("rb") as source:
            try:
                if not there.exists():
                    created = atomic_files.create(there, lambda file: file.writelines(passing.see(pieces_of(source))))
                if created:
                    return _info(uri, there.stat(), sha256=passing.sha256, created=True)
                if there.is_dir():
                    raise BlobNameInvalid(f"{uri} cannot be written: it is a folder")
            except OSError as error:
                raise _refused("be written", uri, error) from error
        return self._described(uri)

    def replace(self, path: Path, uri: BlobUri, on_bytes: Callable[[int], None] | None = None) -> BlobInfo:
        """Copy it to a file beside, which then takes the name."""
        there = self.path(uri, to_write=True)
        passing = Passing(on_bytes)
        with path.open("rb") as source:
            try:
                atomic_files.replace(there, lambda file: file.writelines(passing.see(pieces_of(source))))
                return _info(uri, there.stat(), sha256=passing.sha256, created=True)
            except OSError as error:
                raise _refused("be written", uri, error) from error

    def delete(self, uri: BlobUri) -> bool:
        """Take it away, for good."""
        path = self.path(uri, to_write=True)
        if self.find(uri) is None:
            return False
        try:
            path.unlink()
            atomic_files.sync_folder(path.parent)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _refused("be deleted", uri, error) from error
        return True

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _is_ours(self, path: Path, homes: Sequence[Path]) -> bool:
        real = Path(os.path.realpath(path))
        return any(real.is_relative_to(home) for home in homes)

    def _opened(self, uri: BlobUri) -> IO[bytes]:
        path = self.path(uri)
        try:
            return path.open("rb")
        except OSError as error:
            raise _refused("be read", uri, error) from error

    def _described(self, uri: BlobUri) -> BlobInfo:
        """Return what is there, with its checksum."""
        passing = Passing()
        with self._opened(uri) as file:
            for _ in passing.see(pieces_of(file)):
                pass
            return _info(uri, os.fstat(file.fileno()), sha256=passing.sha256)

    def _in_folder(self, uri: BlobUri, folder: Path) -> Iterator[BlobInfo]:
        try:
            with os.scandir(folder) as entries:
                # With its slash a folder stands where all that is in it stands among full names.
                inside = sorted(
                    (f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name) for entry in entries
                )
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _refused("be listed", uri, error) from error
        for name in inside:
            child = BlobUri(uri.scheme, uri.container, f"{uri.name}/{name.rstrip('/')}".lstrip("/"))
            if not may_be_named(child.name):
                continue
            if name.endswith("/"):
                yield from self._in_folder(child, folder / name)
            elif self._is_ours(folder / name, [*self._homes, *self._roots]):
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


def _refused(action: str, uri: BlobUri, error: OSError) -> Exception:
    if isinstance(error, FileNotFoundError):
        return BlobNotFound(f"there is nothing at {uri}")
    if error.errno in _NO_NAME:
        return BlobNameInvalid(f"{uri} cannot {action}: {_NO_NAME[error.errno]}")
    return BlobsUnavailable(f"{uri} cannot {action}: {error_text(error)}")
