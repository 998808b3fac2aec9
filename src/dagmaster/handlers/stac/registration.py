"""Put checked STAC into the catalog: all of it right before any of it is there."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, Field

from dagmaster.authoring.handler_context import HandlerContext
from dagmaster.geo.stac_items import check_items
from dagmaster.handlers.optional_imports import extra
from dagmaster.handlers.stac.item_builder import new_collection

AT_ONCE: Final = 1000
"""Items in one call of the catalog. A task that is killed between two calls is tried again, and finds them there."""
TELLING: Final = 50
"""Items between two words about progress."""


class Counts(BaseModel):
    """What became of items."""

    total: int = 0
    created: int = Field(default=0, description="Were not there before.")
    updated: int = Field(default=0, description="Were there and differed.")
    unchanged: int = Field(default=0, description="Were there as they are.")


def ensure(ctx: HandlerContext, collection: dict[str, Any]) -> bool:
    """Have a collection that is STAC. True: it was made."""
    with extra("stac"):
        from dagmaster.handlers.stac.validation import check_stac_collection
    return ctx.catalog.ensure_collection(check_stac_collection(collection))


def register(ctx: HandlerContext, items: list[dict[str, Any]]) -> Counts:
    """Check all items, have their collections, then have the items."""
    with extra("stac"):
        from dagmaster.handlers.stac.validation import check_stac_item
    by_collection: dict[str, list[dict[str, Any]]] = {}
    for number, item in enumerate(items):
        if number % TELLING == 0:
            ctx.raise_if_cancelled()
            ctx.progress(number, len(items), "checking items")
        by_collection.setdefault(str(item.get("collection")), []).append(check_stac_item(item))
    # A name that two different items have is refused before one of them is there.
    check_items(items)
    for name, own in by_collection.items():
        if ctx.catalog.collection(name) is None:
            ensure(ctx, new_collection(name, own))
    counts = Counts(total=len(items))
    for begin in range(0, len(items), AT_ONCE):
        ctx.raise_if_cancelled()
        done = ctx.catalog.register(items[begin : begin + AT_ONCE])
        counts.created += done.created
        counts.updated += done.updated
        counts.unchanged += done.unchanged
        ctx.progress(min(begin + AT_ONCE, len(items)), len(items), "registering items")
    return counts
