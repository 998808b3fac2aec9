"""Streams of bytes: counted, hashed and reported."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import secrets
from typing import IO, TYPE_CHECKING, Any, Final

from dagmaster.errors import BlobsUnavailable
from dagmaster.ports.blob_uris import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

CHUNK_BYTES: Final = 8 * 1024 * 1024
"""The part of a large blob that is in memory at a time."""
_DISK_ERRORS: Final = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is exceeded",
    errno.EFBIG: "the file is too large for this file system",
}


class HashingStream:
    """Count and hash a stream. `on_bytes` is called with the total after each chunk."""

    def __init__(self, on_bytes: Callable[[int], None] | None = None) -> None:
        self.total = 0
        self._digest = hashlib.sha256()
        self._on_bytes = on_bytes

    def wrap(self, chunks: Iterable[Any]) -> Iterator[bytes]:
        """Yield the same chunks."""
        for chunk in chunks:
            data = bytes(chunk)
            self._digest.update(data)
            self.total += len(data)
            yield data
            if self._on_bytes is not None:
                self._on_bytes(self.total)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def read_chunks(file: IO[bytes], size: int = CHUNK_BYTES) -> Iterator[bytes]:
    while chunk := file.read(size):
        yield chunk


def write_atomically(chunks: Iterable[bytes], to: Path) -> None:
    """Write a local file atomically. It need not be durable: it can be fetched again."""
    temp_path = to.with_name(f"{UNFINISHED}-{secrets.token_hex(8)}")
    try:
        with temp_path.open("xb") as file:
            for chunk in chunks:
                with translate_write_errors(str(to)):
                    file.write(chunk)
        temp_path.replace(to)
    finally:
        with contextlib.suppress(OSError):
            temp_path.unlink(missing_ok=True)


@contextlib.contextmanager
def translate_write_errors(subject: str) -> Iterator[None]:
    """Turn errors of the disk into BlobsUnavailable."""
    try:
        yield
    except OSError as error:
        raise BlobsUnavailable(f"{subject} cannot be written: {format_os_error(error)}") from error


def format_os_error(error: OSError) -> str:
    return _DISK_ERRORS.get(error.errno or 0) or error.strerror or str(error)
