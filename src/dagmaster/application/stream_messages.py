"""The messages of live streams. Each is encoded once, however many readers get it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class MessageType(StrEnum):
    """What a message is."""

    SNAPSHOT = "snapshot"
    DELTA = "delta"
    TASKS = "tasks"
    LOG = "log"
    END = "end"


class EndReason(StrEnum):
    """Why a stream ended."""

    FINISHED = "finished"
    REMOVED = "removed"
    SHUTDOWN = "shutdown"
    UNAVAILABLE = "unavailable"
    KEY_REJECTED = "key_rejected"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class StreamMessage:
    """A message. `data` is JSON in one line; a stream resumes after `id`."""

    type: MessageType
    data: str
    id: str | None = None
    reason: EndReason | None = None


def message(kind: MessageType, data: Mapping[str, Any], number: int | str | None = None) -> StreamMessage:
    return StreamMessage(kind, encode(data), None if number is None else str(number))


def end(reason: EndReason, detail: str, number: int | str | None = None) -> StreamMessage:
    data = encode({"reason": reason.value, "detail": detail})
    return StreamMessage(MessageType.END, data, None if number is None else str(number), reason)


def encode(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


NO_TASKS: Final = encode({"tasks": []})
"""The data of a message about tasks if there are none."""
