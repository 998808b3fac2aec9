"""All settings, read from `DAGMASTER_…` environment variables.

Services (orchestrator, worker) also read the names of the source systems, see `settings_aliases`. `dev`, `run` and
tests do not: a DATABASE_URL in a developer's shell is not meant for them. This module records where each value came
from and masks secrets. It opens no file and no connection.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from dagmaster.authoring.suggestions import nearest
from dagmaster.errors import BlobNameInvalid, SettingsInvalid
from dagmaster.ports.storage import BlobUri, shorten_uri
from dagmaster.settings_aliases import ALIASES, Alias
from dagmaster.telemetry.logs import LogFormat, LogLevel

PREFIX: Final = "DAGMASTER_"
SECRET_PREFIX: Final = "DAGMASTER_SECRET_"  # noqa: S105 - the beginning of a name
MASK: Final = "***"

_TEST_VARIABLES: Final = frozenset({"DAGMASTER_SOAK_MINUTES"})
"""Variables of the tests: not settings, but known."""


class Settings(BaseSettings):
    """The operator's settings."""

    # An empty variable counts as unset: compose files create them. No input in errors: it may be a password.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, env_ignore_empty=True, hide_input_in_errors=True
    )

    handlers: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Modules with handlers, comma-separated."
    )
    allowed_env: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Environment variables that expressions may read as env.NAME, comma-separated."
    )
    concurrency: int = Field(default=32, ge=1, le=10_000, description="How many tasks a worker runs concurrently.")
    queues: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="The queues that a worker serves, comma-separated."
    )

    database_url: SecretStr | None = Field(
        default=None,
        description="The PostgreSQL server (14 to 18), as postgresql://user:password@host/database. Default: embedded.",
    )
    data_dir: Path | None = Field(
        default=None, description="Where the embedded PostgreSQL keeps its data. Default: one for each user."
    )
    postgres_user: str = Field(
        default="nobody",
        description="The user that runs the embedded PostgreSQL when root starts it: PostgreSQL does not run as root.",
    )

    database_direct_url: SecretStr | None = Field(
        default=None,
        description="The same server without the pooler (PgBouncer), for LISTEN. Without it, polling is the fallback.",
    )
    database_pooled: bool = Field(
        default=False, description="DAGMASTER_DATABASE_URL is a pooler in transaction mode: use no prepared statements."
    )
    blob_dir: Path | None = Field(
        default=None,
        description="Where outputs over 64 KiB are kept: one directory that orchestrators and workers share."
        " Default: beside the embedded PostgreSQL's data directory X, as X-blobs.",
    )
    outputs_url: str | None = Field(
        default=None,
        description="Where outputs over 64 KiB are kept instead, for services that share no directory:"
        " s3://bucket/prefix, az://container/prefix or gs://bucket/prefix.",
    )
    bronze_url: str | None = Field(
        default=None,
        description="Where raw data is stored: file:///folder, s3://bucket/prefix, az://container/prefix or"
        " gs://bucket/prefix. Default: a folder beside the large outputs.",
    )
    silver_url: str | None = Field(
        default=None, description="Where processed data goes. Default: a folder beside the large outputs."
    )
    gold_url: str | None = Field(
        default=None, description="Where published data goes. Default: a folder beside the large outputs."
    )
    file_roots: Annotated[tuple[Path, ...], NoDecode] = Field(
        default=(),
        description="Directories that handlers may read besides the zones, comma-separated."
        " Default: the working directory with the embedded PostgreSQL, none with a server.",
    )
    storage_containers: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Containers and buckets that handlers may use besides the zones, comma-separated, such as"
        " s3://bucket,az://container. Default: none.",
    )
    catalog_url: SecretStr | None = Field(
        default=None,
        description="The STAC catalog: a directory, or a server with pgstac as postgresql://…. Default: a directory"
        " beside the large outputs.",
    )
    tables_url: SecretStr | None = Field(
        default=None,
        description="Where vector data goes: a directory of GeoParquet, or a server with PostGIS as postgresql://…."
        " Default: a directory beside the large outputs.",
    )
    scratch_dir: Path | None = Field(
        default=None,
        description="Where tasks keep temporary files; it should be fast and large. Default: the system's.",
    )
    raster_cache_mb: int = Field(
        default=128, ge=16, le=65_536, description="GDAL's block cache per task. A task uses about 300 MB more."
    )
    raster_max_pixels: int = Field(
        default=5_000_000_000,
        ge=1,
        description="The maximum number of pixels, over all bands, that one task processes.",
    )
    raster_max_file_mb: int = Field(default=1_000_000, ge=1, description="The largest file that is opened.")
    processes: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="The maximum number of child processes for plain functions. Default: cores + 4.",
    )
    task_memory_mb: int | None = Field(
        default=None, ge=64, description="The memory limit (address space) of a child process. Default: none."
    )
    poll_seconds: float = Field(
        default=1.0,
        gt=0,
        le=60,
        description="How often orchestrators and workers poll, as the fallback for lost notifications.",
    )
    read_timeout_seconds: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="The database cancels a read (of jobs, nodes, events, the fleet) that takes longer than this.",
    )
    orchestrator_lease_seconds: float = Field(
        default=15.0,
        gt=0,
        le=3600,
        description="An orchestrator without a heartbeat for this long is dead: its jobs are reclaimed.",
    )
    worker_lease_seconds: float = Field(
        default=6.0,
        gt=0,
        le=3600,
        description="A worker without a heartbeat for this long is dead: its tasks are lost and retried.",
    )
    drain_seconds: float = Field(
        default=30.0,
        ge=0,
        le=3600,
        description="The shutdown timeout of a worker. Its tasks may finish within 5 s (or a third of it, if less);"
        " then they are asked to save a checkpoint and stop, and are released.",
    )

    log_format: LogFormat = Field(
        default=LogFormat.TEXT, description="How services write their logs: text, or json (one object a line)."
    )
    log_level: LogLevel = Field(
        default=LogLevel.INFO, description="The least severe records of services' logs: debug, info, warning or error."
    )

    blocked_seconds: float = Field(
        default=60.0,
        ge=1,
        le=86_400,
        description="An async handler without its own timeout that blocks the event loop for this long fails.",
    )

    @field_validator("handlers", "allowed_env", "queues", "file_roots", "storage_containers", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("log_format", "log_level", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

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

    @field_validator("storage_containers")
    @classmethod
    def _check_containers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for url in value:
            try:
                is_container = BlobUri.parse(f"{url.rstrip('/')}/x").name == "x" and not url.startswith("file:")
            except BlobNameInvalid:
                is_container = False
            if not is_container:
                raise ValueError("must be containers without a path: s3://bucket,az://container,gs://bucket")
        return value

    @field_validator("database_url", "database_direct_url")
    @classmethod
    def _check_address(cls, value: SecretStr | None) -> SecretStr | None:
        return None if value is None else SecretStr(_checked_url(value.get_secret_value().strip()))


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsReport:
    """The settings read from the environment. An invalid setting has its default here, and a message in `problems`."""

    settings: Settings
    origins: dict[str, str]
    """The variable that each setting came from; several are joined by ` + `. Absent: the default."""
    problems: dict[str, str]
    """The problem of each invalid setting: a sentence that starts with the variable."""
    typos: tuple[str, ...]
    """A sentence for each unknown variable `DAGMASTER_…`."""
    unused: tuple[str, ...]
    """A sentence for each alias that is set and has no effect."""
    secrets: tuple[str, ...]
    """The names of the secrets, sorted. Never their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingView:
    """One setting, with secrets masked."""

    name: str
    variable: str
    value: Any
    """JSON. A secret is masked."""
    source: str
    """`default`, or its variable."""
    description: str
    problem: str = ""


def load_settings(*, services: bool = False) -> Settings:
    """Read the settings; raise SettingsInvalid with a sentence for each problem. Aliases are read for services only."""
    reading = read_settings(services=services)
    if reading.problems:
        raise SettingsInvalid("\n".join(reading.problems.values()))
    return reading.settings


def read_settings(*, services: bool = False) -> SettingsReport:
    """Read the settings and their origins, without raising."""
    # pydantic-settings reads names in any case.
    variables = {name.upper(): name for name, value in os.environ.items() if value}
    origins = {name: variables[_variable(name)] for name in Settings.model_fields if _variable(name) in variables}
    values: dict[str, Any] = {}
    unused: tuple[str, ...] = ()
    if services:
        values, named, unused = _from_aliases(origins)
        origins |= named
    try:
        settings, problems = Settings(**values), {}
    except ValidationError as error:
        invalid = {str(detail["loc"][0]): _describe_problem(dict(detail)) for detail in error.errors(include_url=False)}
        problems = {name: f"{origins[name]} {reason}{_quote_raw(name, origins)}" for name, reason in invalid.items()}
        settings = Settings(**values | {name: Settings.model_fields[name].get_default() for name in invalid})
    return SettingsReport(
        settings=settings,
        origins=origins,
        problems=problems,
        typos=_find_typos(variables),
        unused=unused,
        secrets=tuple(
            sorted(name.removeprefix(SECRET_PREFIX) for name in variables.values() if name.startswith(SECRET_PREFIX))
        ),
    )


def show_settings(reading: SettingsReport) -> list[SettingView]:
    """Return every setting with its value and origin, secrets masked."""
    return [
        SettingView(
            name=name,
            variable=_variable(name),
            value=_raw(name, reading.origins)
            if name in reading.problems
            else _to_json(getattr(reading.settings, name)),
            source=reading.origins.get(name, "default"),
            description=field.description or "",
            problem=reading.problems.get(name, ""),
        )
        for name, field in Settings.model_fields.items()
    ]


def mask_url(url: str) -> str:
    """Return a database URL with its password masked; mask the whole URL if it cannot be parsed reliably."""
    scheme, mark, rest = url.partition("://")
    if not mark or not re.fullmatch(r"[a-z+]{1,32}", scheme):
        return MASK
    try:
        netloc = urlsplit(url).netloc
    except ValueError:
        return MASK
    # The last @: an unquoted / ? # in a password would confuse a URL parser.
    users, at, location = rest.rpartition("@")
    if not at and not re.fullmatch(_HOSTS, netloc):
        return MASK
    user, colon, _ = users.partition(":")
    location = re.sub(r"([?&][^=&]*(?:pass|secret|key|token)[^=&]*=)[^&]*", rf"\1{MASK}", location, flags=re.IGNORECASE)
    return f"{scheme}://{user}{colon and f':{MASK}'}{at}{location}"


def secret_values() -> frozenset[str]:
    """Return the secrets of the environment, in every form that an error message may contain."""
    secrets = {value for name, value in os.environ.items() if name.startswith(SECRET_PREFIX)}
    names = [alias.name for alias in ALIASES if alias.is_secret] + [_variable(name) for name in _SECRETS]
    for name in [*names, "PGPASSWORD"]:
        secrets |= _secrets_in(os.environ.get(name, ""))
    return frozenset(secret for secret in secrets if secret)


_SECRETS: Final = ("database_url", "database_direct_url", "catalog_url", "tables_url")
_HOST: Final = r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:@,]*)(:[0-9]*)?"
_HOSTS: Final = rf"{_HOST}(,{_HOST})*"


def _variable(setting: str) -> str:
    return f"{PREFIX}{setting.upper()}"


def _from_aliases(direct: dict[str, str]) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
    """Return the values and origins from aliases, and a sentence for each alias without effect."""
    present = [alias for alias in ALIASES if os.environ.get(alias.name)]
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    unused = [f"{alias.name} is known and not used: {alias.instead}." for alias in present if not alias.setting]
    for alias in [alias for alias in present if alias.setting and not alias.part]:
        winner = direct.get(alias.setting) or origins.get(alias.setting)
        if winner:
            unused.append(f"{alias.name} is overridden by {winner}.")
        else:
            values[alias.setting], origins[alias.setting] = os.environ[alias.name], alias.name
    parts: dict[str, Alias] = {}
    for alias in [alias for alias in present if alias.part]:
        winner = direct.get(alias.setting) or origins.get(alias.setting)
        if not winner and alias.part in parts:
            winner = parts[alias.part].name
        if winner:
            unused.append(f"{alias.name} is overridden by {winner}.")
        else:
            parts[alias.part] = alias
    if "host" in parts:
        values["database_url"] = _url_of({part: os.environ[alias.name] for part, alias in parts.items()})
        origins["database_url"] = " + ".join(alias.name for alias in parts.values())
    else:
        unused += [f"{alias.name} is set and not used: there is no POSTGRES_HOST." for alias in parts.values()]
    return values, origins, tuple(unused)


def _url_of(parts: dict[str, str]) -> str:
    user = quote(parts.get("user", ""), safe="")
    if "password" in parts:
        user += f":{quote(parts['password'], safe='')}"
    host, port = parts["host"].strip(), parts.get("port", "").strip()
    path = quote(parts.get("database", ""), safe="")
    at = f"{user}@" if user else ""
    if host.startswith("/"):
        # A directory with a socket.
        return f"postgresql://{at}/{path}?host={quote(host, safe='/')}" + (f"&port={port}" if port else "")
    host = f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host
    return f"postgresql://{at}{host}{port and f':{port}'}/{path}"


def _checked_url(url: str) -> str:
    """Reject an invalid URL without quoting it: it may contain a password."""
    scheme, mark, rest = url.partition("://")
    # SQLAlchemy's form names a driver: postgresql+asyncpg://
    if not mark or scheme.partition("+")[0] not in {"postgresql", "postgres"}:
        raise ValueError("must be written postgresql://user:password@host/database")
    try:
        parts = urlsplit(f"postgresql://{rest}")
    except ValueError:
        parts = None
    if parts is None or "@" in parts.path + parts.fragment or not re.fullmatch(_HOSTS, parts.netloc.rpartition("@")[2]):
        raise ValueError(
            "cannot be parsed: the port must be a number, and / ? # @ : in a password are written %2F %3F %23 %40 %3A"
        )
    return f"postgresql://{rest}"


def _describe_problem(error: dict[str, Any]) -> str:
    limits = error.get("ctx", {})
    match error["type"]:
        case "int_parsing" | "int_type" | "int_from_float" | "int_parsing_size":
            return "must be a whole number"
        case "float_parsing" | "float_type" | "finite_number":
            return "must be a number"
        case "bool_parsing" | "bool_type":
            return "must be true or false"
        case "greater_than_equal":
            return f"must be at least {limits['ge']:g}"
        case "greater_than":
            return f"must be more than {limits['gt']:g}"
        case "less_than_equal":
            return f"must be at most {limits['le']:g}"
        case "enum" | "value_error":
            return str(limits["error"]) if "error" in limits else f"must be {limits['expected'].replace(chr(39), '')}"
    return f"is not valid: {error['msg']}"


def _quote_raw(setting: str, origins: dict[str, str]) -> str:
    return "." if setting in _SECRETS else f", not {_raw(setting, origins)!r}."


def _raw(setting: str, origins: dict[str, str]) -> str:
    return MASK if setting in _SECRETS else shorten_uri(os.environ.get(origins[setting], ""))[:100]


def _to_json(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return mask_url(value.get_secret_value())
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def _find_typos(variables: dict[str, str]) -> tuple[str, ...]:
    known = {_variable(name) for name in Settings.model_fields}
    messages = []
    for name, written in sorted(variables.items()):
        if not name.startswith(PREFIX) or name in known | _TEST_VARIABLES or written.startswith(SECRET_PREFIX):
            continue
        # Without the common prefix, which would make all names similar.
        near = nearest(name.removeprefix(PREFIX), [name.removeprefix(PREFIX) for name in known])
        messages.append(f"{written} is not a setting" + (f": did you mean {PREFIX}{near}?" if near else "."))
    return tuple(messages)


def _secrets_in(text: str) -> set[str]:
    """Return a secret value, and the passwords inside it if it is a URL."""
    _, mark, rest = text.partition("://")
    if not mark:
        return {text}
    secrets = {text}
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    for users in (rest.rpartition("@")[0], authority.rpartition("@")[0]):
        secrets |= {users.partition(":")[2], unquote(users.partition(":")[2])}
    query = parse_qsl(rest.partition("?")[2])
    return secrets | {value for name, value in query if re.search("pass|secret|key|token", name, re.IGNORECASE)}
