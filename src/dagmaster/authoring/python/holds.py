"""Nodes that keep a job, and groups in it, from completing while code can still add tasks to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dagmaster.authoring.graph_parts import GraphPart, GroupPart, TaskPart
from dagmaster.engine.graph import HOLD_DESCRIPTION, HOLD_LABEL
from dagmaster.host.snowflakes import TASK_IDS
from dagmaster.ports.added_nodes import MemberKind

if TYPE_CHECKING:
    from dagmaster.authoring.python.graph_items import Group
    from dagmaster.json_types import JsonObject


@dataclass(slots=True)
class Hold:
    """A node that keeps a job, and the groups added with it, from completing until a signal comes."""

    seconds: float
    is_first: bool
    """Whether it is that of a new job. Its names do not depend on its id: the same code makes the same
    graph."""
    place: str = ""
    """Where the code is that adds tasks, for people."""
    id: int = field(default_factory=TASK_IDS.new)
    node_id: str | None = None

    @property
    def signal(self) -> str:
        return HOLD_LABEL if self.is_first else f"{HOLD_LABEL}_{self.id}"

    def to_task(self) -> TaskPart:
        """Return the node. If nothing releases it, it lets the job continue after some time."""
        definition: JsonObject = {
            "type": "wait",
            "description": f"{HOLD_DESCRIPTION}{f': {self.place}' if self.place else '.'}",
            "signal": self.signal,
            "timeout_seconds": self.seconds,
            "on_timeout": "go_on",
        }
        return TaskPart(self.id, HOLD_LABEL, definition)


def add_held_groups(part: GraphPart, hold: Hold, groups: list[Group]) -> None:
    """Put an empty group into each group that completes with the hold.

    A signal would reach the first wait only.
    """
    for group in groups:
        number = TASK_IDS.new()
        is_renewed = group.node_id is not None
        name = f"{(group.name or '')[:70].rstrip('_')}_held{f'_{number}' if is_renewed else ''}"
        part.groups.append(GroupPart(number, name, group.id))
        part.dependencies.append((MemberKind.TASK, hold.id, MemberKind.GROUP, number))
        if group.node_id is not None:
            part.known[group.id] = group.node_id
