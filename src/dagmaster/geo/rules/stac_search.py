"""A catalog search whose values have been checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagmaster.errors import invalid_input
from dagmaster.geo.rules.bounding_boxes import parse_bbox, split_at_antimeridian
from dagmaster.geo.rules.datetimes import parse_interval
from dagmaster.geo.rules.stac_items import check_id

if TYPE_CHECKING:
    from datetime import datetime

    from dagmaster.geo.rules.bounding_boxes import BBox
    from dagmaster.ports.catalog import Search


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedSearch:
    """A valid search. No box crosses the antimeridian; empty or None means any."""

    collections: tuple[str, ...]
    ids: tuple[str, ...]
    boxes: tuple[BBox, ...]
    start: datetime | None
    end: datetime | None
    limit: int


def parse_search(search: Search) -> ParsedSearch:
    """Parse a search; raise `invalid_input` if a value is not valid."""
    if search.limit < 0:
        raise invalid_input(f"the limit is {search.limit} items: expected 0 or more")
    start, end = (None, None) if search.datetime is None else parse_interval(search.datetime)
    return ParsedSearch(
        collections=tuple(check_id(name, "a collection") for name in search.collections),
        ids=tuple(check_id(item_id, "an id") for item_id in search.ids),
        boxes=() if search.bbox is None else tuple(split_at_antimeridian(parse_bbox(search.bbox))),
        start=start,
        end=end,
        limit=search.limit,
    )
