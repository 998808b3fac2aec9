"""Functions of a submodule, which is imported when a task names one of them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from dagmaster import Progress

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


def clean(rows: list[str]) -> int:
    sys.stdout.write(f"cleaning {len(rows)}\n")
    return os.getpid()


def nothing() -> None: ...


def count(limit: int) -> Iterator[Progress | int]:
    for number in range(limit):
        yield Progress(current=number + 1, total=limit)
    yield limit


async def stream(limit: int) -> AsyncIterator[Progress | str]:
    yield Progress(current=1, total=limit)
    yield "done"
