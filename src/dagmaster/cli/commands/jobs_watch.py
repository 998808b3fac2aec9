"""`dagmaster jobs watch`: follow a job until it has finished, live on a terminal and as lines elsewhere."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections import Counter, deque
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

import click
from rich.json import JSON
from rich.live import Live

from dagmaster.application.event_sentences import how_it_stopped
from dagmaster.application.job_watch import watch_job
from dagmaster.application.queries.events_and_logs import list_events
from dagmaster.application.views import JobStatus, NodeStatus
from dagmaster.cli.errors import command_errors
from dagmaster.cli.main import COMPLETED, FAILED, INTERRUPTED
from dagmaster.cli.render.job import JOB_ICONS, job_line, node_line, screen
from dagmaster.cli.render.text import duration
from dagmaster.cli.render.tree import Tree
from dagmaster.cli.suggested_commands import format_blocking_reasons
from dagmaster.cli.system import on_system
from dagmaster.ports.audit_events import EventType
from dagmaster.sdk.command_line import data_dir_option, json_option
from dagmaster.sdk.terminal import echo, echo_json, open_console, print_page, style
from dagmaster.text_format import format_count, format_error, format_list

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console, RenderableType

    from dagmaster.application.views import EventView, JobDetailView
    from dagmaster.cli.render.job import JobLine
    from dagmaster.client.system import System
    from dagmaster.json_types import JsonObject, JsonValue

FRAMES_PER_SECOND: Final = 8
# Rates cover the last seconds.
_RATE_SECONDS: Final = 5.0
_QUIET_EVENTS: Final = frozenset({EventType.JOB_CLAIMED, EventType.NODE_DISPATCHED, EventType.NODE_EXPANDED})
_TENTHS: Final = 10
_SILENT_SECONDS: Final = 3.0
_MAX_LOST_LINES: Final = 3
_MAX_EVENTS: Final = 10_000
# A longer result would push everything else off a terminal.
_MAX_RESULT_LENGTH: Final = 10_000
_WHOLE_JOB: Final = ""


@click.command(
    epilog="Exit codes: 0 completed, 1 failed or cancelled, 2 no such job, 3 no database, 130 interrupted."
)
@click.argument("job_id", metavar="[JOB]", required=False)
@click.option("--plain", is_flag=True, help="Print lines instead of the live tree, also on a terminal.")
@json_option
@data_dir_option
def watch(job_id: str | None, *, plain: bool, as_json: bool, data_dir: pathlib.Path | None) -> int:
    """Watch a job until it has finished (default: the newest job).

    On a terminal its nodes are shown live; if not all fit, active and failed ones are shown first. Elsewhere
    each event is a line. Ctrl-C only stops watching: the job continues. With --json: the finished job, as
    `jobs show` prints it.

    \b
    Examples:
      dagmaster jobs watch
      dagmaster jobs watch 115601869557067776 && echo done
      dagmaster jobs watch last --json
    """
    return interruptible(
        job_id,
        lambda: on_system(
            data_dir, lambda system: watch_to_end(system, job_id, plain=plain, as_json=as_json)
        ),
    )


def interruptible(job_id: str | None, work: Callable[[], int]) -> int:
    """Watch a job; on Ctrl-C print that the job continues."""
    try:
        with command_errors():
            return work()
    except KeyboardInterrupt:
        again = f"dagmaster jobs watch {job_id or 'last'}"
        echo(f"\nstopped watching; the job continues. To watch it again: {again}", err=True)
        return INTERRUPTED


async def watch_to_end(
    system: System, job_id: str | None, *, plain: bool = False, as_json: bool = False
) -> int:
    """Watch a job until it has finished, print how it ended, and return the exit code."""
    console = open_console(stderr=True)
    watched = WatchScreen()
    if as_json:
        job = await watched.follow(system, job_id)
    elif console.is_terminal and not plain:
        with Live(
            console=console,
            get_renderable=lambda: watched.frame(console),
            refresh_per_second=FRAMES_PER_SECOND,
        ):
            job = await watched.follow(system, job_id)
    else:
        job = await watched.follow(system, job_id, lines=PlainLines(system))
    if not job.is_finished:
        raise click.ClickException(f"job {job.job_id} was removed")
    print_end(job, as_json=as_json)
    return COMPLETED if job.status is JobStatus.COMPLETED else FAILED


class Rates:
    """How fast numbers grow, over the last seconds."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, int]]] = {}

    def add(self, name: str, at: float, count: int) -> None:
        samples = self._samples.setdefault(name, deque())
        samples.append((at, count))
        # One older than the window stays, to measure from.
        second = 1
        while len(samples) > second + 1 and samples[second][0] < at - _RATE_SECONDS:
            samples.popleft()

    def per_second(self, name: str) -> float | None:
        """Return the growth a second; None if there are too few samples."""
        samples = self._samples.get(name)
        if not samples or samples[-1][0] <= samples[0][0]:
            return None
        return max(samples[-1][1] - samples[0][1], 0) / (samples[-1][0] - samples[0][0])


class WatchScreen:
    """The view of a job that was read last, as a screen."""

    def __init__(self) -> None:
        self.job: JobDetailView | None = None
        self.rates = Rates()
        self._tree: Tree | None = None
        self._line: JobLine | None = None
        self._read_at = 0.0

    async def follow(
        self, system: System, job_id: str | None, lines: PlainLines | None = None
    ) -> JobDetailView:
        """Read a job until it has finished, and return its last view."""
        async with contextlib.aclosing(system.call(watch_job, job_id)) as views:
            async for job in views:
                self.update(job)
                if lines is not None:
                    await lines.print(job)
        if self.job is None:
            raise click.ClickException(f"job {job_id or 'last'} was removed")
        return self.job

    def update(self, job: JobDetailView) -> None:
        self._read_at = time.monotonic()
        tree = self._tree = self._tree or Tree(job.dependencies)
        finished = 0
        for node_id, status in job.statuses.items():
            tree.mark(node_id, status)
        for fan_out in job.fan_outs:
            done = _children_done(job, fan_out)
            self.rates.add(fan_out, job.read_at, done)
            finished += done
        self.rates.add(_WHOLE_JOB, job.read_at, finished + len(tree.finished))
        # Made once a read, not once a frame.
        self._line = replace(
            job_line(job), rate=None if job.is_finished else self.rates.per_second(_WHOLE_JOB)
        )
        self.job = job

    def frame(self, console: Console) -> RenderableType:
        job, tree, line = self.job, self._tree, self._line
        if job is None or tree is None or line is None:
            return ""
        passed = 0.0 if job.is_finished else time.monotonic() - self._read_at
        return screen(
            replace(line, seconds=line.seconds + passed),
            tree,
            lambda node_id: node_line(job.nodes[node_id], job.read_at, rate=self.rates.per_second(node_id)),
            size=console.size,
            now=job.read_at + passed,
        )


class PlainLines:
    """A line for each event of the last run.

    Children of fan-outs are summarized: their progress is printed at each tenth, and every few seconds.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._after = 0
        self._stopped: list[EventView] = []
        self._shares: dict[str, int] = {}
        self._counts: dict[str, tuple[int, float]] = {}
        self._printed: set[str] = set()

    async def print(self, job: JobDetailView) -> None:
        started = job.created_at
        events = self._stopped + await self._new_events(job)
        # Tasks stop one after the other: they are one line when something else follows.
        last = next((index for index in range(len(events), 0, -1) if not _is_stop(events[index - 1])), 0)
        fan_outs = job.fan_outs
        if job.is_finished:
            # The end of a job is the last line.
            last, fan_outs = len(events), ()
        events, self._stopped = events[:last], events[last:]
        for at, sentence in grouped_sentences(events):
            self._line(at - started, sentence)
        for fan_out in fan_outs:
            sentence = self._progress(job, fan_out)
            if sentence:
                self._line(job.read_at - started, sentence)
        for sentence in format_blocking_reasons(job):
            # The same wait is printed once, however the numbers in it change.
            key = re.sub(r"[\d.,]+", "", sentence)
            if key not in self._printed:
                self._printed.add(key)
                self._line(job.read_at - started, sentence)

    async def _new_events(self, job: JobDetailView) -> list[EventView]:
        events: list[EventView] = []
        cursor = None
        while True:
            page = await self._system.call(
                list_events, job.job_id, after=self._after, cursor=cursor, with_children=False
            )
            events += page.items
            cursor = page.next_cursor
            if cursor is None or len(events) >= _MAX_EVENTS:
                break
        if self._after == 0:
            # Only the last run is printed.
            resumed = [index for index, event in enumerate(events) if event.type == EventType.JOB_RESUMED]
            events = events[max(resumed, default=0) :]
        # Events after the view was read are printed with the next one.
        events = [event for event in events if event.seq <= job.event_seq]
        self._after = events[-1].seq if events else self._after
        return [event for event in events if event.type not in _QUIET_EVENTS]

    def _progress(self, job: JobDetailView, node_id: str) -> str:
        children = job.nodes[node_id].children
        if children is None or not children.total:
            return ""
        total, done = children.total, _children_done(job, node_id)
        share = done * _TENTHS // total
        printed, at = self._counts.setdefault(node_id, (done, job.read_at))
        is_late = done > printed and job.read_at - at >= _SILENT_SECONDS
        if done >= total or not (self._shares.get(node_id, 0) < share or is_late):
            return ""
        self._shares[node_id], self._counts[node_id] = share, (done, job.read_at)
        return f"{node_id}: {done:,} of {total:,} children finished"

    @staticmethod
    def _line(seconds: float, sentence: str) -> None:
        echo(f"{max(seconds, 0.0):8.2f}s  {sentence}", err=True)


def _children_done(job: JobDetailView, fan_out: str) -> int:
    children = job.nodes[fan_out].children
    return 0 if children is None else children.count(NodeStatus.COMPLETED, NodeStatus.FAILED)


def grouped_sentences(events: Sequence[EventView]) -> Iterator[tuple[float, str]]:
    """Yield the time and sentence of events.

    Many attempts in a row that were lost are one sentence a worker, and attempts that stopped on request one
    in all.
    """
    for (kind, is_stop), group in groupby(events, key=lambda event: (event.type, _is_stop(event))):
        same = list(group)
        if is_stop and len(same) > 1:
            yield same[-1].at, _stop_sentence(same)
        elif kind == EventType.ATTEMPT_LOST and len(same) > _MAX_LOST_LINES:
            for worker in sorted({str(event.data.get("worker") or "") for event in same}):
                lost = [event for event in same if str(event.data.get("worker") or "") == worker]
                names = format_list([str(event.node_id) for event in lost])
                sentence = f"worker {worker} died with {format_count(len(lost), 'attempt')}: {names}"
                yield lost[-1].at, sentence.replace("  ", " ")
        else:
            yield from ((event.at, event.sentence) for event in same)


def _is_stop(event: EventView) -> bool:
    return event.type == EventType.ATTEMPT_FAILED and _error_of(event).get("kind") == "cancelled"


def _stop_sentence(events: Sequence[EventView]) -> str:
    """Return a sentence about attempts that were asked to stop: how many did, and how many were killed."""
    ways = Counter(how_it_stopped(_error_of(event)) for event in events)
    total = format_count(len(events), "attempt")
    if len(ways) == 1:
        return f"{total} {next(iter(ways))}"
    return f"{total} ended: " + ", ".join(f"{count} {how}" for how, count in ways.most_common())


def _error_of(event: EventView) -> JsonObject:
    error = event.data.get("error")
    return error if isinstance(error, dict) else {}


def print_end(job: JobDetailView, *, as_json: bool) -> None:
    """Print how a job ended and its result, as `run` does."""
    if as_json:
        echo_json(job.to_dict())
        return
    _, colour = JOB_ICONS[job.status]
    nodes = format_count(sum(job.counts.values()), "node")
    title = style(f"{job.status} in {duration(job_line(job).seconds)}", fg=colour, bold=True)
    echo(f"{title}  {nodes}, {format_count(job.attempts, 'attempt')}, job {job.job_id}", err=True)
    if job.error is not None:
        echo(style(format_error(job.error), fg="red"), err=True)
    if job.status is JobStatus.FAILED:
        echo(f"To run again what failed: dagmaster jobs resume {job.job_id}", err=True)
    if job.result is not None:
        print_result(job.result, job.job_id)


def print_result(result: JsonValue, job_id: str) -> None:
    """Print a result: with colours on a terminal, unless it is long."""
    text = json.dumps(result, ensure_ascii=False, indent=2)
    if sys.stdout.isatty() and len(text) > _MAX_RESULT_LENGTH:
        echo(f"the result has {format_count(len(text), 'character')}: dagmaster jobs show {job_id} --json")
    elif sys.stdout.isatty():
        print_page([JSON(text)])
    else:
        echo_json(result, indent=2)
