"""Wires callbacks: the relay, and what operators see and change."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dagmaster.bootstrap.secret_keys import make_vault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dagmaster.application.callbacks import Callbacks
    from dagmaster.bootstrap.client_settings import ClientSettings
    from dagmaster.orchestrator.relay import Relay
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.settings import Settings
    from dagmaster.telemetry.prometheus import ProcessMetrics


@contextlib.asynccontextmanager
async def open_callbacks(
    config: DatabaseConfig, settings: ClientSettings | Settings
) -> AsyncIterator[Callbacks]:
    """Open callbacks on a database. The store connects when it is first used."""
    from dagmaster.application.callbacks import Callbacks
    from dagmaster.store.postgres.callback_store import PostgresCallbackStore

    store = PostgresCallbackStore(config, statement_timeout_seconds=settings.read_timeout_seconds)
    try:
        yield Callbacks(store=store, vault=make_vault(config, settings))
    finally:
        await store.close()


def relays_beside(
    config: DatabaseConfig, settings: Settings, metrics: ProcessMetrics | None = None, *, is_dev: bool = False
) -> list[Relay]:
    """Return the relay that runs beside an orchestrator; none if the settings say so."""
    if not settings.relay:
        return []
    return [make_relay(config, settings, metrics=metrics, allows_loopback=is_dev)]


def make_relay(
    config: DatabaseConfig,
    settings: Settings,
    *,
    metrics: ProcessMetrics | None = None,
    allows_loopback: bool = False,
) -> Relay:
    """Wire a relay. `allows_loopback`: also without the setting, as in `dagmaster dev`."""
    from dagmaster.adapters.callback_client import CallbackClient
    from dagmaster.adapters.pinned_connections import PinnedConnections
    from dagmaster.application.signing_secrets import ensure_key_pair
    from dagmaster.orchestrator.callback_attempts import RetrySchedule
    from dagmaster.orchestrator.callback_messages import ResultLinks
    from dagmaster.orchestrator.relay import Relay, RelayOptions
    from dagmaster.orchestrator.signing_keys import SigningKeys
    from dagmaster.store.postgres.callback_outbox import PostgresCallbackOutbox

    outbox, vault = PostgresCallbackOutbox(config), make_vault(config, settings)

    async def make_key_pair(tenant: str) -> None:
        async with open_callbacks(config, settings) as callbacks:
            await ensure_key_pair(callbacks, tenant)

    relay = Relay(
        outbox,
        CallbackClient(PinnedConnections(allows_loopback=allows_loopback or settings.callback_loopback)),
        SigningKeys(outbox, vault, make_key_pair),
        options=RelayOptions(
            poll_seconds=max(settings.poll_seconds, 5.0),
            pause_seconds=settings.callback_pause_days * 86_400.0,
            retention_seconds=settings.callback_retention_days * 86_400.0 or None,
            schedule=RetrySchedule(settings.callback_retry_seconds),
            links=ResultLinks(
                gateway_url=settings.gateway_url,
                public_url=settings.public_url,
                valid_seconds=settings.result_link_hours * 3_600.0,
            ),
            max_backoff_seconds=settings.reconnect_max_seconds,
        ),
    )
    if metrics is not None:
        from dagmaster.orchestrator.callback_metrics import CallbackMetrics

        relay.observer = CallbackMetrics(metrics)
    return relay
