"""What a handler reports: progress and checkpoints while it runs, and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.json_types import JsonObject


@dataclass(slots=True)
class Progress:
    """How far a handler has come. Without a total: only that it is moving."""

    current: float
    total: float | None = None
    message: str = ""


@dataclass(slots=True)
class Checkpoint:
    """A point from which another attempt can resume. `data` is JSON; `artifacts` names what was written so far."""

    phase: str
    data: dict[str, Any] = field(default_factory=dict)
    artifacts: Sequence[str] = ()

    def to_json(self) -> JsonObject:
        """Return the checkpoint as plain JSON data."""
        return {"phase": self.phase, "data": self.data, "artifacts": list(self.artifacts)}


@dataclass(slots=True)
class HandlerResult:
    """What a handler returns when a dict is not enough. `success=False` fails the attempt, which may be retried."""

    success: bool
    output: JsonObject = field(default_factory=dict)
    error_message: str | None = None
    metrics: dict[str, Any] = field(default_factory=dict)


class Reporter(Protocol):
    """Receives the reports of one context. Called on any thread."""

    def progress(self, progress: Progress) -> None:
        """Record how far the handler has come."""

    def checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        """Save a checkpoint and return what was saved."""
