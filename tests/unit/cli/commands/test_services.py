"""How a service waits for its database when it starts."""

from __future__ import annotations

import asyncio
import logging

import pytest

from dagmaster.cli.commands.services import _retry_until_available
from dagmaster.errors import DatabaseUnavailable
from dagmaster.host.connection_backoff import ConnectionBackoff


@pytest.mark.parametrize("retries", [0, 3])
def test_a_service_that_starts_tries_again_so_often(retries: int, monkeypatch: pytest.MonkeyPatch):
    tries = []

    async def connect() -> None:
        tries.append(1)
        raise DatabaseUnavailable("no route")

    backoff = ConnectionBackoff(logging.getLogger("test_services"), max_seconds=0.0)
    with pytest.raises(DatabaseUnavailable):
        asyncio.run(_retry_until_available(connect, backoff, asyncio.Event(), retries=retries))
    assert len(tries) == 1 + retries
