"""Jobs as they might be read from a database, for tests of how they look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console, Group

from dagmaster.authoring.compiler.compile import compile_definition
from dagmaster.cli.snapshots import Snapshot
from dagmaster.store.postgres.legacy_read_store import FleetCounts, JobDetail, NodeRecord

if TYPE_CHECKING:
    from dagmaster.engine.graph import Graph

FLOW: dict[str, Any] = {
    "workflow_id": "flow",
    "version": 2,
    "inputs": {"token": {"type": "string", "secret": True}, "size": {"type": "integer"}},
    "nodes": {
        "fetch": {"handler": "echo", "queue": "default", "next": ["tiles", "release"]},
        "tiles": {
            "type": "fan_out",
            "source": "{{ nodes.fetch.output.items }}",
            "task": {"handler": "echo", "queue": "default"},
        },
        "release": {"type": "approval", "message": "Release?", "approvers": ["ada"], "next": "after"},
        "after": {"type": "wait", "signal": "go"},
    },
}


def graph(definition: dict[str, Any] | None = None) -> Graph:
    return compile_definition(definition or FLOW)


def chain(length: int) -> Graph:
    nodes = {
        f"n{i}": {"handler": "echo", "queue": "default", **({"next": f"n{i + 1}"} if i + 1 < length else {})}
        for i in range(length)
    }
    return graph({"workflow_id": "chain", "version": 1, "nodes": nodes})


def head(**changes: Any) -> JobDetail:
    given: dict[str, Any] = {
        "id": "7", "workflow_id": "flow", "version": 2, "content_hash": "x", "status": "RUNNING", "run": 1,
        "priority": 5, "inputs": {"token": "hunter2", "size": 3}, "result": None, "result_ref": None, "error": None,
        "submitted_by": "ada", "correlation_id": None, "idempotency_key": None, "queue": None, "event_seq": 9,
        "parent_job_id": None, "parent_node_id": None, "cancelling": False, "ending": False, "deadline_at": None,
        "created_at": 100.0, "started_at": 101.0, "finished_at": None, "now": 111.0, "owner_id": "1", "host": "h",
        "pid": 4, "silent_seconds": 1.0,
    }  # fmt: skip
    return JobDetail(**(given | changes))


def snapshot(*lines: NodeRecord, **changes: Any) -> Snapshot:
    found = Snapshot(head(**changes), graph(), {line.node_id: line for line in lines})
    found.alive = FleetCounts(1, 1)
    return found


def drawn(*parts: Any, width: int = 80) -> str:
    """Return the rendered text without colours."""
    console = Console(width=width, no_color=True, force_terminal=False)
    with console.capture() as capture:
        console.print(Group(*parts))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
