"""The machine of a process."""

from __future__ import annotations

from dataclasses import dataclass

from dagmaster.records.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemRecord(Record):
    """The machine of a server, and the disk of its data. `load_average`: of the last minute.

    The disk is null for a process that has no data on a disk.
    """

    cpu_count: int
    load_average: float
    memory_bytes: int
    memory_free_bytes: int
    disk_bytes: int | None
    disk_free_bytes: int | None
