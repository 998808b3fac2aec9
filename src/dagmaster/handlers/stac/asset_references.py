"""Which blobs the items of a catalog speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.errors import BlobNameInvalid
from dagmaster.ports.storage import BlobUri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.authoring.handler_context import HandlerContext


def blob_of(href: object) -> BlobUri | None:
    """The blob that an href names; None for one that is elsewhere, or is relative to something we do not know."""
    if not isinstance(href, str):
        return None
    try:
        return BlobUri("file", "", href[1:]) if href.startswith("/") else BlobUri.parse(href)
    except BlobNameInvalid:
        return None


def blobs_of(item: dict[str, Any]) -> dict[str, BlobUri]:
    """The assets of an item that are blobs, by their names."""
    assets = item.get("assets")
    found = {
        name: blob_of(asset.get("href"))
        for name, asset in (assets if isinstance(assets, dict) else {}).items()
        if isinstance(asset, dict)
    }
    return {name: uri for name, uri in found.items() if uri is not None}


def all_items(ctx: HandlerContext, collection_id: str | None = None) -> Iterator[dict[str, Any]]:
    """Every item, or those of one collection."""
    names = [collection_id] if collection_id else [str(one["id"]) for one in ctx.catalog.collections()]
    for name in names:
        yield from ctx.catalog.items(name)


def referenced(ctx: HandlerContext, collection_id: str | None = None) -> dict[BlobUri, dict[str, Any]]:
    """The blobs that items speak of, each with an item that does."""
    return {uri: item for item in all_items(ctx, collection_id) for uri in blobs_of(item).values()}
