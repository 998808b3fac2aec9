"""Draw jobs and nodes on a terminal: jobs of this process and of a database in the same way.

Lines (`JobLine`, `NodeLine`) are made from views or from a running engine. They are readable without colour:
the icon shows the status, and failures have other strokes in a bar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.text import Text

from dagmaster.application.views import TERMINAL_NODE, JobStatus, Kind, NodeStatus
from dagmaster.cli.render.text import DIM, duration, format_rate, local_time
from dagmaster.cli.suggested_commands import format_blocking_reasons
from dagmaster.local.turn_updates import ChildProgress
from dagmaster.text_format import format_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dagmaster.application.views import (
        ChildrenRecord,
        JobDetailView,
        JobRecord,
        NodeRecord,
        ProgressRecord,
    )
    from dagmaster.cli.render.tree import Row, Tree
    from dagmaster.ports.handler_reports import Progress

ICONS: Final[dict[NodeStatus, tuple[str, str]]] = {
    NodeStatus.PENDING: ("·", "bright_black"),
    NodeStatus.READY: ("○", "yellow"),
    NodeStatus.DISPATCHED: ("▷", "cyan"),
    NodeStatus.CLAIMED: ("▸", "cyan"),
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
    # Not a status: a job that is being cancelled.
    "CANCELLING": ("◌", "yellow"),
}
_BAR_WIDTH: Final = 20
# Names are aligned in a column up to this width.
_MAX_NAME_WIDTH: Final = 28
# Lines of a screen besides the rows: a gap, the footer, the cursor, and the number of hidden nodes.
MARGIN: Final = 5
_MIN_ROWS: Final = 3
_SECONDS_A_MINUTE: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutLine(ChildProgress):
    """The children of a fan-out. `cancelled` and `running` are None if they are not known."""

    cancelled: int | None = None
    claimed: int = 0
    running: int | None = None
    rate: float | None = None

    @property
    def finished(self) -> int:
        return self.completed + self.failed + self.stopped


@dataclass(slots=True)
class NodeLine:
    """A node as it is drawn. All times are of the same clock."""

    id: str
    status: NodeStatus
    action: str = ""
    attempt: int = 0
    branch: str | None = None
    skip_reason: str | None = None
    error: dict[str, Any] | None = None
    started: float | None = None
    ended: float | None = None
    progress: Progress | ProgressRecord | None = None
    fan_out: FanOutLine | None = None
    note: str = ""


@dataclass(slots=True)
class JobLine:
    """A job as it is drawn: the line below the tree."""

    title: str
    status: str
    finished: int
    nodes: int
    seconds: float
    rate: float | None = None
    hints: Sequence[str] = ()


# ── Views → lines ───────────────────────────────────────────────────────────────────────────────────────────


def status_word(job: JobRecord | JobDetailView) -> str:
    return "CANCELLING" if job.is_cancelling else job.status


def job_line(job: JobDetailView) -> JobLine:
    """Return the line of a job. A job that has not started shows how long it has been waiting."""
    waited = max(job.read_at - job.created_at, 0.0)
    return JobLine(
        title=f"{job.workflow_id} v{job.version}",
        status=status_word(job),
        finished=sum(job.counts.get(status, 0) for status in TERMINAL_NODE),
        nodes=sum(job.counts.values()),
        seconds=waited if job.duration_seconds is None else job.duration_seconds,
        hints=format_blocking_reasons(job),
    )


def node_line(node: NodeRecord, now: float, *, rate: float | None = None) -> NodeLine:
    action = node.action or ""
    return NodeLine(
        id=node.node_id,
        status=node.status,
        action=f"{action}, reused" if node.is_reused else action,
        attempt=node.attempt,
        branch=node.branch,
        skip_reason=node.skip_reason,
        error=node.error,
        started=node.started_at,
        ended=node.finished_at,
        progress=node.progress,
        fan_out=None if node.children is None else _fan_out_line(node.children, rate),
        note=_note(node, now),
    )


def _fan_out_line(children: ChildrenRecord, rate: float | None) -> FanOutLine:
    return FanOutLine(
        total=children.total,
        completed=children.count(NodeStatus.COMPLETED),
        failed=children.count(NodeStatus.FAILED),
        stopped=children.count(NodeStatus.SKIPPED, NodeStatus.CANCELLED),
        cancelled=children.count(NodeStatus.CANCELLED),
        in_flight=children.count(NodeStatus.DISPATCHED, NodeStatus.CLAIMED, NodeStatus.RUNNING),
        claimed=children.count(NodeStatus.CLAIMED),
        running=children.count(NodeStatus.RUNNING),
        rate=rate,
    )


def _note(node: NodeRecord, now: float) -> str:
    if node.status is NodeStatus.WAITING and node.kind is Kind.APPROVAL:
        return f"waits for approval: {node.message}" if node.message else "waits for approval"
    if node.status is NodeStatus.WAITING and node.wake_at is not None:
        return f"until {local_time(node.wake_at)}"
    if node.status is NodeStatus.DISPATCHED and node.queue is not None:
        return f"in queue {node.queue}"
    if node.status is NodeStatus.CLAIMED:
        return "claimed by a worker"
    if node.status is NodeStatus.READY and node.wake_at is not None and node.wake_at > now:
        return f"in {duration(node.wake_at - now)}"
    if node.child_job_id is not None and node.child_job_status is not None:
        return f"job {node.child_job_id} ({node.child_job_status.lower()})"
    return ""


# ── Drawing ─────────────────────────────────────────────────────────────────────────────────────────────────


def screen(
    job: JobLine, tree: Tree, line_of: Callable[[str], NodeLine], *, size: tuple[int, int], now: float
) -> Group:
    """Draw a job: as many rows as fit, and a line about the whole job. `size`: columns and lines."""
    columns, height = size
    # Hints may be wrapped: commands are never cut.
    below = sum(1 + (len(hint) + 1) // max(columns, 1) for hint in job.hints)
    rows, hidden = tree.pick(max(height - MARGIN - below, _MIN_ROWS))
    views = [line_of(row.node_id) for row in rows]
    width = name_width(rows)
    lines = [render_node(view, row.prefix, now, width=width) for row, view in zip(rows, views, strict=True)]
    if hidden:
        lines.insert(0, Text(f"… {hidden:,} more nodes", style=DIM))
    return Group(*lines, footer(job))


def name_width(rows: Iterable[Row]) -> int:
    return min(max((len(row.prefix) + len(row.node_id) for row in rows), default=0), _MAX_NAME_WIDTH)


def render_node(view: NodeLine, prefix: str, now: float, *, width: int = 0, details: bool = True) -> Text:
    """Draw a node in one line. `details`: with its error and its note."""
    icon, style = ICONS[view.status]
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(prefix, style=DIM)
    line.append(f"{icon} ", style=style)
    quiet = view.status in (NodeStatus.SKIPPED, NodeStatus.PENDING)
    line.append(view.id, style=DIM if quiet else "bold")
    line.append(" " * (width - len(prefix) - len(view.id)))
    if view.action:
        line.append(f"  {view.action}", style=DIM)
    if view.fan_out is not None and view.fan_out.total:
        line.append("  ")
        line.append_text(fan_line(view.fan_out, is_open=view.status not in TERMINAL_NODE))
    elif view.progress is not None and view.status not in TERMINAL_NODE:
        line.append("  ")
        line.append_text(progress_line(view.progress))
    for text, colour in _remarks(view):
        line.append(f"  {text}", style=colour)
    if view.started is not None:
        line.append(f"  {duration(max((view.ended or now) - view.started, 0.0))}", style=DIM)
    if details:
        for text, colour in detail_lines(view):
            line.append(f"  {text}", style=colour)
    return line


def _remarks(view: NodeLine) -> Iterable[tuple[str, str]]:
    if view.attempt > 1:
        yield f"attempt {view.attempt}", "yellow"
    if view.branch is not None:
        yield f"→ {view.branch}", "cyan"
    if view.skip_reason is not None:
        yield view.skip_reason.replace("_", " "), DIM


def detail_lines(view: NodeLine) -> Iterable[tuple[str, str]]:
    """Yield the error of a node and what it waits for, each with its colour."""
    if view.error is not None and view.status is NodeStatus.READY:
        yield f"waits for retry after: {format_error(view.error)}", "yellow"
    elif view.error is not None and view.status in TERMINAL_NODE:
        yield format_error(view.error), "red"
    if view.note:
        yield view.note, "magenta" if view.status is NodeStatus.WAITING else DIM


def footer(job: JobLine) -> Text:
    """Draw the progress of a job, and what it waits for."""
    icon, style = JOB_ICONS.get(job.status, ("", ""))
    line = Text("\n")
    line.append(f"{icon} ", style=style)
    line.append(job.title, style="bold")
    line.append(f"  {job.status.lower()}", style=style)
    line.append(f"  {job.finished:,}/{job.nodes:,} nodes", style=DIM)
    if job.rate:
        line.append(f"  {format_rate(job.rate)}", style=DIM)
    line.append(f"  {duration(job.seconds)}", style=DIM)
    for hint in job.hints:
        line.append(f"\n  {hint}", style="magenta")
    return line


def fan_line(fan: FanOutLine, *, is_open: bool) -> Text:
    line = bar(fan.completed, fan.failed, fan.total)
    style = "green"
    if is_open:
        style = "cyan"
    elif fan.failed or fan.stopped:
        style = "yellow"
    line.append(f" {fan.finished:,}/{fan.total:,}", style=style)
    if fan.stopped:
        line.append(f"  {fan.completed:,} completed", style="green" if fan.completed else DIM)
    if fan.failed:
        line.append(f"  {fan.failed:,} failed", style="red")
    for count, word in _stopped_parts(fan):
        line.append(f"  {count:,} {word}", style="yellow")
    if is_open:
        for part in _open_parts(fan):
            line.append(f"  {part}", style=DIM)
    return line


def _open_parts(fan: FanOutLine) -> Iterable[str]:
    """Yield how fast a fan-out proceeds, and where the tasks of its open children are."""
    if fan.rate:
        yield f"{format_rate(fan.rate)}  {_left((fan.total - fan.finished) / fan.rate)} left"
    if fan.running is None and fan.in_flight > 0:
        yield f"{fan.in_flight:,} in flight"
    elif fan.running:
        yield f"{fan.running:,} running"
    if fan.claimed:
        yield f"{fan.claimed:,} claimed"
    if fan.running is not None and fan.in_flight > fan.running + fan.claimed:
        yield f"{fan.in_flight - fan.running - fan.claimed:,} queued"


def _stopped_parts(fan: FanOutLine) -> list[tuple[int, str]]:
    """Return how many children were cancelled and skipped, as far as it is known."""
    if fan.cancelled is None:
        parts = [(fan.stopped, "stopped")]
    else:
        parts = [(fan.cancelled, "cancelled"), (fan.stopped - fan.cancelled, "skipped")]
    return [(count, word) for count, word in parts if count]


def bar(completed: int, failed: int, total: int) -> Text:
    good = completed * _BAR_WIDTH // total
    bad = min(-(-failed * _BAR_WIDTH // total), _BAR_WIDTH - good)
    drawn = Text()
    drawn.append("━" * good, style="green")
    drawn.append("┅" * bad, style="red")
    drawn.append("─" * (_BAR_WIDTH - good - bad), style=DIM)
    return drawn


def progress_line(progress: Progress | ProgressRecord) -> Text:
    if not progress.total:
        return Text(progress.message or f"{progress.current:g}", style="cyan")
    done = min(max(progress.current / progress.total, 0.0), 1.0)
    line = bar(int(done * 1000), 0, 1000)
    line.append(f" {done:4.0%}", style="cyan")
    if progress.message:
        line.append(f" {progress.message}", style=DIM)
    return line


def job_status(status: str) -> Text:
    icon, style = JOB_ICONS.get(status, ("?", ""))
    return Text(f"{icon} {status.lower()}", style=style)


def _left(seconds: float) -> str:
    """Format an estimated duration without false precision."""
    return f"{max(round(seconds), 1)} s" if seconds < _SECONDS_A_MINUTE else duration(seconds)
