"""The HTTP API: its start, its jobs, its lists, its streams and its metrics, which have modules of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import http_jobs, http_lists, http_metrics, http_streams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.rows import Row


def measure() -> Iterator[Row]:
    """Measure each part in turn."""
    for part in (http_jobs, http_lists, http_streams, http_metrics):
        yield from part.measure()
