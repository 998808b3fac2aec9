"""The names that belong to the installation before a worker has published them."""

from __future__ import annotations


def shipped_names() -> frozenset[str]:
    """Return the names and aliases of the handlers that ship with dagmaster."""
    from dagmaster.handlers import SHIPPED_HANDLERS
    from dagmaster.sdk.handler_registry import discover

    return frozenset(discover(SHIPPED_HANDLERS, entry_points=False).versions())
