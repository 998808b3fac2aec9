"""`make bench`: run the benchmarks, print a table, write bench/results.json."""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from bench.rows import Row


ALL = ("engine", "language", "commands")


def main(names: list[str]) -> None:
    """Run the named benchmarks, or all."""
    rows: list[Row] = []
    console = Console()
    for name in names or ALL:
        for row in importlib.import_module(f"bench.{name}").measure():
            rows.append(row)
            console.print(f"[bright_black]{row.workload}: {_say(row.value)} {row.unit}[/]")
    table = Table(title=f"Python {platform.python_version()}, {os.cpu_count()} cores")
    for heading in ("workload", "measured", "to reach", ""):
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    for row in rows:
        table.add_row(row.workload, f"{_say(row.value)} {row.unit}", _goal(row), _mark(row))
    console.print(table)
    if not names:
        results = [{**asdict(row), "reached": row.reached} for row in rows]
        machine = {"python": platform.python_version(), "cores": os.cpu_count()}
        text = json.dumps({**machine, "rows": results}, indent=1)
        Path(__file__).with_name("results.json").write_text(text + "\n", encoding="utf-8")


def _say(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _goal(row: Row) -> str:
    if row.at_least is not None:
        return f"≥ {_say(row.at_least)}"
    return "" if row.at_most is None else f"≤ {_say(row.at_most)}"


def _mark(row: Row) -> str:
    return {True: "[green]reached[/]", False: "[red]missed[/]", None: ""}[row.reached]


if __name__ == "__main__":
    main(sys.argv[1:])
