"""The size of large outputs together."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.adapters.output_blobs_local import LocalBlobs
from dagmaster.errors import BlobNotFound, BlobsUnavailable
from dagmaster.store.output_sizes import MAX_CONCURRENT, sum_sizes
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    return lambda tmp_path: asyncio.run(test(tmp_path))


class Counted(LocalBlobs):
    """Blobs that are asked together: each waits until as many are asked as may be, or as there are left."""

    def __init__(self, folder: Path, count: int) -> None:
        super().__init__(folder)
        self.left = count
        self.asked = self.most = 0
        self.is_full = asyncio.Event()

    async def size(self, name: str) -> int:
        self.asked += 1
        self.most = max(self.most, self.asked)
        if self.asked == min(MAX_CONCURRENT, self.left):
            self.is_full.set()
        await self.is_full.wait()
        try:
            return await super().size(name)
        finally:
            self.asked -= 1
            self.left -= 1


@on_loop
async def test_sizes_are_asked_for_together_and_bounded(tmp_path):
    names = [f"b{number}" for number in range(3 * MAX_CONCURRENT)]
    blobs = Counted(tmp_path, len(names))
    for number, name in enumerate(names):
        await blobs.write(name, b"x" * number)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await sum_sizes(blobs, [*names, None]) == sum(range(len(names)))
    assert blobs.most == MAX_CONCURRENT


class Slow(LocalBlobs):
    """Blobs whose sizes take threads until they are released."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.released = threading.Event()
        self.asked = 0
        self.is_full = asyncio.Event()

    async def size(self, name: str) -> int:
        self.asked += 1
        if self.asked == MAX_CONCURRENT:
            self.is_full.set()
        await asyncio.to_thread(self.released.wait)
        return await super().size(name)


@on_loop
async def test_other_blobs_are_read_while_sizes_are_asked_for(tmp_path):
    blobs = Slow(tmp_path)
    names = [f"b{number}" for number in range(20)]
    for name in names:
        await blobs.write(name, b"x")
    # As many threads as the default pool has on one core.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(5))
    total = asyncio.ensure_future(sum_sizes(blobs, names))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await blobs.is_full.wait()
            assert await LocalBlobs(tmp_path).read("b0") == b"x"
    finally:
        blobs.released.set()
    assert await total == len(names)


@on_loop
async def test_a_blob_that_does_not_exist_has_no_size(tmp_path):
    blobs = LocalBlobs(tmp_path)
    await blobs.write("a", b"xyz")
    assert await sum_sizes(blobs, ["a", "none", None]) == 3
    assert await sum_sizes(blobs, []) == 0
    with pytest.raises(BlobNotFound):
        await blobs.size("none")


@on_loop
async def test_an_error_of_the_storage_is_raised(tmp_path):
    class Away(LocalBlobs):
        async def size(self, name: str) -> int:
            raise BlobsUnavailable(f"{name} cannot be read")

    with pytest.raises(BlobsUnavailable):
        await sum_sizes(Away(tmp_path), ["a", "b"])
