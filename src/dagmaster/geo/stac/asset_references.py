"""Which blobs the items of a catalog reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.errors import BlobNameInvalid
from dagmaster.ports.blob_uris import BlobUri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.sdk.handler_context import HandlerContext


def href_blob(href: object) -> BlobUri | None:
    """Return the blob that an href names; None for a remote or a relative one."""
    if not isinstance(href, str):
        return None
    try:
        return BlobUri("file", "", href[1:]) if href.startswith("/") else BlobUri.parse(href)
    except BlobNameInvalid:
        return None


def asset_blobs(item: dict[str, Any]) -> dict[str, BlobUri]:
    assets = item.get("assets")
    blobs = {
        name: href_blob(asset.get("href"))
        for name, asset in (assets if isinstance(assets, dict) else {}).items()
        if isinstance(asset, dict)
    }
    return {name: uri for name, uri in blobs.items() if uri is not None}


def iterate_items(ctx: HandlerContext, collection_id: str | None = None) -> Iterator[dict[str, Any]]:
    names = (
        [collection_id] if collection_id else [str(document["id"]) for document in ctx.catalog.collections()]
    )
    for name in names:
        yield from ctx.catalog.items(name)


def blob_users(ctx: HandlerContext) -> dict[BlobUri, str]:
    """Return the blobs that items reference, each with the name of one such item."""
    return {
        uri: f"item {item['id']} of collection {item.get('collection')}"
        for uri, item in referenced_blobs(ctx).items()
    }


def referenced_blobs(ctx: HandlerContext, collection_id: str | None = None) -> dict[BlobUri, dict[str, Any]]:
    """Return the blobs that items reference, each with one such item."""
    return {uri: item for item in iterate_items(ctx, collection_id) for uri in asset_blobs(item).values()}
