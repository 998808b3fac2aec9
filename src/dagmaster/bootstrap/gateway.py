"""Wires a gateway. It imports little: a function app has to start quickly, and to be small.

Neither the embedded database nor what migrates, renders pages or runs handlers may be imported from here; an
import contract says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from dagmaster.application.request_status import read_status
from dagmaster.bootstrap.access import allowed_hosts, make_rate_limiter, make_token_verifier
from dagmaster.errors import DagmasterError, SettingsInvalid
from dagmaster.http.auth import KeyChecker
from dagmaster.http.failed_logins import FailedLogins
from dagmaster.http.gateway.app import GatewayApp, create_gateway
from dagmaster.http.gateway.services import GatewayServices
from dagmaster.http.gateway.startup import StartupChecks
from dagmaster.http.gateway.upstream import Upstream, make_client
from dagmaster.http.tenant_guard import TenantGuard
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.ports.tenants import GATEWAY_ROLE
from dagmaster.records.gateway import AdminConfigResponse, ConfigItem
from dagmaster.settings import load_settings, read_settings, show_settings
from dagmaster.store.postgres.gateway_store import GatewayKeys, GatewayTenants, PostgresGatewayStore
from dagmaster.telemetry.prometheus import ProcessMetrics

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Collection, Mapping

    import httpx

    from dagmaster.http.server import HttpServer
    from dagmaster.ports.api_keys import ApiKeyStore, Caller
    from dagmaster.ports.schema_admin import SchemaAdmin
    from dagmaster.ports.tenants import TenantStore
    from dagmaster.records.requests import RequestStatusRecord
    from dagmaster.settings import Settings

SHOWN_GROUPS: Final = ("database", "gateway", "access", "logs")
"""The settings that a gateway uses."""
_NAMESPACE: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{4,48}[A-Za-z0-9](\.servicebus\.[a-z.]+)?")
_CONNECTION: Final = re.compile(r"Endpoint=sb://[^;]+;(.*;)?SharedAccessKey(Name)?=.+")


def make_gateway(
    settings: Settings,
    config: DatabaseConfig | None,
    *,
    hosts: Collection[str] = (),
    transport: httpx.AsyncBaseTransport | None = None,
) -> GatewayApp:
    """Return a gateway. Its stores connect when they are first used.

    `config`: None if no database is set. `hosts`: more names by which clients reach it.
    """
    store = PostgresGatewayStore(
        config or DatabaseConfig(dsn="postgresql:///?host=/nonexistent", role=GATEWAY_ROLE),
        lease_seconds=settings.orchestrator_lease_seconds,
        worker_lease_seconds=settings.worker_lease_seconds,
        statement_timeout_seconds=settings.read_timeout_seconds,
    )
    # It logs the address of each request.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    client = make_client(transport)
    metrics = ProcessMetrics()
    upstream = Upstream(settings.orchestrator_url or "", client, metrics)
    tokens = make_token_verifier(settings)

    async def close() -> None:
        if tokens is not None:
            await tokens.close()
        await client.aclose()
        await store.close()

    # Only what finds keys is used: there are no sessions of browsers here.
    keys = cast("ApiKeyStore", GatewayKeys(store.pool))
    services = GatewayServices(
        store=store,
        requests=_Requests(store),
        keys=KeyChecker(keys, tokens, guard=_tenant_guard(store)),
        failed_logins=FailedLogins(settings.failed_logins, metrics),
        checks=StartupChecks(_checks(settings, config, store, upstream)),
        upstream=upstream,
        client=client,
        targets={
            name: url
            for name, url in (
                ("orchestrator", settings.orchestrator_url),
                ("worker", settings.worker_url),
            )
            if url is not None
        },
        config=_shown_settings,
        close=close,
        metrics=metrics,
        rate_limiter=make_rate_limiter(settings),
        allowed_hosts=allowed_hosts(settings) | frozenset(hosts),
    )
    return create_gateway(services)


def gateway_config(config: DatabaseConfig) -> DatabaseConfig:
    """Return the configuration of a database with the role that a gateway takes on."""
    return replace(config, role=GATEWAY_ROLE)


def function_app_gateway(hosts: Collection[str] = ()) -> GatewayApp:
    """Return a gateway on the settings of the environment, for a host that runs ASGI applications."""
    settings = load_settings(services=True)
    if settings.database_url is None:
        return make_gateway(settings, None, hosts=hosts)
    config = DatabaseConfig(
        dsn=settings.database_url.get_secret_value(),
        is_pooled=settings.database_pooled,
        role=GATEWAY_ROLE,
    )
    return make_gateway(settings, config, hosts=hosts)


class GatewayService:
    """A gateway on a socket, as a service."""

    def __init__(
        self,
        config: DatabaseConfig,
        settings: Settings,
        listener: socket.socket,
        *,
        certificate: str | None = None,
        key_file: str | None = None,
        trusted_proxies: str | None = None,
    ) -> None:
        if settings.orchestrator_url is None:
            raise SettingsInvalid(
                "set DAGMASTER_ORCHESTRATOR_URL: a gateway forwards every change to a server"
            )
        self.ready = asyncio.Event()
        self._config, self._settings, self._listener = gateway_config(config), settings, listener
        self._options = {
            "certificate": certificate,
            "key_file": key_file,
            "trusted_proxies": trusted_proxies,
        }
        self._server: HttpServer | None = None
        self._is_stopped = False

    async def run(self) -> None:
        from dagmaster.http.server import HttpServer

        if self._config.is_embedded:
            await _make_embedded_role(self._config)
        app = make_gateway(self._settings, self._config)
        try:
            self._server = HttpServer(app, self._listener, **self._options)
            self._server.ready = self.ready
            if not self._is_stopped:
                await self._server.run_until_stopped()
        finally:
            await app.services.close()

    def stop(self) -> None:
        """Finish the requests that run, and end."""
        self._is_stopped = True
        if self._server is not None:
            self._server.stop()


async def _make_embedded_role(config: DatabaseConfig) -> None:
    """Give an embedded database its roles, as `dagmaster migrate` does; if that fails, a check says so."""
    from dagmaster.store.postgres import roles

    with contextlib.suppress(DagmasterError):
        await roles.apply_roles(config.dsn, is_exact=False)


def _tenant_guard(store: PostgresGatewayStore) -> TenantGuard:
    # Only what reads tenants is used.
    tenants = GatewayTenants(store)
    return TenantGuard(cast("TenantStore", tenants), cast("SchemaAdmin", tenants))


class _Requests:
    """Reads the status of requests of a caller's tenant."""

    def __init__(self, store: PostgresGatewayStore) -> None:
        self._store = store

    async def status(self, caller: Caller, request_id: str) -> RequestStatusRecord:
        # Large results are not read here: a server has the files.
        reader = self._store.requests(caller.sees)
        return await read_status(reader, None, request_id, actor=_narrowed(caller))

    async def result_key(self, caller: Caller, request_id: str) -> str | None:
        return await self._store.result_key(caller.sees, request_id, actor=_narrowed(caller))


def _narrowed(caller: Caller) -> str | None:
    """Return whose requests alone a caller sees; None: all requests of its tenant."""
    return caller.actor if caller.limits.is_own else None


def _checks(
    settings: Settings,
    config: DatabaseConfig | None,
    store: PostgresGatewayStore,
    upstream: Upstream,
) -> Mapping[str, Callable[[], Awaitable[str]]]:
    async def env_vars() -> str:
        if config is None:
            return "DAGMASTER_DATABASE_URL is not set"
        return "" if settings.orchestrator_url else "DAGMASTER_ORCHESTRATOR_URL is not set"

    async def database() -> str:
        return "" if config is None else await _check_rights(store)

    async def orchestrator() -> str:
        if not settings.orchestrator_url or await upstream.is_alive():
            return ""
        return f"{settings.orchestrator_url}/livez does not answer with 200"

    checks = {"env_vars": env_vars, "database": database, "orchestrator": orchestrator}
    return checks | ({"service_bus": _check_service_bus} if any(_service_bus()) else {})


async def _check_rights(store: PostgresGatewayStore) -> str:
    """Return what the role of the connections may do that it must not; empty: nothing."""
    rights = await store.check_rights()
    if not rights.is_limited:
        return f"the role bypasses row-level security: connect as a member of {GATEWAY_ROLE}"
    wrong = [
        text
        for text, is_wrong in (
            ("change tables", rights.can_write),
            ("read the inputs of jobs", rights.can_read_inputs),
            ("read keys", rights.can_read_keys),
        )
        if is_wrong
    ]
    return f"the role may {wrong[0]}: connect as a member of {GATEWAY_ROLE} alone" if wrong else ""


def _service_bus() -> tuple[str, str]:
    """Return the namespace and the connection string of a service bus, both as they are set."""
    return os.environ.get("SERVICE_BUS_NAMESPACE", ""), os.environ.get("SERVICE_BUS_CONNECTION_STRING", "")


async def _check_service_bus() -> str:
    """Return whether the settings of a service bus are well-formed. Nothing is sent to it from here."""
    namespace, connection = _service_bus()
    if namespace and not _NAMESPACE.fullmatch(namespace):
        return "SERVICE_BUS_NAMESPACE is not a namespace, such as NAME or NAME.servicebus.windows.net"
    if connection and not _CONNECTION.fullmatch(connection):
        return "SERVICE_BUS_CONNECTION_STRING is not one: Endpoint=sb://…;SharedAccessKeyName=…"
    return ""


def _shown_settings() -> AdminConfigResponse:
    views = show_settings(read_settings(services=True))
    return AdminConfigResponse(
        settings=tuple(
            ConfigItem(name=view.name, value=view.value, source=view.source)
            for view in views
            if view.group in SHOWN_GROUPS
        )
    )
