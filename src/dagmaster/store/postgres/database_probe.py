"""A probe of a database server in any state. It writes nothing, and each query has a time limit.

Driver errors are facts here: the doctor explains them.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final, TypeVar

import asyncpg
from asyncpg import exceptions as pg_errors

from dagmaster.errors import DagmasterError
from dagmaster.ports.database_facts import (
    ClockOffset,
    ConnectFailure,
    DatabaseRoles,
    FleetAccessDenied,
    ListenerUnreachable,
    LiveServices,
    Notifications,
    PreparedStatements,
    ProbeFailed,
    ProbeTimedOut,
    SchemaAccessDenied,
    SchemaState,
    SecondConnectionFailed,
    ServerVersion,
    ServiceConnectionFailed,
    Unreachable,
    WaitingTasks,
)
from dagmaster.ports.tenants import API_ROLE
from dagmaster.store.postgres import schema_version
from dagmaster.store.postgres.connection import Connection
from dagmaster.store.postgres.isolation import read_isolation
from dagmaster.store.postgres.named_queries import queries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.database_facts import DatabaseFact
    from dagmaster.store.postgres.named_queries import Query

    PgConnection = asyncpg.Connection[asyncpg.Record]

T = TypeVar("T")

_SQL = queries("doctor")

CONNECT_SECONDS: Final = 5.0
QUERY_SECONDS: Final = 5.0
NOTIFY_SECONDS: Final = 2.0
ROUND_TRIPS: Final = 3
_CHANNEL: Final = "dagmaster_doctor"
_CONNECT_FAILURES: Final[tuple[tuple[tuple[type[Exception], ...], ConnectFailure], ...]] = (
    ((pg_errors.InvalidAuthorizationSpecificationError,), ConnectFailure.AUTHENTICATION),
    ((pg_errors.InvalidCatalogNameError,), ConnectFailure.NO_SUCH_DATABASE),
    ((pg_errors.TooManyConnectionsError,), ConnectFailure.TOO_MANY_CONNECTIONS),
    ((pg_errors.CannotConnectNowError,), ConnectFailure.STARTING_OR_STOPPING),
    ((TimeoutError,), ConnectFailure.TIMEOUT),
    ((socket.gaierror,), ConnectFailure.UNKNOWN_HOST),
    ((ConnectionRefusedError, FileNotFoundError), ConnectFailure.REFUSED),
    ((ssl.SSLError,), ConnectFailure.TLS),
)
_ALL_REFUSED: Final = "Multiple exceptions: [Errno 111]"
"""The message of asyncio if a host has several addresses and all refuse."""


async def probe_database(
    config: DatabaseConfig, *, lease_seconds: float, worker_lease_seconds: float
) -> list[DatabaseFact]:
    """Collect facts about a server; if it stops answering, the last fact is the error."""
    facts: list[DatabaseFact] = []
    try:
        async for fact in _probe(config, lease_seconds, worker_lease_seconds):
            facts.append(fact)  # noqa: PERF401 - a comprehension would lose all facts if one query fails
    except TimeoutError:
        facts.append(ProbeTimedOut(QUERY_SECONDS))
    except Exception as error:  # noqa: BLE001 - a driver or a proxy may raise anything
        facts.append(ProbeFailed(error))
    return facts


async def _probe(
    config: DatabaseConfig, lease_seconds: float, worker_lease_seconds: float
) -> AsyncIterator[DatabaseFact]:
    connection = await _connect(config.dsn, is_pooled=config.is_pooled)
    if isinstance(connection, Exception):
        yield Unreachable(_connect_failure(connection), connection, CONNECT_SECONDS)
        return
    try:
        server = await _with_timeout(_server(connection))
        latency_ms, offset = await _measure_clock(connection)
        yield ServerVersion(server["version"], server["version_text"], latency_ms, server["is_read_only"])
        yield offset
        if not config.is_pooled:
            yield await _probe_prepared_statements(config.dsn, connection)
        failure = await _connect_as_service(config)
        if failure is not None:
            yield failure
        yield await _probe_notifications(config, connection)
        schema = await _probe_schema(config.dsn, server)
        yield schema
        if isinstance(schema, SchemaState) and schema.is_usable:
            yield DatabaseRoles(tuple(server["roles"]), server["worker_has_table_rights"])
            with contextlib.suppress(DagmasterError):
                # As a server would connect with this user.
                yield await _with_timeout(read_isolation(replace(config, role=API_ROLE)))
            async for fact in _probe_fleet(connection, lease_seconds, worker_lease_seconds):
                yield fact
    finally:
        with contextlib.suppress(Exception):
            await connection.close(timeout=1)


async def _measure_clock(connection: PgConnection) -> tuple[float, ClockOffset]:
    """Return the shortest of some round trips in milliseconds, and the clock offset that it shows."""
    shortest, offset = float("inf"), 0.0
    for _ in range(ROUND_TRIPS):
        started, host_time = time.perf_counter(), time.time()
        server_time = await _with_timeout(_clock_time(connection))
        elapsed = time.perf_counter() - started
        if elapsed < shortest:
            shortest, offset = elapsed, host_time + elapsed / 2 - server_time
    return shortest * 1000, ClockOffset(offset, shortest / 2)


async def _probe_prepared_statements(
    dsn: str, connection: PgConnection
) -> PreparedStatements | SecondConnectionFailed:
    """Prepare on one connection, keep the server busy from another, and execute what was prepared."""
    other = await _connect(dsn, is_pooled=True)
    if isinstance(other, Exception):
        return SecondConnectionFailed(other)
    is_lost = False
    backend_pid = connection.get_server_pid()
    try:
        statement = await _with_timeout(connection.prepare("SELECT pg_backend_pid()"))
        await _with_timeout(other.execute("BEGIN"))
        backend_pid = await _with_timeout(statement.fetchval())
    except (pg_errors.InvalidSQLStatementNameError, pg_errors.DuplicatePreparedStatementError):
        is_lost = True
    finally:
        other.terminate()
    return PreparedStatements(connection.get_server_pid(), backend_pid, is_lost)


async def _connect_as_service(config: DatabaseConfig) -> ServiceConnectionFailed | None:
    """Open a connection with the parameters of services."""
    session = Connection(config, "dagmaster doctor")
    try:
        await _with_timeout(session.open())
    except Exception as error:  # noqa: BLE001 - a proxy may raise anything
        return ServiceConnectionFailed(error)
    finally:
        await session.close()
    return None


async def _probe_notifications(
    config: DatabaseConfig, connection: PgConnection
) -> Notifications | ListenerUnreachable:
    """Notify on one connection, and listen on another one, opened as services open theirs."""
    has_direct = config.direct is not None
    if config.is_pooled and not config.direct:
        return Notifications(is_received=False, is_pooled=True, has_direct_address=False)
    listener = await _connect(config.direct or config.dsn)
    if isinstance(listener, Exception):
        return ListenerUnreachable(listener, has_direct)
    received = asyncio.Event()
    try:
        await _with_timeout(listener.add_listener(_CHANNEL, lambda *_: received.set()))
        await _with_timeout(connection.execute("SELECT pg_notify($1, '')", _CHANNEL))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(received.wait(), NOTIFY_SECONDS)
    finally:
        listener.terminate()
    return Notifications(received.is_set(), config.is_pooled, has_direct)


async def _probe_schema(dsn: str, server: asyncpg.Record) -> SchemaState | SchemaAccessDenied:
    try:
        version, compatible_from, _ = await _with_timeout(schema_version.versions(dsn))
    except pg_errors.InsufficientPrivilegeError:
        return SchemaAccessDenied(server["username"])
    return SchemaState(
        version=version,
        required=schema_version.HEAD,
        is_usable=schema_version.is_usable(version, compatible_from),
        may_create=server["may_create"],
        user=server["username"],
        database=server["database"],
    )


async def _probe_fleet(
    connection: PgConnection, lease_seconds: float, worker_lease_seconds: float
) -> AsyncIterator[LiveServices | WaitingTasks | FleetAccessDenied]:
    try:
        fleet = await _with_timeout(_live_services(connection, lease_seconds, worker_lease_seconds))
        by_queue = await _with_timeout(_waiting_tasks(connection))
    except pg_errors.InsufficientPrivilegeError as error:
        yield FleetAccessDenied(error)
        return
    yield LiveServices(**{field.name: fleet[field.name] for field in fields(LiveServices)})
    yield WaitingTasks(tuple(by_queue), frozenset(fleet["served"]), fleet["all_served"])


async def _connect(dsn: str, *, is_pooled: bool = False) -> PgConnection | Exception:
    try:
        return await asyncio.wait_for(
            asyncpg.connect(
                dsn,
                timeout=CONNECT_SECONDS,
                command_timeout=QUERY_SECONDS,
                statement_cache_size=0 if is_pooled else 100,
                server_settings={"application_name": "dagmaster doctor"},
            ),
            CONNECT_SECONDS + 1,
        )
    except Exception as error:  # noqa: BLE001 - a value: why it cannot be reached
        return error


def _connect_failure(error: Exception) -> ConnectFailure:
    for types, failure in _CONNECT_FAILURES:
        if isinstance(error, types):
            return failure
    return ConnectFailure.REFUSED if _ALL_REFUSED in str(error) else ConnectFailure.OTHER


async def _with_timeout(answer: Awaitable[T]) -> T:
    return await asyncio.wait_for(answer, QUERY_SECONDS)


# ── Queries ──


async def _server(connection: PgConnection) -> asyncpg.Record:
    return await _one_row(connection, _SQL["server"], {})


async def _clock_time(connection: PgConnection) -> float:
    seconds: float = await connection.fetchval(_SQL["clock_time"].sql)
    return seconds


async def _live_services(
    connection: PgConnection, lease_seconds: float, worker_lease_seconds: float
) -> asyncpg.Record:
    """Count live orchestrators and workers, with the queues that the workers serve."""
    leases = {"lease_seconds": lease_seconds, "worker_lease_seconds": worker_lease_seconds}
    return await _one_row(connection, _SQL["live_services"], leases)


async def _waiting_tasks(connection: PgConnection) -> list[tuple[str, int]]:
    return [(row["queue"], row["tasks"]) for row in await connection.fetch(_SQL["waiting_tasks"].sql)]


async def _one_row(connection: PgConnection, query: Query, params: dict[str, float]) -> asyncpg.Record:
    row = await connection.fetchrow(query.sql, *query.arguments(params))
    assert row is not None  # noqa: S101 - an aggregate always returns a row
    return row
