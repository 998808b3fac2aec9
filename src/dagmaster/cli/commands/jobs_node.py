"""One node of a job, as `jobs show JOB NODE` tells it: its attempts, what it was made for, what it gave."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dagmaster.cli.naming import child_of, named_node, spec_of
from dagmaster.cli.render.job import ICONS, describe, duration
from dagmaster.cli.snapshots import spell_time
from dagmaster.engine.status import NodeStatus
from dagmaster.text_format import counted, format_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.cli.database import ReadSession
    from dagmaster.engine.graph import Graph
    from dagmaster.store.postgres.legacy_node_detail import Attempt, OneNode
    from dagmaster.store.postgres.legacy_read_store import ChildCounts, JobDetail, NodeRecord

_DIM: Final = "bright_black"
_LONGEST_VALUE: Final = 2_000
_MOST_ATTEMPTS: Final = 20
_COLOURS: Final = {"COMPLETED": "green", "FAILED": "red", "LOST": "red"}


@dataclass(frozen=True, slots=True)
class NodeDetail:
    """A node with all that is known of it. Values are without secrets."""

    head: JobDetail
    graph: Graph
    line: NodeRecord
    node: OneNode
    children: ChildCounts | None = None


async def read_told(onlooker: ReadSession, head: JobDetail, graph: Graph, node_id: str) -> NodeDetail:
    """Read a node. `CommandRejected` says which are there if it is not."""
    from dagmaster.redaction import redact_value
    from dagmaster.store.postgres.legacy_node_detail import read_node

    line = await named_node(onlooker, head, graph, node_id)
    place = None if line.parent_node_id is None else child_of(node_id)
    secrets = [
        str(head.inputs[name]) for name, each in graph.inputs.items() if each.get("secret") and name in head.inputs
    ]
    node = await read_node(onlooker.store, head.id, node_id, child_of=place, secrets=secrets, hide=redact_value)
    node.output = redact_value(await onlooker.value(node.output, node.output_ref), secrets)
    children = None
    if line.source_count is not None:
        children = (await onlooker.store.children(head.id, [node_id]))[node_id]
    return NodeDetail(head, graph, line, node, children)


# ── For people ──


def node_page(told: NodeDetail) -> Iterator[Any]:
    """Draw a node: its head, its attempts, its error, and the values that belong to it."""
    line, node = told.line, told.node
    yield _head(told)
    if node.attempts:
        yield Text("\nattempts", style=_DIM)
        yield Padding(_attempts(node.attempts[-_MOST_ATTEMPTS:], told.head.now), (0, 0, 0, 2), expand=False)
    if len(node.attempts) > _MOST_ATTEMPTS:
        yield Text(f"  and {len(node.attempts) - _MOST_ATTEMPTS:,} before: --json shows all", style=_DIM)
    if line.error is not None:
        yield Text("\nerror", style=_DIM)
        yield Padding(Text(_whole(line.error), style="red"), (0, 0, 0, 2), expand=False)
    if node.has_item:
        yield from _value("item", node.item)
    if node.params is not None:
        yield from _value("params", node.params)
    if node.output is not None:
        yield from _value("output", node.output)


def _head(told: NodeDetail) -> Table:
    line, head, node = told.line, told.head, told.node
    table = Table.grid(padding=(0, 2))
    table.add_column(style=_DIM, no_wrap=True)
    table.add_column(overflow="fold")
    icon, style = ICONS[NodeStatus(line.status)]
    status = Text(f"{icon} {line.status.lower()}", style=style)
    if line.skip_reason is not None:
        status.append(f"  {line.skip_reason.replace('_', ' ')}", style=_DIM)
    if line.branch is not None:
        status.append(f"  → {line.branch}", style="cyan")
    spec = spec_of(told.graph, line.node_id)
    version = f" version {node.handler_version}" if node.handler_version else ""
    table.add_row("node", Text(line.node_id, style="bold"))
    table.add_row("job", f"{head.id}, {head.workflow_id} v{head.version}")
    if spec is not None and describe(spec):
        table.add_row("does", f"{describe(spec)}{version}")
    table.add_row("status", status)
    if node.fan_out is not None:
        table.add_row("child of", f"{node.fan_out}, number {node.number}")
    if told.children is not None:
        counts = ", ".join(f"{count:,} {name.lower()}" for name, count in sorted(told.children.counts.items()))
        said = counted(line.source_count or 0, "child", "children")
        table.add_row("has", f"{said}: {counts}" if counts else said)
    if line.finished_at is not None:
        table.add_row("finished", _local(line.finished_at))
    if line.wake_at is not None:
        table.add_row("wakes", _local(line.wake_at))
    return table


def _attempts(attempts: list[Attempt], now: float) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(4):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in attempts:
        word = each.status.lower().replace("_", " ")
        took = ""
        if each.claimed_at is not None:
            took = duration(max((each.completed_at or now) - each.claimed_at, 0.0))
        said = f"worker {each.where or each.worker_id}" if each.worker_id else f"queue {each.queue}"
        rest = Text(said, style=_DIM)
        if each.error is not None:
            rest.append(f"  {format_error(each.error)}", style="red")
        table.add_row(
            str(each.number),
            Text(word, style=_COLOURS.get(each.status, "cyan")),
            Text(_local(each.claimed_at or each.dispatched_at), style=_DIM),
            took,
            rest,
        )
    return table


def _whole(error: dict[str, Any]) -> str:
    """All of an error: its message, every line of it, the details, and where it was raised."""
    ours = {"kind", "message", "type", "traceback"}
    name = error.get("type") or error.get("kind", "error")
    said = [f"{name}: {error.get('message', '')}"]
    said += [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in error.items() if key not in ours]
    return "\n".join([*said, *([str(error["traceback"])] if error.get("traceback") else [])])


def _value(name: str, value: Any) -> Iterator[Any]:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    if len(text) > _LONGEST_VALUE:
        text = f"{text[:_LONGEST_VALUE]}… ({len(text):,} characters: --json shows all)"
    yield Text(f"\n{name}", style=_DIM)
    yield Padding(Text(text), (0, 0, 0, 2), expand=False)


def _local(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


# ── For programs ──


def node_document(told: NodeDetail) -> dict[str, Any]:
    """All of a node, for programs. What is not known of it is not there."""
    line, head, node = told.line, told.head, told.node
    spec = spec_of(told.graph, line.node_id)
    found: dict[str, Any] = {
        "job_id": head.id,
        "workflow_id": head.workflow_id,
        "version": head.version,
        "node": line.node_id,
        "does": None if spec is None else describe(spec),
        "status": line.status,
        "started_at": spell_time(line.started_at),
        "finished_at": spell_time(line.finished_at),
        "attempts": [_attempt_document(each) for each in node.attempts],
        "error": line.error,
        "output": node.output,
    }
    if node.fan_out is not None:
        found["fan_out"] = {"node": node.fan_out, "index": node.number}
        found["fan_out"] |= {"item": node.item} if node.has_item else {}
    optional = {
        "skip_reason": line.skip_reason,
        "branch": line.branch,
        "handler_version": node.handler_version,
        "params": node.params,
        "progress": line.progress,
        "wakes_at": spell_time(line.wake_at),
        "children": None if told.children is None else {"total": line.source_count, **told.children.counts},
    }
    return found | {name: value for name, value in optional.items() if value is not None}


def _attempt_document(each: Attempt) -> dict[str, Any]:
    took = None if each.claimed_at is None or each.completed_at is None else each.completed_at - each.claimed_at
    return {
        "attempt": each.number,
        "status": each.status,
        "queue": each.queue,
        "worker_id": each.worker_id,
        "worker": each.where,
        "dispatched_at": spell_time(each.dispatched_at),
        "started_at": spell_time(each.claimed_at),
        "finished_at": spell_time(each.completed_at),
        "duration_seconds": None if took is None else round(max(took, 0.0), 6),
        "error": each.error,
        "metrics": each.metrics,
    }
