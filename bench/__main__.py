"""The command line of the benchmarks: `python -m bench --help`."""

from __future__ import annotations

import argparse
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

from bench.rows import format_value

if TYPE_CHECKING:
    from bench.rows import Row


RESULTS = Path(__file__).with_name("results.json")
PARTS = {
    "engine": "the engine alone: events per second, memory of a node (1 min)",
    "language": "expressions, loading and validating workflow files (1 min)",
    "python": "graphs that are built in code, against a bare COPY, YAML and a fan-out (2 min)",
    "commands": "CLI commands as whole processes, on a database, `run` in one process (4 min)",
    "runtime": "`dagmaster dev`: start, idle, memory, chains, fan-outs, small jobs (5 min)",
    "http": "the HTTP API against the direct path, lists of a million jobs, streams, metrics (15 min)",
    "gateway": "submits through a gateway against the API, the status of a million requests (6 min)",
    "callbacks": "callbacks: lost and repeated ones over kills, a dead endpoint, the cost of a turn (3 min)",
    "ui": "the web page in Chromium: graphs of 5,000 nodes, commit to pixels, timelines, a log of 100 MB (8 min)",
    "raster": "COGs of large rasters against GDAL's COG driver (10 min)",
    "vector": "polygons into PostGIS against a bare COPY (1 min; needs PostGIS)",
    "fathom": "the flood workflow against a process pool (15 min; sizes: python -m bench.fathom --help)",
}
MODULES = {"python": "python_graphs"}
"""The modules of parts that have another name."""
MORE_PARTS = {
    "floor": "the floor of the runtime alone: the same rows in hand-written SQL (1 min)",
    "patterns": "hostile patterns and inputs: the longest match, the longest check, a check process (1 min)",
    "roles": "calls of a worker with the role dagmaster_worker, against the owner's statements (10 s)",
    "tenants": "lists of a million jobs of 50 tenants, with and without the role of servers (4 min)",
    "http_jobs": "of http: start, idle, and jobs over HTTP against the direct path (2 min)",
    "http_lists": "of http: lists of a million jobs with each filter (4 min)",
    "http_metrics": "of http: metrics with a million finished jobs (6 min)",
    "http_streams": "of http: a thousand live streams on one server (2 min)",
}

USAGE = """\
python -m bench [PART ...] [--keep]
       python -m bench compare OTHER_CHECKOUT [--rounds N] [PART ...]"""
DESCRIPTION = """\
Run the benchmarks and print a table.

Without PART, all of them run, and bench/results.json is rewritten: this is `make bench`. With PART, only these run, and
nothing is written unless --keep is given.

parts:
{parts}
"""
EPILOG = """\
How to read the table:
  measured     the figure, a median where the workload was repeated
  floor        the same work in hand-written code (SQL, GDAL, a process pool), measured in the same run
  of the floor the ratio measured / floor. Compare ratios, not times: the speed of a shared machine changes within
               minutes, and a floor of the same run changes with it. For a time, 1.00x is the best possible; for a
               rate (tasks/s), too.
  target       the figure to reach; "holds", or by which factor it is missed

examples:
  python -m bench runtime                      print the runtime's figures
  python -m bench runtime --keep               replace them in bench/results.json (then run `make docs`)
  python -m bench compare ../other-checkout    compare the runtime of two commits (python -m bench compare --help)
"""


def main(arguments: list[str]) -> None:
    """Run what the command line asks for."""
    # So that `timeout` stops the started processes, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if arguments[:1] == ["compare"]:
        importlib.import_module("bench.compare").main(arguments[1:])
        return
    known = PARTS | MORE_PARTS
    lines = "\n".join(f"  {name:<12} {text}" for name, text in known.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        usage=USAGE,
        description=DESCRIPTION.format(parts=lines),
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "parts", metavar="PART", nargs="*", help="the parts to run; all of the table without it"
    )
    parser.add_argument(
        "--keep", action="store_true", help="write the figures of these parts to bench/results.json"
    )
    options = parser.parse_intermixed_args(arguments)
    unknown = [part for part in options.parts if part not in known]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; choose from compare, {', '.join(known)}")
    run(options.parts or list(PARTS), keep=options.keep or not options.parts)


def run(parts: list[str], *, keep: bool) -> None:
    """Run the parts and print their table; with `keep`, write them to bench/results.json."""
    results: dict[str, list[Row]] = {}
    # A file or a pipe has no width.
    console = Console(width=None if sys.stdout.isatty() else 150)
    load = [os.getloadavg()[0]]
    for part in parts:
        rows = results.setdefault(part, [])
        for row in importlib.import_module(f"bench.{MODULES.get(part, part)}").measure():
            rows.append(row)
            console.print(f"[bright_black]{row.workload}: {format_value(row.value)} {row.unit}[/]")
        load.append(os.getloadavg()[0])
        if keep:
            _keep(part, rows, load[-2:])
    console.print(_table([row for rows in results.values() for row in rows], load))


def _keep(part: str, rows: list[Row], load: list[float]) -> None:
    """Replace the figures of a part.

    The figures of a part are of one run; two parts may be of different days.
    """
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))["parts"] if RESULTS.exists() else {}
    records = [
        {**asdict(row), "ratio": row.ratio, "reached": row.reached, "verdict": row.verdict} for row in rows
    ]
    kept[part] = {"load": [round(average, 2) for average in load], "rows": records}
    parts = {name: kept[name] for name in PARTS | MORE_PARTS if name in kept}
    machine = {"python": platform.python_version(), "cores": os.cpu_count()}
    RESULTS.write_text(json.dumps({**machine, "parts": parts}, indent=1) + "\n", encoding="utf-8")


def _table(rows: list[Row], load: list[float]) -> Table:
    loads = f"load {load[0]:.1f} before, {load[-1]:.1f} after"
    table = Table(title=f"Python {platform.python_version()}, {os.cpu_count()} cores, {loads}")
    headings = ["workload", "measured", "target", ""]
    has_floor = any(row.floor for row in rows)
    if has_floor:
        headings[2:2] = ["floor", "of the floor"]
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    for row in rows:
        cells = [
            row.workload,
            f"{format_value(row.value)} {row.unit}",
            row.target or _target(row),
            _verdict(row),
        ]
        if has_floor:
            ratio = "" if row.ratio is None else f"{row.ratio:.2f}x"
            cells[2:2] = ["" if row.floor is None else format_value(row.floor), ratio]
        table.add_row(*cells)
    return table


def _target(row: Row) -> str:
    if row.at_least is not None:
        return f"≥ {format_value(row.at_least)}"
    return "" if row.at_most is None else f"≤ {format_value(row.at_most)}"


def _verdict(row: Row) -> str:
    return "" if row.reached is None else f"[{'green' if row.reached else 'red'}]{row.verdict}[/]"


if __name__ == "__main__":
    main(sys.argv[1:])
