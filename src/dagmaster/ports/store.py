"""The store as its users see it: three small doors, for orchestrators, for workers and for clients.

The store keeps, fences and wakes. It decides nothing: what a row should become is said by who writes it. JSON crosses
as text wherever nobody on the way has to look into it. Every method raises `DatabaseUnavailable` when the store cannot
be reached; then nothing, or everything, of that call has happened.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from dagmaster.ports.reusable_results import ReusableResults

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Mapping, Sequence

    from dagmaster.engine.decisions import FinishJob
    from dagmaster.engine.model import Job, JobRow, Node, NodeRow
    from dagmaster.ports.audit_events import AuditEvent
    from dagmaster.ports.clock import Clock
    from dagmaster.ports.command_kinds import CommandKind
    from dagmaster.ports.ids import Snowflakes
    from dagmaster.ports.node_values import ValueKey

MAX_INLINE: Final = 64 * 1024
"""Characters of JSON that stand in a row. What is longer is a blob, and the row has its name."""


@dataclass(slots=True)
class JsonText:
    """A JSON value as it is stored: its text, or the name of the blob that holds the text."""

    text: str | None = None
    ref: str | None = None

    def value(self) -> Any:
        """The value, if its text is here."""
        return None if self.text is None else json.loads(self.text)


# ── Jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True, kw_only=True)
class NewJob:
    """A job to store. Its graph is stored already."""

    id: str
    workflow_id: str
    version: int
    content_hash: str
    inputs: str
    name: str = ""
    """What people call it; the id of its workflow if empty."""
    env: str = "{}"
    priority: int = 5
    idempotency_key: str | None = None
    body_hash: str | None = None
    submitted_by: str = ""
    correlation_id: str | None = None
    callback_url: str | None = None
    queue: str | None = None
    workflows: str = "{}"
    parent: ParentNode | None = None
    depth: int = 0
    # The job whose results are used again where they fit; but none of these nodes, nor of what follows them.
    resumed_from: str | None = None
    redo: tuple[str, ...] = ()


class ParentNode(NamedTuple):
    """The node of another job that a job was started for."""

    job_id: str
    node_id: str
    attempt: int


class Accepted(NamedTuple):
    """What became of a submit. `same`: an earlier job with this key has the same body."""

    job_id: str
    is_new: bool
    same: bool = True


class StoredWorkflow(NamedTuple):
    """A published version of a workflow."""

    workflow_id: str
    version: int
    content_hash: str


@dataclass(slots=True, kw_only=True)
class ClaimedJob:
    """A job that this orchestrator now owns, with all that is stored of it."""

    row: JobRow
    workflow_id: str
    version: int
    content_hash: str
    inputs: Mapping[str, Any]
    env: Mapping[str, str]
    priority: int
    epoch: int
    event_seq: int
    depth: int
    queue: str | None
    workflows: Mapping[str, str]
    parent: ParentNode | None
    nodes: Sequence[NodeRow] = ()
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Ids of the tasks that are out, by node."""
    resumed_from: str | None = None
    redo: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job that is over, as `run` tells it."""

    job_id: str
    workflow_id: str
    version: int
    status: str
    result: Any
    error: dict[str, Any] | None
    duration_seconds: float
    nodes: dict[str, dict[str, Any]] = field(repr=False)
    # Why the runner itself ended the job, if it did.
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Give the one document that `--json` prints."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "note"}


# ── What an orchestrator takes and writes ───────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class TaskResult:
    """What a worker reported of an attempt; LOST is reported by an orchestrator on behalf of a dead worker."""

    id: int
    job_id: str
    node_id: str
    attempt: int
    status: str
    permanent: bool
    output: JsonText | None
    error: str | None
    claimed_at: float | None
    reported_at: float
    handler_version: str | None = None

    @property
    def content(self) -> tuple[Any, ...]:
        """What stands in its row, in order."""
        output = self.output or JsonText()
        where = (self.id, int(self.job_id), self.node_id, self.attempt)
        what = (self.status, self.permanent, output.text, output.ref, self.error)
        return (*where, *what, self.claimed_at, self.reported_at, self.handler_version)


@dataclass(slots=True)
class Command:
    """What somebody asked of a job."""

    id: int
    job_id: str
    kind: str
    body: dict[str, Any]
    sent_by: str
    at: float


@dataclass(slots=True)
class NewTask:
    """A task for a worker. `secrets`: which places of the params a secret is to be put in, and what is to be hidden."""

    task_id: str
    node_id: str
    attempt: int
    queue: str
    handler: str
    params: str
    secrets: str | None
    timeout_seconds: float


@dataclass(slots=True)
class Withdrawal:
    """A task to take back, if no worker holds it. Then `status` and `error` are its result."""

    task_id: str
    status: str
    error: str | None = None


@dataclass(slots=True)
class TurnCommit:
    """One job's part of a turn. It is written as a whole, and only while (owner, epoch) still hold the job."""

    job: Job
    epoch: int
    event_seq: int
    priority: int
    results: list[int] = field(default_factory=list)
    # Those of them that were pushed: the turn is written only if they are stored as they were said.
    pushed: list[TaskResult] = field(default_factory=list)
    commands: list[int] = field(default_factory=list)
    added: list[Node] = field(default_factory=list)
    changed: list[Node] = field(default_factory=list)
    outputs: dict[str, JsonText] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    # Nodes that were opened again.
    forgotten: list[str] = field(default_factory=list)
    started: dict[str, float] = field(default_factory=dict)
    task_ids: dict[str, str] = field(default_factory=dict)
    tasks: list[NewTask] = field(default_factory=list)
    withdrawals: list[Withdrawal] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    born_stopped: set[str] = field(default_factory=set)
    children: list[NewJob] = field(default_factory=list)
    cancelled_children: list[tuple[str, int]] = field(default_factory=list)
    events: list[AuditEvent] = field(default_factory=list)
    parent: ParentNode | None = None
    finished: FinishJob | None = None
    result: JsonText | None = None
    release: bool = False


class OrchestratorStore(ReusableResults, Protocol):
    """What an orchestrator needs."""

    woken: asyncio.Event
    """Set when something may wait for this orchestrator; `waiting` says what: results, commands, jobs."""

    waiting: set[str]

    pushed: list[TaskResult]
    """What came with a wake-up. It may be taken already, or of others' jobs: who writes a turn with it says so."""

    on_disconnect: Callable[[], None]
    """Called when a connection to the store broke off."""

    @property
    def clock(self) -> Clock:
        """The store's time, which decides."""

    @property
    def ids(self) -> Snowflakes:
        """New ids."""

    async def register(self) -> None:
        """Be known, as alive."""

    async def heartbeat(self, counters: Mapping[str, Any]) -> None:
        """Stay alive. `OwnershipLost` if others may believe otherwise: then every job is to be dropped."""

    async def claim(self, limit: int, queue: str | None = None) -> list[ClaimedJob]:
        """Own jobs that nobody owns: the most urgent first, then the oldest. With a queue: jobs of this queue only."""

    async def mine(self, job_ids: Collection[str] | None = None) -> list[ClaimedJob]:
        """Load the jobs that this orchestrator owns, under a new epoch: after a doubt."""

    async def read_results(self, limit: int, resting: Collection[str] = (), *, after: int = 0) -> list[TaskResult]:
        """Read what was reported of this orchestrator's jobs, but for those that rest. It stays until it is written."""

    async def read_commands(self, limit: int, resting: Collection[str] = ()) -> list[Command]:
        """Read what was asked of this orchestrator's jobs, likewise."""

    async def write(self, turns: Sequence[TurnCommit], now: float) -> set[str]:
        """Write turns, and give the jobs that were written.

        Of the others nothing changed: they are not held any more, or what was pushed of them is not stored.
        """

    async def load(self, job_id: str, keys: Collection[ValueKey]) -> Mapping[ValueKey, Any]:
        """Load values: see `ports.values.Values`."""

    async def open(self, value: JsonText) -> Any:
        """Read a value that is not stored yet, likewise."""

    async def definition(self, content_hash: str) -> Mapping[str, Any] | None:
        """A stored graph."""

    async def workflow(self, workflow_id: str, version: int | None) -> StoredWorkflow | None:
        """A published workflow: this version, or the active one."""

    async def owned(self) -> set[str]:
        """The ids of the jobs that this orchestrator owns."""

    async def reclaim(self) -> int:
        """Let go of the jobs of orchestrators that died, so that anybody may claim them. How many."""

    async def lose(self) -> int:
        """Report the tasks of workers that died as lost. How many."""

    async def sweep_stopped(self) -> int:
        """Hand back the tasks that are to stop and that no worker holds. How many."""

    async def leave(self) -> None:
        """Release every job, and be known as stopped."""


# ── Workers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class ClaimedTask:
    """A task that this worker holds by its token."""

    task_id: str
    token: int
    job_id: str
    node_id: str
    attempt: int
    handler: str
    params: str
    secrets: str | None
    timeout_seconds: float
    dispatched_at: float
    checkpoint: str | None
    workflow: str = ""


@dataclass(slots=True)
class TaskReport:
    """What became of a task."""

    task_id: str
    token: int
    status: str
    permanent: bool = False
    output: JsonText | None = None
    error: str | None = None
    metrics: str | None = None
    handler_version: str | None = None
    begun: bool = True
    """False of one that is handed back and waited here for its turn."""


class LogChunk(NamedTuple):
    """A piece of a task's log."""

    task_id: str
    token: int
    chunk: int
    text: str


class CheckpointWrite(NamedTuple):
    """A place from which another attempt can go on."""

    task_id: str
    token: int
    phase: str
    data: str
    artifacts: tuple[str, ...]


class WorkerStore(Protocol):
    """What a worker needs. Each write is fenced by the task's token: what is not held any more is not written."""

    woken: asyncio.Event
    """Set when there may be tasks."""

    stops: asyncio.Event
    """Set when a task that is held is to stop: the next heartbeat says which."""

    on_disconnect: Callable[[], None]
    """Called when a connection to the store broke off."""

    async def register(
        self, queues: Sequence[str], concurrency: int, handlers: Mapping[str, str] | None = None
    ) -> None:
        """Be known, as alive. No queues: serve every queue. `handlers`: the version of each that it has."""

    async def heartbeat(self, held: Collection[str], counters: Mapping[str, Any]) -> set[str] | None:
        """Stay alive; give those of the held tasks that are to stop, or that this worker does not hold any more.

        None if this worker was given up: all are.
        """

    async def claim(self, limit: int, process_bound: Collection[str] = (), process_slots: int = 0) -> list[ClaimedTask]:
        """Claim tasks: the most urgent first, then the oldest; at most `process_slots` of the `process_bound` handlers.

        Fewer than the limit, and fewer process-bound ones than their slots: there are no more.
        """

    async def other_worker_has_handler(self, task_id: str) -> bool:
        """Whether another worker that lives serves the queue of this task, and has its handler."""

    def rescan_queues(self) -> None:
        """Let the next claim look at every queue, not only at those that something was heard of."""

    async def report(self, reports: Sequence[TaskReport]) -> set[str]:
        """Report tasks, and give those that were still held."""

    async def release(self, reports: Sequence[TaskReport]) -> set[str]:
        """Let go of tasks that never began: they stay where they were in their queue, and nobody is told of an attempt.

        Give those that are let go: not what is not held any more, nor what is to stop.
        """

    async def append_logs(self, chunks: Sequence[LogChunk]) -> None:
        """Keep pieces of logs."""

    async def checkpoint(self, checkpoints: Sequence[CheckpointWrite]) -> None:
        """Keep the newest checkpoint of each task."""

    async def progress(self, progress: Mapping[str, tuple[int, str]]) -> None:
        """Keep how far tasks are: (token, JSON) by task."""

    async def leave(self) -> None:
        """Be known as stopped. What is still held is handed back."""


# ── Clients ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class ClientStore(Protocol):
    """What submitting and asking needs."""

    async def put_graph(self, content_hash: str, definition: str) -> None:
        """Keep a graph, if it is not there yet."""

    async def submit(self, jobs: Sequence[NewJob]) -> list[Accepted]:
        """Store jobs, in order. A job whose key is taken is not stored again."""

    async def taken(self, jobs: Sequence[NewJob]) -> list[Accepted]:
        """What a submit would say of those whose key is taken already."""

    async def send(self, job_id: str, kind: CommandKind, body: Mapping[str, Any], sent_by: str) -> bool:
        """Put a command into a job's inbox. False if there is no such job."""
