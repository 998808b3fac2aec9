"""Services that stopped or died: since when, and whether someone has to look after what they held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.records.fleet import LeftJobsRecord

if TYPE_CHECKING:
    from dagmaster.records.fleet import OrchestratorRecord, WorkerRecord


def left_seconds(service: OrchestratorRecord | WorkerRecord) -> float:
    """Return how long ago a service stopped, or died: that is its last heartbeat, not when others noticed."""
    return service.silent_seconds if service.has_died else service.stopped_seconds or 0.0


def is_settled(service: OrchestratorRecord | WorkerRecord) -> bool:
    """Return whether a service stopped by itself, and what it held is held by another one or has finished."""
    if service.is_alive or service.has_died:
        return False
    left = service.left
    if isinstance(left, LeftJobsRecord):
        return not left.not_reclaimed and not left.unowned
    return left is None or not (left.not_reclaimed or left.alone_with or left.crashed)
