"""Wires the keys of secret inputs: where a process has them from, and the check when a service starts."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dagmaster.adapters.secret_keys import KeySource, new_key
from dagmaster.adapters.secret_vault import KeyVault

__all__ = ["check_secrets_key", "key_source", "make_vault", "new_key", "open_secret_keys"]

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dagmaster.application.secret_keys import SecretKeys
    from dagmaster.bootstrap.client_settings import ClientSettings
    from dagmaster.ports.database_config import DatabaseConfig
    from dagmaster.settings import Settings


def key_source(config: DatabaseConfig, settings: ClientSettings | Settings) -> KeySource:
    """Return where the keys for a database are. Only that of an embedded one is made by itself."""
    key, folder = settings.secrets_key, config.data_dir
    return KeySource(
        text=None if key is None else key.get_secret_value(),
        file=settings.secrets_key_file,
        own_file=None if folder is None else folder.with_name(f"{folder.name}-secrets-key"),
    )


def make_vault(config: DatabaseConfig, settings: ClientSettings | Settings) -> KeyVault:
    """Return the vault of secret inputs of a database. Nothing is read before it is used."""
    from dagmaster.store.postgres.secret_keys import PostgresSecretKeys

    return KeyVault(key_source(config, settings), PostgresSecretKeys(config))


async def check_secrets_key(config: DatabaseConfig, settings: ClientSettings | Settings) -> None:
    """Raise if the database has a key for secret inputs, and this process does not have it."""
    await make_vault(config, settings).check()


@contextlib.asynccontextmanager
async def open_secret_keys(
    config: DatabaseConfig, settings: ClientSettings | Settings
) -> AsyncIterator[SecretKeys]:
    """Open the administration of keys on a database whose schema is current."""
    from dagmaster.application.secret_keys import SecretKeys
    from dagmaster.bootstrap import ensure_schema
    from dagmaster.store.postgres.secret_keys import PostgresSecretKeyAdmin

    await ensure_schema(config, migrate=config.is_embedded)
    admin = PostgresSecretKeyAdmin(config)
    try:
        yield SecretKeys(KeyVault(key_source(config, settings), admin), admin)
    finally:
        await admin.aclose()
