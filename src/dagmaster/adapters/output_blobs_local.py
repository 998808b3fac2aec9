"""Blobs as files below one directory."""

from __future__ import annotations

import asyncio
import os
import pathlib
from typing import TYPE_CHECKING, TypeVar

from dagmaster.errors import BlobNotFound, BlobsUnavailable
from dagmaster.host.atomic_files import replace_private
from dagmaster.ports.output_blobs import CHUNK_BYTES, check_plain

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

T = TypeVar("T")


class LocalBlobs:
    """Output blobs as files, created atomically and durably."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    async def write(self, name: str, data: bytes) -> None:
        """Write a temporary file, sync it, and rename it."""
        await asyncio.to_thread(self._write, self._path(name), data)

    async def read(self, name: str) -> bytes:
        return await self._call(name, pathlib.Path.read_bytes)

    async def read_chunks(self, name: str) -> AsyncGenerator[bytes]:
        with await self._call(name, lambda path: path.open("rb")) as file:
            while chunk := await self._call(name, lambda _path: file.read(CHUNK_BYTES)):
                yield chunk

    async def names(self) -> AsyncGenerator[str]:
        """Read one directory at a time: there may be millions of files."""
        directories = [self.root]
        while directories:
            directory = directories.pop()
            for path, is_directory in await asyncio.to_thread(_entries, directory):
                if is_directory:
                    directories.append(path)
                elif not path.name.startswith("."):
                    yield path.relative_to(self.root).as_posix()

    async def size(self, name: str) -> int:
        return await self._call(name, lambda path: path.stat().st_size)

    async def _call(self, name: str, work: Callable[[pathlib.Path], T]) -> T:
        try:
            return await asyncio.to_thread(work, self._path(name))
        except FileNotFoundError:
            raise BlobNotFound(f"there is no blob {name!r} below {self.root}") from None
        except OSError as error:
            raise BlobsUnavailable(f"the blob {name!r} below {self.root} cannot be read: {error}") from error

    def _path(self, name: str) -> pathlib.Path:
        return self.root / check_plain(name)

    def _write(self, path: pathlib.Path, data: bytes) -> None:
        try:
            replace_private(path, lambda file: file.write(data))
        except OSError as error:
            raise BlobsUnavailable(f"{path} cannot be written: {error.strerror or error}") from error


def _entries(directory: pathlib.Path) -> list[tuple[pathlib.Path, bool]]:
    try:
        with os.scandir(directory) as entries:
            return [(pathlib.Path(entry.path), entry.is_dir(follow_symlinks=False)) for entry in entries]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BlobsUnavailable(f"{directory} cannot be read: {error.strerror or error}") from error
