"""The simulated workflows: small, and together with every kind of node."""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING, Final

from dagmaster.authoring.compiler.compile import compile_text
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.simulation.case import Case, ScheduledCommand

if TYPE_CHECKING:
    from dagmaster.engine.graph import Graph
    from dagmaster.json_types import JsonValue

CHAIN: Final = """
workflow_id: chain
version: 1
nodes:
  a: {handler: work, queue: q, retry: {max_attempts: 4, initial_delay_seconds: 1, max_lost: 100}, next: b}
  b: {handler: work, queue: q, retry: {max_attempts: 4, initial_delay_seconds: 2, max_lost: 100}, next: c,
      params: {of: "{{ nodes.a.output.size }}"}}
  c: {handler: work, queue: q, retry: {max_lost: 100}}
outputs: {size: "{{ nodes.c.output.size }}"}
"""

BRANCHES: Final = """
workflow_id: branches
version: 1
nodes:
  look: {handler: work, queue: q, retry: {max_attempts: 5, initial_delay_seconds: 0.5, max_lost: 100}, next: route}
  route:
    type: conditional
    condition_field: "{{ nodes.look.output.size }}"
    branches:
      - {name: small, condition: "< 100", next: light}
      - {name: large, default: true, next: heavy}
  light: {handler: work, queue: q, retry: {max_lost: 100}, next: report}
  heavy: {handler: work, queue: other, retry: {max_lost: 100}, next: report}
  report: {handler: work, queue: q, retry: {max_attempts: 3, initial_delay_seconds: 0.5, max_lost: 100}}
"""

FAN_OUT: Final = """
workflow_id: tiles
version: 1
nodes:
  plan: {handler: work, queue: q, retry: {max_attempts: 4, initial_delay_seconds: 0.5, max_lost: 100}, next: tiles}
  tiles:
    type: fan_out
    source: "{{ nodes.plan.output.list }}"
    max_parallel: 2
    on_item_error: tolerate
    task: {handler: work, queue: q, params: {tile: "{{ item }}"},
           retry: {max_attempts: 3, initial_delay_seconds: 0.5, max_lost: 100}}
    next: total
  total: {type: fan_in, next: after}
  after: {handler: work, queue: q, retry: {max_lost: 100}}
"""

NESTED: Final = """
workflow_id: nested
version: 1
nodes:
  outer:
    type: fan_out
    source: [[1, 2], [], [3]]
    task:
      type: fan_out
      source: "{{ item }}"
      task: {handler: work, queue: q, params: {x: "{{ item }}"}, retry: {max_attempts: 4, initial_delay_seconds: 0.5, max_lost: 100}}
    next: total
  total: {type: fan_in}
"""

PAUSES: Final = """
workflow_id: pauses
version: 1
nodes:
  prepare: {handler: work, queue: q, retry: {max_attempts: 4, initial_delay_seconds: 0.5, max_lost: 100}, next: [release, rest, hear]}
  release: {type: approval, message: "go on?", next: publish}
  rest: {type: wait, seconds: 5, next: publish}
  hear: {type: wait, signal: ready, timeout_seconds: 40, on_timeout: go_on, next: publish}
  publish: {handler: work, queue: q, retry: {max_lost: 100}}
"""

PARENT: Final = """
workflow_id: parent
version: 1
nodes:
  first: {handler: work, queue: q, retry: {max_attempts: 4, initial_delay_seconds: 0.5, max_lost: 100}, next: inner}
  inner: {type: workflow, workflow_id: chain, next: last}
  last: {handler: work, queue: q, retry: {max_lost: 100}}
"""

LATE: Final = """
workflow_id: late
version: 1
deadline_seconds: 20
nodes:
  a: {handler: work, queue: q, timeout_seconds: 2, retry: {max_attempts: 4, initial_delay_seconds: 3, max_lost: 100}, next: b}
  b: {handler: work, queue: q, dispatch_timeout_seconds: 10, retry: {max_lost: 100}}
  c: {handler: work, queue: q, retry: {max_lost: 2}}
"""

GROWING: Final = """
workflow_id: growing
version: 1
nodes:
  plan: {handler: work, queue: q, retry: {max_attempts: 4, initial_delay_seconds: 0.5, max_lost: 100}, next: split}
  split: {handler: work, queue: q, retry: {max_attempts: 4, initial_delay_seconds: 0.5, max_lost: 100}, next: after}
  after: {handler: work, queue: q, retry: {max_attempts: 4, initial_delay_seconds: 0.5, max_lost: 100}}
"""

POISON: Final = """
workflow_id: poison
version: 1
nodes:
  bad: {handler: work, queue: q, retry: {max_attempts: 2, max_lost: 1}}
"""


@cache
def graph(text: str) -> Graph:
    return compile_text(text).graph


@cache
def restarted() -> Case:
    """Return the case of resumes that are sent right after a cancel: a node may complete and run again in one turn."""
    cancel_and_resume = (
        ScheduledCommand(kind=CommandKind.CANCEL, after_seconds=2),
        ScheduledCommand(kind=CommandKind.RESUME, body={"nodes": ["a"]}, after_seconds=0),
    )
    return Case(graphs=[graph(CHAIN)], commands=cancel_and_resume * 3)


@cache
def added_again() -> Case:
    """Return the case of a job that is resumed from a node that adds others, and from the one before it."""
    resumes = [
        ScheduledCommand(kind=CommandKind.RESUME, body={"nodes": [node]}, after_seconds=seconds)
        for node, seconds in (("split", 20), ("plan", 25), ("split", 10))
    ]
    return Case(graphs=[graph(GROWING)], growing=["split"], failing=0.3, commands=resumes)


def commanded(seed: int) -> Case:
    """Return a case of commands that the seed draws: of any kind, to any node, many at the same moment."""
    rng = random.Random(seed)
    workflow = graph(rng.choice([CHAIN, BRANCHES, FAN_OUT, NESTED, PARENT, LATE, GROWING]))
    nodes = [*workflow.specs, *(f"{node_id}__{rng.randrange(3)}" for node_id in workflow.specs)]
    pause = rng.choice([0.3, 1, 2, 3, 5])
    commands = [_drawn_command(rng, nodes, pause) for _ in range(rng.randrange(1, 8))]
    if seed % 2 == 0:
        _add_commands_to_nodes(random.Random(seed + 1), commands, nodes)
    return Case(
        graphs=[workflow],
        children=[graph(CHAIN)],
        commands=commands,
        growing=["split"],
        failing=rng.choice([0.0, 0.3, 1.0]),
    )


def _drawn_command(rng: random.Random, nodes: list[str], pause: float) -> ScheduledCommand:
    bodies: dict[CommandKind, dict[str, JsonValue]] = {
        CommandKind.CANCEL: {},
        CommandKind.RESUME: {"nodes": [*rng.sample(nodes, rng.randrange(3))]},
        CommandKind.RETRY: {"node": rng.choice(nodes)},
        CommandKind.SIGNAL: {"name": "ready", "payload": 1},
    }
    kind = rng.choice([CommandKind.CANCEL, *bodies, CommandKind.RESUME])
    return ScheduledCommand(
        kind=kind, body=bodies[kind], after_seconds=rng.choice([0, 0, 0, 0.01, 0.3, pause])
    )


def _add_commands_to_nodes(rng: random.Random, commands: list[ScheduledCommand], nodes: list[str]) -> None:
    """Add commands to several nodes at once. Every other seed has none: its schedule may be one that failed once."""
    for _ in range(rng.randrange(1, 4)):
        kind = rng.choice([CommandKind.CANCEL_NODES, CommandKind.CANCEL_NODES, CommandKind.RETRY])
        body: dict[str, JsonValue] = {"nodes": [*rng.sample(nodes, rng.randrange(1, 4))]}
        command = ScheduledCommand(kind=kind, body=body, after_seconds=rng.choice([0, 0.01, 0.3, 1]))
        commands.insert(rng.randrange(len(commands) + 1), command)


@cache
def cases() -> tuple[Case, ...]:
    chain, branches, tiles = graph(CHAIN), graph(BRANCHES), graph(FAN_OUT)
    answers = [
        ScheduledCommand(kind=CommandKind.SIGNAL, body={"name": "ready", "payload": 1}, after_seconds=3),
        ScheduledCommand(
            kind=CommandKind.APPROVE, body={"node": "release", "comment": ""}, after_seconds=4, repeats=True
        ),
    ]
    cancel_some = [
        ScheduledCommand(kind=CommandKind.CANCEL_NODES, body={"nodes": [name, "a"]}, after_seconds=1)
        for name in ("tiles__0", "tiles__1", "tiles")
    ]
    resume = ScheduledCommand(kind=CommandKind.RESUME, body={"nodes": []}, after_seconds=6)
    return (
        Case(graphs=[chain]),
        Case(graphs=[chain, branches]),
        Case(graphs=[tiles]),
        Case(graphs=[graph(NESTED)]),
        Case(graphs=[graph(PAUSES)], commands=answers),
        Case(graphs=[graph(PARENT)], children=[chain]),
        Case(graphs=[graph(LATE)]),
        Case(graphs=[tiles, chain], commands=[ScheduledCommand(kind=CommandKind.CANCEL, after_seconds=3)]),
        Case(graphs=[tiles], commands=[resume, resume]),
        Case(graphs=[tiles, chain], commands=[*cancel_some, resume, *cancel_some]),
        Case(
            graphs=[graph(PARENT), tiles],
            children=[chain],
            commands=[ScheduledCommand(kind=CommandKind.CANCEL, after_seconds=4), resume],
        ),
        Case(graphs=[chain, branches, tiles, chain]),
        Case(graphs=[graph(GROWING)], growing=["split"], failing=0.3),
        restarted(),
    )
