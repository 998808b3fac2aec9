"""Errors of the driver, as ours: what was lost, what may be tried again, and what to do."""

from __future__ import annotations

from typing import Final

from asyncpg.exceptions import (
    AdminShutdownError,
    CannotConnectNowError,
    DiskFullError,
    InterfaceError,
    InternalClientError,
    InvalidAuthorizationSpecificationError,
    InvalidCatalogNameError,
    InvalidSchemaNameError,
    PostgresConnectionError,
    PostgresError,
    QueryCanceledError,
    ReadOnlySQLTransactionError,
    TooManyConnectionsError,
    UndefinedFunctionError,
    UndefinedTableError,
)

from dagmaster.errors import (
    DagmasterError,
    DatabaseDiskFull,
    DatabaseReadOnly,
    DatabaseUnavailable,
    JobQuotaExceeded,
    SchemaVersionMismatch,
    StatementFailed,
)

LOST: Final = (
    OSError,
    EOFError,
    TimeoutError,
    InterfaceError,
    InternalClientError,
    PostgresConnectionError,
    AdminShutdownError,
    CannotConnectNowError,
    TooManyConnectionsError,
)
JOB_QUOTA: Final = "DM430"
"""What the trigger of dag_jobs raises for a tenant that has as many open jobs as it may have."""
QUOTA_SECONDS: Final = 10.0
"""When a submit may be tried again: jobs finish at any time."""
DRIVER_ERRORS: Final = (*LOST, PostgresError)
# Transient error classes: rolled back, out of resources, not in this state, stopped, read-only.
_TRANSIENT: Final = frozenset({"25", "40", "53", "55", "57", "58"})
STANDBY: Final = (
    "the database accepts no changes: this is a standby, or a server that is set to read-only. Name the"
    " primary in DAGMASTER_DATABASE_URL, or promote this one"
)


def translate_error(error: BaseException, where: str) -> DagmasterError:
    if isinstance(error, UndefinedTableError | InvalidSchemaNameError | UndefinedFunctionError):
        return _translate_missing(error, where)
    if isinstance(error, QueryCanceledError):
        return DatabaseUnavailable(f"{where}: the database cancelled the statement: it took too long")
    condition = _condition(error, where)
    if condition is not None:
        return condition
    if isinstance(error, InvalidAuthorizationSpecificationError | InvalidCatalogNameError):
        return DatabaseUnavailable(f"the database rejects the connection: {error}")
    if isinstance(error, InternalClientError) or (
        isinstance(error, InterfaceError) and not isinstance(error, ValueError)
    ):
        # The driver's text is about its own state when the connection was lost.
        return DatabaseUnavailable("the connection to the database was lost")
    if isinstance(error, LOST):
        reason = str(error).split("\n", 1)[0] or type(error).__name__
        return DatabaseUnavailable(f"the database cannot be reached: {reason}")
    # Without its detail, which shows the row: that may contain secrets.
    message = f"{where}: {str(error).splitlines()[0]} ({getattr(error, 'sqlstate', '')})"
    if str(getattr(error, "sqlstate", ""))[:2] in _TRANSIENT:
        return DatabaseUnavailable(f"the database cannot execute the statement now: {message}")
    return StatementFailed(message)


def _condition(error: BaseException, where: str) -> DagmasterError | None:
    """Return our error for a condition of the database that fails some calls."""
    if getattr(error, "sqlstate", "") == JOB_QUOTA:
        return JobQuotaExceeded(
            f"{str(error).splitlines()[0]}: submit again when some have finished",
            retry_after_seconds=QUOTA_SECONDS,
        )
    if isinstance(error, DiskFullError):
        return DatabaseDiskFull(
            "the disk of the database is full: free some space, and services continue by themselves"
        )
    return DatabaseReadOnly(f"{where}: {STANDBY}") if isinstance(error, ReadOnlySQLTransactionError) else None


def _translate_missing(error: PostgresError, where: str) -> DagmasterError:
    if not isinstance(error, UndefinedFunctionError):
        message = f"the database has no dagmaster tables ({error}): run `dagmaster migrate`"
        return SchemaVersionMismatch(message)
    if "dagapp.dag_worker_" in str(error):
        return SchemaVersionMismatch(
            "this user may not change the tables, and the database has no functions for a worker of this"
            " version: run `dagmaster migrate` as the owner of the schema"
        )
    return StatementFailed(f"{where}: {str(error).splitlines()[0]} (42883)")
