"""Send a command to a job, and wait until its owner has processed it.

The command goes into the job's inbox, which is durable. The owner processes it in a turn, writes an audit
event about it, and notifies readers: the effect is read when the notification arrives. Behind a pooler
without a direct URL there are no notifications, and the effect is polled for. If no orchestrator is alive,
the command is processed as soon as one claims the job.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from dagmaster.application.queries.events_and_logs import event_view
from dagmaster.application.secret_inputs import job_redactor
from dagmaster.application.views.results import CommandResult
from dagmaster.errors import CommandInvalid, JobNotFound
from dagmaster.ports.audit_events import EventType
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.job_options import MAX_ACTOR
from dagmaster.ports.run_queues import is_run_queue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from dagmaster.application.context import Application
    from dagmaster.json_types import JsonValue
    from dagmaster.ports.audit_events import StoredEvent
    from dagmaster.ports.audit_trail import AuditEntry
    from dagmaster.ports.read_store import Subscription
    from dagmaster.records.jobs import JobRecord

WAIT_SECONDS: Final = 5.0
"""How long a command waits for its effect, unless its caller says otherwise."""
POLL_SECONDS: Final = 0.5
"""How often the effect is read where no notifications arrive."""
SAFETY_SECONDS: Final = 5.0
"""How often the effect is read where notifications arrive, in case one was lost."""
MAX_SENDER: Final = MAX_ACTOR
MAX_AUDITED: Final = 100
"""How many nodes of a command the audit trail names."""
_REJECTIONS: Final = frozenset({EventType.COMMAND_REJECTED, EventType.STALE_REPORT_IGNORED})


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingCommand:
    """A command that passed its preconditions.

    `effects`: the types of the event that its owner writes about it.
    """

    kind: CommandKind
    sent_by: str
    effects: frozenset[EventType]
    body: Mapping[str, JsonValue] = field(default_factory=dict)
    node_ids: tuple[str, ...] = ()
    """The nodes that it names; none for a command to the job."""

    @property
    def node_id(self) -> str | None:
        return self.node_ids[0] if len(self.node_ids) == 1 else None

    def is_answered_by(self, event: StoredEvent, command_id: str) -> bool:
        """Return whether an event says what became of this command, which has an id since it was sent."""
        if "command_id" in event.data:
            return bool(event.data["command_id"] == command_id)
        if event.node_id not in (*self.node_ids, None):
            return False
        if event.type == EventType.NODE_DISPATCHED:
            # A retry of a node that waits for its next attempt starts that one, and writes no event of its
            # own.
            return event.type in self.effects
        # An orchestrator of an older version writes no id: the event of the same sender is taken for the
        # answer.
        if event.by != self.sent_by:
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
    check_sender(command.sent_by)

    async def store() -> str | None:
        entries = _audit_entries(app, job, command)
        return await app.client.send(job.job_id, command.kind, command.body, command.sent_by, audit=entries)

    return await await_command(app, job, command, store, wait_seconds=wait_seconds)


async def await_command(
    app: Application,
    job: JobRecord,
    command: OutgoingCommand,
    store: Callable[[], Awaitable[str | None]],
    *,
    wait_seconds: float = WAIT_SECONDS,
) -> CommandResult:
    """Store a command and wait for its effect. `store` returns its id, None if there is no such job."""
    if wait_seconds <= 0:
        sent = await _store(job, command, store)
        return await _result(app, sent, None, is_done=False, is_owned=True)
    # Subscribed before it is sent: otherwise the owner could be faster.
    async with app.read.subscribe(job.job_id) as subscription:
        sent = await _store(job, command, store)
        is_owned = await _has_owner(app, job)
        if not is_owned and (command.kind is not CommandKind.CANCEL or app.own_turns is None):
            return await _result(app, sent, None, is_done=False, is_owned=False)
        async with contextlib.AsyncExitStack() as stack:
            deadline = time.monotonic() + wait_seconds
            if not is_owned and app.own_turns is not None:
                await stack.enter_async_context(app.own_turns(job.job_id))
            event, is_done = await _await_effect(app, sent, subscription, deadline)
            if not is_owned and is_done:
                await _await_end(app, job, subscription, deadline)
    return await _result(app, sent, event, is_done=is_done, is_owned=is_owned)


async def _has_owner(app: Application, job: JobRecord) -> bool:
    """Return whether an orchestrator has a job, or claims it in a moment."""
    is_reserved = job.owner is None and job.queue is not None and is_run_queue(job.queue)
    return not is_reserved and (await app.read.fleet_counts()).orchestrators > 0


async def _await_end(app: Application, job: JobRecord, subscription: Subscription, deadline: float) -> None:
    """Wait for the end of a job that this process decides about: the next owner decides about the rest."""
    while (seconds := deadline - time.monotonic()) > 0:
        record = await app.read.job(job.job_id)
        if record is None or record.is_finished:
            return
        await subscription.wait(min(seconds, POLL_SECONDS))


class _SentCommand(NamedTuple):
    """A command in the inbox of a job."""

    command_id: str
    command: OutgoingCommand
    job: JobRecord


async def _store(
    job: JobRecord, command: OutgoingCommand, store: Callable[[], Awaitable[str | None]]
) -> _SentCommand:
    command_id = await store()
    if command_id is None:
        raise JobNotFound(f"there is no job {job.job_id!r}")
    return _SentCommand(command_id, command, job)


def _audit_entries(app: Application, job: JobRecord, command: OutgoingCommand) -> list[AuditEntry]:
    if app.origin is None:
        return []
    nodes = command.node_ids
    details: dict[str, JsonValue] = {} if command.node_id is None else {"node_id": command.node_id}
    if len(nodes) > 1:
        details = {"node_ids": list(nodes[:MAX_AUDITED]), "count": len(nodes)}
    verb = CommandKind.CANCEL if command.kind is CommandKind.CANCEL_NODES else command.kind
    action = f"{'node' if nodes else 'job'}.{verb}"
    return [app.origin.entry(action, "job", job.job_id, details, actor=command.sent_by)]


async def _await_effect(
    app: Application, sent: _SentCommand, subscription: Subscription, deadline: float
) -> tuple[StoredEvent | None, bool]:
    """Return the event about a command, and whether the command was processed."""
    interval = SAFETY_SECONDS if subscription.has_notifications else POLL_SECONDS
    seq = sent.job.event_seq
    while True:
        is_pending = await _is_pending(app, sent)
        event, seq = await _find_answer(app, sent, seq, is_pending=is_pending)
        # Pending first, then events: a command that is not pending has its event.
        if event is not None or not is_pending:
            return event, True
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return None, False
        await subscription.wait(min(remaining, interval))


async def _is_pending(app: Application, sent: _SentCommand) -> bool:
    """Return whether no owner has processed a command yet."""
    before = (str(int(sent.command_id) - 1),)
    pending = await app.read.pending_commands(sent.job.job_id, after=before, limit=1)
    return any(command.command_id == sent.command_id for command in pending)


async def _find_answer(
    app: Application, sent: _SentCommand, seq: int, *, is_pending: bool
) -> tuple[StoredEvent | None, int]:
    """Return the event about a command, and the number of the last event that was read.

    One of several nodes may be dispatched by itself: that is the answer only of a command that was processed.
    """
    dispatched: StoredEvent | None = None
    # The event about a cancel may name a member of the group that the command names.
    node_ids = None if sent.command.kind is CommandKind.CANCEL_NODES else sent.command.node_ids
    while True:
        events = await app.read.events(sent.job.job_id, after=seq, node_ids=node_ids)
        for event in events:
            seq = event.seq
            if sent.command.is_answered_by(event, sent.command_id):
                if event.type != EventType.NODE_DISPATCHED or sent.command.node_id is not None:
                    return event, seq
                dispatched = dispatched or event
        if not events:
            return (None, dispatched.seq - 1) if dispatched is not None and is_pending else (dispatched, seq)


async def _result(
    app: Application, sent: _SentCommand, event: StoredEvent | None, *, is_done: bool, is_owned: bool
) -> CommandResult:
    job, command = sent.job, sent.command
    view = None if event is None else event_view(job.job_id, event, await job_redactor(app, job))
    if view is not None:
        sentence = view.sentence
    elif is_done:
        sentence = "processed; it changed nothing"
    elif is_owned:
        sentence = "accepted, not processed yet"
    else:
        sentence = "accepted; no orchestrator is alive, and the next one that starts processes it"
    return CommandResult(
        job_id=job.job_id,
        command_id=sent.command_id,
        command=command.kind,
        node_id=command.node_id,
        accepted=event is None or event.type not in _REJECTIONS,
        is_done=is_done,
        seq=None if event is None else event.seq,
        event=view,
        sentence=sentence,
    )
