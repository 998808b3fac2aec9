"""Tenants: teams and partners on one installation that do not see each other."""

from __future__ import annotations

from dataclasses import dataclass

from dagmaster.records.record import Record, Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRecord(Record):
    """A team or a partner. A limit that is null does not limit.

    `platforms`: whose identifiers it may send. `workflows`: those of the installation that it may use,
    besides its own. `*` stands for all. `callback_url`: where its requests are reported that name no
    address. `disabled_at`: since when its keys are rejected. `warnings`: about the change that was answered.
    """

    name: str
    title: str = ""
    platforms: tuple[str, ...] = ()
    workflows: tuple[str, ...] = ()
    max_open_jobs: int | None = None
    requests_per_day: int | None = None
    rate_per_second: float | None = None
    rate_burst: int | None = None
    callback_url: str | None = None
    disabled_at: Timestamp | None = None
    created_at: Timestamp
    created_by: str
    updated_at: Timestamp
    warnings: tuple[str, ...] = ()
