"""What the doctor concludes from facts. Pure: figures come in, a grade and two sentences go out."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.ports.schema_admin import ROLES
from dagmaster.text_format import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.ports.database_facts import (
        ClockOffset,
        DatabaseRoles,
        LiveServices,
        Notifications,
        PreparedStatements,
        SchemaState,
        ServerVersion,
        WaitingTasks,
    )
    from dagmaster.ports.tenants import Isolation

OLDEST_PYTHON: Final = (3, 11)
OLDEST_SERVER, NEWEST_SERVER = 14, 18

LOW_BYTES, FULL_BYTES = 1_000_000_000, 100_000_000
"""Free space: below the first limit the operator is warned, below the second one work will stop."""

SLOW_MS: Final = 10.0
"""A hop is three round trips to the database. Above this latency, the network is most of its time."""

START_LOCALLY: Final = "`dagmaster dev` starts a database, an orchestrator and a worker on this machine"

CLOCK_SECONDS: Final = 2.0
FEW_FILES: Final = 1024
_MAX_NAMES: Final = 3


class Grade(enum.StrEnum):
    """How severe a finding is."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: its topic, its grade, a sentence about the state, and the remedy."""

    topic: str
    grade: Grade
    message: str
    remedy: str = ""


def good(topic: str, message: str) -> Finding:
    return Finding(topic, Grade.GOOD, message)


def warning(topic: str, message: str, remedy: str) -> Finding:
    return Finding(topic, Grade.WARNING, message, remedy)


def bad(topic: str, message: str, remedy: str) -> Finding:
    return Finding(topic, Grade.BAD, message, remedy)


def grade_python(version: tuple[int, int, int], executable: str) -> Finding:
    message = f"{'.'.join(map(str, version))} ({executable})"
    if version[:2] < OLDEST_PYTHON:
        return bad("Python", message, f"install Python {'.'.join(map(str, OLDEST_PYTHON))} or newer")
    return good("Python", message)


def grade_free_space(topic: str, location: str, free_bytes: int) -> Finding:
    message = f"{location}: {format_bytes(free_bytes)} free"
    if free_bytes < FULL_BYTES:
        return bad(
            topic, message, "free some space on that disk, or choose another one: work stops when it is full"
        )
    if free_bytes < LOW_BYTES:
        return warning(topic, message, "free some space on that disk before it is full")
    return good(topic, message)


def grade_open_files(soft_limit: int, hard_limit: int | None) -> Finding:
    """Check how many files a process may open. A hard limit of None: unlimited."""
    message = f"{soft_limit} open files" if soft_limit >= 0 else "no limit"
    if 0 <= soft_limit < FEW_FILES:
        allowed = "" if hard_limit is None else f" (up to {hard_limit} without root)"
        remedy = f"run `ulimit -n 4096` before you start dagmaster{allowed}; connections count as files"
        return warning("limits", message, remedy)
    return good("limits", message)


def grade_callbacks(paused: Sequence[str]) -> Finding | None:
    """Check that callbacks reach their endpoints; None: no endpoint is paused."""
    if not paused:
        return None
    return warning(
        "callbacks",
        f"{format_count(len(paused), 'endpoint')} paused: {', '.join(paused[:_MAX_NAMES])}",
        "see `dagmaster callbacks list --paused`; when it answers: `dagmaster callbacks resume ENDPOINT`",
    )


def grade_server(server: ServerVersion, address: str) -> Finding:
    """Check that the server's version is tested with dagmaster, and that its latency is low."""
    major = server.number // 10_000
    message = f"PostgreSQL {server.text} at {address}, latency {server.latency_ms:.1f} ms"
    if major < OLDEST_SERVER:
        return bad(
            "database", message, f"upgrade the server: dagmaster needs {OLDEST_SERVER} to {NEWEST_SERVER}"
        )
    if major > NEWEST_SERVER:
        tested = f"{OLDEST_SERVER} to {NEWEST_SERVER}"
        remedy = f"dagmaster is tested with {tested}: test this version before you rely on it"
        return warning("database", message, remedy)
    if server.is_read_only:
        return bad(
            "database",
            f"{message}: it accepts no changes: this is a standby, or a server that is set to read-only",
            "name the primary in DAGMASTER_DATABASE_URL, or promote this one",
        )
    if server.latency_ms > SLOW_MS:
        return warning(
            "database", message, "run orchestrators and workers closer to it: every step waits for it"
        )
    return good("database", message)


def grade_clock(clock: ClockOffset) -> Finding:
    """Check the offset between the clock of this host and the server's, which decides."""
    if abs(clock.seconds) - clock.uncertainty_seconds <= CLOCK_SECONDS:
        return good("clock", "this host and the database agree")
    side = "ahead of" if clock.seconds > 0 else "behind"
    return warning(
        "clock",
        f"this host is {abs(clock.seconds):.0f} s {side} the database",
        "start NTP on both. Leases use the database's clock and keep working, but the times in logs will"
        " differ",
    )


def grade_schema(schema: SchemaState, *, is_embedded: bool = False) -> Finding:
    """Check that the schema has the version that this code needs."""
    version, required = schema.version, schema.required
    if version is None and not schema.may_create:
        return bad(
            "schema",
            f"does not exist, and user {schema.user!r} may not create it",
            f'as an owner of the database: GRANT CREATE ON DATABASE "{schema.database}" TO "{schema.user}";'
            " then `dagmaster migrate`",
        )
    if version is None:
        return bad(
            "schema", "does not exist yet", START_LOCALLY if is_embedded else "`dagmaster migrate` creates it"
        )
    if version < required:
        return bad("schema", f"version {version}; this code needs {required}", "`dagmaster migrate`")
    if version > required and schema.is_usable:
        remedy = "upgrade dagmaster on this host after the others"
        return warning(
            "schema", f"version {version}, newer than this code ({required}), which can use it", remedy
        )
    if version > required:
        return bad(
            "schema", f"version {version}; this code needs {required}", "upgrade dagmaster on this host"
        )
    return good("schema", f"version {version}, as this code needs")


def grade_isolation(isolation: Isolation) -> Finding | None:
    """Check that a server with this user would keep tenants apart; None: there is one alone."""
    if isolation.is_enforced:
        return good("tenants", f"{format_count(isolation.tenants, 'tenant')}, kept apart as {isolation.user}")
    if isolation.is_safe:
        return None
    problem, _, remedy = isolation.problem.partition(": ")
    return warning("tenants", f"a server with this user does not start: {problem}", remedy)


def grade_roles(roles: DatabaseRoles) -> Finding:
    """Check that services can have fewer rights than the owner."""
    missing = [role for role in ROLES if role not in roles.names]
    if not missing and roles.worker_has_table_rights:
        return warning(
            "roles",
            "dagmaster_worker has rights on tables: a worker that connects with it can change other workers"
            " and their tasks",
            "`dagmaster migrate --roles`, when all workers are of this version",
        )
    if not missing:
        return good("roles", f"{', '.join(ROLES)}: grant them to the users of the services")
    return warning(
        "roles",
        f"{', '.join(missing)} {'do' if len(missing) > 1 else 'does'} not exist: all services need the"
        " owner's rights",
        "this works. For separate rights: `dagmaster migrate --roles` (docs/howto/database-roles.md)",
    )


def grade_notifications(notifications: Notifications) -> Finding:
    """Check that services are notified instead of polling."""
    if notifications.is_received:
        where = " on the direct address" if notifications.has_direct_address else ""
        return good("wake-up", f"LISTEN and NOTIFY work{where}")
    fallback = "polling is the fallback, and steps take up to DAGMASTER_POLL_SECONDS"
    if notifications.is_pooled and not notifications.has_direct_address:
        return warning(
            "wake-up",
            f"LISTEN does not work through a pooler: {fallback}",
            "set DAGMASTER_DATABASE_DIRECT_URL to the server's own address",
        )
    return warning(
        "wake-up",
        f"a NOTIFY was not received: {fallback}",
        "the connection probably goes through a pooler: set DAGMASTER_DATABASE_DIRECT_URL to the server's own"
        " address",
    )


def grade_pooler(prepared: PreparedStatements) -> Finding | None:
    """Check for a pooler between this host and the server; None if there is no sign of one."""
    if prepared.is_lost:
        return bad(
            "pooler",
            "a prepared statement was lost: the connection goes through a pooler (PgBouncer) in transaction"
            " mode",
            "set DAGMASTER_DATABASE_POOLED=true, and DAGMASTER_DATABASE_DIRECT_URL to the server's own"
            " address",
        )
    if prepared.reported_pid != prepared.backend_pid:
        return warning(
            "pooler",
            "the connection seems to go through a pooler (PgBouncer); prepared statements worked this time",
            "if it is in transaction mode, set DAGMASTER_DATABASE_POOLED=true; session mode needs no setting",
        )
    return None


def grade_services(live: LiveServices, *, is_embedded: bool = False) -> Finding:
    """Check that an orchestrator is alive.

    Workers may be started when there are tasks: see `grade_queues`.
    """
    message = f"{_count(live.orchestrators, 'orchestrator')} and {_count(live.workers, 'worker')} alive"
    if not live.orchestrators:
        start = START_LOCALLY if is_embedded else "start one with `dagmaster orchestrator`"
        return bad("services", message, f"no job makes progress without an orchestrator: {start}")
    if not live.workers:
        return warning(
            "services", message, "no task runs without a worker: start one with `dagmaster worker`"
        )
    counts = {
        "orchestrator": (live.orchestrators, live.draining_orchestrators, live.drained_orchestrator),
        "worker": (live.workers, live.draining_workers, live.drained_worker),
    }
    notes = [_count(draining, kind) for kind, (_, draining, _) in counts.items() if draining]
    message += f"; {' and '.join(notes)} draining" if notes else ""
    for kind, (alive, draining, drained) in counts.items():
        if draining == alive:
            remedy = (
                f"no {kind} claims: run `dagmaster fleet undrain {drained}`, or start another with"
                f" `dagmaster {kind}`"
            )
            return bad("services", message, remedy)
    return good("services", message)


def grade_queues(waiting: WaitingTasks) -> Finding:
    # The queue of a `run` is private to that process. When it ends, workers that serve every queue take it
    # over.
    unserved = [
        (queue, tasks)
        for queue, tasks in waiting.by_queue
        if queue not in waiting.served_queues and not waiting.is_every_queue_served
    ]
    if not unserved:
        total = sum(tasks for _, tasks in waiting.by_queue)
        note = ", all in queues that a worker serves" if total else ""
        return good("queues", f"{_count(total, 'task')} waiting{note}")
    names = ", ".join(f"{queue} ({_count(tasks, 'task')})" for queue, tasks in unserved[:_MAX_NAMES])
    more = f" and {len(unserved) - _MAX_NAMES} more" if len(unserved) > _MAX_NAMES else ""
    options = " ".join(f"--queue {queue}" for queue, _ in unserved[:_MAX_NAMES])
    return bad("queues", f"no worker serves {names}{more}", f"start one with `dagmaster worker {options}`")


def _count(number: int, noun: str) -> str:
    return format_count(number, noun) if number else f"no {noun}s"
