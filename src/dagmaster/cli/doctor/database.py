"""What the doctor asks the database. It writes nothing, and each question has a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import socket
import ssl
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagmaster.cli.doctor.host import ground_of, look_at_directory
from dagmaster.cli.doctor.rules import (
    Finding,
    Grade,
    bad,
    good,
    judge_clock,
    judge_listening,
    judge_living,
    judge_pooler,
    judge_queues,
    judge_roles,
    judge_schema,
    judge_server,
    warning,
)
from dagmaster.settings import masked_url
from dagmaster.store.postgres import doctor_queries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterable

    from dagmaster.cli.doctor.host import DoctorContext
    from dagmaster.ports.database_config import DatabaseConfig

CONNECT_SECONDS: Final = 5.0
ASK_SECONDS: Final = 5.0
HEAR_SECONDS: Final = 2.0
_ALL_REFUSED: Final = "Multiple exceptions: [Errno 111]"
"""What asyncio says of a name that has several addresses."""

_CHANNEL: Final = "dagmaster_doctor"


def look_at_database(patient: DoctorContext) -> Iterable[Finding]:
    """Return the operator's server, else the embedded one."""
    if patient.has_server:
        yield from _look_at_server(patient)
    elif patient.data_dir is None and "data_dir" in patient.reading.problems:
        yield bad("database", "not looked at: DAGMASTER_DATA_DIR does not fit", "correct the setting")
    else:
        yield from _look_at_embedded(patient)


def _look_at_server(patient: DoctorContext) -> Iterable[Finding]:
    from dagmaster.ports.database_config import DatabaseConfig

    settings = patient.reading.settings
    if settings.database_url is None:
        return [bad("database", "not looked at: its address does not fit", "correct the setting that is told above")]
    direct = settings.database_direct_url
    address = DatabaseConfig(
        dsn=settings.database_url.get_secret_value(),
        is_pooled=settings.database_pooled,
        direct=None if direct is None else direct.get_secret_value(),
    )
    return asyncio.run(examine(address, patient))


def _look_at_embedded(patient: DoctorContext) -> Iterable[Finding]:
    """Check the embedded server: on its data directory if there is one, else on a temporary one."""
    from dagmaster.errors import DagmasterError
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.store.embedded import cluster
    from dagmaster.store.embedded.server import EmbeddedPostgres, default_data_dir

    try:
        data_dir = Path(os.path.realpath(patient.data_dir or patient.reading.settings.data_dir or default_data_dir()))
        directory = list(look_at_directory("data", data_dir, "DAGMASTER_DATA_DIR"))
        yield from directory
        if any(finding.grade is Grade.BAD for finding in directory):
            return
        _refuse_what_cannot_serve(data_dir)
        if not cluster.exists(data_dir / "cluster"):
            yield _try_a_server(data_dir, patient)
            return
        users = who_uses(data_dir / "users.lock")
        began = time.monotonic()
        with EmbeddedPostgres(data_dir) as server:
            taken = time.monotonic() - began
            used = f"used by {', '.join(users)}" if users else f"nobody uses it; it started in {taken:.1f} s"
            yield good("embedded", used)
            yield from asyncio.run(examine(DatabaseConfig(dsn=server.dsn), patient))
    except DagmasterError as error:
        yield patient.refused("embedded", error)


def _refuse_what_cannot_serve(data_dir: Path) -> None:
    """Raise what a start would raise, without making the directory."""
    from dagmaster.errors import DataDirectoryUnusable
    from dagmaster.store.embedded import cluster

    ground = ground_of(data_dir)
    if ground == data_dir:
        cluster.open_directory(data_dir)
        return
    account = cluster.account_for(data_dir / "cluster")
    closed = cluster.closed_at(ground, account)
    if closed is not None:
        raise DataDirectoryUnusable(
            f"{data_dir} cannot be used: the server runs as user {account}, who may not enter {closed}. Give another"
            f" directory with --data-dir or DAGMASTER_DATA_DIR, or `chmod o+x {closed}`"
        )


def _try_a_server(data_dir: Path, patient: DoctorContext) -> Finding:
    from dagmaster.errors import EmbeddedPostgresUnavailable
    from dagmaster.store.embedded.server import EmbeddedPostgres

    place = Path(tempfile.mkdtemp(prefix="dagmaster-doctor-"))
    try:
        # As root the server runs as another user, who has to get in.
        place.chmod(0o711)
        began = time.monotonic()
        with EmbeddedPostgres(place / "trial"):
            taken = time.monotonic() - began
    except EmbeddedPostgresUnavailable as error:
        remedy = "mend what it says; or name a server of your own with DAGMASTER_DATABASE_URL"
        return bad("embedded", f"no data yet, and none could be made on trial: {patient.tell(error)}", remedy)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return good("embedded", f"no data in {data_dir} yet; one made on trial was ready in {taken:.1f} s")


def who_uses(lock: Path, locks: Path = Path("/proc/locks")) -> list[str]:
    """Return the processes that hold a lock file, from Linux's list of locks; elsewhere none."""
    try:
        inode = lock.stat().st_ino
        lines = locks.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        held = re.match(r"\d+: FLOCK +\S+ +\S+ (\d+) [0-9a-f]+:[0-9a-f]+:(\d+) ", line)
        if held and int(held[2]) == inode and int(held[1]) != os.getpid():
            found.append(f"process {held[1]}{_command(int(held[1]))}")
    return found


def _command(pid: int) -> str:
    """Return the program of a process, and its first word: `dagmaster dev`. Not more: arguments may be anything."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
    program = next((place for place, word in enumerate(words) if word.endswith("/dagmaster")), None)
    named = [Path(words[0]).name] if program is None else ["dagmaster", *words[program + 1 : program + 2]]
    return f" ({' '.join(each for each in named if each)})" if words[0] else ""


async def examine(address: DatabaseConfig, patient: DoctorContext) -> list[Finding]:
    """Ask a server everything. What was found until it stopped answering is told."""
    findings: list[Finding] = []
    try:
        async for finding in _examined(address, patient):
            findings.append(finding)  # noqa: PERF401 - `extend` would lose all when one question fails
    except TimeoutError:
        findings.append(bad("database", f"no answer within {ASK_SECONDS:.0f} s", "look at its load and its locks"))
    except Exception as error:  # noqa: BLE001 - whatever a driver or a proxy says, it is told
        findings.append(bad("database", f"it stopped answering: {patient.tell(error)}", "look at the server's log"))
    return findings


async def _examined(address: DatabaseConfig, patient: DoctorContext) -> AsyncIterator[Finding]:
    from asyncpg.exceptions import InsufficientPrivilegeError

    from dagmaster.store.postgres import schema_version

    dsn = address.dsn
    connection = await _connected(dsn, is_pooled=address.is_pooled)
    if isinstance(connection, Exception):
        yield _unreachable(connection, dsn, patient)
        return
    try:
        server = await _soon(doctor_queries.server(connection))
        latency, clock = await _timed(connection)
        place = "its socket" if not patient.has_server else masked_url(dsn)
        yield judge_server(server["version"], server["spelled"], latency, place)
        yield clock
        async for finding in _about_the_way(address, connection, patient):
            yield finding
        about_user = {"user": server["username"], "database": server["database"]}
        try:
            found = await _soon(schema_version.current(dsn))
        except InsufficientPrivilegeError:
            yield bad(
                "schema",
                f"user {server['username']!r} may not use it",
                f'as its owner: GRANT dagmaster_orchestrator, dagmaster_worker TO "{server["username"]}"',
            )
            return
        yield judge_schema(found, schema_version.HEAD, may_create=server["may_create"], **about_user)
        if found == schema_version.HEAD:
            if patient.has_server:
                yield judge_roles(server["roles"])
            async for finding in _about_the_work(connection, patient):
                yield finding
    finally:
        with contextlib.suppress(Exception):
            await connection.close(timeout=1)


async def _about_the_way(address: DatabaseConfig, connection: Any, patient: DoctorContext) -> AsyncIterator[Finding]:
    """Return what stands between us and the server."""
    from dagmaster.errors import DagmasterError
    from dagmaster.store.postgres.connection import Connection

    if not address.is_pooled:
        finding = await _about_a_pooler(address.dsn, connection)
        if finding is not None:
            yield finding
    session = Connection(address, "dagmaster doctor")
    try:
        await _soon(session.open())
    except DagmasterError as error:
        yield bad(
            "database",
            f"it refuses what services ask for when they connect: {patient.tell(error)}",
            "behind PgBouncer: DAGMASTER_DATABASE_POOLED=true, and ignore_startup_parameters = search_path there",
        )
    except Exception as error:  # noqa: BLE001 - a proxy says what it likes
        yield bad("database", f"services could not connect: {patient.tell(error)}", "look at the server's log")
    finally:
        await session.close()
    yield await _about_listening(address, connection, patient)


async def _about_a_pooler(dsn: str, connection: Any) -> Finding | None:
    """Prepare on one connection, keep the server busy from another, and use what was prepared."""
    from asyncpg.exceptions import DuplicatePreparedStatementError, InvalidSQLStatementNameError

    other = await _connected(dsn, is_pooled=True)
    if isinstance(other, Exception):
        return warning("connections", "a second connection was refused", "raise max_connections, or the user's limit")
    lost = False
    pid_seen = connection.get_server_pid()
    try:
        statement = await _soon(connection.prepare("SELECT pg_backend_pid()"))
        await _soon(other.execute("BEGIN"))
        pid_seen = await _soon(statement.fetchval())
    except (InvalidSQLStatementNameError, DuplicatePreparedStatementError):
        lost = True
    finally:
        other.terminate()
    return judge_pooler(pid_told=connection.get_server_pid(), pid_seen=pid_seen, statement_lost=lost)


async def _about_listening(address: DatabaseConfig, connection: Any, patient: DoctorContext) -> Finding:
    """Say something on one connection, and hear it on another one: the one that services listen on."""
    if address.is_pooled and not address.direct:
        return judge_listening(heard=False, pooled=True, direct=False)
    listener = await _connected(address.direct or address.dsn)
    if isinstance(listener, Exception):
        where = "DAGMASTER_DATABASE_DIRECT_URL" if address.direct else "a connection for LISTEN"
        return bad("wake-up", f"{where} does not work: {patient.tell(listener)}", "correct it, or remove it")
    heard = asyncio.Event()
    try:
        await _soon(listener.add_listener(_CHANNEL, lambda *_: heard.set()))
        await _soon(connection.execute("SELECT pg_notify($1, '')", _CHANNEL))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(heard.wait(), HEAR_SECONDS)
    finally:
        listener.terminate()
    return judge_listening(heard=heard.is_set(), pooled=address.is_pooled, direct=address.direct is not None)


async def _about_the_work(connection: Any, patient: DoctorContext) -> AsyncIterator[Finding]:
    """Who lives, and what waits."""
    from asyncpg.exceptions import InsufficientPrivilegeError

    settings = patient.reading.settings
    leases = (settings.orchestrator_lease_seconds, settings.worker_lease_seconds)
    try:
        living = await _soon(doctor_queries.living(connection, *leases))
        waiting = await _soon(doctor_queries.waiting(connection))
    except InsufficientPrivilegeError as error:
        yield warning("services", f"this user may not look: {patient.tell(error)}", "ask as the owner of the schema")
        return
    yield judge_living(living["orchestrators"], living["workers"])
    yield judge_queues(waiting, living["served"], all_served=living["all_served"])


async def _timed(connection: Any) -> tuple[float, Finding]:
    """Return the shortest of three round trips in milliseconds, and what it says about the clock."""
    best, difference = float("inf"), 0.0
    for _ in range(3):
        began, host = time.perf_counter(), time.time()
        there = await _soon(doctor_queries.wall(connection))
        taken = time.perf_counter() - began
        if taken < best:
            best, difference = taken, host + taken / 2 - there
    return best * 1000, judge_clock(difference, best / 2)


async def _connected(dsn: str, *, is_pooled: bool = False) -> Any:
    """Return a connection, or why there is none."""
    import asyncpg

    try:
        return await asyncio.wait_for(
            asyncpg.connect(
                dsn,
                timeout=CONNECT_SECONDS,
                command_timeout=ASK_SECONDS,
                statement_cache_size=0 if is_pooled else 100,
                server_settings={"application_name": "dagmaster doctor"},
            ),
            CONNECT_SECONDS + 1,
        )
    except Exception as error:  # noqa: BLE001 - a value: why it cannot be reached
        return error


def _unreachable(error: Exception, dsn: str, patient: DoctorContext) -> Finding:
    from asyncpg import exceptions as said

    place = masked_url(dsn)
    match error:
        case said.InvalidAuthorizationSpecificationError():
            why, remedy = patient.tell(error), "correct the user and the password in DAGMASTER_DATABASE_URL"
        case said.InvalidCatalogNameError():
            why, remedy = patient.tell(error), "`createdb` it on that server, or correct the name"
        case said.TooManyConnectionsError():
            why, remedy = patient.tell(error), "raise max_connections, or put PgBouncer before it"
        case said.CannotConnectNowError():
            why, remedy = "it is starting or stopping", "wait a moment, and ask again"
        case TimeoutError():
            why = f"no answer within {CONNECT_SECONDS:.0f} s"
            remedy = "look whether it runs, and whether a firewall is in between"
        case socket.gaierror():
            why, remedy = "no host of that name is known", "correct the host, or mend the name service"
        case OSError() if isinstance(error, ConnectionRefusedError | FileNotFoundError) or _ALL_REFUSED in str(error):
            why, remedy = "nobody listens there", "start the server, or correct host and port"
        case ssl.SSLError():
            why, remedy = f"TLS does not work: {patient.tell(error)}", "correct sslmode and certificates in the address"
        case _:
            why, remedy = patient.tell(error), "correct DAGMASTER_DATABASE_URL, or mend the server"
    return bad("database", f"{place} cannot be reached: {why}", remedy)


async def _soon(answer: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(answer, ASK_SECONDS)
