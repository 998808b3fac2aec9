"""`dagmaster fleet`: who is alive, and what waits in the queues."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dagmaster.cli.database import json_option, on_database
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import data_dir_option
from dagmaster.cli.rendering import age

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Sequence

    from dagmaster.cli.database import Onlooker
    from dagmaster.store.reading import Fleet

_MOST_DEAD: Final = 5
_RUN: Final = "run:"
_DIM: Final = "bright_black"


@click.command()
@json_option
@data_dir_option
def fleet(*, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Show the orchestrators and workers that are alive, and what waits in the queues.

    A queue with tasks that no live worker serves is marked. Those that went within the last hour are shown below; one
    that died did not say goodbye, and its work was given to others.

    \b
    Examples:
      dagmaster fleet
      dagmaster fleet --json
    """

    async def work(onlooker: Onlooker) -> Fleet:
        return await onlooker.store.fleet()

    found = on_database(data_dir, work)
    if as_json:
        click.echo(json.dumps(fleet_document(found), ensure_ascii=False))
        return COMPLETED
    Console().print(Group(*fleet_page(found)))
    return COMPLETED


def serves(worker: dict[str, Any], queue: str) -> bool:
    """Whether a worker is alive and takes tasks of a queue. One without queues serves all, but no `run`'s own."""
    takes = queue in worker["queues"] or (not worker["queues"] and not queue.startswith(_RUN))
    return bool(worker["alive"]) and takes


def fleet_document(found: Fleet) -> dict[str, Any]:
    """The fleet, for programs."""
    queues = [
        {**queue, "workers": sum(serves(worker, queue["queue"]) for worker in found.workers)} for queue in found.queues
    ]
    return {
        "orchestrators": found.orchestrators,
        "workers": found.workers,
        "queues": queues,
        "jobs_without_owner": found.unowned,
    }


def fleet_page(found: Fleet) -> Iterator[Any]:
    """Draw the fleet."""
    orchestrators = [each for each in found.orchestrators if each["alive"]]
    workers = [each for each in found.workers if each["alive"]]
    yield _title("orchestrators", len(orchestrators))
    if orchestrators:
        yield _orchestrators(orchestrators)
    else:
        yield _hint("none is alive: no job moves. Start one: dagmaster orchestrator (or dagmaster dev)")
    if found.unowned:
        jobs = "1 open job has no owner" if found.unowned == 1 else f"{found.unowned:,} open jobs have no owner"
        yield _hint(jobs)
    yield _title("\nworkers", len(workers))
    if workers:
        yield _workers(workers)
    else:
        yield _hint("none is alive: no task runs. Start one: dagmaster worker --queue '*' (or dagmaster dev)")
    yield _title("\nqueues", len(found.queues))
    if found.queues:
        yield _queues(found)
    else:
        yield Padding(Text("nothing waits and nothing runs", style=_DIM), (0, 0, 0, 2), expand=False)
    gone = [each for each in (*found.orchestrators, *found.workers) if not each["alive"]]
    if gone:
        yield _title("\ngone within the last hour", len(gone))
        yield _gone(gone)


def _title(name: str, count: int) -> Text:
    title = Text(name, style="bold")
    title.append(f"  {count}", style=_DIM)
    return title


def _hint(sentence: str) -> Padding:
    return Padding(Text(sentence, style="yellow"), (0, 0, 0, 2), expand=False)


def _table(*columns: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=True, header_style=_DIM, padding=(0, 1, 0, 1))
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True, overflow="ellipsis")
    return table


def _orchestrators(found: list[dict[str, Any]]) -> Table:
    table = _table("where", "up", "heard", "jobs", "finished", "turns", "version", right=("jobs", "finished", "turns"))
    for each in found:
        counters = each["counters"]
        table.add_row(
            Text(f"{each['host']}:{each['pid']}", style="bold"),
            age(each["age_seconds"]),
            f"{age(each['silent_seconds'])} ago",
            f"{each['jobs']:,}",
            f"{counters.get('jobs_finished', 0):,}",
            f"{counters.get('turns', 0):,}",
            each["version"],
        )
    return table


def _workers(found: list[dict[str, Any]]) -> Table:
    right = ("running", "completed", "failed")
    table = _table("where", "up", "heard", "running", "completed", "failed", "queues", "version", right=right)
    for each in found:
        counters = each["counters"]
        failed = counters.get("failed", 0)
        table.add_row(
            Text(f"{each['host']}:{each['pid']}", style="bold"),
            age(each["age_seconds"]),
            f"{age(each['silent_seconds'])} ago",
            f"{each['running']:,}/{each['concurrency']:,}",
            f"{counters.get('completed', 0):,}",
            Text(f"{failed:,}", style="red" if failed else ""),
            ", ".join(each["queues"]) or "all",
            each["version"],
        )
    return table


def _queues(found: Fleet) -> Table:
    table = _table("queue", "waiting", "running", "oldest", "workers", "", right=("waiting", "running", "workers"))
    for each in found.queues:
        count = sum(serves(worker, each["queue"]) for worker in found.workers)
        nobody = count == 0 and each["waiting"] > 0
        advice = f"✘ nobody serves it: dagmaster worker --queue {each['queue']}" if nobody else ""
        table.add_row(
            Text(each["queue"], style="bold"),
            f"{each['waiting']:,}",
            f"{each['running']:,}",
            "" if each["oldest_seconds"] is None else age(each["oldest_seconds"]),
            f"{count}",
            Text(advice, style="red"),
        )
    return table


def _gone(found: list[dict[str, Any]]) -> Group:
    lines = []
    for each in sorted(found, key=lambda each: float(each["silent_seconds"]))[:_MOST_DEAD]:
        what = "worker" if "worker_id" in each else "orchestrator"
        # One that stops says so as it goes; one that died was given up after its lease.
        stopped = each["stopped_seconds"]
        is_dead = stopped is None or each["silent_seconds"] - stopped > each["lease_seconds"]
        said = (
            f"{what} {each['host']}:{each['pid']} {'died' if is_dead else 'stopped'} {age(each['silent_seconds'])} ago"
        )
        lines.append(Padding(Text(said, style="red" if is_dead else _DIM), (0, 0, 0, 2), expand=False))
    if len(found) > _MOST_DEAD:
        more = Text(f"and {len(found) - _MOST_DEAD} more", style=_DIM)
        lines.append(Padding(more, (0, 0, 0, 2), expand=False))
    return Group(*lines)
