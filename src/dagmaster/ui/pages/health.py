"""Health: the state of each part, since when, and which versions run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dagmaster.application.views import HealthState
from dagmaster.text_format import format_count
from dagmaster.ui.pages.times import NOTHING, Moment, moment

if TYPE_CHECKING:
    from dagmaster.application.views import FleetRecord, HealthView, SchemaView

_LOOKS: Final = {
    HealthState.HEALTHY: ("healthy", "check", "ok"),
    HealthState.UNHEALTHY: ("unhealthy", "cross", "failed"),
    HealthState.UNKNOWN: ("unknown", "alert", "warning"),
}
_ADVICE: Final = {
    "database": "Check that it runs and can be reached: dagmaster doctor",
    "schema": "Upgrade it: dagmaster migrate",
    "orchestrators": "Start one: dagmaster orchestrator",
    "workers": "Start one: dagmaster worker",
    "queues": "Start a worker that serves them: dagmaster worker --queue NAME",
    "secrets_key": "Give this server the key of the installation: dagmaster secrets-key check",
    "system": "Free memory, or space on the disk of the data",
    "stale_tasks": "Start an orchestrator, or restart the worker that does not stop them: dagmaster fleet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartRow:
    """A part of the system. `advice`: what to do, if it is not healthy."""

    name: str
    word: str
    icon: str
    tone: str
    since: Moment | None
    detail: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPage:
    """The health of the system as this server sees it. `pending`: how far the sums of metrics are behind."""

    headline: str
    tone: str
    parts: tuple[PartRow, ...]
    database: str
    pending: str
    versions: tuple[tuple[str, str], ...]
    title: str = "Health"


def health_page(
    health: HealthView,
    *,
    schema: SchemaView | None,
    fleet: FleetRecord | None,
    pending: int | None,
    now: float,
) -> HealthPage:
    """Return the health; what cannot be read from the database is None."""
    bad = [name for name, part in health.parts.items() if part.state is not HealthState.HEALTHY]
    headline, tone = "Everything is healthy", "ok"
    if bad:
        headline, tone = f"{', '.join(map(_title, bad)).capitalize()}: not healthy", "failed"
    return HealthPage(
        headline=headline,
        tone=tone,
        parts=tuple(
            PartRow(
                name=_title(name),
                word=_LOOKS[part.state][0],
                icon=_LOOKS[part.state][1],
                tone=_LOOKS[part.state][2],
                since=moment(part.since, now),
                detail=part.detail,
                advice="" if part.state is HealthState.HEALTHY else _ADVICE.get(name, ""),
            )
            for name, part in health.parts.items()
        ),
        database=NOTHING if health.database_seconds is None else f"{health.database_seconds * 1000:.1f} ms",
        pending=NOTHING if pending is None else f"{pending:,}",
        versions=tuple(_versions(health, schema, fleet)),
    )


def _title(part: str) -> str:
    return part.replace("_", " ")


def _versions(
    health: HealthView, schema: SchemaView | None, fleet: FleetRecord | None
) -> list[tuple[str, str]]:
    rows = [("This server", health.version)]
    if schema is not None:
        known = (
            "" if schema.version == schema.newest_version else f" (this server knows {schema.newest_version})"
        )
        rows.append(("Schema of the database", f"{schema.version or 'none'}{known}"))
    if fleet is not None:
        rows.append(("Orchestrators", _counted([one.version for one in fleet.orchestrators if one.is_alive])))
        rows.append(("Workers", _counted([one.version for one in fleet.workers if one.is_alive])))
    return rows


def _counted(versions: list[str]) -> str:
    counts = {name: versions.count(name) for name in sorted(versions)}
    texts = [f"{name} ({format_count(count, 'process', 'processes')})" for name, count in counts.items()]
    return ", ".join(texts) or "none"
