"""FATHOM rehearsed: synthetic flood maps through the whole workflow, and through the same functions in a plain pool.

Both have as many processes, one GDAL thread each, and begin without any: their imports are in the figure. What the
workflow does beyond the pool (checksums, names by fingerprint, conditional publishing, checkpoints, a database) is its
overhead. `python -m bench.fathom --help` tells the sizes. The processes of a pool import the module that was started:
so this one imports little, and the work is in `rehearsal` and `pooled`.
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
    """What is made and run. Tiles are as large as real ones: a square degree in 3,600 x 3,600 pixels."""

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
        """How many."""
        return self.columns * self.rows

    @property
    def pixel_mb(self) -> float:
        """Of all pixels, two bytes each."""
        return self.tiles * self.pixels**2 * BANDS * 2 / 1_000_000


def measure(sizes: Sizes | None = None) -> Iterator[Row]:
    """Measure the flood workflow and a fan-out of tiles."""
    from bench.rehearsal import rehearse  # noqa: PLC0415 - see above

    yield from rehearse(sizes or Sizes())


def main() -> None:
    """Measure with sizes from the command line."""
    default = Sizes()
    parser = argparse.ArgumentParser(prog="python -m bench.fathom", description="Rehearse FATHOM.")
    for name in ("columns", "rows", "pixels", "cell_degrees", "processes", "rounds", "tasks", "cores"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(default, name))
    parser.add_argument("--task-seconds", type=float, default=default.task_seconds)
    parser.add_argument("--sleep", action="store_true", help="the tiles of the fan-out sleep: for a busy machine")
    parser.add_argument("--machines", type=lambda text: tuple(map(int, text.split(","))), default=default.machines)
    print("load:", os.getloadavg())
    for row in measure(Sizes(**vars(parser.parse_args()))):
        against = "" if row.floor is None else f"  (pool: {row.floor:.4g})"
        print(f"{row.workload}: {row.value:.4g} {row.unit}{against}  {row.verdict}", flush=True)
    print("load:", os.getloadavg())


if __name__ == "__main__":
    main()
