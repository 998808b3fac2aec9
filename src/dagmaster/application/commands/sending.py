"""Send a command to a job, and wait until its owner has processed it.

The command goes into the job's inbox, which is durable. The owner processes it in a turn, writes an audit event about
it, and notifies readers: the effect is read when the notification arrives. Behind a pooler without a direct URL there
are no notifications, and the effect is polled for. If no orchestrator is alive, the command is processed as soon as one
claims the job.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dagmaster.application.queries.events_and_logs import event_view
from dagmaster.application.secret_inputs import job_redactor
from dagmaster.application.views.events_and_logs import EventView
from dagmaster.application.views.view import View
from dagmaster.errors import CommandInvalid, JobNotFound
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.command_kinds import CommandKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.application.context import Application
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.ports.read_store import JobRecord, Subscription

WAIT_SECONDS: Final = 5.0
"""How long a command waits for its effect, unless its caller says otherwise."""
POLL_SECONDS: Final = 0.5
"""How often the effect is read where no notifications arrive."""
SAFETY_SECONDS: Final = 5.0
"""How often the effect is read where notifications arrive, in case one was lost."""
MAX_SENDER: Final = 64
_REJECTIONS: Final = frozenset({EventType.COMMAND_REJECTED, EventType.STALE_REPORT_IGNORED})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult(View):
    """What became of a command. Not `accepted`: its owner rejected it, and `sentence` says why.

    `is_done`: the owner has processed it, and `event` is the audit event about it, if it wrote one. A command that is
    accepted and not done is stored, and is processed later.
    """

    job_id: str
    command: CommandKind
    node_id: str | None
    accepted: bool
    is_done: bool
    seq: int | None
    event: EventView | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingCommand:
    """A command that passed its preconditions. `effects`: the types of the event that its owner writes about it."""

    kind: CommandKind
    sent_by: str
    effects: frozenset[EventType]
    body: Mapping[str, JsonValue] = field(default_factory=dict)
    node_id: str | None = None

    def is_answered_by(self, event: StoredEvent) -> bool:
        """Return whether an event says what became of this command."""
        if event.node not in (self.node_id, None):
            return False
        if event.type in self.effects:
            return True
        # A report that was ignored has an attempt; an ignored command has none.
        is_rejection = event.type in _REJECTIONS and event.attempt is None
        return is_rejection and event.data.get("command", self.kind) == self.kind


def check_sender(sent_by: str) -> None:
    """Raise `CommandInvalid` if the name of a sender cannot be stored."""
    if not sent_by or len(sent_by) > MAX_SENDER or not sent_by.isprintable():
        raise CommandInvalid(f"the sender of a command has 1 to {MAX_SENDER} printable characters")


async def send_command(
    app: Application, job: JobRecord, command: OutgoingCommand, *, wait_seconds: float = WAIT_SECONDS
) -> CommandResult:
    """Send a command and wait for its effect. With `wait_seconds=0`, return when it is stored."""
    if wait_seconds <= 0:
        await _store(app, job, command)
        return await _result(app, job, command, None, is_done=False, is_owned=True)
    # Subscribed before it is sent: otherwise the owner could be faster.
    async with app.read.subscribe(job.id) as subscription:
        await _store(app, job, command)
        if (await app.read.fleet_counts()).orchestrators == 0:
            return await _result(app, job, command, None, is_done=False, is_owned=False)
        event, is_done = await _await_effect(app, job, command, subscription, wait_seconds)
    return await _result(app, job, command, event, is_done=is_done, is_owned=True)


async def _store(app: Application, job: JobRecord, command: OutgoingCommand) -> None:
    check_sender(command.sent_by)
    if not await app.client.send(job.id, command.kind, command.body, command.sent_by):
        raise JobNotFound(f"there is no job {job.id!r}")


async def _await_effect(
    app: Application, job: JobRecord, command: OutgoingCommand, subscription: Subscription, wait_seconds: float
) -> tuple[StoredEvent | None, bool]:
    """Return the event about a command, and whether the command was processed."""
    deadline = time.monotonic() + wait_seconds
    interval = SAFETY_SECONDS if subscription.has_notifications else POLL_SECONDS
    seq = job.event_seq
    while True:
        is_pending = any(
            pending.kind == command.kind and pending.sent_by == command.sent_by
            for pending in await app.read.pending_commands(job.id)
        )
        event, seq = await _find_answer(app, job.id, command, seq)
        # Pending first, then events: a command that is not pending has its event.
        if event is not None or not is_pending:
            return event, True
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return None, False
        await subscription.wait(min(remaining, interval))


async def _find_answer(
    app: Application, job_id: str, command: OutgoingCommand, seq: int
) -> tuple[StoredEvent | None, int]:
    """Return the event about a command, and the number of the last event that was read."""
    node_ids = [] if command.node_id is None else [command.node_id]
    while True:
        events = await app.read.events(job_id, after=seq, node_ids=node_ids)
        for event in events:
            seq = event.seq
            if command.is_answered_by(event):
                return event, seq
        if not events:
            return None, seq


async def _result(
    app: Application,
    job: JobRecord,
    command: OutgoingCommand,
    event: StoredEvent | None,
    *,
    is_done: bool,
    is_owned: bool,
) -> CommandResult:
    view = None if event is None else event_view(job.id, event, await job_redactor(app, job))
    if view is not None:
        sentence = view.sentence
    elif is_done:
        sentence = "processed; it changed nothing"
    elif is_owned:
        sentence = f"accepted, not processed yet; to follow it: dagmaster jobs events {job.id} -f"
    else:
        sentence = "accepted; no orchestrator is alive, and the next one that starts processes it"
    return CommandResult(
        job_id=job.id,
        command=command.kind,
        node_id=command.node_id,
        accepted=event is None or event.type not in _REJECTIONS,
        is_done=is_done,
        seq=None if event is None else event.seq,
        event=view,
        sentence=sentence,
    )
