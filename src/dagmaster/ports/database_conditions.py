"""Conditions of a database that fail some calls and not others, as services report them in heartbeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dagmaster.errors import DatabaseDiskFull, DatabaseReadOnly

if TYPE_CHECKING:
    from collections.abc import Mapping

CONDITION_SENTENCES: Final[Mapping[str, str]] = {
    DatabaseDiskFull.code: "the disk of the database is full",
    DatabaseReadOnly.code: "the database accepts no changes: it is a standby, or set to read-only",
}
"""By error code: what a heartbeat has as `database_condition`."""


def condition_of(counters: Mapping[str, object]) -> str | None:
    """Return the sentence for the condition that the heartbeat of a service has."""
    return CONDITION_SENTENCES.get(str(counters.get("database_condition")))
