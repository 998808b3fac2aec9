"""How a run looks: a live tree on a terminal, plain lines elsewhere. Both watch the same turns."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import click
from rich.live import Live
from rich.text import Text

from dagmaster.application.node_lookup import dependencies_of, describe_action
from dagmaster.cli.render.job import FanOutLine, JobLine, NodeLine, screen
from dagmaster.cli.render.text import duration
from dagmaster.cli.render.tree import Tree
from dagmaster.engine.decisions import Cancel, Complete, Dispatch, Expand, Fail, RequestApproval, Skip, WaitUntil
from dagmaster.engine.model import FanOut
from dagmaster.engine.status import NodeStatus
from dagmaster.text_format import counted, format_error

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from dagmaster.engine.graph import Graph
    from dagmaster.engine.model import Job, Node
    from dagmaster.orchestrator.turn import TurnResult
    from dagmaster.ports.handler_reports import Progress

__all__ = ["LiveDisplay", "NoDisplay", "PlainDisplay", "duration", "format_error"]

_FRAMES_PER_SECOND: Final = 12
PROGRESS_SECONDS: Final = 2.0
"""How often a line tells how far one node is."""


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
        self.tree = Tree(dependencies_of(graph))
        self.seen: dict[str, _Seen] = {node_id: _Seen() for node_id in graph.specs}
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

    def turn(self, job: Job, writes: TurnResult) -> None:
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
            self.tree.mark(node.id, node.status)

    def progress(self, job_id: str, node_id: str, progress: Progress) -> None:
        """Note how far a handler is."""
        seen = self.seen.get(node_id)
        if seen is not None and self.job is not None and job_id == self.job.id:
            seen.progress = progress

    def _render(self) -> RenderableType:
        job = self.job
        if job is None:
            return Text("")
        now = time.monotonic()
        view = JobLine(
            title=f"{job.graph.workflow_id} v{job.graph.version}",
            status=job.status.value,
            finished=len(self.tree.finished),
            nodes=len(self.seen),
            seconds=now - self.began,
        )
        return screen(view, self.tree, lambda node_id: self._view(job.nodes[node_id]), size=self.console.size, now=now)

    def _view(self, node: Node) -> NodeLine:
        seen = self.seen[node.id]
        # Here a task runs as soon as it is dispatched.
        status = NodeStatus.RUNNING if node.status is NodeStatus.DISPATCHED else node.status
        return NodeLine(
            id=node.id,
            status=status,
            action=describe_action(node.spec),
            attempt=node.attempt,
            branch=node.branch,
            skip_reason=None if node.skip_reason is None else node.skip_reason.value,
            error=node.error,
            started=seen.started,
            ended=seen.ended,
            progress=seen.progress,
            fan_out=_fan_out_line(node) if isinstance(node, FanOut) else None,
        )


def _fan_out_line(fan: FanOut) -> FanOutLine:
    stopped = fan.expanded - fan.open - fan.completed - fan.failed
    return FanOutLine(
        total=fan.total or 0,
        completed=fan.completed,
        failed=fan.failed,
        stopped=max(stopped, 0),
        in_flight=max(fan.active, 0),
    )


class PlainDisplay:
    """A line for each thing that happened."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.shares: dict[str, int] = {}
        self._tell_at: dict[str, float] = {}
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

    def turn(self, job: Job, writes: TurnResult) -> None:
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
        """Say how far a handler is, now and then; children of fan-outs are told by their number."""
        now = time.monotonic()
        if not progress.message or job_id != self.main or "__" in node_id:
            return
        if now >= self._tell_at.get(node_id, 0.0):
            self._tell_at[node_id] = now + PROGRESS_SECONDS
            self._say(f"{node_id}: {progress.message}")

    def _share(self, fan: FanOut, child: str) -> None:
        total = fan.total or 1
        share = (fan.completed + fan.failed) * 10 // total
        if share > self.shares.get(fan.id, 0):
            self.shares[fan.id] = share
            failed = f", {fan.failed} failed" if fan.failed else ""
            self._say(f"{child}{fan.id}: {fan.completed + fan.failed} of {total} children finished{failed}")

    def _say(self, sentence: str) -> None:
        click.echo(f"{time.monotonic() - self.began:8.2f}s  {sentence}", err=True)


class NoDisplay(PlainDisplay):
    """Nothing is shown."""

    def turn(self, job: Job, writes: TurnResult) -> None:
        """Say nothing."""

    def progress(self, job_id: str, node_id: str, progress: Progress) -> None:
        """Say nothing."""


def _sentence(decision: Any, job: Job) -> str:
    node_id = getattr(decision, "node", None)
    node = job.nodes.get(node_id) if isinstance(node_id, str) else None
    if node is None:
        return ""
    if isinstance(decision, Fail):
        return f"{node.id}: FAILED: {format_error(decision.error)}"
    if isinstance(decision, WaitUntil) and node.error and node.status is NodeStatus.READY:
        return f"{node.id}: attempt {node.attempt} failed: {format_error(node.error)}; it is tried again"
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
        said = counted(decision.total, "child", "children")
    elif isinstance(decision, RequestApproval):
        said = "waits for an approval"
    return said
