"""A connection that reconnects: driver errors become ours, and after a loss the next call connects again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

import asyncpg
from asyncpg.exceptions import (
    CannotConnectNowError,
    DeadlockDetectedError,
    PostgresError,
    QueryCanceledError,
)

from dagmaster.errors import DatabaseUnavailable, EmbeddedPostgresUnavailable
from dagmaster.store.postgres.connection_errors import DRIVER_ERRORS, LOST, translate_error
from dagmaster.store.postgres.read_transactions import ReadTransactions
from dagmaster.store.postgres.row_inserts import insert_rows
from dagmaster.store.postgres.session_settings import session_settings
from dagmaster.store.postgres.tenant_session import CAN_TAKE_ROLE, TenantSession, check_role, set_tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.store.postgres.named_queries import Params, Query
    from dagmaster.store.postgres.worker_role import WorkerRole

    Copy = tuple[str, Sequence[str], Iterable[tuple[Any, ...]]]
    """A table, its columns, and rows to copy into it, which are read once."""

CONNECT_SECONDS: Final = 10.0
ROLE_CHECK_SECONDS: Final = 5.0
"""How long a connection without the role of servers goes on before it looks again whether there is one."""
COMMAND_SECONDS: Final = 60.0
DEADLOCKS: Final = 3


class GuardFailed(Exception):
    """A statement that guards a transaction returned no row: nothing was changed."""


class Connection:
    """One connection, one statement at a time. Each statement is a separate transaction.

    Reads of one tenant that follow each other at once share one: each still sees what is committed by then.
    """

    def __init__(
        self,
        config: DatabaseConfig,
        name: str,
        *,
        async_commit: bool = False,
        listens: bool = False,
        reads: bool = False,
        statement_timeout_seconds: float | None = None,
        on_disconnect: Callable[[], None] | None = None,
    ) -> None:
        self._restart_embedded = config.restart_embedded
        # Called as soon as the server ends the connection: the next statement may reconnect without an error.
        self._on_disconnect = on_disconnect
        # How often the connection was lost and reopened.
        self.losses = 0
        self._was_connected = False
        self._reads = reads
        self._read_transactions = ReadTransactions()
        self._dsn = (config.direct or config.dsn) if listens else config.dsn
        self._is_pooled = config.is_pooled and not (listens and config.direct)
        self.can_listen = listens and not self._is_pooled
        settings = session_settings(
            reads=reads,
            async_commit=async_commit,
            statement_timeout_seconds=statement_timeout_seconds,
            is_pooled=self._is_pooled,
        )
        self._statement_timeout_seconds = statement_timeout_seconds
        if statement_timeout_seconds is not None:
            # asyncpg takes a session that is read-only for one on a standby, and finds no host to connect to.
            self._dsn = self._dsn.replace("target_session_attrs=read-write", "target_session_attrs=primary")
        # Taken on as soon as it exists with its rights, and behind a pooler by each transaction.
        self._wanted_role = config.role
        self._role: str | None = None
        self._role_checked_at = 0.0
        self._settings = {"application_name": name}
        self._begin = ""
        if self._is_pooled:
            # Behind a pooler, a setting lasts for one transaction at most.
            self._begin = "; ".join(
                ["BEGIN", *(f"SET LOCAL {key} = {value}" for key, value in settings.items())]
            )
        else:
            self._settings |= settings
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._channels: dict[str, Callable[[str], None]] = {}
        self._listeners: dict[str, Callable[[Any, Any, Any, Any], None]] = {}
        self._lock = asyncio.Lock()
        # Of a worker that may not change tables: it calls functions instead.
        self.role: WorkerRole | None = None

    async def open(self) -> None:
        """Connect now instead of at the first statement."""
        async with self._lock:
            await self._ensure_connected()

    async def fetch(
        self,
        query: Query,
        params: Params,
        *,
        losses: int | None = None,
        tenant: str | None = None,
    ) -> list[asyncpg.Record]:
        """Run a statement and return its rows; raise `DatabaseUnavailable` if it is lost again.

        `tenant`: whose rows it sees, if the role depends on that.
        """
        async with self._lock:
            connection, began_at = self._resume_read(tenant)
            if connection is None:
                connection = await self._ensure_connected()
            if losses not in (None, self.losses):
                raise DatabaseUnavailable(f"{query.name}: the connection was lost since its data were read")
            sql, arguments = self._statement(query, params)
            try:
                # Each statement is a separate transaction: after a deadlock it can simply be sent again.
                for _ in range(DEADLOCKS):
                    with contextlib.suppress(DeadlockDetectedError):
                        return await self._fetch(connection, sql, arguments, tenant, began_at)
                    began_at = None
                return await self._fetch(connection, sql, arguments, tenant)
            except asyncio.CancelledError:
                # Whether the statement was executed is not known.
                self._drop(connection)
                raise
            except DRIVER_ERRORS as error:
                raise self._translate(error, query.name) from error

    def _statement(self, query: Query, params: Params) -> tuple[str, list[Any]]:
        """Return the text of a statement and its arguments."""
        if self.role is not None and not isinstance(params, list):
            return self.role.statement(query, params)
        return query.sql, query.arguments(params)

    async def row(
        self,
        query: Query,
        params: Params,
        *,
        losses: int | None = None,
        tenant: str | None = None,
    ) -> asyncpg.Record | None:
        """Run a statement as `fetch` does, and return its first row, if it has one."""
        rows = await self.fetch(query, params, losses=losses, tenant=tenant)
        return rows[0] if rows else None

    async def _fetch(
        self,
        connection: asyncpg.Connection[asyncpg.Record],
        sql: str,
        arguments: list[Any],
        tenant: str | None,
        began_at: float | None = None,
    ) -> list[asyncpg.Record]:
        """Run a statement in its transaction. `began_at`: in that of the last read, which began then."""
        begin = self._beginning(tenant)
        if not begin:
            return await connection.fetch(sql, *arguments)
        try:
            if began_at is None:
                began_at = time.monotonic()
                await connection.execute(begin)
            rows = await connection.fetch(sql, *arguments)
        except PostgresError:
            if not connection.is_closed():
                await connection.execute("ROLLBACK")
            raise
        if self._reads:
            self._read_transactions.end_soon(connection, begin, began_at)
        else:
            await connection.execute("COMMIT")
        return rows

    def _resume_read(
        self, tenant: str | None
    ) -> tuple[asyncpg.Connection[asyncpg.Record] | None, float | None]:
        """Return the connection if the transaction of its last read goes on, and when that began."""
        connection = self._connection
        if not self._reads or connection is None or (self._wanted_role is not None and self._role is None):
            return None, None
        began_at = self._read_transactions.resume(connection, self._beginning(tenant))
        return (None, None) if began_at is None else (connection, began_at)

    def _beginning(self, tenant: str | None) -> str:
        """Return what begins a transaction with other settings; empty if there are none.

        The tenant is set for one transaction and never for the session: the next one may be of another.
        """
        begin = self._begin
        if self._is_pooled and self._role is not None:
            begin = f"{begin}; SET LOCAL ROLE {self._role}"
        if tenant is None:
            return begin
        check_role(self._wanted_role, self._role, tenant)
        if self._wanted_role is not None and self._role is None:
            # One tenant alone, and a user without the role: as before there were tenants.
            return begin
        return f"{begin or 'BEGIN'}; {set_tenant(tenant)}"

    async def _take_role(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        """Take on the role that sees the rows of one tenant, if this user can."""
        self._role_checked_at = time.monotonic()
        can_take = await connection.fetchval(CAN_TAKE_ROLE, self._wanted_role)
        self._role = self._wanted_role if can_take else None
        if self._role is not None and not self._is_pooled:
            await connection.execute(f"SET ROLE {self._role}")

    async def execute_in_transaction(
        self,
        statements: Sequence[tuple[Query, Mapping[str, Any]]],
        *,
        guards: int = 0,
        tenant: str | None = None,
    ) -> list[asyncpg.Record]:
        """Run statements in one transaction; return the rows of the last.

        `guards`: if one of so many first statements returns no row, nothing is changed: raise `GuardFailed`.
        """
        rows: list[asyncpg.Record] = []
        async with self._lock:
            connection = await self._ensure_connected()
            try:
                async with connection.transaction():
                    await self._set_locally(connection, tenant)
                    for position, (query, params) in enumerate(statements):
                        sql, arguments = self._statement(query, params)
                        rows = await connection.fetch(sql, *arguments)
                        if position < guards and not rows:
                            raise GuardFailed(query.name)
            except DRIVER_ERRORS as error:
                raise self._translate(error, statements[0][0].name) from error
        return rows

    async def copy_in_transaction(
        self,
        before: Sequence[tuple[Query, Mapping[str, Any]]],
        copies: Sequence[Copy],
        after: Sequence[tuple[Query, Mapping[str, Any]]] = (),
        *,
        is_flushed: bool = False,
        tenant: str | None = None,
    ) -> list[asyncpg.Record]:
        """Run statements, copy rows, run further statements, all in one transaction; return the last rows.

        If a statement returns no row, nothing is changed. `is_flushed`: commit synchronously on any
        connection.
        """
        async with self._lock:
            connection = await self._ensure_connected()
            transaction = connection.transaction()
            try:
                await transaction.start()
                await self._set_locally(connection, tenant)
                if is_flushed:
                    await connection.execute("SET LOCAL synchronous_commit = on")
                rows = await self._fetch_each(connection, before)
                for copy in copies if rows else ():
                    await self._copy(connection, copy, before[0][1])
                if rows and after:
                    rows = await self._fetch_each(connection, after)
                await (transaction.commit() if rows else transaction.rollback())
            except asyncio.CancelledError:
                self._drop(connection)
                raise
            except DRIVER_ERRORS as error:
                if not connection.is_closed():
                    with contextlib.suppress(*DRIVER_ERRORS):
                        await transaction.rollback()
                raise self._translate(error, before[0][0].name) from error
        return rows

    async def _set_locally(self, connection: asyncpg.Connection[asyncpg.Record], tenant: str | None) -> None:
        """Set for a transaction what it needs: the tenant, and behind a pooler the role."""
        role = self._role if self._is_pooled else None
        settings = [f"SET LOCAL ROLE {role}"] if role is not None else []
        if tenant is not None:
            check_role(self._wanted_role, self._role, tenant)
            settings.append(set_tenant(tenant))
        if settings:
            await connection.execute("; ".join(settings))

    async def _fetch_each(
        self,
        connection: asyncpg.Connection[asyncpg.Record],
        statements: Sequence[tuple[Query, Mapping[str, Any]]],
    ) -> list[asyncpg.Record]:
        """Run statements until one returns no row; return the rows of the last one."""
        rows: list[asyncpg.Record] = []
        for query, params in statements:
            sql, arguments = self._statement(query, params)
            rows = await connection.fetch(sql, *arguments)
            if not rows:
                break
        return rows

    async def _copy(
        self, connection: asyncpg.Connection[asyncpg.Record], copy: Copy, params: Mapping[str, Any]
    ) -> None:
        table, columns, records = copy
        if self._role is not None:
            await insert_rows(connection, table, columns, records)
            return
        if self.role is None:
            await connection.copy_records_to_table(
                table, schema_name="dagapp", columns=columns, records=records, timeout=COMMAND_SECONDS
            )
            return
        for sql, arguments in self.role.insertions(table, list(records), params):
            await connection.fetch(sql, *arguments)

    async def listen(self, channel: str, callback: Callable[[str], None]) -> None:
        """Call with the payload of each notification, also after a reconnect."""
        if not self.can_listen:
            return
        async with self._lock:
            is_new = self._connection is None or self._connection.is_closed()
            self._channels[channel] = callback
            connection = await self._ensure_connected()
            if not is_new and channel not in self._listeners:
                try:
                    await self._add_listener(connection, channel)
                except DRIVER_ERRORS as error:
                    raise self._translate(error, "listen") from error

    async def unlisten(self, channel: str) -> None:
        """Stop listening. A connection that is lost listens to nothing anyway."""
        async with self._lock:
            self._channels.pop(channel, None)
            callback = self._listeners.pop(channel, None)
            connection = self._connection
            if callback is not None and connection is not None and not connection.is_closed():
                with contextlib.suppress(*DRIVER_ERRORS):
                    await connection.remove_listener(channel, callback)

    def for_tenant(self, tenant: str) -> TenantSession:
        """Return the connection on behalf of a tenant, or of all tenants."""
        return TenantSession(self, tenant)

    async def close(self) -> None:
        await self._read_transactions.end()
        connection, self._connection = self._connection, None
        self._channels.clear()
        if connection is not None and not connection.is_closed():
            connection.remove_termination_listener(self._on_terminated)
            with contextlib.suppress(*DRIVER_ERRORS):
                await connection.close(timeout=2)

    async def _ensure_connected(self) -> asyncpg.Connection[asyncpg.Record]:
        await self._read_transactions.end()
        connection = self._connection
        if connection is not None and not connection.is_closed():
            if self._wanted_role is not None and self._role is None and self._is_role_check_due():
                await self._take_role(connection)
            return connection
        try:
            try:
                connection = await self._connect()
            except (OSError, CannotConnectNowError):
                if self._restart_embedded is None:
                    raise
                try:
                    await asyncio.to_thread(self._restart_embedded)
                except EmbeddedPostgresUnavailable as error:
                    raise DatabaseUnavailable(str(error)) from error
                connection = await self._connect()
            try:
                if self._wanted_role is not None:
                    await self._take_role(connection)
                for channel in self._channels:
                    await self._add_listener(connection, channel)
            except BaseException:
                connection.terminate()
                raise
        except (*DRIVER_ERRORS, ValueError) as error:
            raise self._translate(error, "connect") from error
        self.losses += self._was_connected
        self._was_connected = True
        self._connection = connection
        connection.add_termination_listener(self._on_terminated)
        return connection

    def _is_role_check_due(self) -> bool:
        return time.monotonic() - self._role_checked_at > ROLE_CHECK_SECONDS

    async def _connect(self) -> asyncpg.Connection[asyncpg.Record]:
        connecting = asyncio.ensure_future(self._open_connection())
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            # The caller was cancelled: the connection must not stay open.
            connecting.add_done_callback(_terminate_result)
            raise

    async def _open_connection(self) -> asyncpg.Connection[asyncpg.Record]:
        return await asyncpg.connect(
            self._dsn,
            timeout=CONNECT_SECONDS,
            # The server cancels first, and says so.
            command_timeout=max(COMMAND_SECONDS, 2 * (self._statement_timeout_seconds or 0)),
            server_settings=self._settings,
            # Behind a pooler, a prepared statement may be on another connection.
            statement_cache_size=0 if self._is_pooled else 100,
        )

    async def _add_listener(self, connection: asyncpg.Connection[asyncpg.Record], channel: str) -> None:
        def callback(_connection: object, _pid: int, _channel: str, payload: object) -> None:
            if channel in self._channels:
                self._channels[channel](str(payload))

        await connection.add_listener(channel, callback)
        self._listeners[channel] = callback

    def _translate(self, error: BaseException, where: str) -> Exception:
        if isinstance(error, LOST):
            if self._connection is not None and not self._connection.is_closed():
                self._drop(self._connection)
            self._connection = None
        if isinstance(error, QueryCanceledError) and self._statement_timeout_seconds is not None:
            return DatabaseUnavailable(
                f"{where}: the read took longer than {self._statement_timeout_seconds:g} s and was cancelled:"
                " narrow"
                " the filter, or raise DAGMASTER_READ_TIMEOUT_SECONDS"
            )
        return translate_error(error, where)

    def _drop(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        connection.remove_termination_listener(self._on_terminated)
        connection.terminate()

    def _on_terminated(self, _connection: object) -> None:
        if self._on_disconnect is not None:
            self._on_disconnect()


def _terminate_result(connecting: asyncio.Future[asyncpg.Connection[asyncpg.Record]]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().terminate()
