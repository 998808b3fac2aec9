"""`make bench`: run the benchmarks, print a table, write bench/results.json.

`python -m bench runtime` runs one part and writes nothing, unless it is told to `--keep` what it finds. The parts are
engine, language, commands, runtime, raster, vector and fathom; floor is in runtime, and can be run alone. fathom
rehearses flood maps and takes a quarter of an hour: `python -m bench.fathom --help` tells its sizes.
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


RESULTS = Path(__file__).with_name("results.json")
ALL = ("engine", "language", "commands", "runtime", "raster", "vector", "fathom")


def main(names: list[str], *, keep: bool) -> None:
    """Run the named benchmarks, or all; keep what they found."""
    # So that what was started is stopped also when `timeout` ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found: dict[str, list[Row]] = {}
    # A file or a pipe has no width.
    console = Console(width=None if sys.stdout.isatty() else 150)
    load = [os.getloadavg()[0]]
    for name in names:
        rows = found.setdefault(name, [])
        for row in importlib.import_module(f"bench.{name}").measure():
            rows.append(row)
            console.print(f"[bright_black]{row.workload}: {_say(row.value)} {row.unit}[/]")
        load.append(os.getloadavg()[0])
        if keep:
            _keep(name, rows, load[-2:])
    console.print(_table([row for rows in found.values() for row in rows], load))


def _keep(name: str, rows: list[Row], load: list[float]) -> None:
    """In the place of what this part found before. A part is of one run; two parts may be of different days."""
    there = json.loads(RESULTS.read_text(encoding="utf-8"))["parts"] if RESULTS.exists() else {}
    told = [{**asdict(row), "ratio": row.ratio, "reached": row.reached, "verdict": row.verdict} for row in rows]
    there[name] = {"load": [round(one, 2) for one in load], "rows": told}
    parts = {part: there[part] for part in ALL if part in there}
    machine = {"python": platform.python_version(), "cores": os.cpu_count()}
    RESULTS.write_text(json.dumps({**machine, "parts": parts}, indent=1) + "\n", encoding="utf-8")


def _table(rows: list[Row], load: list[float]) -> Table:
    loads = f"load {load[0]:.1f} before, {load[-1]:.1f} after"
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
    asked = [word for word in sys.argv[1:] if word != "--keep"]
    main(asked or list(ALL), keep=not asked or "--keep" in sys.argv)
