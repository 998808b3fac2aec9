"""How jobs and nodes look on a terminal. One rendering, for jobs of this process and for those of a database.

It reads views only: it knows neither the engine's nodes nor rows. It is readable without colour: an icon says the
status, and a bar has other strokes for what is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.text import Text

from dagmaster.engine.graph import Kind, WaitSpec
from dagmaster.engine.status import TERMINAL_NODE, JobStatus, NodeStatus
from dagmaster.text_format import format_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dagmaster.cli.render.tree import Row, Tree
    from dagmaster.engine.graph import Spec
    from dagmaster.ports.handler_reports import Progress

ICONS: Final[dict[NodeStatus, tuple[str, str]]] = {
    NodeStatus.PENDING: ("·", "bright_black"),
    NodeStatus.READY: ("○", "yellow"),
    NodeStatus.DISPATCHED: ("▷", "cyan"),
    NodeStatus.RUNNING: ("▶", "cyan"),
    NodeStatus.WAITING: ("⏸", "magenta"),
    NodeStatus.COMPLETED: ("✔", "green"),
    NodeStatus.FAILED: ("✘", "red"),
    NodeStatus.SKIPPED: ("↷", "bright_black"),
    NodeStatus.CANCELLED: ("■", "yellow"),
}
JOB_ICONS: Final[dict[str, tuple[str, str]]] = {
    JobStatus.PENDING: ("○", "yellow"),
    JobStatus.RUNNING: ("▶", "cyan"),
    JobStatus.WAITING: ("⏸", "magenta"),
    JobStatus.COMPLETED: ("✔", "green"),
    JobStatus.FAILED: ("✘", "red"),
    JobStatus.CANCELLED: ("■", "yellow"),
    # Not a status: a job that is asked to stop.
    "CANCELLING": ("◌", "yellow"),
}
_DIM: Final = "bright_black"
_BAR_WIDTH: Final = 20
# Names are set in a column, as long as they are not too long for one.
_WIDEST_NAME: Final = 28
# Lines of a screen that are no rows: a gap, the footer, the cursor, and what is not shown.
MARGIN: Final = 5
_SMALLEST_ROOM: Final = 3
_SECONDS_A_MINUTE: Final = 60
_HOURS_A_DAY: Final = 24


@dataclass(slots=True)
class FanView:
    """The children of a fan-out. `out`: at workers or in a queue; of these `running` are held by workers, if known."""

    total: int
    completed: int = 0
    failed: int = 0
    stopped: int = 0
    out: int = 0
    running: int | None = None
    rate: float | None = None

    @property
    def over(self) -> int:
        """How many are over, one way or another."""
        return self.completed + self.failed + self.stopped


@dataclass(slots=True)
class NodeView:
    """What is shown of a node. Times are of one clock, whichever it is."""

    id: str
    status: NodeStatus
    what: str = ""
    attempt: int = 0
    branch: str | None = None
    skip_reason: str | None = None
    error: dict[str, Any] | None = None
    started: float | None = None
    ended: float | None = None
    progress: Progress | None = None
    fan: FanView | None = None
    note: str = ""


@dataclass(slots=True)
class JobView:
    """What is shown of a job: its line below the tree."""

    title: str
    status: str
    over: int
    nodes: int
    seconds: float
    rate: float | None = None
    hints: Sequence[str] = ()


def screen(job: JobView, tree: Tree, view_of: Callable[[str], NodeView], *, size: tuple[int, int], now: float) -> Group:
    """Draw a job: as many rows as there is room for, and a line about all of it. `size`: columns and lines."""
    columns, height = size
    # Hints may be wrapped: what is to be typed is never cut.
    below = sum(1 + (len(hint) + 1) // max(columns, 1) for hint in job.hints)
    room = max(height - MARGIN - below, _SMALLEST_ROOM)
    rows, hidden = tree.pick(room)
    views = [view_of(row.node_id) for row in rows]
    width = name_width(rows)
    lines = [node_line(view, row.prefix, now, width=width) for row, view in zip(rows, views, strict=True)]
    if hidden:
        lines.insert(0, Text(f"… {hidden:,} more nodes", style=_DIM))
    return Group(*lines, footer(job))


def name_width(rows: Iterable[Row]) -> int:
    """How wide the column of names is."""
    return min(max((len(row.prefix) + len(row.node_id) for row in rows), default=0), _WIDEST_NAME)


def node_line(view: NodeView, prefix: str, now: float, *, width: int = 0, details: bool = True) -> Text:
    """Draw a node in one line. `details`: with what is to be said of it, else that stands below."""
    icon, style = ICONS[view.status]
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(prefix, style=_DIM)
    line.append(f"{icon} ", style=style)
    quiet = view.status in (NodeStatus.SKIPPED, NodeStatus.PENDING)
    line.append(view.id, style=_DIM if quiet else "bold")
    line.append(" " * (width - len(prefix) - len(view.id)))
    if view.what:
        line.append(f"  {view.what}", style=_DIM)
    if view.fan is not None and view.fan.total:
        line.append("  ")
        line.append_text(fan_line(view.fan, is_open=view.status not in TERMINAL_NODE))
    elif view.progress is not None and view.status not in TERMINAL_NODE:
        line.append("  ")
        line.append_text(progress_line(view.progress))
    for text, colour in _remarks(view):
        line.append(f"  {text}", style=colour)
    if view.started is not None:
        line.append(f"  {duration(max((view.ended or now) - view.started, 0.0))}", style=_DIM)
    if details:
        for text, colour in detail_lines(view):
            line.append(f"  {text}", style=colour)
    return line


def _remarks(view: NodeView) -> Iterable[tuple[str, str]]:
    if view.attempt > 1:
        yield f"attempt {view.attempt}", "yellow"
    if view.branch is not None:
        yield f"→ {view.branch}", "cyan"
    if view.skip_reason is not None:
        yield view.skip_reason.replace("_", " "), _DIM


def detail_lines(view: NodeView) -> Iterable[tuple[str, str]]:
    """Say what went wrong with a node, and what it waits for."""
    if view.error is not None and view.status is NodeStatus.READY:
        yield f"tries again after: {format_error(view.error)}", "yellow"
    elif view.error is not None and view.status in TERMINAL_NODE:
        yield format_error(view.error), "red"
    if view.note:
        yield view.note, "magenta" if view.status is NodeStatus.WAITING else _DIM


def footer(job: JobView) -> Text:
    """Say how far a job is, and what it waits for."""
    icon, style = JOB_ICONS.get(job.status, ("", ""))
    line = Text("\n")
    line.append(f"{icon} ", style=style)
    line.append(job.title, style="bold")
    line.append(f"  {job.status.lower()}", style=style)
    line.append(f"  {job.over:,}/{job.nodes:,} nodes", style=_DIM)
    if job.rate:
        line.append(f"  {spell_rate(job.rate)}", style=_DIM)
    line.append(f"  {duration(job.seconds)}", style=_DIM)
    for hint in job.hints:
        line.append(f"\n  {hint}", style="magenta")
    return line


def fan_line(fan: FanView, *, is_open: bool) -> Text:
    """Draw how far a fan-out is."""
    line = bar(fan.completed, fan.failed, fan.total)
    line.append(f" {fan.over:,}/{fan.total:,}", style="cyan" if is_open else "green" if not fan.failed else "yellow")
    if fan.failed:
        line.append(f"  {fan.failed:,} failed", style="red")
    if is_open and fan.rate:
        line.append(f"  {spell_rate(fan.rate)}  {_left((fan.total - fan.over) / fan.rate)} left", style=_DIM)
    if is_open:
        running = fan.out if fan.running is None else fan.running
        if running > 0:
            line.append(f"  {running:,} {'out' if fan.running is None else 'running'}", style=_DIM)
        if fan.running is not None and fan.out > fan.running:
            line.append(f"  {fan.out - fan.running:,} queued", style=_DIM)
    return line


def bar(completed: int, failed: int, total: int) -> Text:
    """Draw a bar."""
    good = completed * _BAR_WIDTH // total
    bad = min(-(-failed * _BAR_WIDTH // total), _BAR_WIDTH - good)
    drawn = Text()
    drawn.append("━" * good, style="green")
    drawn.append("┅" * bad, style="red")
    drawn.append("─" * (_BAR_WIDTH - good - bad), style=_DIM)
    return drawn


def progress_line(progress: Progress) -> Text:
    """Draw how far a handler says it is."""
    if not progress.total:
        return Text(progress.message or f"{progress.current:g}", style="cyan")
    done = min(max(progress.current / progress.total, 0.0), 1.0)
    line = bar(int(done * 1000), 0, 1000)
    line.append(f" {done:4.0%}", style="cyan")
    if progress.message:
        line.append(f" {progress.message}", style=_DIM)
    return line


def job_status(status: str) -> Text:
    """A job's status, with its icon."""
    icon, style = JOB_ICONS.get(status, ("?", ""))
    return Text(f"{icon} {status.lower()}", style=style)


def describe(spec: Spec) -> str:
    """Say in a few words what a node does."""
    handler = getattr(spec, "handler", None)
    if handler is not None:
        return str(handler)
    if spec.kind is Kind.WORKFLOW:
        return f"workflow {getattr(spec, 'workflow_id', '')}"
    if isinstance(spec, WaitSpec) and spec.signal is not None:
        return f"waits for signal {spec.signal}"
    return "" if spec.kind in (Kind.START, Kind.END) else spec.kind.value


def spell_rate(rate: float) -> str:
    """Say how many tasks there are a second."""
    few = 10
    return f"{rate:,.0f}/s" if rate >= few else f"{rate:.1f}/s"


def duration(seconds: float) -> str:
    """Spell a time span the way people do."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _SECONDS_A_MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), _SECONDS_A_MINUTE)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, _HOURS_A_DAY)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _left(seconds: float) -> str:
    """Spell an estimate: no more exactly than it is known."""
    return f"{max(round(seconds), 1)} s" if seconds < _SECONDS_A_MINUTE else duration(seconds)
