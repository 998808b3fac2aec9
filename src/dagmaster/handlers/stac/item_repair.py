"""What is wrong with items that stand in a catalog, and what can be mended without asking anybody."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import BlobNameInvalid, BlobNotFound, PermanentError
from dagmaster.geo.bounding_boxes import geometry_bounds, split_at_antimeridian
from dagmaster.geo.stac_items import STAC_VERSION, collection_link, item_bbox
from dagmaster.handlers.stac.asset_references import blobs_of

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from dagmaster.authoring.handler_context import HandlerContext
    from dagmaster.ports.storage import BlobUri

CLOSE: Final = 1e-6
"""Degrees between a bbox and its geometry that are a matter of rounding."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The assets of an item that are not there. `data`: what it is about is among them, and nothing of it is left."""

    names: dict[str, BlobUri] = field(default_factory=dict)
    data: bool = False


def missing_assets(ctx: HandlerContext, item: dict[str, Any], there: AbstractSet[BlobUri] = frozenset()) -> Gone:
    """Which of its blobs are gone. `there`: some that are known to be there. What is elsewhere is not looked for."""
    gone = {name: uri for name, uri in blobs_of(item).items() if uri not in there and not _may_be_there(ctx, uri)}
    assets = item.get("assets") or {}
    data = [name for name, asset in assets.items() if isinstance(asset, dict) and "data" in (asset.get("roles") or ())]
    of_the_data = data or list(assets)
    return Gone(gone, bool(gone) and bool(of_the_data) and all(name in gone for name in of_the_data))


def _may_be_there(ctx: HandlerContext, uri: BlobUri) -> bool:
    """Whether it is there, or is where handlers may not look."""
    try:
        return ctx.blobs.find(ctx.blobs.resolve(str(uri))) is not None
    except BlobNameInvalid:
        return True
    except BlobNotFound:
        # Its whole bucket is gone.
        return False


def mended(item: dict[str, Any], gone: Gone) -> dict[str, Any]:
    """The item with what can be told from itself put right, and without the assets that are gone."""
    properties = dict(item.get("properties") or {})
    if "start_datetime" in properties and "end_datetime" in properties:
        properties.setdefault("datetime", None)
    links = item.get("links")
    assets = item.get("assets")
    better = {
        **item,
        "type": "Feature",
        "stac_version": item.get("stac_version") or STAC_VERSION,
        "stac_extensions": [one for one in item.get("stac_extensions") or [] if isinstance(one, str)],
        "properties": properties,
        "links": [link for link in links or [] if isinstance(link, dict) and link.get("rel") and link.get("href")],
        "assets": {
            name: asset
            for name, asset in (assets if isinstance(assets, dict) else {}).items()
            if isinstance(asset, dict) and asset.get("href") and name not in gone.names
        },
    }
    if better.get("collection") and not any(link["rel"] == "collection" for link in better["links"]):
        better["links"] = [*better["links"], collection_link(str(better["collection"]))]
    return {**better, **_box(item)}


def _box(item: dict[str, Any]) -> dict[str, Any]:
    """The bbox of the geometry, where the item's own is missing or another. Across the antimeridian its own is kept."""
    try:
        bounds = geometry_bounds(item.get("geometry"), "")
    except PermanentError:
        return {}
    try:
        own = item_bbox(item)
    except PermanentError:
        return {"bbox": list(bounds)}
    is_across = len(split_at_antimeridian(own)) > 1 and bounds[2] - bounds[0] > 180  # noqa: PLR2004 - half of the world
    is_close = all(abs(one - other) <= CLOSE for one, other in zip(own, bounds, strict=True))
    return {} if is_across or is_close else {"bbox": list(bounds)}
