"""COGs of large rasters: CPU time compared with GDAL's COG driver, and peak memory.

*dagmaster* does what raster.create_cog does with a file: its checksum, the COG, its validation, and the checksum of the
result. *GDAL* is its COG driver with the same creation options on the same file, and nothing else. The files are equal
but for a tag; dagmaster compresses GDAL's temporary overviews less. Every run is a process of its own, and the runs
alternate; CPU time is counted after the imports. `BENCH_RASTER_SCALE=0.1` makes the rasters smaller, for a quick try.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = (100, 500, 2_000)
COMPARED = 500
RUNS = 5
CACHE_MB = 128


def measure() -> Iterator[Row]:
    """Write the rasters, convert them to COGs, and measure CPU time and memory."""
    scale = float(os.environ.get("BENCH_RASTER_SCALE", "1"))
    for size in SIZES:
        size_mb = round(size * scale)
        with tempfile.TemporaryDirectory(prefix="dagmaster-raster-", dir="/var/tmp") as folder:
            source = Path(folder, "source.tif")
            _child("make", source, size_mb)
            dagmaster = [_run("dagmaster", source)]
            if size == COMPARED:
                gdal = [_run("gdal", source)]
                for _ in range(RUNS - 1):
                    dagmaster.append(_run("dagmaster", source))
                    gdal.append(_run("gdal", source))
                yield _compare(size_mb, dagmaster, gdal)
            peak = max(run["rss_mb"] for run in dagmaster)
            yield Row(
                f"COG of {size_mb:,} MB, peak memory",
                peak,
                "MB",
                at_most=CACHE_MB + 400,
                target="≤ cache + 400",
            )


def _compare(size_mb: int, dagmaster: list[dict[str, Any]], gdal: list[dict[str, Any]]) -> Row:
    cpu, floor = (statistics.median(run["cpu"] for run in runs) for runs in (dagmaster, gdal))
    return Row(
        f"COG of {size_mb:,} MB, CPU",
        cpu,
        "s",
        at_most=1.05 * floor,
        floor=floor,
        target="≤ 1.05x of GDAL's driver",
    )


def _run(method: str, source: Path) -> dict[str, Any]:
    target = source.with_name("cog.tif")
    usage: dict[str, Any] = json.loads(_child(method, source, target, CACHE_MB))
    target.unlink()
    return usage


def _child(*arguments: Any) -> str:
    command = [sys.executable, "-m", "bench.cog_process", *map(str, arguments)]
    completed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own command
    return completed.stdout
