"""Views of the health of a server, and of the schema of its database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dagmaster.records.record import Record, Timestamp
from dagmaster.records.system import SystemRecord


class HealthState(StrEnum):
    """The state of a part."""

    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    UNKNOWN = "UNKNOWN"
    """It is read from the database, which is unavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPartView(Record):
    """A part of the system. `since`: since when this server sees it in this state."""

    state: HealthState
    since: Timestamp
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthView(Record):
    """The health of the system: that of its worst part.

    `database_seconds`: how long the database took to answer. `system`: the machine of the server; null if it
    does not say in time.
    """

    status: HealthState
    version: str
    database_seconds: float | None
    system: SystemRecord | None = None
    parts: Mapping[str, HealthPartView]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessView(Record):
    """Whether jobs can be submitted and run. `failing`: the parts that prevent it."""

    is_ready: bool
    failing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaView(Record):
    """The version of the database's schema (null: it has none), and that of this code."""

    version: str | None
    newest_version: str
    is_usable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersionView(Record):
    """A version of the schema that the code knows."""

    revision: str
    description: str
    is_current: bool
