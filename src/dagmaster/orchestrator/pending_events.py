"""What happened to one job since its last turn."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dagmaster.errors import CommandRejected
from dagmaster.orchestrator.inbox import of_command, of_result
from dagmaster.ports.audit_events import AuditEvent, EventType

if TYPE_CHECKING:
    from dagmaster.engine.events import EngineEvent
    from dagmaster.engine.model import Job
    from dagmaster.ports.json_text import JsonText
    from dagmaster.ports.turn_records import Command, TaskResult


class PendingEvents:
    """Happenings, with what comes with them and what is taken by them."""

    __slots__ = (
        "commands",
        "events",
        "happenings",
        "notified_results",
        "people",
        "reported",
        "results",
        "started",
        "takes_up",
    )

    def __init__(self) -> None:
        self.happenings: list[EngineEvent] = []
        self.reported: dict[tuple[str, int], JsonText] = {}
        self.started: dict[str, float] = {}
        self.results: list[int] = []
        # Those of them that nobody has read.
        self.notified_results: list[TaskResult] = []
        self.commands: list[int] = []
        # Who sent the n-th happening.
        self.people: dict[int, str] = {}
        self.events: list[AuditEvent] = []
        # The job was just loaded: what it still waits for is to be answered.
        self.takes_up = False

    def take_result(self, result: TaskResult) -> None:
        """A worker reported."""
        self.results.append(result.id)
        self.happenings.append(of_result(result))
        if result.output is not None:
            self.reported[result.node_id, result.attempt] = result.output
        if result.claimed_at is not None:
            self.started[result.node_id] = result.claimed_at

    def take_pushed(self, result: TaskResult) -> None:
        """A worker reported, and this came with the wake-up: it is still to be checked."""
        self.notified_results.append(result)
        self.take_result(result)

    def take_command(self, command: Command, job: Job) -> None:
        """Somebody asked. What cannot be is told as refused."""
        self.commands.append(command.id)
        try:
            happening = of_command(job, command)
        except (CommandRejected, KeyError, TypeError) as error:
            data = json.dumps({"command": command.kind, "reason": str(error)})
            self.events.append(AuditEvent(EventType.COMMAND_REJECTED, data=data, by=command.sent_by or None))
            return
        self.people[len(self.happenings)] = command.sent_by
        self.happenings.append(happening)
