"""Wires the HTTP server and the store of keys."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dagmaster.bootstrap import ensure_schema, large_outputs, secret, wire_application
from dagmaster.bootstrap.access import allowed_hosts, make_rate_limiter, make_token_verifier
from dagmaster.bootstrap.callbacks import open_callbacks
from dagmaster.bootstrap.database_admin import open_database_admin
from dagmaster.bootstrap.serving import serving_config
from dagmaster.bootstrap.shipped_handlers import shipped_names
from dagmaster.client.system import current_user
from dagmaster.errors import ApiKeyRejected, SettingsInvalid
from dagmaster.host.atomic_files import write_private
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ports.tenants import ALL_TENANTS

if TYPE_CHECKING:
    import pathlib
    import socket
    from collections.abc import AsyncIterator

    from pydantic import SecretStr

    from dagmaster.adapters.oidc import OidcVerifier
    from dagmaster.adapters.oidc_login import OidcLogin
    from dagmaster.adapters.storage.router import ObjectStorage
    from dagmaster.application.context import Application
    from dagmaster.application.remote_tasks import RemoteTasks
    from dagmaster.bootstrap.client_settings import ClientSettings
    from dagmaster.http.server import HttpServer
    from dagmaster.ports.api_keys import ApiKeyStore
    from dagmaster.ports.audit_trail import AuditTrail
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.ports.remote_workers import RemoteWorkers
    from dagmaster.ports.tenants import TenantStore
    from dagmaster.settings import Settings
    from dagmaster.telemetry.prometheus import ProcessMetrics


@contextlib.asynccontextmanager
async def open_keys(config: DatabaseConfig, *, migrate: bool = False) -> AsyncIterator[ApiKeyStore]:
    from dagmaster.store.postgres.api_key_store import PostgresApiKeyStore

    await ensure_schema(config, migrate=migrate)
    async with contextlib.AsyncExitStack() as stack:
        keys = PostgresApiKeyStore(config)
        stack.push_async_callback(keys.close)
        yield keys


@contextlib.asynccontextmanager
async def open_tenants(config: DatabaseConfig, *, migrate: bool = False) -> AsyncIterator[TenantStore]:
    from dagmaster.store.postgres.tenant_store import PostgresTenantStore

    await ensure_schema(config, migrate=migrate)
    async with contextlib.AsyncExitStack() as stack:
        tenants = PostgresTenantStore(config)
        stack.push_async_callback(tenants.close)
        yield tenants


@contextlib.asynccontextmanager
async def open_audit_trail(
    config: DatabaseConfig, settings: ClientSettings | Settings
) -> AsyncIterator[AuditTrail]:
    from dagmaster.store.postgres.audit_trail import PostgresAuditTrail

    await ensure_schema(config, migrate=False)
    async with contextlib.AsyncExitStack() as stack:
        trail = PostgresAuditTrail(config, statement_timeout_seconds=settings.read_timeout_seconds)
        stack.push_async_callback(trail.close)
        yield trail


async def ensure_local_key(
    config: DatabaseConfig, settings: ClientSettings | Settings, data_dir: pathlib.Path | None
) -> pathlib.Path:
    """Return the file with the user's key for a data directory; create both if they are missing."""
    from dagmaster.application.api_keys import create_local_key, find_caller
    from dagmaster.store.embedded.server import default_data_dir

    data_dir = data_dir or settings.data_dir or default_data_dir()
    path = data_dir.with_name(f"{data_dir.name}-api-key")
    origin = ChangeOrigin(actor="dagmaster dev")
    async with open_keys(config) as keys:
        with contextlib.suppress(ApiKeyRejected, FileNotFoundError):
            await find_caller(keys, path.read_text(encoding="utf-8").strip())
            # It may have been copied or restored.
            path.chmod(0o600)
            return path
        view = await create_local_key(keys, current_user(), origin=origin, now=time.time())
    write_private(path, f"{view.key}\n".encode())
    return path


async def make_login_link(config: DatabaseConfig, key_file: pathlib.Path) -> str:
    """Return a code that starts one session of the browser of the user whose key is in a file."""
    from dagmaster.application.api_keys import find_caller
    from dagmaster.application.browser_sessions import create_login_link

    async with open_keys(config) as keys:
        key = await asyncio.to_thread(key_file.read_text, encoding="utf-8")
        record = await find_caller(keys, key.strip())
        return await create_login_link(keys, record)


def make_browser_login(settings: Settings, tokens: OidcVerifier | None) -> OidcLogin | None:
    """Return the login of the web page at the issuer; None if this server is no client of it."""
    if settings.oidc_client_id is None:
        return None
    if tokens is None:
        raise SettingsInvalid(
            "DAGMASTER_OIDC_CLIENT_ID needs DAGMASTER_OIDC_ISSUER: the client is one of an issuer"
        )
    if settings.public_url is None:
        raise SettingsInvalid(
            "DAGMASTER_OIDC_CLIENT_ID needs DAGMASTER_PUBLIC_URL: a login leads back to this address"
        )
    from dagmaster.adapters.oidc_login import LoginConfig, OidcLogin

    client_secret, ticket_secret = settings.oidc_client_secret, settings.oidc_ticket_secret
    return OidcLogin(
        LoginConfig(
            client_id=settings.oidc_client_id,
            public_url=settings.public_url,
            provider=settings.oidc_issuer_name or urlsplit(tokens.issuer.url).hostname or tokens.issuer.url,
            client_secret=None if client_secret is None else client_secret.get_secret_value(),
            ticket_secret=None if ticket_secret is None else ticket_secret.get_secret_value(),
            scopes=settings.oidc_login_scopes,
        ),
        tokens,
    )


def make_storage(settings: Settings) -> ObjectStorage | None:
    """Return the storage in which inputs are looked up; None without zones: workers have their own files."""
    from dagmaster.adapters.storage.router import ObjectStorage
    from dagmaster.ports.storage import ZONES

    zones = {zone: url for zone in ZONES if (url := getattr(settings, f"{zone}_url"))}
    if not zones:
        return None
    closed = [settings.outputs_url] if settings.outputs_url else []
    return ObjectStorage(
        zones, roots=settings.file_roots, containers=settings.storage_containers, closed=closed
    )


def _text_of(key: SecretStr | None) -> str | None:
    return None if key is None else key.get_secret_value()


def _sample_result(*arguments: Any) -> Any:
    """Make up a result of a graph. What it takes is imported for the first sandbox key that asks."""
    from dagmaster.simulation.sample_results import sample_result

    return sample_result(*arguments)


def make_remote_tasks(workers: RemoteWorkers, application: Application, settings: Settings) -> RemoteTasks:
    """Wire the tasks of workers that speak HTTP."""
    from dagmaster.application.remote_tasks import RemoteTasks
    from dagmaster.application.worker_admission import WorkerQuotas

    quotas = WorkerQuotas(
        workers=settings.workers_per_key,
        queues=settings.queues_per_key,
        handlers=settings.handlers_per_key,
    )
    lease_seconds = settings.worker_lease_seconds
    return RemoteTasks(
        workers,
        application.blobs,
        secret,
        lease_seconds,
        quotas,
        vault=application.vault,
        shipped=shipped_names(),
    )


class ServerService:
    """The HTTP API and the web page on one database, as a service.

    Its stores connect when they are first used.

    `is_dev`: it is part of `dagmaster dev`.
    """

    def __init__(  # noqa: PLR0913 - the options of `dagmaster server`
        self,
        config: DatabaseConfig,
        settings: Settings,
        blob_dir: pathlib.Path,
        listener: socket.socket,
        *,
        certificate: str | None = None,
        key_file: str | None = None,
        trusted_proxies: str | None = None,
        access_log: bool | None = None,
        metrics: ProcessMetrics | None = None,
        is_dev: bool = False,
    ) -> None:
        self.ready = asyncio.Event()
        self._config, self._settings, self._blob_dir = config, settings, blob_dir
        self._listener = listener
        self._tls = {"certificate": certificate, "key_file": key_file}
        self._trusted_proxies = trusted_proxies
        self._has_access_log = settings.access_log if access_log is None else access_log
        self._metrics = metrics
        self._is_dev = is_dev
        self._server: HttpServer | None = None
        self._is_stopped = False

    async def run(self) -> None:
        from dagmaster.host.check_processes import CheckProcesses
        from dagmaster.host.system_load import SystemProbe
        from dagmaster.http.app import create_app
        from dagmaster.http.server import HttpServer
        from dagmaster.http.services import HttpServices
        from dagmaster.store.postgres.api_key_store import PostgresApiKeyStore
        from dagmaster.store.postgres.client_store import PostgresClientStore
        from dagmaster.store.postgres.remote_workers import PostgresRemoteWorkers
        from dagmaster.store.postgres.tenant_store import PostgresTenantStore
        from dagmaster.telemetry.prometheus import ProcessMetrics
        from dagmaster.telemetry.traces import instrument_server
        from dagmaster.ui.navigation import Mode
        from dagmaster.ui.site import Site

        async with contextlib.AsyncExitStack() as stack:
            config = await serving_config(self._config)
            client = PostgresClientStore(config, "dagmaster server")
            keys, tenants = PostgresApiKeyStore(config), PostgresTenantStore(config)
            for store in (client, keys, tenants):
                stack.push_async_callback(store.close)
            outputs = large_outputs(self._settings, self._blob_dir)
            admin = await stack.enter_async_context(open_database_admin(config, self._settings, outputs))
            application = await stack.enter_async_context(
                wire_application(
                    config,
                    self._settings,
                    self._blob_dir,
                    client=client,
                    default_queue=self._settings.default_queue,
                    # What the process does for itself; requests see what their callers may.
                    tenant=ALL_TENANTS,
                )
            )
            application = replace(
                application,
                storage=make_storage(self._settings),
                sample_result=_sample_result,
                callback_loopback=self._is_dev or self._settings.callback_loopback,
            )
            workers = PostgresRemoteWorkers(config)
            stack.push_async_callback(workers.close)
            tokens = make_token_verifier(self._settings)
            if tokens is not None:
                stack.push_async_callback(tokens.close)
            processes = CheckProcesses()
            stack.callback(processes.close)
            callbacks = await stack.enter_async_context(open_callbacks(config, self._settings))
            services = HttpServices(
                application=application,
                callbacks=callbacks,
                keys=keys.for_tenant(ALL_TENANTS),
                admin=admin,
                tenants=tenants.for_tenant(ALL_TENANTS),
                remote_tasks=make_remote_tasks(workers, application, self._settings),
                tokens=tokens,
                processes=processes,
                system=SystemProbe(self._blob_dir),
                rate_limiter=make_rate_limiter(self._settings),
                failed_logins=self._settings.failed_logins,
                allowed_hosts=allowed_hosts(self._settings),
                streams_per_key=self._settings.streams_per_key,
                has_access_log=self._has_access_log,
                metrics=self._metrics or ProcessMetrics(),
                admin_key=_text_of(self._settings.admin_key),
            )
            site = Site(
                Mode.DEV if self._is_dev else Mode.SERVER, login=make_browser_login(self._settings, tokens)
            )
            app = create_app(services, site)
            instrument_server(app)
            stack.push_async_callback(app.state.keys.mark_used)
            self._server = HttpServer(app, self._listener, **self._tls, trusted_proxies=self._trusted_proxies)
            self._server.ready = self.ready
            self._server.on_stop = services.remote_tasks.stop
            if not self._is_stopped:
                await self._server.run_until_stopped()

    def _remote_tasks(self, workers: RemoteWorkers, application: Application) -> RemoteTasks:
        from dagmaster.application.remote_tasks import RemoteTasks
        from dagmaster.application.worker_admission import WorkerQuotas

        settings = self._settings
        return RemoteTasks(
            workers,
            application.blobs,
            secret,
            settings.worker_lease_seconds,
            WorkerQuotas(
                workers=settings.workers_per_key,
                queues=settings.queues_per_key,
                handlers=settings.handlers_per_key,
            ),
            vault=application.vault,
            shipped=shipped_names(),
        )

    def stop(self) -> None:
        """Finish the requests that run, and end."""
        self._is_stopped = True
        if self._server is not None:
            self._server.stop()
