"""How far a collection reaches: as far as was said when it was made, and as far as the items that came since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import PermanentError
from dagmaster.geo.stac_rules import read_box, read_moment, spell_moment, split_box

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dagmaster.geo.stac_rules import Box, KnownItem

_ALWAYS: Final = [None, None]
_WORLD: Final[Box] = (-180.0, -90.0, 180.0, 90.0)


def reaching(collection: dict[str, Any], items: Iterable[KnownItem]) -> dict[str, Any]:
    """The collection, grown around its items among these. It never shrinks; one that reaches far enough stays itself.

    All time is what a collection says that knows of no item yet: the first one replaces it, and the whole world that is
    said beside it. An extent that cannot be read is left alone.
    """
    own = [one for one in items if one.collection == collection["id"]]
    if not own:
        return collection
    try:
        box, others = _first(collection["extent"]["spatial"]["bbox"])
        span, later = _first(collection["extent"]["temporal"]["interval"])
        bounds = read_box(box)
        begins, ends = (read_moment(one) if one else None for one in span)
    except (PermanentError, LookupError, TypeError, ValueError):
        return collection
    is_new = span == _ALWAYS
    if is_new and bounds == _WORLD:
        box = list(_around([one.bounds for one in own]))
    elif not all(_is_inside(one.bounds, bounds) for one in own):
        wide = _around([*split_box(bounds), *(one.bounds for one in own)])
        half = len(box) // 2
        box = [*wide[:2], *box[2:half], *wide[2:], *box[half + 2 :]]
    first, last = min(one.begins for one in own), max(one.ends for one in own)
    if is_new or (begins is not None and first < begins):
        span = [spell_moment(first), span[1]]
    if is_new or (ends is not None and last > ends):
        span = [span[0], spell_moment(last)]
    grown = {
        **collection["extent"],
        "spatial": {**collection["extent"]["spatial"], "bbox": [box, *others]},
        "temporal": {**collection["extent"]["temporal"], "interval": [span, *later]},
    }
    return collection if grown == collection["extent"] else {**collection, "extent": grown}


def _first(values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The overall one, and those of its parts."""
    return list(values[0]), list(values[1:])


def _is_inside(one: Box, whole: Box) -> bool:
    parts = split_box(whole)
    return any(w <= one[0] and s <= one[1] and one[2] <= e and one[3] <= n for w, s, e, n in parts)


def _around(boxes: Sequence[Box]) -> Box:
    wests, souths, easts, norths = zip(*boxes, strict=True)
    return min(wests), min(souths), max(easts), max(norths)
