"""Repair items of a catalog where the correct value follows from the item itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import BlobNameInvalid, BlobNotFound, PermanentError
from dagmaster.geo.rules.bounding_boxes import geometry_bounds, split_at_antimeridian
from dagmaster.geo.rules.stac_items import STAC_VERSION, collection_link, item_bbox
from dagmaster.geo.stac.asset_references import asset_blobs

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.sdk.handler_context import HandlerContext

ROUNDING_DEGREES: Final = 1e-6
"""The rounding difference between a bbox and its geometry that is accepted."""


@dataclass(frozen=True, slots=True)
class MissingAssets:
    """The assets of an item whose blobs are missing. `is_all_data`: no data asset is left."""

    blobs: dict[str, BlobUri] = field(default_factory=dict)
    is_all_data: bool = False


def find_missing_assets(
    ctx: HandlerContext, item: dict[str, Any], existing: AbstractSet[BlobUri] = frozenset()
) -> MissingAssets:
    """Return the assets whose blobs are missing. `existing` blobs and remote files are not checked."""
    missing = {
        name: uri
        for name, uri in asset_blobs(item).items()
        if uri not in existing and not _may_exist(ctx, uri)
    }
    assets = item.get("assets") or {}
    by_role = [
        name
        for name, asset in assets.items()
        if isinstance(asset, dict) and "data" in (asset.get("roles") or ())
    ]
    data_names = by_role or list(assets)
    return MissingAssets(
        missing, bool(missing) and bool(data_names) and all(name in missing for name in data_names)
    )


def _may_exist(ctx: HandlerContext, uri: BlobUri) -> bool:
    """Return whether a blob exists, or lies where handlers may not look."""
    try:
        return ctx.blobs.find(ctx.blobs.resolve(str(uri))) is not None
    except BlobNameInvalid:
        return True
    except BlobNotFound:
        # The whole bucket is missing.
        return False


def repair_item(item: dict[str, Any], missing: MissingAssets) -> dict[str, Any]:
    """Return the item with everything corrected that follows from itself, and without missing assets."""
    properties = dict(item.get("properties") or {})
    if "start_datetime" in properties and "end_datetime" in properties:
        properties.setdefault("datetime", None)
    repaired = {
        **item,
        "type": "Feature",
        "stac_version": item.get("stac_version") or STAC_VERSION,
        "stac_extensions": [uri for uri in item.get("stac_extensions") or [] if isinstance(uri, str)],
        "properties": properties,
        "links": _valid_links(item),
        "assets": _valid_assets(item, missing),
    }
    return {**repaired, **_corrected_bbox(item)}


def _valid_links(item: dict[str, Any]) -> list[Any]:
    """Return the links that lead somewhere, and the link to the item's collection."""
    links = [
        link
        for link in item.get("links") or []
        if isinstance(link, dict) and link.get("rel") and link.get("href")
    ]
    if item.get("collection") and not any(link["rel"] == "collection" for link in links):
        links.append(collection_link(str(item["collection"])))
    return links


def _valid_assets(item: dict[str, Any], missing: MissingAssets) -> dict[str, Any]:
    assets = item.get("assets")
    if not isinstance(assets, dict):
        return {}
    return {
        name: asset
        for name, asset in assets.items()
        if isinstance(asset, dict) and asset.get("href") and name not in missing.blobs
    }


def _corrected_bbox(item: dict[str, Any]) -> dict[str, Any]:
    """Return the bbox of the geometry if the item's own is missing or differs, unless it crosses 180."""
    try:
        bounds = geometry_bounds(item.get("geometry"), "")
    except PermanentError:
        return {}
    try:
        own = item_bbox(item)
    except PermanentError:
        return {"bbox": list(bounds)}
    is_wide = bounds[2] - bounds[0] > 180  # noqa: PLR2004 - half of the world
    is_across = is_wide and len(split_at_antimeridian(own)) > 1
    is_close = all(abs(side - bound) <= ROUNDING_DEGREES for side, bound in zip(own, bounds, strict=True))
    return {} if is_across or is_close else {"bbox": list(bounds)}
