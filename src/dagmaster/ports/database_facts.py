"""Facts about a database server that a probe collects, one by one: plain values, without a judgement."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dagmaster.ports.tenants import Isolation


class ConnectFailure(StrEnum):
    """Why a server cannot be reached."""

    AUTHENTICATION = "authentication"
    NO_SUCH_DATABASE = "no_such_database"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    STARTING_OR_STOPPING = "starting_or_stopping"
    TIMEOUT = "timeout"
    UNKNOWN_HOST = "unknown_host"
    REFUSED = "refused"
    TLS = "tls"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No connection could be opened; nothing else was probed."""

    reason: ConnectFailure
    error: Exception
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class ServerVersion:
    """The version of the server (as 180001, and as text), and the shortest of some round trips."""

    number: int
    text: str
    latency_ms: float
    is_read_only: bool = False
    """It is a standby, or set to read-only."""


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """How far the clock of this host is ahead of the server's, and how exact the measurement is."""

    seconds: float
    uncertainty_seconds: float


@dataclass(frozen=True, slots=True)
class SecondConnectionFailed:
    """The server did not accept another connection."""

    error: Exception


@dataclass(frozen=True, slots=True)
class PreparedStatements:
    """Whether a prepared statement survives while another connection holds a transaction.

    The process ids differ behind PgBouncer, which invents the one that it reports.
    """

    reported_pid: int
    backend_pid: int
    is_lost: bool


@dataclass(frozen=True, slots=True)
class ServiceConnectionFailed:
    """The server refused a connection with the parameters that services use."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Notifications:
    """Whether a NOTIFY was received by a listener; not tried behind a pooler without a direct address."""

    is_received: bool
    is_pooled: bool
    has_direct_address: bool


@dataclass(frozen=True, slots=True)
class ListenerUnreachable:
    """No connection for LISTEN could be opened."""

    error: Exception
    has_direct_address: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaState:
    """The schema version of the database (None: no schema), the one this code needs, the user's rights.

    `is_usable`: it is that version, or a newer one that this code can use, as in a rolling upgrade.
    """

    version: str | None
    required: str
    is_usable: bool
    may_create: bool
    user: str
    database: str


@dataclass(frozen=True, slots=True)
class SchemaAccessDenied:
    """The user may not use the schema."""

    user: str


@dataclass(frozen=True, slots=True)
class DatabaseRoles:
    """The names of the server's roles that start with `dagmaster_`, and what that of workers may change."""

    names: tuple[str, ...]
    worker_has_table_rights: bool = False


@dataclass(frozen=True, slots=True)
class LiveServices:
    """How many orchestrators and workers have a valid lease, and how many drain; the id of one that does."""

    orchestrators: int
    workers: int
    draining_orchestrators: int = 0
    draining_workers: int = 0
    drained_orchestrator: int | None = None
    drained_worker: int | None = None


@dataclass(frozen=True, slots=True)
class WaitingTasks:
    """The number of waiting tasks by queue, and the queues that live workers serve."""

    by_queue: tuple[tuple[str, int], ...]
    served_queues: frozenset[str]
    is_every_queue_served: bool


@dataclass(frozen=True, slots=True)
class FleetAccessDenied:
    """The user may not read the services and the task queue."""

    error: Exception


@dataclass(frozen=True, slots=True)
class ProbeTimedOut:
    """A query took too long; nothing after it was probed."""

    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class ProbeFailed:
    """A query failed; nothing after it was probed."""

    error: Exception


DatabaseFact = (
    Unreachable
    | ServerVersion
    | ClockOffset
    | SecondConnectionFailed
    | PreparedStatements
    | ServiceConnectionFailed
    | Notifications
    | ListenerUnreachable
    | SchemaState
    | SchemaAccessDenied
    | DatabaseRoles
    | Isolation
    | LiveServices
    | WaitingTasks
    | FleetAccessDenied
    | ProbeTimedOut
    | ProbeFailed
)
