"""A server on a real database and socket, with an HTTP client of its administrator."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final

import httpx
from pydantic import SecretStr

from dagmaster.bootstrap.http_server import ServerService
from dagmaster.ports.database_config import DatabaseConfig
from dagmaster.settings import load_settings
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

ADMIN_KEY: Final = "an-admin-key-of-the-settings-0123456789"


async def with_server(dsn: str, folder: Path, work: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    settings = load_settings().model_copy(update={"admin_key": SecretStr(ADMIN_KEY)})
    service = ServerService(DatabaseConfig(dsn=dsn), settings, folder, listener)
    running = asyncio.create_task(service.run())
    await asyncio.wait_for(service.ready.wait(), PATIENCE_SECONDS)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with httpx.AsyncClient(
            base_url=url, headers={"X-API-Key": ADMIN_KEY}, timeout=PATIENCE_SECONDS
        ) as http:
            await work(http)
    finally:
        service.stop()
        await asyncio.wait_for(running, PATIENCE_SECONDS)
