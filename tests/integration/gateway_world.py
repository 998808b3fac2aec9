"""A gateway in front of a server, both on a real database, with partners."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import asyncpg
import httpx

from dagmaster.application.api_keys import create_key
from dagmaster.bootstrap.gateway import gateway_config, make_gateway
from dagmaster.bootstrap.http_server import ServerService
from dagmaster.http.gateway import startup
from dagmaster.ports.api_keys import Scope
from dagmaster.ports.audit_trail import ChangeOrigin
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.settings import load_settings
from dagmaster.store.postgres.api_key_store import PostgresApiKeyStore
from tests.conformance.server import dsn_as
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from dagmaster.http.gateway.app import GatewayApp

GATEWAY_LOGIN: Final = "gateway_1"
"""A user with the role of gateways alone."""
PARTNERS: Final = ("acme", "other")
FLOW: Final = """
workflow_id: hello
version: 1
inputs: {name: {type: string, default: world}}
nodes:
  canary_node: {handler: greet, queue: q, params: {name: "{{ inputs.name }}"}}
"""


def as_gateway(dsn: str) -> str:
    """Return the DSN of a user who has the role of gateways alone; make the user if it is missing."""

    async def work() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock(hashtext('gateway_1'))")
                if not await connection.fetchval(
                    "SELECT true FROM pg_roles WHERE rolname = $1", GATEWAY_LOGIN
                ):
                    await connection.execute(f"CREATE ROLE {GATEWAY_LOGIN} LOGIN IN ROLE dagmaster_gateway")
        finally:
            await connection.close()

    asyncio.run(work())
    return dsn_as(dsn, GATEWAY_LOGIN)


async def execute(dsn: str, *statements: str) -> Any:
    """Run statements as the owner of the tables; return the rows of the last."""
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "dagapp"})
    try:
        return [await connection.fetch(statement) for statement in statements][-1]
    finally:
        await connection.close()


async def add_key(dsn: str, tenant: str, *scopes: Scope, is_sandbox: bool = False) -> str:
    """Return a key of a tenant, which is made if it is missing."""
    await execute(
        dsn,
        "INSERT INTO dag_tenants (name, workflows, platforms)"
        f" VALUES ('{tenant}', '{{*}}', '{{*}}') ON CONFLICT DO NOTHING",
    )
    store = PostgresApiKeyStore(DatabaseConfig(dsn=dsn))
    name = f"{tenant}-{'-'.join(scopes)}"
    origin = ChangeOrigin(actor="test")
    view = await create_key(store, name, scopes, origin=origin, now=time.time(), is_sandbox=is_sandbox)
    await store.close()
    await execute(dsn, f"UPDATE dag_api_keys SET tenant = '{tenant}' WHERE name = '{name}'")
    return str(view.key)


@dataclass(frozen=True, slots=True)
class GatewayWorld:
    """`server`: the client of its administrator; `keys`: of partners, by name, and of `admin`."""

    dsn: str
    app: GatewayApp
    http: httpx.AsyncClient
    server: httpx.AsyncClient
    keys: dict[str, str]

    async def get(self, path: str, key: str | None = "acme", **options: Any) -> httpx.Response:
        return await self.http.get(path, headers=self._headers(key), **options)

    async def post(self, path: str, json: Any, key: str | None = "acme", **options: Any) -> httpx.Response:
        return await self.http.post(path, headers=self._headers(key), json=json, **options)

    def _headers(self, key: str | None) -> dict[str, str]:
        return {} if key is None else {"Authorization": f"Bearer {self.keys[key]}"}


@contextlib.asynccontextmanager
async def opened_world(dsn: str, gateway_dsn: str, folder: Path) -> AsyncIterator[GatewayWorld]:
    """Serve a gateway and a server. No orchestrator runs: jobs stay as they are."""
    keys = {name: await add_key(dsn, name, Scope.SUBMIT, Scope.READ) for name in PARTNERS}
    keys |= {"default": await add_key(dsn, "default", Scope.SUBMIT, Scope.READ)}
    keys |= {"admin": await add_key(dsn, "default", Scope.ADMIN)}
    listener = socket.create_server(("127.0.0.1", 0))
    service = ServerService(DatabaseConfig(dsn=dsn), load_settings(), folder, listener)
    running = asyncio.create_task(service.run())
    await asyncio.wait_for(service.ready.wait(), PATIENCE_SECONDS)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    settings = load_settings().model_copy(update={"orchestrator_url": url})
    app = make_gateway(settings, gateway_config(DatabaseConfig(dsn=gateway_dsn)))
    try:
        headers = {"Authorization": f"Bearer {keys['admin']}"}
        with patch.object(startup, "CHECK_SECONDS", PATIENCE_SECONDS):
            state = await app.services.checks.state()
            assert state.all_passed, state
        async with (
            httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_SECONDS) as server,
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://localhost", timeout=PATIENCE_SECONDS
            ) as http,
        ):
            app.open()
            published = await server.post("/api/v1/workflows", json={"text": FLOW})
            assert published.status_code == 201, published.text
            yield GatewayWorld(dsn, app, http, server, keys)
    finally:
        await app.services.close()
        service.stop()
        await asyncio.wait_for(running, PATIENCE_SECONDS)
