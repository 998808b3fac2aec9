"""Synthetic FATHOM flood maps through the whole workflow, and through the same functions in a plain process pool.

Both use the same number of processes with one GDAL thread each, and start them cold: imports count. What the workflow
does beyond the pool (checksums, names by fingerprint, conditional publishing, checkpoints, a database) is its overhead.
`python -m bench.fathom --help` lists the sizes. The processes of a pool import the main module, so this one imports
little; the work is in `bench.flood_workflow` and `bench.process_pool`.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.rows import Row

BANDS = 8


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the workload. Tiles are as large as real ones: a square degree in 3,600 x 3,600 pixels."""

    columns: int = 4
    rows: int = 3
    pixels: int = 3600
    cell_degrees: int = 2
    processes: int = field(default_factory=lambda: os.cpu_count() or 1)
    rounds: int = 3
    tasks: int = 2_000
    task_seconds: float = 0.2
    sleep: bool = False
    cores: int = 16
    machines: tuple[int, ...] = (1, 10, 50)

    @property
    def tiles(self) -> int:
        """Return the number of tiles."""
        return self.columns * self.rows

    @property
    def pixel_mb(self) -> float:
        """Return the megabytes of all pixels, two bytes each."""
        return self.tiles * self.pixels**2 * BANDS * 2 / 1_000_000


def measure(sizes: Sizes | None = None) -> Iterator[Row]:
    """Measure the flood workflow and a fan-out of tiles."""
    from bench import flood_workflow  # noqa: PLC0415 - see above

    yield from flood_workflow.measure(sizes or Sizes())


def main() -> None:
    """Measure with the sizes of the command line."""
    default = Sizes()
    parser = argparse.ArgumentParser(prog="python -m bench.fathom", description="Measure the flood workflow.")
    for name in ("columns", "rows", "pixels", "cell_degrees", "processes", "rounds", "tasks", "cores"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(default, name))
    parser.add_argument("--task-seconds", type=float, default=default.task_seconds)
    parser.add_argument(
        "--sleep", action="store_true", help="let the tiles of the fan-out sleep, for a busy machine"
    )
    parser.add_argument(
        "--machines", type=lambda text: tuple(map(int, text.split(","))), default=default.machines
    )
    print("load:", os.getloadavg())
    for row in measure(Sizes(**vars(parser.parse_args()))):
        floor = "" if row.floor is None else f"  (pool: {row.floor:.4g})"
        print(f"{row.workload}: {row.value:.4g} {row.unit}{floor}  {row.verdict}", flush=True)
    print("load:", os.getloadavg())


if __name__ == "__main__":
    main()
