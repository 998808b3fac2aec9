"""Orchestrators and workers that stopped or died: since when, and whether someone has to look after what they held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster.application.views.fleet import LeftJobsView

if TYPE_CHECKING:
    from dagmaster.application.views.fleet import OrchestratorView, WorkerView


def left_seconds(service: OrchestratorView | WorkerView) -> float:
    """Return how long ago a service stopped, or died: that is its last heartbeat, not when others noticed."""
    return service.silent_seconds if service.has_died else service.stopped_seconds or 0.0


def is_settled(service: OrchestratorView | WorkerView) -> bool:
    """Return whether a service stopped by itself, and what it held is held by another one or has finished."""
    if service.is_alive or service.has_died:
        return False
    left = service.left
    if isinstance(left, LeftJobsView):
        return not left.not_reclaimed and not left.unowned
    return left is None or not (left.not_reclaimed or left.alone_with or left.crashed)
