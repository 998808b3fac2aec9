"""Settings: one typed module. Each has a name `DAGMASTER_…` in the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from dagmaster.errors import SettingsInvalid


class Settings(BaseSettings):
    """What an operator sets."""

    model_config = SettingsConfigDict(env_prefix="DAGMASTER_", extra="ignore", frozen=True)

    handlers: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Modules that have handlers, separated by commas."
    )
    allowed_env: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Environment variables that expressions may read as env.NAME, separated by commas."
    )
    concurrency: int = Field(default=32, ge=1, le=10_000, description="How many tasks one worker runs at a time.")

    database_url: SecretStr | None = Field(
        default=None,
        description="The PostgreSQL server (14 to 18), as postgresql://user:password@host/database. Default: embedded.",
    )
    data_dir: Path | None = Field(
        default=None, description="Where the embedded PostgreSQL keeps its data. Default: one for each user."
    )

    database_direct_url: SecretStr | None = Field(
        default=None, description="The same server past a pooler (PgBouncer): for LISTEN. Without it, the poll serves."
    )
    database_pooled: bool = Field(
        default=False, description="DAGMASTER_DATABASE_URL leads to a pooler in transaction mode: prepare nothing."
    )
    blob_dir: Path | None = Field(
        default=None,
        description="Where outputs over 64 KiB are kept: one directory that orchestrators and workers share."
        " Default: beside the embedded PostgreSQL's data.",
    )
    processes: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="How many child processes a worker has at most for plain functions. Default: its cores and 4 more.",
    )
    task_memory_mb: int | None = Field(
        default=None, ge=64, description="The most memory (address space) of one child process. Default: no limit."
    )
    poll_seconds: float = Field(
        default=1.0, gt=0, le=60, description="How often orchestrators and workers look even if nobody wakes them."
    )
    orchestrator_lease_seconds: float = Field(
        default=15.0, gt=0, le=3600, description="An orchestrator that is silent for so long is dead: others take over."
    )
    worker_lease_seconds: float = Field(
        default=6.0,
        gt=0,
        le=3600,
        description="A worker that is silent for so long is dead: its tasks are tried again.",
    )
    drain_seconds: float = Field(
        default=5.0,
        ge=0,
        le=3600,
        description="How long a worker that stops waits for its tasks before it hands them back.",
    )

    @field_validator("handlers", "allowed_env", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def load_settings() -> Settings:
    """Read the settings from the environment; a sentence for each one that does not fit."""
    try:
        return Settings()
    except ValidationError as error:
        wrong = [f"DAGMASTER_{'.'.join(map(str, one['loc'])).upper()}: {one['msg']}" for one in error.errors()]
        raise SettingsInvalid("; ".join(wrong)) from error
