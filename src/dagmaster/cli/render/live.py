"""Displays of a local run: a live tree on a terminal, plain lines elsewhere.

Both receive the same updates.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Self

from rich.live import Live
from rich.text import Text

from dagmaster.application.views import TERMINAL_NODE, NodeStatus
from dagmaster.cli.render.job import FanOutLine, JobLine, NodeLine, screen
from dagmaster.cli.render.tree import Tree
from dagmaster.sdk.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console, RenderableType

    from dagmaster.local.turn_updates import ChildProgress, NodeUpdate, TurnUpdate
    from dagmaster.ports.handler_reports import Progress

_FRAMES_PER_SECOND: Final = 12
PROGRESS_SECONDS: Final = 2.0
"""How often a line reports the progress of one node."""


@dataclass(slots=True)
class _NodeState:
    """The last update of a node, and when it started and ended."""

    update: NodeUpdate | None = None
    started: float | None = None
    ended: float | None = None
    progress: Progress | None = None


class LiveDisplay:
    """The tree of a job's nodes, redrawn a few times a second."""

    def __init__(
        self, dependencies: Mapping[str, Sequence[str]], actions: Mapping[str, str], console: Console
    ) -> None:
        self.console = console
        self.tree = Tree(dependencies)
        self.actions = actions
        self.states = {node_id: _NodeState() for node_id in dependencies}
        self.last_turn: TurnUpdate | None = None
        self.started_at = time.monotonic()
        self._live = self._new_live()

    def _new_live(self) -> Live:
        return Live(console=self.console, get_renderable=self._render, refresh_per_second=_FRAMES_PER_SECOND)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def pause(self) -> None:
        """Stop drawing while the terminal shows a question."""
        self._live.stop()

    def resume(self) -> None:
        """Draw again, below the answer."""
        self._live = self._new_live()
        self._live.start()

    def note(self, sentence: str) -> None:
        self._live.console.print(sentence, style="yellow")

    def turn(self, update: TurnUpdate) -> None:
        """Record when nodes start and end. Child jobs are not drawn."""
        if self.last_turn is not None and update.job_id != self.last_turn.job_id:
            return
        self.last_turn = update
        now = time.monotonic()
        for node in update.nodes():
            state = self.states[node.node_id]
            state.update = node
            if node.status not in (NodeStatus.PENDING, NodeStatus.SKIPPED) and state.started is None:
                state.started = now
            state.ended = now if node.status in TERMINAL_NODE else None
            self.tree.mark(node.node_id, node.status)

    def progress(self, job_id: str, node_id: str, progress: Progress) -> None:
        state = self.states.get(node_id)
        if state is not None and self.last_turn is not None and job_id == self.last_turn.job_id:
            state.progress = progress

    def _render(self) -> RenderableType:
        turn = self.last_turn
        if turn is None:
            return Text("")
        now = time.monotonic()
        line = JobLine(
            title=f"{turn.workflow_id} v{turn.version}",
            status=turn.status.value,
            finished=len(self.tree.finished),
            nodes=len(self.states),
            seconds=now - self.started_at,
        )
        return screen(line, self.tree, self._node_line, size=self.console.size, now=now)

    def _node_line(self, node_id: str) -> NodeLine:
        state = self.states[node_id]
        update = state.update
        if update is None:
            return NodeLine(id=node_id, status=NodeStatus.PENDING, action=self.actions[node_id])
        # The worker of this process starts a task as soon as it is dispatched.
        status = NodeStatus.RUNNING if update.status is NodeStatus.DISPATCHED else update.status
        return NodeLine(
            id=node_id,
            status=status,
            action=update.action,
            attempt=update.attempt,
            branch=update.branch,
            skip_reason=update.skip_reason,
            error=update.error,
            started=state.started,
            ended=state.ended,
            progress=state.progress,
            fan_out=None if update.children is None else FanOutLine(**asdict(update.children)),
        )


class PlainDisplay:
    """A line for each decision."""

    def __init__(self) -> None:
        self.started_at = time.monotonic()
        self.job_id: str | None = None
        self._tenths: dict[str, int] = {}
        self._next_progress_at: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def pause(self) -> None:
        """Do nothing: lines do not get in the way of a question."""

    def resume(self) -> None:
        """Do nothing: nothing was paused."""

    def note(self, sentence: str) -> None:
        echo(sentence, err=True)

    def turn(self, update: TurnUpdate) -> None:
        """Print the decisions of a turn, and how many children of fan-outs have finished."""
        self.job_id = self.job_id or update.job_id
        prefix = "" if update.job_id == self.job_id else f"[{update.workflow_id}] "
        for message in update.messages():
            self._print(prefix + message)
        for node in update.nodes():
            if node.children is not None and node.children.total and node.status is NodeStatus.RUNNING:
                self._print_children(node.node_id, node.children, prefix)

    def progress(self, job_id: str, node_id: str, progress: Progress) -> None:
        """Print the progress of a handler now and then; children of fan-outs only count."""
        now = time.monotonic()
        if not progress.message or job_id != self.job_id or "__" in node_id:
            return
        if now >= self._next_progress_at.get(node_id, 0.0):
            self._next_progress_at[node_id] = now + PROGRESS_SECONDS
            self._print(f"{node_id}: {progress.message}")

    def _print_children(self, fan_out: str, children: ChildProgress, prefix: str) -> None:
        finished = children.completed + children.failed
        tenths = finished * 10 // children.total
        if tenths > self._tenths.get(fan_out, 0):
            self._tenths[fan_out] = tenths
            failed = f", {children.failed} failed" if children.failed else ""
            self._print(f"{prefix}{fan_out}: {finished} of {children.total} children finished{failed}")

    def _print(self, sentence: str) -> None:
        echo(f"{time.monotonic() - self.started_at:8.2f}s  {sentence}", err=True)


class NoDisplay(PlainDisplay):
    """Shows nothing of what happens."""

    def turn(self, update: TurnUpdate) -> None:
        """Do nothing."""

    def progress(self, job_id: str, node_id: str, progress: Progress) -> None:
        """Do nothing."""
