"""The doctor's checks of the database: the operator's server, else the embedded one.

Nothing is written to it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, assert_never

from dagmaster.cli.doctor.host import check_directory
from dagmaster.cli.doctor.rules import (
    START_LOCALLY,
    Finding,
    Grade,
    bad,
    good,
    grade_callbacks,
    grade_clock,
    grade_isolation,
    grade_notifications,
    grade_pooler,
    grade_queues,
    grade_roles,
    grade_schema,
    grade_server,
    grade_services,
    warning,
)
from dagmaster.errors import (
    DagmasterError,
    EmbeddedPostgresUnavailable,
    SecretsKeyMissing,
    SecretsKeyWrong,
)
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
from dagmaster.ports.tenants import Isolation
from dagmaster.settings import mask_url

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dagmaster.cli.doctor.host import DoctorContext
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.database_facts import DatabaseFact

_CONNECT_REMEDIES: Final = {
    ConnectFailure.AUTHENTICATION: "correct the user and the password in DAGMASTER_DATABASE_URL",
    ConnectFailure.NO_SUCH_DATABASE: "create it on that server with `createdb`, or correct the name",
    ConnectFailure.TOO_MANY_CONNECTIONS: "raise max_connections, or use PgBouncer",
    ConnectFailure.STARTING_OR_STOPPING: "wait a moment, and try again",
    ConnectFailure.TIMEOUT: "check that it runs, and that no firewall blocks the connection",
    ConnectFailure.UNKNOWN_HOST: "correct the host, or the name service (DNS)",
    ConnectFailure.REFUSED: "start the server, or correct host and port",
    ConnectFailure.TLS: "correct sslmode and the certificates in the address",
    ConnectFailure.OTHER: "correct DAGMASTER_DATABASE_URL, or repair the server",
}


def check_database(context: DoctorContext) -> Iterable[Finding]:
    """Check the operator's server if one is configured, else the embedded one."""
    problems = context.reading.problems
    if context.has_server and context.reading.settings.database_url is None:
        yield bad(
            "database", "not checked: its address is not valid", "correct the setting that is reported above"
        )
    elif context.has_server:
        yield from _check_configured_server(context)
    elif context.data_dir is None and "data_dir" in problems:
        yield bad("database", "not checked: DAGMASTER_DATA_DIR is not valid", "correct the setting")
    else:
        yield from _check_embedded(context)


def check_server(config: DatabaseConfig, context: DoctorContext) -> list[Finding]:
    """Probe a server, and grade the facts."""
    from dagmaster.bootstrap.database_admin import probe_database

    facts = asyncio.run(probe_database(config, context.reading.settings))
    findings = [_grade(fact, config, context) for fact in facts]
    if any(isinstance(fact, LiveServices) for fact in facts):
        # The schema is there, and this user may read it.
        findings += [_check_secrets_key(config, context), _check_callbacks(config, context)]
    return [finding for finding in findings if finding is not None]


def _check_callbacks(config: DatabaseConfig, context: DoctorContext) -> Finding | None:
    """Check that no endpoint of callbacks is paused; None: none is, or this user may not read it."""
    from dagmaster.application.callbacks import list_endpoints
    from dagmaster.bootstrap.callbacks import open_callbacks

    async def paused() -> list[str]:
        async with open_callbacks(config, context.reading.settings) as callbacks:
            return [one.endpoint for one in await list_endpoints(callbacks, is_paused=True)]

    try:
        endpoints = asyncio.run(paused())
    except DagmasterError:
        return None
    return grade_callbacks(endpoints)


def _check_secrets_key(config: DatabaseConfig, context: DoctorContext) -> Finding | None:
    """Check that this process has the key that the database registered, if it did; None: it has."""
    from dagmaster.bootstrap.secret_keys import check_secrets_key

    try:
        asyncio.run(check_secrets_key(config, context.reading.settings))
    except (SecretsKeyMissing, SecretsKeyWrong) as error:
        remedy = "no service starts without it: restore it, or see `dagmaster secrets-key rotate --help`"
        return bad("secrets key", context.describe(error), remedy)
    except DagmasterError as error:
        return warning("secrets key", f"unknown: {context.describe(error)}", "read the server's log")
    return None


def _check_configured_server(context: DoctorContext) -> Iterable[Finding]:
    from dagmaster.bootstrap import open_database

    with open_database(context.reading.settings) as config:
        yield from check_server(config, context)


def _check_embedded(context: DoctorContext) -> Iterable[Finding]:
    """Check the embedded server: on its data directory if it exists, else on a temporary one."""
    from dagmaster.bootstrap import open_database
    from dagmaster.bootstrap.database_admin import embedded_data_dir, inspect_data_directory

    settings = context.reading.settings
    try:
        data_dir = embedded_data_dir(settings, context.data_dir)
        findings = list(check_directory("data", data_dir, "DAGMASTER_DATA_DIR"))
        yield from findings
        if any(finding.grade is Grade.BAD for finding in findings):
            return
        state = inspect_data_directory(data_dir)
        if not state.has_cluster:
            yield _try_server(context)
            yield bad("schema", f"does not exist yet: there is no data in {data_dir}", START_LOCALLY)
            return
        started = time.monotonic()
        with open_database(settings, data_dir) as config:
            elapsed = time.monotonic() - started
            users = ", ".join(state.users)
            yield good(
                "embedded", f"in use by {users}" if users else f"not in use; it started in {elapsed:.1f} s"
            )
            yield from check_server(config, context)
    except DagmasterError as error:
        yield context.finding_from_error("embedded", error)


def _try_server(context: DoctorContext) -> Finding:
    from dagmaster.bootstrap.database_admin import time_trial_start

    try:
        elapsed = time_trial_start()
    except EmbeddedPostgresUnavailable as error:
        return bad(
            "embedded",
            f"a trial server could not be started: {context.describe(error)}",
            "correct what the message names, or configure a server of your own with DAGMASTER_DATABASE_URL",
        )
    return good("embedded", f"a trial server was ready in {elapsed:.1f} s")


def _grade(  # noqa: PLR0911 - one case a fact
    fact: DatabaseFact, config: DatabaseConfig, context: DoctorContext
) -> Finding | None:
    match fact:
        case ServerVersion():
            return grade_server(fact, "its socket" if config.is_embedded else mask_url(config.dsn))
        case ClockOffset():
            return grade_clock(fact)
        case PreparedStatements():
            return grade_pooler(fact)
        case Notifications():
            return grade_notifications(fact)
        case SchemaState():
            return grade_schema(fact, is_embedded=config.is_embedded)
        case Isolation():
            return grade_isolation(fact)
        case DatabaseRoles():
            # The embedded server has one user, who owns everything.
            return None if config.is_embedded else grade_roles(fact)
        case LiveServices():
            return grade_services(fact, is_embedded=config.is_embedded)
        case WaitingTasks():
            return grade_queues(fact)
        case _:
            return _grade_failure(fact, config, context)


_Failure = (
    Unreachable
    | SecondConnectionFailed
    | ServiceConnectionFailed
    | ListenerUnreachable
    | SchemaAccessDenied
    | FleetAccessDenied
    | ProbeTimedOut
    | ProbeFailed
)


def _grade_failure(fact: _Failure, config: DatabaseConfig, context: DoctorContext) -> Finding:
    match fact:
        case Unreachable():
            message, remedy = _explain_unreachable(fact, context)
            return bad("database", f"{mask_url(config.dsn)} cannot be reached: {message}", remedy)
        case SecondConnectionFailed():
            remedy = "raise max_connections, or the user's limit"
            return warning("connections", "a second connection was refused", remedy)
        case ServiceConnectionFailed():
            return _grade_service_connection(fact.error, context)
        case ListenerUnreachable():
            name = "DAGMASTER_DATABASE_DIRECT_URL" if fact.has_direct_address else "a connection for LISTEN"
            return bad(
                "wake-up", f"{name} does not work: {context.describe(fact.error)}", "correct it, or remove it"
            )
        case SchemaAccessDenied():
            grant = f'GRANT dagmaster_orchestrator, dagmaster_worker TO "{fact.user}"'
            return bad("schema", f"user {fact.user!r} may not use it", f"as its owner: {grant}")
        case FleetAccessDenied():
            message = f"unknown: this user may not read the tables: {context.describe(fact.error)}"
            remedy = (
                "run the doctor as the owner of the schema, or as a user with the role dagmaster_orchestrator"
            )
            return bad("services", message, remedy)
        case ProbeTimedOut():
            message = f"no answer within {fact.timeout_seconds:.0f} s"
            return bad("database", message, "check the load and the locks of the server")
        case ProbeFailed():
            message = f"it stopped answering: {context.describe(fact.error)}"
            return bad("database", message, "read the server's log")
        case _:
            assert_never(fact)


def _grade_service_connection(error: Exception, context: DoctorContext) -> Finding:
    if isinstance(error, DagmasterError):
        return bad(
            "database",
            f"it rejects the parameters with which services connect: {context.describe(error)}",
            "behind PgBouncer: DAGMASTER_DATABASE_POOLED=true, and ignore_startup_parameters = search_path"
            " there",
        )
    return bad("database", f"services could not connect: {context.describe(error)}", "read the server's log")


def _explain_unreachable(fact: Unreachable, context: DoctorContext) -> tuple[str, str]:
    """Return why a server cannot be reached, and the remedy."""
    message = context.describe(fact.error)
    match fact.reason:
        case ConnectFailure.STARTING_OR_STOPPING:
            message = "it is starting or stopping"
        case ConnectFailure.TIMEOUT:
            message = f"no answer within {fact.timeout_seconds:.0f} s"
        case ConnectFailure.UNKNOWN_HOST:
            message = "the host name is unknown"
        case ConnectFailure.REFUSED:
            message = "nothing listens there"
        case ConnectFailure.TLS:
            message = f"TLS does not work: {message}"
    return message, _CONNECT_REMEDIES[fact.reason]
