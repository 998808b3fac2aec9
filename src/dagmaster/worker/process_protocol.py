"""What a worker and its handler processes say to each other: JSON, in frames with their length before them.

No pickle: a handler's process may be broken, and what it sends is read, never run. Who says what:

    worker   {"modules", "path", "memory_limit_mb"} first, then {"task"}, {"cancel"}, {"shutdown"}
    process  {"ready"} or {"unavailable"} first, then for each task {"progress"}, {"checkpoint"} and last an outcome
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from dagmaster.ports.handler_reports import Checkpoint, Progress
from dagmaster.ports.task_messages import Failed, Outcome, Succeeded

if TYPE_CHECKING:
    from collections.abc import Iterator

_LENGTH = struct.Struct("!I")


@dataclass(frozen=True, slots=True)
class Ready:
    """A process has started. What it lacks, if it cannot take tasks."""

    lacking: str | None = None


def frame(said: dict[str, Any]) -> bytes:
    """Return a message as bytes."""
    # ASCII: a lone surrogate, which UTF-8 cannot say, comes through and is refused where values are looked at.
    body = json.dumps(said, separators=(",", ":")).encode("ascii")
    return _LENGTH.pack(len(body)) + body


def receive(stream: BinaryIO) -> Any:
    """Return the next message of a blocking stream. The end of the stream is EOFError."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    if len(body) < length:
        raise EOFError
    return json.loads(body)


class Frames:
    """Takes bytes as they come, and gives messages when they are whole."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = bytearray()

    def take(self, data: bytes) -> Iterator[Any]:
        """Return every message that these bytes complete."""
        self._bytes += data
        while len(self._bytes) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._bytes)[0]
            if len(self._bytes) < end:
                return
            body = bytes(memoryview(self._bytes)[_LENGTH.size : end])
            del self._bytes[:end]
            yield json.loads(body)


def encode_progress(progress: Progress) -> dict[str, Any]:
    """Return how far a handler is."""
    return {"progress": [progress.current, progress.total, progress.message]}


def encode_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return a place from which another attempt can go on."""
    return {"checkpoint": checkpoint.to_json()}


def encode_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return what became of a task. A child process hands nothing back."""
    if isinstance(outcome, Succeeded):
        return {"succeeded": outcome.output, "metrics": outcome.metrics}
    if isinstance(outcome, Failed):
        return {"failed": outcome.error, "permanent": outcome.permanent}
    raise TypeError(outcome)


def decode(said: dict[str, Any]) -> Progress | Checkpoint | Succeeded | Failed | Ready:
    """Return what a process said. What has none of these forms is KeyError, TypeError or ValueError."""
    if "progress" in said:
        current, total, message = said["progress"]
        return Progress(current, total, message)
    if "checkpoint" in said:
        return decode_checkpoint(said["checkpoint"])
    if "succeeded" in said:
        return Succeeded(dict(said["succeeded"]), dict(said["metrics"]))
    if "ready" in said:
        return Ready()
    if "unavailable" in said:
        return Ready(str(said["unavailable"]))
    return Failed(dict(said["failed"]), bool(said["permanent"]))


def decode_checkpoint(saved: dict[str, Any]) -> Checkpoint:
    """Return a checkpoint from its JSON."""
    return Checkpoint(saved["phase"], saved["data"], tuple(saved["artifacts"]))
