"""`make bench`: run the benchmarks, print a table, write bench/results.json.

`python -m bench runtime` runs one part and writes nothing. The parts are engine, language, commands, runtime,
raster, vector and fathom; floor is in runtime, and can be run alone. fathom rehearses flood maps and takes a quarter of
an hour of it: `python -m bench.fathom --help` tells its sizes.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from bench.rows import Row


ALL = ("engine", "language", "commands", "runtime", "raster", "vector", "fathom")


def main(names: list[str]) -> None:
    """Run the named benchmarks, or all."""
    # So that what was started is stopped also when `timeout` ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows: list[Row] = []
    # A file or a pipe has no width.
    console = Console(width=None if sys.stdout.isatty() else 150)
    load = [os.getloadavg()[0]]
    for name in names or ALL:
        for row in importlib.import_module(f"bench.{name}").measure():
            rows.append(row)
            console.print(f"[bright_black]{row.workload}: {_say(row.value)} {row.unit}[/]")
    load.append(os.getloadavg()[0])
    console.print(_table(rows, load))
    if not names:
        results = [{**asdict(row), "ratio": row.ratio, "reached": row.reached, "verdict": row.verdict} for row in rows]
        machine = {"python": platform.python_version(), "cores": os.cpu_count(), "load": [round(n, 2) for n in load]}
        text = json.dumps({**machine, "rows": results}, indent=1)
        Path(__file__).with_name("results.json").write_text(text + "\n", encoding="utf-8")


def _table(rows: list[Row], load: list[float]) -> Table:
    loads = f"load {load[0]:.1f} before, {load[1]:.1f} after"
    table = Table(title=f"Python {platform.python_version()}, {os.cpu_count()} cores, {loads}")
    headings = ["workload", "measured", "to reach", ""]
    with_floor = any(row.floor for row in rows)
    if with_floor:
        headings[2:2] = ["floor", "of the floor"]
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    for row in rows:
        cells = [row.workload, f"{_say(row.value)} {row.unit}", row.wanted or _goal(row), _mark(row)]
        if with_floor:
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
            cells[2:2] = ["" if row.floor is None else _say(row.floor), ratio]
        table.add_row(*cells)
    return table


def _say(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _goal(row: Row) -> str:
    if row.at_least is not None:
        return f"≥ {_say(row.at_least)}"
    return "" if row.at_most is None else f"≤ {_say(row.at_most)}"


def _mark(row: Row) -> str:
    return "" if row.reached is None else f"[{'green' if row.reached else 'red'}]{row.verdict}[/]"


if __name__ == "__main__":
    main(sys.argv[1:])
