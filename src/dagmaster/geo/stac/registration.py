"""Register STAC in the catalog: everything is validated before anything is stored."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, Field

from dagmaster.geo.optional_imports import require_extra
from dagmaster.geo.rules.stac_items import check_items
from dagmaster.geo.stac.item_builder import new_collection
from dagmaster.sdk.handler_context import HandlerContext

ITEMS_PER_CALL: Final = 1000
"""Items per catalog call. A task killed between two calls is retried and finds the earlier ones unchanged."""
ITEMS_PER_REPORT: Final = 50
"""Items between two progress reports."""


class Counts(BaseModel):
    """How many items were created, updated and unchanged."""

    total: int = 0
    created: int = Field(default=0, description="Items that did not exist before.")
    updated: int = Field(default=0, description="Items that existed and differed.")
    unchanged: int = Field(default=0, description="Items that existed and were equal.")


def ensure_valid_collection(ctx: HandlerContext, collection: dict[str, Any]) -> bool:
    """Validate a collection and create it unless it exists; return whether it was created."""
    with require_extra("stac"):
        from dagmaster.geo.stac.validation import check_stac_collection
    return ctx.catalog.ensure_collection(check_stac_collection(collection))


def register_valid_items(ctx: HandlerContext, items: list[dict[str, Any]]) -> Counts:
    """Validate all items, create missing collections, then register the items."""
    with require_extra("stac"):
        from dagmaster.geo.stac.validation import check_stac_item
    by_collection: dict[str, list[dict[str, Any]]] = {}
    for number, item in enumerate(items):
        if number % ITEMS_PER_REPORT == 0:
            ctx.raise_if_cancelled()
            ctx.progress(number, len(items), "validating items")
        by_collection.setdefault(str(item.get("collection")), []).append(check_stac_item(item))
    # Reject two different items with one id before either is stored.
    check_items(items)
    for name, members in by_collection.items():
        if ctx.catalog.collection(name) is None:
            ensure_valid_collection(ctx, new_collection(name, members))
    counts = Counts(total=len(items))
    for begin in range(0, len(items), ITEMS_PER_CALL):
        ctx.raise_if_cancelled()
        registered = ctx.catalog.register(items[begin : begin + ITEMS_PER_CALL])
        counts.created += registered.created
        counts.updated += registered.updated
        counts.unchanged += registered.unchanged
        ctx.progress(min(begin + ITEMS_PER_CALL, len(items)), len(items), "registering items")
    return counts
