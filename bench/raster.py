"""COGs of large rasters: what ours cost beside GDAL's own, and how much memory they take.

*Ours* is what raster.create_cog does with a file: its checksum, the COG, the check that it is one, and the checksum of
the result. *GDAL's* is its COG driver with the same settings on the same file, and nothing else. Each run is a process
of its own, and the two take turns; CPU is counted from when everything is imported. `BENCH_RASTER_SCALE=0.1` makes the
rasters smaller, for a try.
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
    """Make the rasters, and COGs of them."""
    scale = float(os.environ.get("BENCH_RASTER_SCALE", "1"))
    for size in SIZES:
        shown = round(size * scale)
        with tempfile.TemporaryDirectory(prefix="dagmaster-raster-", dir="/var/tmp") as folder:
            source = Path(folder, "source.tif")
            _child("make", source, shown)
            mine = [_run("ours", source)]
            if size == COMPARED:
                theirs = [_run("gdal", source)]
                for _ in range(RUNS - 1):
                    mine.append(_run("ours", source))
                    theirs.append(_run("gdal", source))
                yield _compared(shown, mine, theirs)
            peak = max(one["rss_mb"] for one in mine)
            yield Row(f"COG of {shown:,} MB, peak memory", peak, "MB", at_most=CACHE_MB + 400, wanted="≤ cache + 400")


def _compared(size: int, mine: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> Row:
    ours, floor = (statistics.median(one["cpu"] for one in some) for some in (mine, theirs))
    return Row(
        f"COG of {size:,} MB, CPU", ours, "s", at_most=1.05 * floor, floor=floor, wanted="≤ 1.05x of GDAL's driver"
    )


def _run(who: str, source: Path) -> dict[str, Any]:
    to = source.with_name("cog.tif")
    found: dict[str, Any] = json.loads(_child(who, source, to, CACHE_MB))
    to.unlink()
    return found


def _child(*arguments: Any) -> str:
    command = [sys.executable, "-m", "bench.raster_child", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own command
    return done.stdout
