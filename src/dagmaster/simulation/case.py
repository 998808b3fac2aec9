"""The case of a simulation: workflows, their inputs, commands, and the nodes that kill their workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dagmaster.engine.graph import ApprovalSpec, FanOutSpec, TaskSpec, WaitSpec
from dagmaster.simulation.mock_handlers import learn_shapes, tasks_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dagmaster.engine.graph import Graph, Spec
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.command_kinds import CommandKind
    from dagmaster.sdk.handler_registry import Registry
    from dagmaster.simulation.output_inference import Shapes

MANY_LOSSES: Final = 40
"""More than the faults of any schedule."""


@dataclass(slots=True, kw_only=True)
class ScheduledCommand:
    """A command to a job and its children, after a while; `repeats`: until the job has finished."""

    kind: CommandKind
    body: Mapping[str, JsonValue] = field(default_factory=dict)
    after_seconds: float = 1.0
    repeats: bool = False
    by: str = "ada"


@dataclass(slots=True, kw_only=True)
class Case:
    """The case of a simulation: workflows, their inputs, and commands."""

    graphs: Sequence[Graph]
    inputs: Mapping[str, JsonValue] = field(default_factory=dict)
    children: Sequence[Graph] = ()
    commands: Sequence[ScheduledCommand] = ()
    failing: float = 1.0
    """The share of the schedules in which a handler may fail permanently."""
    poison: Collection[str] = ()
    """The nodes whose handlers kill their worker."""
    growing: Collection[str] = ()
    """The nodes whose handlers add nodes to their job."""
    drains: bool = False
    """Whether an operator drains services during the storm."""
    known: Registry | None = None
    """The real handlers, which are not run: their models define the outputs of the mocks."""
    _shapes: Shapes | None = field(default=None, init=False, repr=False)

    @property
    def shapes(self) -> Shapes:
        """Return the shapes of the mocks' outputs: the same in every schedule, so inferred once."""
        if self._shapes is None:
            self._shapes = learn_shapes([*self.graphs, *self.children], self.known)
        return self._shapes

    @property
    def task_nodes(self) -> Collection[str]:
        """Return the nodes that run handlers; a fan-out of tasks is one."""
        return tasks_of([*self.graphs, *self.children])

    @property
    def is_deterministic(self) -> bool:
        """Return whether only its handlers decide its outcome, neither commands nor time."""
        return not self.commands and not any(
            _depends_on_time(graph) for graph in (*self.graphs, *self.children)
        )


def _depends_on_time(graph: Graph) -> bool:
    """Return whether the outcome may depend on timing, on races or on lost workers."""
    if graph.deadline_seconds is not None:
        return True
    return any(_is_timed(spec) for spec in graph.specs.values())


def _is_timed(spec: Spec) -> bool:
    match spec:
        case TaskSpec():
            return spec.dispatch_timeout_seconds is not None or spec.retry.max_lost < MANY_LOSSES
        case FanOutSpec():
            return spec.fail_fast or _is_timed(spec.child)
        case ApprovalSpec():
            return True
        case WaitSpec():
            return spec.signal is not None
        case _:
            return False
