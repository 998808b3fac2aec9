"""`dagmaster jobs watch`: a job of the database, live on a terminal and as lines elsewhere, until it is over.

The end is heard (NOTIFY); what happens before is polled, and read only if the trail has grown. A read that took long is
followed by a longer rest, so that a job of 100,000 nodes does not pay for being watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import sys
import time
from collections import deque
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.json import JSON
from rich.live import Live

from dagmaster.application.event_sentences import event_sentence
from dagmaster.cli.commands.jobs_show import graph_of
from dagmaster.cli.database import look_at, on_database
from dagmaster.cli.errors import CommandError
from dagmaster.cli.main import COMPLETED, FAILED, INTERRUPTED
from dagmaster.cli.options import data_dir_option, json_option
from dagmaster.cli.render.job import JOB_ICONS, duration, screen
from dagmaster.cli.render.tree import Tree
from dagmaster.cli.snapshots import blocking_reasons, job_view, load_job_view, to_dict, view_of
from dagmaster.connection_backoff import ConnectionBackoff
from dagmaster.engine.status import NodeStatus
from dagmaster.errors import DagmasterError, DatabaseUnavailable
from dagmaster.ports.audit_events import EventType
from dagmaster.text_format import counted, format_error, listed

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from dagmaster.cli.database import ReadSession
    from dagmaster.cli.render.job import JobView
    from dagmaster.cli.snapshots import Snapshot
    from dagmaster.engine.graph import Graph
    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.store.postgres.legacy_read_store import JobDetail

POLL_SECONDS: Final = 0.25
FRAMES_PER_SECOND: Final = 8
# A read may take this part of the time, but for so long nobody is kept waiting: a read may have waited for a database
# that came back, and the next one is quick.
_REST: Final = 4.0
_LONGEST_REST: Final = 3.0
# What does not come with the trail is read at least this often: who lives, what a handler says of its progress.
_STALE_SECONDS: Final = 1.0
# Rates are those of the last seconds.
_RATE_SECONDS: Final = 5.0
_QUIET_EVENTS: Final = frozenset({"JobClaimed", "NodeDispatched", "NodeExpanded"})
_TENTHS: Final = 10
_SILENT_SECONDS: Final = 3.0
_MOST_LOST: Final = 3
# What is longer would push all else off a terminal.
_LONGEST_RESULT: Final = 10_000


@click.command(epilog="Exit codes: 0 completed, 1 failed or cancelled, 2 no such job, 3 no database, 130 interrupted.")
@click.argument("job_id", metavar="[JOB]", required=False)
@click.option("--plain", is_flag=True, help="Lines instead of the live tree, on a terminal too.")
@json_option
@data_dir_option
def watch(job_id: str | None, *, plain: bool, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Watch a job until it is over; the newest one, unless one is named.

    On a terminal its nodes are shown live: what moves and what failed first, when there are more than fit. Elsewhere
    each thing that happens is a line. Ctrl-C stops the watching only: the job goes on.

    \b
    Examples:
      dagmaster jobs watch
      dagmaster jobs watch 115601869557067776 && echo done
      dagmaster jobs watch last --json
    """
    return _interruptible(
        job_id, lambda: on_database(data_dir, lambda onlooker: follow(onlooker, job_id, plain=plain, as_json=as_json))
    )


def watch_to_end(address: DatabaseConfig, job_id: str, *, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Watch a job of a database that was reached already."""
    from dagmaster.settings import load_settings

    def work() -> int:
        try:
            return asyncio.run(
                look_at(
                    address,
                    load_settings(),
                    data_dir,
                    lambda onlooker: follow(onlooker, job_id, plain=False, as_json=as_json),
                )
            )
        except DagmasterError as error:
            raise CommandError(error) from error

    return _interruptible(job_id, work)


def _interruptible(job_id: str | None, work: Any) -> int:
    try:
        code: int = work()
    except KeyboardInterrupt:
        again = f"dagmaster jobs watch {job_id or 'last'}"
        click.echo(f"\nstopped watching; the job goes on. To watch it again: {again}", err=True)
        return INTERRUPTED
    return code


async def follow(onlooker: ReadSession, job_id: str | None, *, plain: bool, as_json: bool) -> int:
    """Watch a job to its end and say how it ended."""
    head = await onlooker.job(job_id)
    graph = await graph_of(onlooker, head)
    console = Console(stderr=True)
    watched = Watched(onlooker, head, graph)
    if as_json:
        await watched.to_end(lambda: None)
    elif console.is_terminal and not plain:
        with Live(console=console, get_renderable=lambda: watched.frame(console), refresh_per_second=FRAMES_PER_SECOND):
            await watched.to_end(lambda: None)
    else:
        lines = PlainLines(watched)
        await watched.to_end(lines.say)
    snapshot = watched.snapshot
    if snapshot is None:
        raise click.ClickException(f"job {head.id} is gone")
    result = await onlooker.value(snapshot.head.result, snapshot.head.result_ref)
    say_end(snapshot, result, await onlooker.store.attempts(head.id), as_json=as_json)
    return COMPLETED if snapshot.head.status == "COMPLETED" else FAILED


class Rates:
    """How fast numbers grow, over the last seconds."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def note(self, name: str, at: float, count: int) -> None:
        """Note a number."""
        seen = self._seen.setdefault(name, deque())
        seen.append((at, count))
        # One older than the window stays, to measure from.
        second = 1
        while len(seen) > second + 1 and seen[second][0] < at - _RATE_SECONDS:
            seen.popleft()

    def of(self, name: str) -> float | None:
        """How many a second."""
        seen = self._seen.get(name)
        if not seen or seen[-1][0] <= seen[0][0]:
            return None
        return max(seen[-1][1] - seen[0][1], 0) / (seen[-1][0] - seen[0][0])


class Watched:
    """A job that is read again whenever its trail has grown."""

    def __init__(self, onlooker: ReadSession, head: JobDetail, graph: Graph) -> None:
        self.onlooker = onlooker
        self.graph = graph
        self.job_id = head.id
        self.tree = Tree(graph)
        self.rates = Rates()
        self.snapshot: Snapshot | None = None
        self.view: JobView | None = None
        self.read_at = time.monotonic()
        self._stirred = asyncio.Event()
        self._seen = -1

    async def to_end(self, changed: Any) -> None:
        """Read until the job is over. `changed` is called after each read, and may be a coroutine."""
        outage = ConnectionBackoff(logging.getLogger("dagmaster"))
        await self.onlooker.store.on_end(self.job_id, self._stirred.set)
        rest: float | None = 0.0
        while True:
            try:
                rest = await self._once(changed)
                outage.over()
            except DatabaseUnavailable as error:
                # The job goes on when it is back, and so does the watching.
                rest = outage.away(error)
            if rest is None:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stirred.wait(), rest)
            self._stirred.clear()

    async def _once(self, changed: Any) -> float | None:
        """Read, if there is something new. Gives how long to rest; None if the job is over, or gone."""
        began = time.monotonic()
        seq, status, _ = await self.onlooker.store.pulse(self.job_id)
        if not status:
            return None
        took = 0.0
        if seq != self._seen or began - self.read_at > _STALE_SECONDS:
            await self._read()
            took = time.monotonic() - began
            told = changed()
            if told is not None:
                await told
            self._seen = seq
        if self.snapshot is not None and self.snapshot.head.is_over:
            return None
        return rest_after(took)

    async def _read(self) -> None:
        store = self.onlooker.store
        head = await store.job(self.job_id)
        if head is None:
            return
        before = self.snapshot
        snapshot = self.snapshot = await load_job_view(store, head, self.graph, before=before)
        self.read_at = time.monotonic()
        for node_id, line in snapshot.nodes.items():
            self.tree.mark(node_id, NodeStatus(line.status))
        over = 0
        for fan, children in snapshot.children.items():
            done = sum(children.counts.get(status, 0) for status in ("COMPLETED", "FAILED"))
            self.rates.note(fan, head.now, done)
            over += done
        self.rates.note("", head.now, over + len(self.tree.over))
        # Made once a read, not once a frame: it counts every node.
        self.view = job_view(snapshot, rate=None if head.is_over else self.rates.of(""))

    def frame(self, console: Console) -> RenderableType:
        """Draw the job as it was read last. The clock goes on meanwhile."""
        snapshot = self.snapshot
        if snapshot is None or self.view is None:
            return ""
        passed = 0.0 if snapshot.head.is_over else time.monotonic() - self.read_at
        return screen(
            replace(self.view, seconds=self.view.seconds + passed),
            self.tree,
            lambda node_id: view_of(snapshot, node_id, rate=self.rates.of(node_id)),
            size=console.size,
            now=snapshot.head.now + passed,
        )


def rest_after(took: float) -> float:
    """How long to rest after a read that took so long."""
    return min(max(POLL_SECONDS, took * _REST), _LONGEST_REST)


class PlainLines:
    """A line for each thing that happened in the last run.

    Of children of fan-outs only what went wrong, and how far they are: at each tenth, and every few seconds.
    """

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.after = 0
        self.shares: dict[str, int] = {}
        self.counts: dict[str, tuple[int, float]] = {}
        self.said: set[str] = set()

    async def say(self) -> None:
        """Say what is new."""
        watched, snapshot = self.watched, self.watched.snapshot
        if snapshot is None:
            return
        head = snapshot.head
        began = head.created_at
        # Events that came after the snapshot are said with the next one.
        told = await watched.onlooker.store.events(
            head.id, after=self.after, limit=10_000, node_ids=list(watched.graph.specs)
        )
        if self.after == 0:
            # What was before the last run was told then.
            resumed = [place for place, event in enumerate(told) if event.type == EventType.JOB_RESUMED]
            told = told[resumed[-1] :] if resumed else told
        told = [event for event in told if event.seq <= head.event_seq]
        self.after = told[-1].seq if told else self.after
        for at, sentence in alike_together([event for event in told if event.type not in _QUIET_EVENTS]):
            self._line(at - began, sentence)
        for fan, children in snapshot.children.items():
            total = snapshot.line(fan).source_count or 1
            over = children.counts.get("COMPLETED", 0) + children.counts.get("FAILED", 0)
            share = over * _TENTHS // total
            said, at = self.counts.setdefault(fan, (over, head.now))
            is_late = over > said and head.now - at >= _SILENT_SECONDS
            if over < total and (self.shares.get(fan, 0) < share or is_late):
                self.shares[fan], self.counts[fan] = share, (over, head.now)
                self._line(head.now - began, f"{fan}: {over:,} of {total:,} children are over")
        for sentence in blocking_reasons(snapshot):
            # The same wait is said once, however the numbers in it change.
            what = re.sub(r"[\d.,]+", "", sentence)
            if what not in self.said:
                self.said.add(what)
                self._line(head.now - began, sentence)

    @staticmethod
    def _line(seconds: float, sentence: str) -> None:
        click.echo(f"{max(seconds, 0.0):8.2f}s  {sentence}", err=True)


def alike_together(told: Sequence[StoredEvent]) -> Iterator[tuple[float, str]]:
    """Say events; many that were lost one after the other in one sentence: a worker that dies has many."""
    for kind, group in groupby(told, key=lambda event: event.type):
        events = list(group)
        if kind != EventType.ATTEMPT_LOST or len(events) <= _MOST_LOST:
            yield from ((event.at, event_sentence(event)) for event in events)
            continue
        for worker in sorted({str(event.data.get("worker") or "") for event in events}):
            lost = [event for event in events if str(event.data.get("worker") or "") == worker]
            names = listed([str(event.node) for event in lost])
            yield lost[-1].at, f"worker {worker} died with {counted(len(lost), 'attempt')}: {names}".replace("  ", " ")


def say_end(snapshot: Snapshot, result: Any, attempts: int, *, as_json: bool) -> None:
    """Say how a job ended and print its result, as `run` does."""
    head = snapshot.head
    if as_json:
        click.echo(json.dumps(to_dict(snapshot, result, attempts), ensure_ascii=False))
        return
    _, colour = JOB_ICONS[head.status]
    nodes = sum(snapshot.counts().values())
    said = f"{nodes:,} node{'s' if nodes != 1 else ''}, {attempts:,} attempt{'s' if attempts != 1 else ''}"
    title = click.style(f"{head.status} in {duration(snapshot.seconds)}", fg=colour, bold=True)
    click.echo(f"{title}  {said}, job {head.id}", err=True)
    if head.error is not None:
        click.echo(click.style(format_error(head.error), fg="red"), err=True)
    if head.status == "FAILED":
        click.echo(f"To run again what failed: dagmaster jobs resume {head.id}", err=True)
    if result is not None:
        text = json.dumps(result, ensure_ascii=False, indent=2)
        if sys.stdout.isatty() and len(text) > _LONGEST_RESULT:
            click.echo(f"the result has {len(text):,} characters: dagmaster jobs show {head.id} --json")
        elif sys.stdout.isatty():
            Console().print(JSON(text))
        else:
            click.echo(text)
