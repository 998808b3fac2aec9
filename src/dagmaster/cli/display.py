"""How a run looks: a live tree on a terminal, plain lines elsewhere. Both watch the same turns."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from dagmaster.engine.decisions import Cancel, Complete, Dispatch, Expand, Fail, RequestApproval, Skip, WaitUntil
from dagmaster.engine.graph import Kind, WaitSpec
from dagmaster.engine.model import FanOut
from dagmaster.engine.status import NodeStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dagmaster.engine.graph import Graph, Spec
    from dagmaster.engine.model import Job, Node
    from dagmaster.orchestrator.turn import TurnWrites
    from dagmaster.ports.handler import Progress

ICONS: Final[dict[NodeStatus, tuple[str, str]]] = {
    NodeStatus.PENDING: ("·", "bright_black"),
    NodeStatus.READY: ("○", "yellow"),
    NodeStatus.DISPATCHED: ("▶", "cyan"),
    NodeStatus.RUNNING: ("▶", "cyan"),
    NodeStatus.WAITING: ("⏸", "magenta"),
    NodeStatus.COMPLETED: ("✔", "green"),
    NodeStatus.FAILED: ("✘", "red"),
    NodeStatus.SKIPPED: ("↷", "bright_black"),
    NodeStatus.CANCELLED: ("■", "yellow"),
}
_BAR_WIDTH: Final = 24
_FRAMES_PER_SECOND: Final = 12
# Lines of a tree that are shown when a graph is higher than the screen.
_MARGIN: Final = 4


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


@dataclass(slots=True)
class _Seen:
    """What is shown of a node beside its status."""

    started: float | None = None
    ended: float | None = None
    progress: Progress | None = None


class LiveDisplay:
    """The tree of a job's nodes, drawn again a few times a second."""

    def __init__(self, graph: Graph, console: Console) -> None:
        self.console = console
        self.rows = tree_of(graph)
        self.places = {node_id: place for place, (node_id, _) in enumerate(self.rows)}
        self.seen: dict[str, _Seen] = {node_id: _Seen() for node_id in graph.specs}
        # Kept as turns come in: a frame costs what it shows, not what the graph has.
        self.moving: set[str] = set()
        self.over: set[str] = set()
        self.job: Job | None = None
        self.began = time.monotonic()
        self._live = self._new_live()

    def _new_live(self) -> Live:
        return Live(console=self.console, get_renderable=self._render, refresh_per_second=_FRAMES_PER_SECOND)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def pause(self) -> None:
        """Leave the screen to a question."""
        self._live.stop()

    def go_on(self) -> None:
        """Take the screen back, below the answer."""
        self._live = self._new_live()
        self._live.start()

    def note(self, sentence: str) -> None:
        """Say something above the tree."""
        self._live.console.print(sentence, style="yellow")

    def turn(self, job: Job, writes: TurnWrites) -> None:
        """Note when nodes start and end."""
        if self.job is None:
            self.job = job
        if job is not self.job:
            return
        now = time.monotonic()
        for node in writes.changed:
            seen = self.seen.get(node.id)
            if seen is None:
                continue
            if node.status not in (NodeStatus.PENDING, NodeStatus.SKIPPED) and seen.started is None:
                seen.started = now
            seen.ended = now if node.is_terminal else None
            for kept, holds in (
                (self.over, node.is_terminal),
                (self.moving, not node.is_terminal and node.status is not NodeStatus.PENDING),
            ):
                if holds:
                    kept.add(node.id)
                else:
                    kept.discard(node.id)

    def progress(self, job_id: str, node_id: str, progress: Progress) -> None:
        """Note how far a handler is."""
        seen = self.seen.get(node_id)
        if seen is not None and self.job is not None and job_id == self.job.id:
            seen.progress = progress

    def _render(self) -> RenderableType:
        if self.job is None:
            return Text("")
        nodes = self.job.nodes
        room = max(self.console.size.height - _MARGIN, 3)
        shown, hidden = self.rows, 0
        if len(self.rows) > room:
            shown = self._what_moves(room)
            hidden = len(self.rows) - len(shown)
        lines = [self._line(nodes[node_id], prefix) for node_id, prefix in shown]
        if hidden:
            lines.insert(0, Text(f"… {hidden:,} more nodes", style="bright_black"))
        return Group(*lines, self._footer(self.job))

    def _what_moves(self, room: int) -> list[tuple[str, str]]:
        """Choose the rows that fit: up to the last node that is under way."""
        last = max((self.places[node_id] for node_id in self.moving), default=len(self.rows) - 1)
        end = min(len(self.rows), max(room - 1, last + 1))
        return self.rows[max(0, end - room + 1) : end]

    def _line(self, node: Node, prefix: str) -> Text:
        icon, style = ICONS[node.status]
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(prefix, style="bright_black")
        line.append(f"{icon} ", style=style)
        quiet = node.status in (NodeStatus.SKIPPED, NodeStatus.PENDING)
        line.append(node.id, style="bright_black" if quiet else "bold")
        line.append(f"  {describe(node.spec)}", style="bright_black")
        seen = self.seen[node.id]
        if isinstance(node, FanOut) and node.total:
            line.append("  ")
            line.append_text(_bar(node.completed, node.failed, node.total))
            running = max(node.active, 0)
            line.append(f" {node.completed + node.failed}/{node.total}", style="cyan" if node.open else "green")
            if node.open and running:
                line.append(f"  {running} out", style="bright_black")
            if node.failed:
                line.append(f"  {node.failed} failed", style="red")
        elif seen.progress is not None and not node.is_terminal:
            line.append("  ")
            line.append_text(_progress(seen.progress))
        for text, colour in _remarks(node):
            line.append(f"  {text}", style=colour)
        if seen.started is not None:
            taken = (seen.ended or time.monotonic()) - seen.started
            line.append(f"  {duration(taken)}", style="bright_black")
        return line

    def _footer(self, job: Job) -> Text:
        done = len(self.over)
        line = Text("\n")
        line.append(f"{job.graph.workflow_id} v{job.graph.version}", style="bold")
        line.append(f"  {job.status.value.lower()}  {done}/{len(self.seen)} nodes", style="bright_black")
        line.append(f"  {duration(time.monotonic() - self.began)}", style="bright_black")
        return line


class PlainDisplay:
    """A line for each thing that happened."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.shares: dict[str, int] = {}
        self.main: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def pause(self) -> None:
        """Nothing is in the way of a question."""

    def go_on(self) -> None:
        """Nothing was put away."""

    def note(self, sentence: str) -> None:
        """Say something."""
        click.echo(sentence, err=True)

    def turn(self, job: Job, writes: TurnWrites) -> None:
        """Say what was decided."""
        self.main = self.main or job.id
        child = "" if job.id == self.main else f"[{job.graph.workflow_id}] "
        for decision in writes.decisions:
            said = _sentence(decision, job)
            if said:
                self._say(child + said)
        for node in writes.changed:
            if isinstance(node, FanOut) and node.total and node.status is NodeStatus.RUNNING:
                self._share(node, child)

    def progress(self, job_id: str, node_id: str, progress: Progress) -> None:
        """Say how far a handler is."""
        if progress.message and job_id == self.main:
            self._say(f"{node_id}: {progress.message}")

    def _share(self, fan: FanOut, child: str) -> None:
        total = fan.total or 1
        share = (fan.completed + fan.failed) * 10 // total
        if share > self.shares.get(fan.id, 0):
            self.shares[fan.id] = share
            failed = f", {fan.failed} failed" if fan.failed else ""
            self._say(f"{child}{fan.id}: {fan.completed + fan.failed} of {total} children are over{failed}")

    def _say(self, sentence: str) -> None:
        click.echo(f"{time.monotonic() - self.began:8.2f}s  {sentence}", err=True)


class NoDisplay(PlainDisplay):
    """Nothing is shown."""

    def turn(self, job: Job, writes: TurnWrites) -> None:
        """Say nothing."""

    def progress(self, job_id: str, node_id: str, progress: Progress) -> None:
        """Say nothing."""


def _sentence(decision: Any, job: Job) -> str:
    node_id = getattr(decision, "node", None)
    node = job.nodes.get(node_id) if isinstance(node_id, str) else None
    if node is None:
        return ""
    if isinstance(decision, Fail):
        return f"{node.id}: FAILED: {spell_error(decision.error)}"
    if isinstance(decision, WaitUntil) and node.error and node.status is NodeStatus.READY:
        return f"{node.id}: attempt {node.attempt} failed: {spell_error(node.error)}; it is tried again"
    # A child that goes well is one of many: its fan-out tells how many.
    said = "" if node.parent is not None else _saying(decision, node)
    return f"{node.id}: {said}" if said else ""


def _saying(decision: Any, node: Node) -> str:
    said = ""
    if isinstance(decision, Dispatch):
        again = f" (attempt {decision.attempt})" if decision.attempt > 1 else ""
        said = f"dispatched to {decision.task.handler}{again}"
    elif isinstance(decision, Complete):
        said = "COMPLETED" + (f", branch {node.branch}" if node.branch else "")
    elif isinstance(decision, Skip):
        said = f"SKIPPED ({decision.reason})"
    elif isinstance(decision, Cancel):
        said = "CANCELLED"
    elif isinstance(decision, Expand) and decision.first == 0:
        said = f"{decision.total} children"
    elif isinstance(decision, RequestApproval):
        said = "waits for an approval"
    return said


def _remarks(node: Node) -> Iterable[tuple[str, str]]:
    if node.attempt > 1:
        yield f"attempt {node.attempt}", "yellow"
    if node.branch is not None:
        yield f"→ {node.branch}", "cyan"
    if node.skip_reason is not None:
        yield node.skip_reason.value.replace("_", " "), "bright_black"
    if node.status is NodeStatus.READY and node.error is not None:
        yield f"tries again after: {spell_error(node.error)}", "yellow"
    elif node.error is not None and node.is_terminal:
        yield spell_error(node.error), "red"


def spell_error(error: dict[str, Any]) -> str:
    """Say an error in one line: the exception by its name, unless the handler chose the kind."""
    name, message = str(error.get("type", "")), str(error.get("message", "")).split("\n", 1)[0]
    is_named = error.get("kind") != "error" or message.startswith(name)
    return message if is_named else f"{name}: {message}"


def _bar(completed: int, failed: int, total: int) -> Text:
    good = completed * _BAR_WIDTH // total
    bad = min(-(-failed * _BAR_WIDTH // total), _BAR_WIDTH - good)
    bar = Text()
    bar.append("━" * good, style="green")
    bar.append("━" * bad, style="red")
    bar.append("━" * (_BAR_WIDTH - good - bad), style="bright_black")
    return bar


def _progress(progress: Progress) -> Text:
    if not progress.total:
        return Text(progress.message or f"{progress.current:g}", style="cyan")
    done = min(max(progress.current / progress.total, 0.0), 1.0)
    line = _bar(int(done * 1000), 0, 1000)
    line.append(f" {done:4.0%}", style="cyan")
    if progress.message:
        line.append(f" {progress.message}", style="bright_black")
    return line


def duration(seconds: float) -> str:
    """Spell a time span the way people do."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def tree_of(graph: Graph) -> list[tuple[str, str]]:
    """Lay a graph out as a tree: each node under the last one it waits for. Gives (node, lines before it)."""
    under: dict[str | None, list[str]] = {}
    depth: dict[str, int] = {}
    for node_id in _in_order(graph):
        requires = graph.specs[node_id].requires
        before = [] if requires is None else [leaf.node for leaf in requires.leaves()]
        parent = max(before, key=lambda each: depth[each], default=None)
        depth[node_id] = 0 if parent is None else depth[parent] + 1
        under.setdefault(parent, []).append(node_id)
    rows: list[tuple[str, str]] = []
    # A chain is not a staircase: an only child stands below its parent, not to the right of it.
    pending: list[tuple[str, str, str]] = [(node_id, "", "") for node_id in reversed(under.get(None, []))]
    while pending:
        node_id, lines, branch = pending.pop()
        rows.append((node_id, lines + branch))
        inside = lines + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        children = under.get(node_id, [])
        for place, child in reversed(list(enumerate(children))):
            if len(children) == 1:
                pending.append((child, inside, ""))
            else:
                pending.append((child, inside, "└─ " if place == len(children) - 1 else "├─ "))
    return rows


def _in_order(graph: Graph) -> list[str]:
    waiting = {
        node_id: len({leaf.node for leaf in spec.requires.leaves()}) if spec.requires else 0
        for node_id, spec in graph.specs.items()
    }
    order = [node_id for node_id, count in waiting.items() if count == 0]
    for node_id in order:
        for follower in dict.fromkeys(each.node for each in graph.wiring.dependents.get(node_id, ())):
            waiting[follower] -= 1
            if waiting[follower] == 0:
                order.append(follower)
    return order
