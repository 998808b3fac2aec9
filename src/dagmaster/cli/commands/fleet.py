"""`dagmaster fleet`: who is alive and what each holds, who went and what was left, and what waits in the queues."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dagmaster.cli.database import on_database
from dagmaster.cli.main import COMPLETED
from dagmaster.cli.options import data_dir_option, json_option
from dagmaster.engine.diagnosis.active_nodes import lacking_processes
from dagmaster.text_format import age, counted

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

    from dagmaster.cli.database import ReadSession
    from dagmaster.store.postgres.legacy_fleet import Fleet

_MOST_GONE: Final = 8
_DIM: Final = "bright_black"


@click.command()
@json_option
@data_dir_option
def fleet(*, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Show the orchestrators and workers that are alive, and what waits in the queues.

    A worker may hold more tasks than it runs: those are prefetched. A queue with tasks that no live worker serves is
    marked. Those that went within the last hour are shown below; one that died did not say goodbye: how much it left,
    and where that is now, stands beside it.

    \b
    Examples:
      dagmaster fleet
      dagmaster fleet --json
    """

    async def work(onlooker: ReadSession) -> Fleet:
        from dagmaster.store.postgres.legacy_fleet import read_fleet

        return await read_fleet(onlooker.store)

    found = on_database(data_dir, work)
    if as_json:
        click.echo(json.dumps(fleet_document(found), ensure_ascii=False))
        return COMPLETED
    Console().print(Group(*fleet_page(found)))
    return COMPLETED


def serving(found: Fleet, queue: str) -> int:
    """How many live workers take tasks of a queue. One that drains takes none."""
    from dagmaster.store.postgres.legacy_diagnosis_reader import serves

    taking = [worker for worker in found.workers if worker["alive"] and not worker["draining"]]
    return sum(serves(worker["queues"], queue) for worker in taking)


def fleet_document(found: Fleet) -> dict[str, Any]:
    """The fleet, for programs."""
    return {
        "orchestrators": found.orchestrators,
        "workers": found.workers,
        "queues": [{**queue, "workers": serving(found, queue["queue"])} for queue in found.queues],
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
    yield from _versions([*orchestrators, *workers])
    yield _title("\nqueues", len(found.queues))
    if found.queues:
        yield _queues(found)
    else:
        yield _line(Text("nothing waits and nothing runs", style=_DIM))
    for each in found.queues:
        if each["waiting"] and not serving(found, each["queue"]):
            yield _line(Text(f"✘ nobody serves {each['queue']}: dagmaster worker --queue {each['queue']}", style="red"))
        elif each["waiting"] and (said := _lacking(found, each["queue"])):
            yield _hint(said)
    gone = [each for each in (*found.orchestrators, *found.workers) if not each["alive"]]
    if gone:
        yield _title("\ngone within the last hour", len(gone))
        yield from _gone(gone)


def _lacking(found: Fleet, queue: str) -> str:
    """Why tasks wait though their workers have places: plain functions have fewer."""
    from dagmaster.store.postgres.legacy_diagnosis_reader import serves

    workers = [each for each in found.workers if each["alive"] and serves(each["queues"], queue)]
    total = {key: sum(each[key] for each in workers) for key in ("concurrency", "running", "processes")}
    busy = sum(each["processes_busy"] for each in workers)
    if total["running"] >= total["concurrency"] or not 0 < total["processes"] <= busy:
        return ""
    whose = "the worker's" if len(workers) == 1 else "the workers'"
    return f"{queue} waits though there are places: {lacking_processes(whose, total['processes'])}"


def _title(name: str, count: int) -> Text:
    title = Text(name, style="bold")
    title.append(f"  {count}", style=_DIM)
    return title


def _line(content: Text | Table) -> Padding:
    return Padding(content, (0, 0, 0, 2), expand=False)


def _hint(sentence: str) -> Padding:
    return _line(Text(sentence, style="yellow"))


def _table(first: str, *columns: str, last: str = "") -> Table:
    """Draw columns of figures between two of names. The names give way where it is narrow; no header is cut."""
    table = Table(box=None, pad_edge=True, header_style=_DIM, padding=(0, 1, 0, 1))
    table.add_column(first, overflow="fold", min_width=len(first))
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    if last:
        table.add_column(last, overflow="fold", min_width=len(last))
    return table


def _where(each: dict[str, Any]) -> Text:
    return Text(f"{each['host']}:{each['pid']}", style="bold")


def _heard(each: dict[str, Any]) -> Text:
    late = each["silent_seconds"] > each["lease_seconds"] / 2
    return Text(f"{age(each['silent_seconds'])} ago", style="yellow" if late else "")


def _orchestrators(found: list[dict[str, Any]]) -> Table:
    table = _table("where", "up", "heard", "owns jobs", "finished", "turns")
    for each in found:
        counters = each["counters"]
        finished, turns = counters.get("jobs_finished", 0), counters.get("turns", 0)
        quarantined = len(counters.get("quarantined", ()))
        jobs = Text(f"{each['jobs']:,}")
        if quarantined:
            jobs.append(f" ({quarantined} stuck)", style="red")
        table.add_row(_where(each), age(each["age_seconds"]), _heard(each), jobs, f"{finished:,}", f"{turns:,}")
    return table


def _workers(found: list[dict[str, Any]]) -> Table:
    table = _table("where", "up", "heard", "runs", "ahead", "done", "failed", last="queues")
    for each in found:
        counters = each["counters"]
        failed = counters.get("failed", 0)
        busy = each["running"] >= each["concurrency"]
        where = _where(each)
        if each["draining"]:
            where.append(" drains", style="yellow")
        table.add_row(
            where,
            age(each["age_seconds"]),
            _heard(each),
            Text(f"{each['running']:,}/{each['concurrency']:,}", style="yellow" if busy else ""),
            f"{each['prefetched']:,}",
            f"{counters.get('completed', 0):,}",
            Text(f"{failed:,}", style="red" if failed else ""),
            ", ".join(each["queues"]) or "all",
        )
    return table


def _versions(found: list[dict[str, Any]]) -> Iterator[Padding]:
    versions = sorted({str(each["version"]) for each in found})
    if len(versions) > 1:
        yield _hint(f"they are of several versions: {', '.join(versions)}")


def _queues(found: Fleet) -> Table:
    table = _table("queue", "waiting", "oldest", "at workers", "workers")
    for each in found.queues:
        count = serving(found, each["queue"])
        nobody = count == 0 and each["waiting"] > 0
        table.add_row(
            Text(each["queue"], style="bold"),
            f"{each['waiting']:,}",
            "" if each["oldest_seconds"] is None else age(each["oldest_seconds"]),
            f"{each['held']:,}",
            Text(f"{count}", style="red" if nobody else ""),
        )
    return table


def _gone(found: list[dict[str, Any]]) -> Iterator[Any]:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    # Those that died first: each `run` that ended well is one more that stopped.
    for each in sorted(found, key=lambda each: (not each["died"], float(each["silent_seconds"])))[:_MOST_GONE]:
        what = "worker" if "worker_id" in each else "orchestrator"
        style = "red" if each["died"] else _DIM
        icon, verb = ("✘", "died") if each["died"] else ("■", "stopped")
        ago = each["silent_seconds"] if each["died"] else each["stopped_seconds"]
        table.add_row(
            Text(f"{icon} {what} {each['host']}:{each['pid']}", style=style),
            Text(f"{verb} {age(ago)} ago", style=style),
            Text(_left(each), style=_DIM),
        )
    yield _line(table)
    if len(found) > _MOST_GONE:
        yield _line(Text(f"and {len(found) - _MOST_GONE} more: --json names all", style=_DIM))


def _left(each: dict[str, Any]) -> str:
    """What one that went had left, and where that is now."""
    left = each.get("left", {})
    if "jobs" in left:
        return _told(left["jobs"], "job", {
            "to be reclaimed": left["not_reclaimed"], "without an owner": left["unowned"],
            "owned again": left["owned_again"], "over or moved on": left["moved_on"],
        })  # fmt: skip
    now = {_NOW.get(status, status): count for status, count in left.get("now", {}).items()}
    return _told(left.get("tasks", 0), "task", {"to be taken back": left.get("not_reclaimed", 0), **now})


def _told(count: int, noun: str, parts: dict[str, int]) -> str:
    said = ", ".join(f"{number:,} {word}" for word, number in parts.items() if number)
    return "left nothing" if count == 0 else f"left {counted(count, noun)}{f': {said}' if said else ''}"


_NOW: Final = {"dispatched": "queued again", "ready": "to be tried again", "running": "running again"}
