"""The extent of a collection: as stated when it was created, extended by the items registered since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import PermanentError
from dagmaster.geo.rules.bounding_boxes import bbox_union, parse_bbox, split_at_antimeridian
from dagmaster.geo.rules.datetimes import format_datetime, parse_datetime

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dagmaster.geo.rules.bounding_boxes import BBox
    from dagmaster.geo.rules.stac_items import CheckedItem

_ALL_TIME: Final = [None, None]
_WORLD: Final[BBox] = (-180.0, -90.0, 180.0, 90.0)


def extend_extent(collection: dict[str, Any], items: Iterable[CheckedItem]) -> dict[str, Any]:
    """Return the collection with an extent that includes its items; the same object if nothing changes.

    An extent never shrinks. A collection without items states all time and possibly the whole world: its
    first items replace both. An extent that cannot be parsed is left unchanged.
    """
    own_items = [item for item in items if item.collection == collection["id"]]
    if not own_items:
        return collection
    try:
        bbox, other_boxes = _split_overall(collection["extent"]["spatial"]["bbox"])
        interval, other_intervals = _split_overall(collection["extent"]["temporal"]["interval"])
        bbox = _extend_bbox(bbox, own_items, is_unset=interval == _ALL_TIME)
        interval = _extend_interval(interval, own_items)
    except (PermanentError, LookupError, TypeError, ValueError):
        return collection
    extent = {
        **collection["extent"],
        "spatial": {**collection["extent"]["spatial"], "bbox": [bbox, *other_boxes]},
        "temporal": {**collection["extent"]["temporal"], "interval": [interval, *other_intervals]},
    }
    return collection if extent == collection["extent"] else {**collection, "extent": extent}


def _extend_bbox(bbox: list[Any], items: Sequence[CheckedItem], *, is_unset: bool) -> list[Any]:
    bounds = parse_bbox(bbox)
    item_bounds = [item.bounds for item in items if item.bounds is not None]
    if is_unset and bounds == _WORLD and item_bounds:
        return list(bbox_union(item_bounds))
    if all(_contains(bounds, inner) for inner in item_bounds):
        return bbox
    union = bbox_union([*split_at_antimeridian(bounds), *item_bounds])
    half = len(bbox) // 2
    return [*union[:2], *bbox[2:half], *union[2:], *bbox[half + 2 :]]


def _extend_interval(interval: list[Any], items: Sequence[CheckedItem]) -> list[Any]:
    """Return the interval extended to include the items; a side that is open stays open, unless both are."""
    is_unset = interval == _ALL_TIME
    start, end = (parse_datetime(text) if text else None for text in interval)
    first, last = min(item.start for item in items), max(item.end for item in items)
    if is_unset or (start is not None and first < start):
        interval = [format_datetime(first), interval[1]]
    if is_unset or (end is not None and last > end):
        interval = [interval[0], format_datetime(last)]
    return interval


def _split_overall(values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Split the overall extent, which stands first, from the extents of its parts."""
    return list(values[0]), list(values[1:])


def _contains(outer: BBox, inner: BBox) -> bool:
    parts = split_at_antimeridian(outer)
    return any(w <= inner[0] and s <= inner[1] and inner[2] <= e and inner[3] <= n for w, s, e, n in parts)
