"""The settings of a command on a database, read without pydantic while none of them needs validation.

To import pydantic and the model of all settings takes as long as the rest of `jobs list`: 0.35 of 0.75 s
(2026-11).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dagmaster.engine.graph import DEFAULT_TIMEOUT_SECONDS
from dagmaster.ports.default_settings import (
    ORCHESTRATOR_LEASE_SECONDS,
    READ_TIMEOUT_SECONDS,
    WORKER_LEASE_SECONDS,
)

if TYPE_CHECKING:
    from dagmaster.settings import Settings

_PREFIX: Final = "DAGMASTER_"
_SECRET_PREFIX: Final = "DAGMASTER_SECRET_"  # noqa: S105 - the beginning of a name
_LOCATIONS: Final = frozenset(
    {"DAGMASTER_DATABASE_URL", "DAGMASTER_DATA_DIR", "DAGMASTER_KEY", "DAGMASTER_URL"}
)
# Any other address is checked by the model: a password may have characters that must be quoted.
_PLAIN_URL: Final = re.compile(
    r"postgresql://([\w.~-]+(:[\w.~-]*)?@)?[\w.-]*(:[0-9]+)?/[\w-]*(\?[\w./&=-]*)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class PlainSecret:
    """A value that its repr does not show; pydantic's SecretStr for those who do not import it."""

    value: str = field(repr=False)

    def get_secret_value(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What commands on a database or a server use of the settings. A test compares it with the model."""

    url: str | None = None
    key: PlainSecret | None = None
    database_url: PlainSecret | None = None
    data_dir: Path | None = None
    database_direct_url: PlainSecret | None = None
    database_pooled: bool = False
    blob_dir: Path | None = None
    outputs_url: str | None = None
    orchestrator_lease_seconds: float = ORCHESTRATOR_LEASE_SECONDS
    worker_lease_seconds: float = WORKER_LEASE_SECONDS
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS
    task_timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    task_max_retries: int | None = None
    job_timeout_seconds: float | None = None
    allowed_env: tuple[str, ...] = ()
    secrets_key: PlainSecret | None = field(default=None, repr=False)
    secrets_key_file: Path | None = field(default=None, repr=False)
    callback_loopback: bool = False
    otlp_endpoint: str | None = None
    application_insights: PlainSecret | None = None


def load_client_settings() -> ClientSettings | Settings:
    """Read the settings; raise `SettingsInvalid` as `load_settings` does.

    The location of the database or server alone needs no model; any other variable of ours does, even if it
    has no effect here.
    """
    variables = {name.upper(): value for name, value in os.environ.items() if value}
    ours = {name for name in variables if name.startswith(_PREFIX) and not name.startswith(_SECRET_PREFIX)}
    url, data_dir = variables.get("DAGMASTER_DATABASE_URL", ""), variables.get("DAGMASTER_DATA_DIR")
    if ours <= _LOCATIONS and (not url or _PLAIN_URL.fullmatch(url)):
        key = variables.get("DAGMASTER_KEY")
        return ClientSettings(
            url=variables.get("DAGMASTER_URL"),
            key=None if key is None else PlainSecret(key),
            database_url=PlainSecret(url) if url else None,
            data_dir=None if data_dir is None else Path(data_dir),
        )
    from dagmaster.settings import load_settings

    return load_settings()
