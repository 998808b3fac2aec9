"""Commands that let any simulated job finish: every approval is approved, every signal is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.engine.graph import ApprovalSpec, WaitSpec
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.simulation.case import ScheduledCommand

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dagmaster.engine.graph import Graph


def answer_all(graphs: Iterable[Graph]) -> list[ScheduledCommand]:
    """Return commands that approve every approval and send every signal of graphs until the job ends."""
    return [
        command for graph in graphs for spec in graph.specs.values() if (command := _answer(spec)) is not None
    ]


def _answer(spec: object) -> ScheduledCommand | None:
    if isinstance(spec, WaitSpec) and spec.signal is not None:
        body = {"name": spec.signal, "payload": None}
        return ScheduledCommand(kind=CommandKind.SIGNAL, body=body, after_seconds=3, repeats=True)
    if isinstance(spec, ApprovalSpec):
        user = spec.approvers[0] if spec.approvers else "ada"
        return ScheduledCommand(
            kind=CommandKind.APPROVE,
            body={"node": spec.id, "comment": ""},
            after_seconds=4,
            repeats=True,
            by=user,
        )
    return None
