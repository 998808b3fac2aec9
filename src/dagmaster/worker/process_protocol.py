"""The protocol between a worker and its handler processes: JSON in frames, each preceded by its length.

No pickle: a handler's process may be broken, and its messages must not execute code. The messages:

    worker   {"modules", "path", "memory_limit_mb"} first, then {"task"}, {"cancel"}, {"added"}, {"shutdown"}
    process  {"ready"} or {"unavailable"} first, then for each task {"progress"}, {"checkpoint"},
             {"add_nodes"} and last an outcome
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from dagmaster.host.length_frames import LENGTH, add_length, read_frame
from dagmaster.ports.handler_reports import Checkpoint, Progress
from dagmaster.ports.task_messages import Failed, Outcome, Succeeded, TaskMessage
from dagmaster.worker.json_copy import json_copy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.json_types import JsonObject
    from dagmaster.ports.added_nodes import UnstoredNodes


@dataclass(frozen=True, slots=True)
class Ready:
    """A process has started. `error`: why it cannot run tasks."""

    error: str | None = None


@dataclass(frozen=True, slots=True)
class AddNodesRequest:
    """A handler adds nodes to its job at once. Its `call` is answered by {"added"}."""

    call: int
    part: dict[str, Any]


def frame(message: dict[str, Any]) -> bytes:
    # ASCII: a lone surrogate, which UTF-8 cannot encode, is transferred, and rejected where values are
    # checked.
    return add_length(json.dumps(message, separators=(",", ":")).encode("ascii"))


def receive(stream: BinaryIO) -> Any:
    """Return the next message of a blocking stream; raise EOFError at its end."""
    return json.loads(read_frame(stream))


class Frames:
    """Splits received bytes into messages."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = bytearray()

    def take(self, data: bytes) -> Iterator[Any]:
        """Return every message that these bytes complete."""
        self._bytes += data
        while len(self._bytes) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._bytes)[0]
            if len(self._bytes) < end:
                return
            body = bytes(memoryview(self._bytes)[LENGTH.size : end])
            del self._bytes[:end]
            yield json.loads(body)


def encode_task(message: TaskMessage, handler: str) -> JsonObject:
    """Return the message for a task; raise PermanentError (`invalid_params`) if its params are not JSON."""
    params = message.params
    return {
        "task": {
            "handler": handler,
            "task_id": message.task_id,
            "job_id": message.job_id,
            "node_id": message.node_id,
            "attempt": message.attempt,
            "params": params
            if message.own_params
            else json_copy(params, kind="invalid_params", subject="the params"),
            "checkpoint": None if message.checkpoint is None else message.checkpoint.to_json(),
            "workflow": message.workflow,
            "fencing_token": message.fencing_token,
            "trace_parent": message.trace_parent,
            "queue": message.queue,
        }
    }


def encode_progress(progress: Progress) -> JsonObject:
    return {"progress": [progress.current, progress.total, progress.message]}


def encode_checkpoint(checkpoint: Checkpoint) -> JsonObject:
    return {"checkpoint": checkpoint.to_json()}


def encode_outcome(outcome: Outcome) -> JsonObject:
    if isinstance(outcome, Succeeded):
        added = {} if outcome.added is None else {"added": outcome.added.to_json()}
        return {"succeeded": outcome.output, "metrics": outcome.metrics, **added}
    if isinstance(outcome, Failed):
        return {"failed": outcome.error, "permanent": outcome.permanent}
    raise TypeError(outcome)


def decode(body: dict[str, Any]) -> Progress | Checkpoint | AddNodesRequest | Succeeded | Failed | Ready:
    """Return the message of a process; raise KeyError, TypeError or ValueError if it is invalid."""
    if "progress" in body:
        current, total, message = body["progress"]
        return Progress(current, total, message)
    if "checkpoint" in body:
        return Checkpoint.from_json(body["checkpoint"])
    if "succeeded" in body:
        added = body.get("added")
        return Succeeded(
            body["succeeded"], dict(body["metrics"]), None if added is None else _read_nodes(added)
        )
    if "add_nodes" in body:
        return AddNodesRequest(int(body["call"]), dict(body["add_nodes"]))
    if "ready" in body:
        return Ready()
    if "unavailable" in body:
        return Ready(str(body["unavailable"]))
    return Failed(dict(body["failed"]), bool(body["permanent"]))


def _read_nodes(body: dict[str, Any]) -> UnstoredNodes:
    # Here: most tasks add none, and a handler process reads no such message.
    from dagmaster.authoring.graph_parts import GraphPart

    return GraphPart.from_json(body)
