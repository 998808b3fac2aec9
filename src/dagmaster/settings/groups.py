"""The settings, in groups.

Each is a `DAGMASTER_…` environment variable; see `reading` for how they are read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from dagmaster.engine.graph import DEFAULT_TIMEOUT_SECONDS
from dagmaster.errors import BlobNameInvalid
from dagmaster.ports.blob_uris import BlobUri
from dagmaster.ports.default_settings import (
    BLOCKED_SECONDS,
    CONCURRENCY,
    RASTER_MAX_FILE_MB,
    RASTER_MAX_PIXELS,
    READ_TIMEOUT_SECONDS,
    WORKER_MEMORY,
)
from dagmaster.ports.queue_names import MAX_QUEUE, QUEUE_RULE, is_queue_name
from dagmaster.settings.access import AccessSettings
from dagmaster.settings.callbacks import CallbackSettings
from dagmaster.settings.database_urls import check_url
from dagmaster.settings.gateway import GatewaySettings
from dagmaster.settings.monitoring import MonitoringSettings
from dagmaster.settings.name_lists import Names, Paths
from dagmaster.settings.secret_inputs import SecretInputSettings
from dagmaster.settings.timing import TimingSettings
from dagmaster.telemetry.logs import LogFormat, LogLevel

PREFIX: Final = "DAGMASTER_"


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


RunMode = Annotated[Literal["orchestrator", "worker", "server", "gateway", "relay"], BeforeValidator(_lower)]
Compression = Annotated[Literal["DEFLATE", "ZSTD", "LZW", "LERC", "NONE"], BeforeValidator(_upper)]
OverviewResampling = Annotated[
    Literal["auto", "nearest", "mode", "average", "bilinear", "cubic", "cubicspline", "lanczos", "rms"],
    BeforeValidator(_lower),
]


class DatabaseSettings(BaseModel):
    """The PostgreSQL server, or the embedded one."""

    database_url: SecretStr | None = Field(
        default=None,
        description="The PostgreSQL server (14 to 18), such as postgresql://user:password@host/database."
        " Default: embedded.",
    )
    database_direct_url: SecretStr | None = Field(
        default=None,
        description="The same server without the pooler (PgBouncer), for LISTEN. Without it, polling is the"
        " fallback.",
    )
    database_pooled: bool = Field(
        default=False,
        description="DAGMASTER_DATABASE_URL is a pooler in transaction mode: use no prepared statements.",
    )
    data_dir: Path | None = Field(
        default=None,
        description="Where the embedded PostgreSQL keeps its data. Default:"
        " ~/.local/share/dagmaster/postgres (with XDG_DATA_HOME, dagmaster/postgres below it); of root,"
        " /var/lib/dagmaster/postgres.",
    )
    postgres_user: str = Field(
        default="dagmaster-postgres",
        description="The user that runs the embedded PostgreSQL when root starts it: PostgreSQL does not run"
        " as root. The default is created as a system user if it does not exist; another one must exist, and"
        " should run nothing else.",
    )

    handler_pool_url: SecretStr | None = Field(
        default=None,
        description="The PostgreSQL database that handlers may use as ctx.pool. Default: none, an error.",
    )
    handler_pool_size: int = Field(
        default=4, ge=1, le=1000, description="Most connections of ctx.pool in a process."
    )

    @field_validator("database_url", "database_direct_url", "handler_pool_url")
    @classmethod
    def _check_address(cls, value: SecretStr | None) -> SecretStr | None:
        return None if value is None else SecretStr(check_url(value.get_secret_value().strip()))


class ServerSettings(BaseModel):
    """The server that commands and clients ask instead of a database."""

    url: str | None = Field(
        default=None, description="The server to ask, such as https://host:8420. Default: the database."
    )
    key: SecretStr | None = Field(
        default=None, description="The key for that server; `dagmaster keys create` makes one. Default: none."
    )


class RoutingSettings(BaseModel):
    """Which process runs what."""

    run_mode: RunMode | None = Field(
        default=None,
        description="What `dagmaster serve` runs: orchestrator, worker, server, gateway or relay.",
    )
    queues: Names = Field(default=(), description="The queues that a worker serves, comma-separated.")
    default_queue: str | None = Field(
        default=None,
        max_length=MAX_QUEUE,
        description="The queue of tasks whose node and handler name none, where workflows are validated,"
        " published or submitted. Default: none; such a task is an error.",
    )
    python_queue: str | None = Field(
        default=None,
        max_length=MAX_QUEUE,
        description="The queue of tasks of Python code that name none, where it is submitted or published."
        " Default: DAGMASTER_DEFAULT_QUEUE, else such a task is an error. A run in one process needs none.",
    )

    @field_validator("queues", "default_queue", "python_queue")
    @classmethod
    def _check_queues(cls, value: tuple[str, ...] | str | None) -> tuple[str, ...] | str | None:
        names = [name for name in value if name != "*"] if isinstance(value, tuple) else [value]
        for name in names:
            if name is not None and not is_queue_name(name):
                raise ValueError(f"a queue is {QUEUE_RULE}, not {name!r:.200}")
        return value


class TimeoutSettings(BaseModel):
    """How long something may take."""

    task_timeout_seconds: float = Field(
        default=DEFAULT_TIMEOUT_SECONDS,
        ge=1,
        le=86_400,
        description="How long a task may run whose node and handler have no timeout_seconds. Read by"
        " orchestrators.",
    )
    task_max_retries: int | None = Field(
        default=None,
        ge=0,
        le=999,
        description="How often a failed task is retried whose node and handler have no retry; 0: never. Read"
        " by orchestrators. Default: 2, which makes 3 attempts.",
    )
    job_timeout_seconds: float | None = Field(
        default=None,
        gt=0,
        le=366 * 86_400,
        description="How long a job may take whose workflow has no deadline_seconds. Read by orchestrators"
        " when a job starts. Default: no limit.",
    )
    blocked_seconds: float = Field(
        default=BLOCKED_SECONDS,
        ge=1,
        le=86_400,
        description="An async handler without its own timeout that blocks the event loop for this long"
        " fails.",
    )
    read_timeout_seconds: float = Field(
        default=READ_TIMEOUT_SECONDS,
        gt=0,
        le=3600,
        description="The database cancels a read (of jobs, nodes, events, the fleet) that takes longer than"
        " this.",
    )


class StorageSettings(BaseModel):
    """Where outputs, data and the catalog are."""

    blob_dir: Path | None = Field(
        default=None,
        description="Where outputs over 64 KiB are kept: one directory that orchestrators and workers share."
        " Default: next to the embedded PostgreSQL's data directory X, as X-blobs.",
    )
    outputs_url: str | None = Field(
        default=None,
        description="Where outputs over 64 KiB are kept instead, for services that share no directory:"
        " s3://bucket/prefix, az://container/prefix or gs://bucket/prefix.",
    )
    bronze_url: str | None = Field(
        default=None,
        description="Where raw data is stored: file:///folder, s3://bucket/prefix, az://container/prefix or"
        " gs://bucket/prefix. Default: a folder next to the large outputs.",
    )
    silver_url: str | None = Field(
        default=None, description="Where processed data goes. Default: a folder next to the large outputs."
    )
    gold_url: str | None = Field(
        default=None, description="Where published data goes. Default: a folder next to the large outputs."
    )
    catalog_url: SecretStr | None = Field(
        default=None,
        description="The STAC catalog: a directory, or a server with pgstac as postgresql://…. Default: a"
        " directory next to the large outputs.",
    )
    scratch_dir: Path | None = Field(
        default=None,
        description="Where tasks keep temporary files; it should be fast and large. Default: the system's.",
    )

    @field_validator("outputs_url", "bronze_url", "silver_url", "gold_url")
    @classmethod
    def _check_place(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None:
            if info.field_name == "outputs_url" and value.startswith("memory:"):
                raise ValueError("must be durable: memory:// is not")
            try:
                BlobUri.parse(f"{value.rstrip('/')}/x")
            except BlobNameInvalid as error:
                raise ValueError(f"is not a storage URL ({error})") from error
        return value


class RasterSettings(BaseModel):
    """Limits of rasters, and defaults of the params of raster handlers."""

    raster_cache_mb: int = Field(
        default=128,
        ge=16,
        le=65_536,
        description="GDAL's block cache per task. A task uses about 300 MB more.",
    )
    raster_max_pixels: int = Field(
        default=RASTER_MAX_PIXELS,
        ge=1,
        description="The maximum number of pixels, over all bands, that one task processes.",
    )
    raster_max_file_mb: int = Field(
        default=RASTER_MAX_FILE_MB, ge=1, description="The largest file that is opened."
    )
    raster_compression: Compression | None = Field(
        default=None, description="The default of the param `compression` of handlers that write COGs."
    )
    raster_tile_size: int | None = Field(
        default=None,
        ge=64,
        le=4096,
        multiple_of=16,
        description="The default of the param `tile_size` of handlers that write COGs: their blocks, in"
        " pixels.",
    )
    raster_overview_resampling: OverviewResampling | None = Field(
        default=None,
        description="The default of the param `overview_resampling` of handlers that write COGs.",
    )


class VectorSettings(BaseModel):
    """The tables of features, and defaults of the params of vector handlers."""

    tables_url: SecretStr | None = Field(
        default=None,
        description="Where vector data goes: a directory of GeoParquet, or a server with PostGIS as"
        " postgresql://…. Default: a directory next to the large outputs.",
    )
    vector_target_crs: str | None = Field(
        default=None,
        description="The default of the param `target_crs` of vector.prepare, as AUTHORITY:CODE.",
    )
    vector_chunk_rows: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="The default of the param `chunk_rows` of vector.prepare.",
    )
    vector_chunk_mb: float | None = Field(
        default=None, gt=0, le=4096, description="The default of the param `chunk_mb` of vector.prepare."
    )

    @field_validator("vector_target_crs")
    @classmethod
    def _check_crs(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z]+:[0-9A-Za-z]+", value):
            raise ValueError("must be written AUTHORITY:CODE, such as EPSG:4326")
        return value


class SecuritySettings(SecretInputSettings):
    """What workflows and handlers may read."""

    allowed_env: Names = Field(
        default=(),
        description="Environment variables that expressions may read as env.NAME, comma-separated.",
    )
    file_roots: Paths = Field(
        default=(),
        description="Directories that handlers may read besides the zones, comma-separated."
        " Default: the working directory with the embedded PostgreSQL, none with a server.",
    )
    storage_containers: Names = Field(
        default=(),
        description="Containers and buckets that handlers may use besides the zones, comma-separated, such as"
        " s3://bucket,az://container. Default: none.",
    )

    @field_validator("storage_containers")
    @classmethod
    def _check_containers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for url in value:
            try:
                is_container = BlobUri.parse(f"{url.rstrip('/')}/x").name == "x" and not url.startswith(
                    "file:"
                )
            except BlobNameInvalid:
                is_container = False
            if not is_container:
                raise ValueError("must be containers without a path: s3://bucket,az://container,gs://bucket")
        return value


class WorkerSettings(BaseModel):
    """The handlers of a worker, and what it runs at once."""

    handlers: Names = Field(default=(), description="Modules with handlers, comma-separated.")
    concurrency: int = Field(
        default=CONCURRENCY, ge=1, le=10_000, description="How many tasks a worker runs concurrently."
    )
    processes: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="The maximum number of child processes for plain functions. Default: cores + 4.",
    )
    task_memory_mb: int | None = Field(
        default=None, ge=64, description="The memory limit (address space) of a child process. Default: none."
    )
    worker_memory_mb: int | None = Field(default=None, ge=0, description=WORKER_MEMORY)


NO_LOG_FILES: Final = Path("off")
"""The directory of logs that stands for none."""


class LogSettings(BaseModel):
    """The logs of orchestrators and workers."""

    log_format: Annotated[LogFormat, BeforeValidator(_lower)] = Field(
        default=LogFormat.TEXT,
        description="How services write their logs: text, or json (one object a line).",
    )
    log_dir: Path | None = Field(
        default=None,
        description="The directory in which workers also write the logs of tasks, each with all attempts:"
        " TASK_ID.log for graphs in code, JOB_ID/NODE_ID.log for others. Nothing there is ever deleted."
        " Default: dev, run and scripts use /var/log/dagmaster (macOS: ~/.dagmaster/logs) if they may write"
        " there, of tasks that print or fail; other workers write no files. off: no files.",
    )
    debug: bool = Field(
        default=False, description="A command that fails unexpectedly prints the trace of the error."
    )
    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = Field(
        default=LogLevel.INFO,
        description="The least severe records of services' logs: debug, info, warning or error.",
    )


PARAM_DEFAULTS: Final = (
    "raster_compression",
    "raster_tile_size",
    "raster_overview_resampling",
    "vector_target_crs",
    "vector_chunk_rows",
    "vector_chunk_mb",
)
"""Settings that are the default of a handler's param: its field names the setting."""

GROUPS: Final[dict[str, type[BaseModel]]] = {
    "database": DatabaseSettings,
    "server": ServerSettings,
    "timing": TimingSettings,
    "routing": RoutingSettings,
    "timeouts": TimeoutSettings,
    "storage": StorageSettings,
    "raster": RasterSettings,
    "vector": VectorSettings,
    "security": SecuritySettings,
    "access": AccessSettings,
    "gateway": GatewaySettings,
    "callbacks": CallbackSettings,
    "workers": WorkerSettings,
    "monitoring": MonitoringSettings,
    "logs": LogSettings,
}


# From the last group to the first: pydantic collects the fields of the last base first.
class Settings(
    LogSettings,
    MonitoringSettings,
    WorkerSettings,
    CallbackSettings,
    GatewaySettings,
    AccessSettings,
    SecuritySettings,
    VectorSettings,
    RasterSettings,
    StorageSettings,
    TimeoutSettings,
    RoutingSettings,
    TimingSettings,
    ServerSettings,
    DatabaseSettings,
    BaseSettings,
):
    """The operator's settings."""

    # An empty variable counts as unset: compose files create them. No input in errors: it may be a password.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, env_ignore_empty=True, hide_input_in_errors=True
    )
