"""Tenants: teams and partners that do not see each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagmaster.ports.tenants import DEFAULT_TENANT
from dagmaster.ui.pages.times import Moment, moment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.application.views import TenantRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRow:
    """A tenant of the list. `is_default`: it is the installation itself."""

    record: TenantRecord
    created: Moment | None
    disabled: Moment | None
    is_default: bool

    @property
    def workflows(self) -> str:
        return _names(self.record.workflows)

    @property
    def platforms(self) -> str:
        return _names(self.record.platforms)

    @property
    def limits(self) -> str:
        """Return its limits in words; empty: none."""
        record = self.record
        rate = None if record.rate_per_second is None else f"{record.rate_per_second:g}"
        limits = (
            (record.max_open_jobs, "open jobs"),
            (record.requests_per_day, "requests a day"),
            (rate, "requests a second"),
        )
        return ", ".join(f"{number} {noun}" for number, noun in limits if number is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantsPage:
    """The list, and the form for a new one with its `problem`."""

    rows: tuple[TenantRow, ...]
    entry: Mapping[str, str]
    problem: str = ""
    title: str = "Tenants"


def tenants_page(
    records: Sequence[TenantRecord], *, now: float, entry: Mapping[str, str] | None = None, problem: str = ""
) -> TenantsPage:
    return TenantsPage(
        rows=tuple(
            TenantRow(
                record=record,
                created=moment(record.created_at, now),
                disabled=moment(record.disabled_at, now),
                is_default=record.name == DEFAULT_TENANT,
            )
            for record in records
        ),
        entry=entry or {"name": "", "title": "", "workflows": ""},
        problem=problem,
    )


def _names(names: tuple[str, ...]) -> str:
    return "all" if "*" in names else ", ".join(names) or "none"
