"""What the doctor concludes. Pure: figures come in, a grade and two sentences go out."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

OLDEST_PYTHON: Final = (3, 11)
OLDEST_SERVER, NEWEST_SERVER = 14, 18
ROLES: Final = ("dagmaster_orchestrator", "dagmaster_worker", "dagmaster_gateway")

LOW_BYTES, FULL_BYTES = 1_000_000_000, 100_000_000
"""Free space: below the first one somebody should know, below the second one work will stop."""

SLOW_MS: Final = 10.0
"""A hop is three round trips to the database. Past this, the network is most of it."""

CLOCK_SECONDS: Final = 2.0
FEW_FILES: Final = 1024
_NAMED: Final = 3


class Grade(enum.StrEnum):
    """How good a thing is."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor: what was looked at, what was found, and how to fix it."""

    topic: str
    grade: Grade
    found: str
    remedy: str = ""


def good(topic: str, found: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(topic, Grade.GOOD, found)


def warning(topic: str, found: str, remedy: str) -> Finding:
    """Return a finding that works but could be better."""
    return Finding(topic, Grade.WARNING, found, remedy)


def bad(topic: str, found: str, remedy: str) -> Finding:
    """Return a finding that does not work."""
    return Finding(topic, Grade.BAD, found, remedy)


def judge_python(version: tuple[int, int, int], place: str) -> Finding:
    """Return whether dagmaster can run on this Python."""
    said = f"{'.'.join(map(str, version))} ({place})"
    if version[:2] < OLDEST_PYTHON:
        return bad("Python", said, f"install Python {'.'.join(map(str, OLDEST_PYTHON))} or newer")
    return good("Python", said)


def judge_space(topic: str, place: str, free_bytes: int) -> Finding:
    """Return whether there is room."""
    said = f"{place}: {size(free_bytes)} free"
    if free_bytes < FULL_BYTES:
        return bad(topic, said, "free some space on that disk, or choose another one: work stops when it is full")
    if free_bytes < LOW_BYTES:
        return warning(topic, said, "free some space on that disk before it is full")
    return good(topic, said)


def judge_files(soft: int, hard: int | None) -> Finding:
    """Return whether a process may have enough files open. None: no limit."""
    said = f"{soft} open files" if soft >= 0 else "no limit"
    if 0 <= soft < FEW_FILES:
        most = "" if hard is None else f" (up to {hard} without root)"
        return warning("limits", said, f"`ulimit -n 4096` before dagmaster is started{most}; connections are files too")
    return good("limits", said)


def judge_server(version: int, spelled: str, latency_ms: float, address: str) -> Finding:
    """Return whether the server's version (as 180001) is one that dagmaster is tested with, and how far away it is."""
    major = version // 10_000
    said = f"PostgreSQL {spelled} at {address}, {latency_ms:.1f} ms away"
    if major < OLDEST_SERVER:
        return bad("database", said, f"upgrade the server: dagmaster needs {OLDEST_SERVER} to {NEWEST_SERVER}")
    if major > NEWEST_SERVER:
        return warning("database", said, f"dagmaster is tested with {OLDEST_SERVER} to {NEWEST_SERVER}: try it first")
    if latency_ms > SLOW_MS:
        return warning("database", said, "run orchestrators and workers nearer to it: each step waits for it")
    return good("database", said)


def judge_clock(difference: float, uncertain: float) -> Finding:
    """Check the offset between the host's clock and the database's, which decides."""
    beyond = abs(difference) - uncertain
    if beyond <= CLOCK_SECONDS:
        return good("clock", "this host and the database agree")
    side = "ahead of" if difference > 0 else "behind"
    return warning(
        "clock",
        f"this host is {abs(difference):.0f} s {side} the database",
        "start NTP on both. Leases keep working, for the database's clock decides; times in logs will not fit",
    )


def judge_schema(found: str | None, head: str, *, may_create: bool, user: str, database: str) -> Finding:
    """Return whether the tables are those of this code."""
    if found is None and not may_create:
        return bad(
            "schema",
            f"not there yet, and user {user!r} may not make it",
            f'as an owner of the database: GRANT CREATE ON DATABASE "{database}" TO "{user}"; then `dagmaster migrate`',
        )
    if found is None:
        return warning("schema", "not there yet", "`dagmaster migrate` makes it; `dev` and `run` do so by themselves")
    if found < head:
        return bad("schema", f"version {found}, and this code wants {head}", "`dagmaster migrate`")
    if found > head:
        return bad("schema", f"version {found}, and this code knows {head}", "upgrade dagmaster on this host")
    return good("schema", f"version {found}, which this code wants")


def judge_roles(there: Collection[str]) -> Finding:
    """Return whether services can have less than all rights."""
    missing = [role for role in ROLES if role not in there]
    if not missing:
        return good("roles", f"{', '.join(ROLES)}: grant them to the users of the services")
    return warning(
        "roles",
        f"{', '.join(missing)} {'are' if len(missing) > 1 else 'is'} not there: all services need the owner's rights",
        "that works. For separate rights, a user with CREATEROLE runs the first `dagmaster migrate` of a database",
    )


def judge_listening(*, heard: bool, pooled: bool, direct: bool) -> Finding:
    """Return whether sleepers are woken."""
    if heard:
        return good("wake-up", "LISTEN and NOTIFY work" + (" on the direct address" if direct else ""))
    if pooled and not direct:
        return warning(
            "wake-up",
            "LISTEN does not work through a pooler: the poll serves, and steps take up to DAGMASTER_POLL_SECONDS",
            "set DAGMASTER_DATABASE_DIRECT_URL to the server's own address",
        )
    return warning(
        "wake-up",
        "a NOTIFY was not heard: the poll serves, and steps take up to DAGMASTER_POLL_SECONDS",
        "a pooler is probably in between: set DAGMASTER_DATABASE_DIRECT_URL to the server's own address",
    )


def judge_pooler(*, pid_told: int, pid_seen: int, statement_lost: bool) -> Finding | None:
    """Check for a pooler between us and the server: PgBouncer invents the backend process id."""
    if statement_lost:
        return bad(
            "pooler",
            "a prepared statement was lost: a pooler (PgBouncer) in transaction mode is in between",
            "set DAGMASTER_DATABASE_POOLED=true, and DAGMASTER_DATABASE_DIRECT_URL to the server's own address",
        )
    if pid_told != pid_seen:
        return warning(
            "pooler",
            "a pooler (PgBouncer) seems to be in between; prepared statements worked this time",
            "if it is in transaction mode, set DAGMASTER_DATABASE_POOLED=true; in session mode all is well",
        )
    return None


def judge_living(orchestrators: int, workers: int) -> Finding:
    """Return whether somebody moves the jobs."""
    said = f"{_count(orchestrators, 'orchestrator')} and {_count(workers, 'worker')} alive"
    if orchestrators and workers:
        return good("services", said)
    missing = [name for name, there in (("an orchestrator", orchestrators), ("a worker", workers)) if not there]
    return warning("services", said, f"jobs move only while both live: start {' and '.join(missing)}")


def judge_queues(waiting: Sequence[tuple[str, int]], served: Collection[str], *, all_served: bool) -> Finding:
    """Return whether each task that waits will be found by someone. `all_served`: a worker serves every queue."""
    # The queue of a `run` is that process's own. Workers that serve every queue take it over when the process is gone.
    alone = [(queue, tasks) for queue, tasks in waiting if queue not in served and not all_served]
    if not alone:
        tasks = sum(count for _, count in waiting)
        return good(
            "queues", f"{_count(tasks, 'task')} waiting" + (", each in a queue that is served" if tasks else "")
        )
    named = ", ".join(f"{queue} ({_count(tasks, 'task')})" for queue, tasks in alone[:_NAMED])
    more = f" and {len(alone) - _NAMED} more" if len(alone) > _NAMED else ""
    options = " ".join(f"--queue {queue}" for queue, _ in alone[:_NAMED])
    return warning("queues", f"nobody serves {named}{more}", f"dagmaster worker {options}")


def size(count: int) -> str:
    """Spell a number of bytes."""
    for unit, scale in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count // 1000} kB"


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
