"""Compare the runtime of two checkouts: alternating rounds, medians, ratios.

Single runs on a shared machine vary by a fifth. Rounds that alternate between both checkouts meet the same
machine, and the median of several rounds is stable to a few percent.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from bench import runtime, service_rounds
from bench.rows import format_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parent.parent
ROUND_PARTS = (*runtime.ROUND_PARTS, *service_rounds.ROUND_PARTS)
ROUND_SECONDS = 600.0
"""No round takes this long; a longer one is an error."""

LIMIT = 1.10
"""The ratio at which a row is marked as worse."""

EPILOG = """\
parts: memory (at rest, of a live node), idle (CPU, transactions), chain, fan_outs (1,000 to 100,000), jobs (1,000 small
ones), http (jobs over HTTP, the most frequent reads), python (graphs of 20,000 tasks, a decorated chain); all of them
without PART.

A round starts `dagmaster dev` of one checkout on a new data directory and takes about 50 s. The rounds alternate, and
so does which checkout is first. The ratio is the median of this checkout divided by that of the other one; "worse"
marks a row that is more than 10 % worse: lower for a rate (tasks/s, jobs/s), higher for everything else.

Each checkout needs its own .venv (`make setup`). The other one may be of a commit before `compare` existed.

example: what a change costs
  git worktree add ../before HEAD~1 && make -C ../before setup
  python -m bench compare ../before --rounds 9 chain fan_outs
"""


def main(arguments: list[str]) -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench compare",
        description="Compare the runtime's figures of this checkout with those of another one.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("other", metavar="OTHER_CHECKOUT", type=Path, help="a checkout with its own .venv")
    parser.add_argument("parts", metavar="PART", nargs="*", help=f"{', '.join(ROUND_PARTS)}")
    parser.add_argument(
        "--rounds", type=int, default=9, metavar="N", help="rounds of each checkout (default 9)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the rows of every round to FILE"
    )
    options = parser.parse_intermixed_args(arguments)
    unknown = [part for part in options.parts if part not in ROUND_PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; choose from {', '.join(ROUND_PARTS)}")
    other = options.other.resolve()
    if not _python(other).exists():
        parser.error(f"{other} has no .venv; run `make -C {options.other} setup` first")
    compare(ROOT, other, rounds=options.rounds, parts=options.parts or ROUND_PARTS, json_file=options.json)


def compare(this: Path, other: Path, *, rounds: int, parts: Sequence[str], json_file: Path | None) -> None:
    """Run the rounds and print the medians and ratios."""
    # A file or a pipe has no width.
    console = Console(width=None if sys.stdout.isatty() else 130)
    results: dict[Path, list[dict[str, tuple[float, str]]]] = {this: [], other: []}
    for number in range(rounds):
        # The first of a round may meet a warmer or colder machine: take turns.
        for checkout in (this, other) if number % 2 == 0 else (other, this):
            name = "this" if checkout == this else "other"
            console.print(
                f"round {number + 1} of {rounds}, {name} ({checkout}), load {os.getloadavg()[0]:.1f}"
            )
            results[checkout].append(_run_round(checkout, parts, console))
        if json_file is not None:
            _write_json(json_file, results)
        if number in (0, rounds // 2) and number + 1 < rounds:
            console.print(_table(results[this], results[other]))
    console.print(_table(results[this], results[other]))


def _run_round(checkout: Path, parts: Sequence[str], console: Console) -> dict[str, tuple[float, str]]:
    """Run one round in a process of the checkout; return values and units by workload."""
    command = [str(_python(checkout)), str(Path(__file__).with_name("compare_round.py")), *parts]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    rows: dict[str, tuple[float, str]] = {}
    started = time.perf_counter()
    with subprocess.Popen(  # noqa: S603 - our own command
        command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                workload, value, unit = json.loads(line)
                rows[workload] = (value, unit)
                console.print(f"[bright_black]  {workload}: {format_value(value)} {unit}[/]")
            status = process.wait(ROUND_SECONDS)
        except BaseException:
            process.terminate()
            raise
    if status:
        raise SystemExit(f"the round of {checkout} failed with exit status {status}")
    console.print(f"[bright_black]  {time.perf_counter() - started:.0f} s[/]")
    return rows


def _python(checkout: Path) -> Path:
    return checkout / ".venv" / "bin" / "python"


def _write_json(path: Path, results: Mapping[Path, list[dict[str, tuple[float, str]]]]) -> None:
    path.write_text(
        json.dumps({str(checkout): rounds for checkout, rounds in results.items()}, indent=1) + "\n"
    )


def _table(this: list[dict[str, tuple[float, str]]], other: list[dict[str, tuple[float, str]]]) -> Table:
    table = Table(title=f"medians of {len(this)} alternating rounds, {os.cpu_count()} cores")
    for heading in ("workload", "this", "other", "this / other", ""):
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    for workload, (_, unit) in this[0].items():
        if workload not in other[0]:
            continue
        medians = [
            statistics.median(round_rows[workload][0] for round_rows in side) for side in (this, other)
        ]
        # Nothing at all, as an idle stack without a transaction, has no ratio.
        ratio = medians[0] / medians[1] if medians[1] else None
        cells = [f"{format_value(median)} {unit}" for median in medians]
        table.add_row(workload, *cells, "" if ratio is None else f"{ratio:.2f}", _mark(ratio, unit))
    return table


def _mark(ratio: float | None, unit: str) -> str:
    if ratio is None:
        return ""
    cost = 1 / max(ratio, 1e-9) if unit in ("tasks/s", "jobs/s") else ratio
    return "[red]worse[/]" if cost > LIMIT else ""
