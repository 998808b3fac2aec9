"""What an item has to say before a catalog takes it: who it is, where and when. Also how a search says where and when.

Plain JSON and no other package: every catalog, every handler and the command line ask the same questions here. Whether
an item is right by the STAC schemas is another question, and handlers ask it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from calendar import monthrange
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from dagmaster.errors import PermanentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dagmaster.ports.catalog import Search

Box = tuple[float, float, float, float]
"""West, south, east, north, in degrees."""
Span = tuple[datetime | None, datetime | None]
"""From and to, both included. None: open."""

STAC_VERSION: Final = "1.1.0"
"""That we write."""
MAX_ID: Final = 512
"""Characters. An index of PostgreSQL takes 2,700 bytes."""
MAX_ITEM_BYTES: Final = 4_000_000
LONGEST_FILE_NAME: Final = 180
SLACK: Final = 1e-6
"""Degrees beyond the edge of the world that are a matter of rounding: 10 cm."""

_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?(?P<zone>[Zz]|[+-]\d\d:?\d\d)?")
_DAY: Final = re.compile(r"(\d{4})(?:-(\d\d))?(?:-(\d\d))?")
"""Or a month, or a year."""
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_DEPTHS: Final = {"Point": 0, "MultiPoint": 1, "LineString": 1, "MultiLineString": 2, "Polygon": 2, "MultiPolygon": 3}


def invalid(message: str) -> PermanentError:
    """Bad input is no failure of ours, and no retry mends it."""
    return PermanentError(message, kind="invalid_input")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownItem:
    """An item that a catalog can take. `bounds` are those of its geometry; `digest` is equal where the JSON is."""

    collection: str
    id: str
    begins: datetime
    ends: datetime
    bounds: Box
    text: str = field(repr=False)
    digest: str = field(repr=False)
    item: dict[str, Any] = field(repr=False)

    @property
    def key(self) -> tuple[str, str]:
        """What it is known by."""
        return self.collection, self.id


def known_items(items: Iterable[dict[str, Any]]) -> list[KnownItem]:
    """All of them, or `invalid_input`. One that is given twice is one; two that differ under one name are refused."""
    found: dict[tuple[str, str], KnownItem] = {}
    for item in items:
        known = known_item(item)
        other = found.setdefault(known.key, known)
        if other.digest != known.digest:
            raise invalid(f"two different items of {known.collection!r} have the id {known.id!r}: which one is meant?")
    return list(found.values())


def known_item(item: Any) -> KnownItem:
    """One item, or `invalid_input`."""
    if not isinstance(item, dict) or item.get("type") != "Feature":
        raise invalid(f"this is no STAC item: expected an object of type 'Feature', found {_shown(item)}")
    item_id = check_id(item.get("id"), "the id of an item")
    name = f"the item {item_id!r}"
    collection = check_id(item.get("collection"), f"the collection of {name}")
    for key, kind in (("properties", dict), ("assets", dict), ("links", list)):
        if not isinstance(item.get(key), kind):
            raise invalid(f"{name} has no {key}: expected {'an object' if kind is dict else 'a list'}")
    text, digest = spelled(item, name)
    begins, ends = item_span(item)
    bounds = geometry_bounds(item.get("geometry"), name)
    item_box(item)
    return KnownItem(
        collection=collection,
        id=item_id,
        begins=begins,
        ends=ends,
        bounds=bounds,
        text=text,
        digest=digest,
        item=item,
    )


def check_collection(collection: Any) -> str:
    """A collection that a catalog can take, as JSON text; else `invalid_input`."""
    if not isinstance(collection, dict) or collection.get("type") != "Collection":
        raise invalid(
            f"this is no STAC collection: expected an object of type 'Collection', found {_shown(collection)}"
        )
    return spelled(collection, f"the collection {check_id(collection.get('id'), 'the id of a collection')!r}")[0]


def collection_file(collection_id: str) -> str:
    """What the file of a collection is called. A long name is cut, and keeps a digest of all of it."""
    name = quote(collection_id, safe=" ").replace(".", "%2E", collection_id.startswith("."))
    if len(name) > LONGEST_FILE_NAME:
        name = f"{name[: LONGEST_FILE_NAME - 70]}-{hashlib.sha256(name.encode()).hexdigest()}"
    return f"{name}.json"


def collection_link(collection_id: str) -> dict[str, str]:
    """How an item of a collection says so, too: where the file is, seen from the items of a catalog in a directory.

    A server that gives items out writes such links itself.
    """
    href = f"../collections/{quote(collection_file(collection_id))}"
    return {"rel": "collection", "href": href, "type": "application/json"}


def check_id(value: object, what: str) -> str:
    """An id of an item or collection. Any letters of any script, also '/'; nothing that cannot be seen."""
    if not isinstance(value, str) or not value:
        raise invalid(f"{what} is missing: expected text, found {_shown(value)}")
    if len(value) > MAX_ID:
        raise invalid(f"{what} has {len(value):,} characters: at most {MAX_ID} are taken")
    if any(ord(letter) < ord(" ") or letter == "\x7f" or "\ud800" <= letter <= "\udfff" for letter in value):
        raise invalid(f"{what} has a control character or half a letter in it: {value[:80]!r}")
    return value


def spelled(document: dict[str, Any], name: str) -> tuple[str, str]:
    """A document as JSON text in its own order, and a digest that does not know the order."""
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
        ordered = json.dumps(document, allow_nan=False, separators=(",", ":"), sort_keys=True)
    except RecursionError:
        raise invalid(f"{name} is nested too deep") from None
    except UnicodeEncodeError:
        raise invalid(f"{name} has half a letter (a lone surrogate) in a text") from None
    except (TypeError, ValueError) as error:
        raise invalid(f"{name} is not JSON: {error}. NaN and infinity are no JSON; leave the key out") from None
    if size > MAX_ITEM_BYTES:
        raise invalid(
            f"{name} is {size / 1e6:,.1f} MB of JSON: at most {MAX_ITEM_BYTES / 1e6:g} MB are taken. Put what is large"
            " into an asset"
        )
    if _NUL.search(text):
        raise invalid(f"{name} has a NUL character in a text")
    return text, hashlib.sha256(ordered.encode()).hexdigest()


# ── when ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def item_span(item: dict[str, Any]) -> tuple[datetime, datetime]:
    """From when to when: its start and end if it has both, else its datetime."""
    properties, name = item["properties"], f"the item {item.get('id')!r}"
    start, end = properties.get("start_datetime"), properties.get("end_datetime")
    if start is not None and end is not None:
        span = read_moment(start, f"the start_datetime of {name}"), read_moment(end, f"the end_datetime of {name}")
        if span[0] > span[1]:
            raise invalid(f"{name} ends before it starts: {start} is after {end}")
        return span
    if properties.get("datetime") is None:
        raise invalid(
            f"{name} does not say when: expected properties.datetime, or both start_datetime and end_datetime"
        )
    moment = read_moment(properties["datetime"], f"the datetime of {name}")
    return moment, moment


def read_moment(text: object, what: str = "a moment") -> datetime:
    """A moment as RFC 3339 writes it, in UTC."""
    found = _MOMENT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise invalid(f"{what} is {_shown(text)}: write it as 2026-11-16T05:00:00Z")
    if found["zone"] is None:
        raise invalid(f"{what} has no time zone, {text!r}: write {text}Z if it is UTC")
    try:
        return datetime.fromisoformat(found[0].upper()).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise invalid(f"{what} is {_shown(text)}, which is no moment: {error}") from None


def spell_moment(moment: datetime) -> str:
    """A moment as RFC 3339 writes it, in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def users_moment(text: str) -> str:
    """What a user wrote for a moment, as RFC 3339 in UTC. A day, a month, a year is its first; without a zone, UTC."""
    try:
        if _DAY.fullmatch(text.strip()) and (begins := _edge(text.strip(), last=False)):
            return spell_moment(begins)
        read = datetime.fromisoformat(text.strip())
        return spell_moment(read.replace(tzinfo=UTC) if read.tzinfo is None else read)
    except (ValueError, OverflowError):
        raise invalid(
            f"{text[:60]!r} is not a moment: expected one as 2001-07-13T10:00:00Z, 2001-07-13, 2001-07 or 2001"
        ) from None


def read_interval(text: str) -> Span:
    """What STAC's `datetime` means: a moment, or from/to, where `..` or nothing is open. A date is all of its day.

    So is a month, as 2026-11, and a year.
    """
    ends = [one.strip() for one in text.split("/")]
    if len(ends) > 2:  # noqa: PLR2004 - from and to
        raise invalid(f"{text!r} has {len(ends)} ends: write one moment, or from/to")
    begins, until = _edge(ends[0], last=False), _edge(ends[-1], last=True)
    if begins is None and until is None:
        raise invalid(f"{text!r} is open at both ends: name one, as 2026-01-01/.. or ../2026-12-31, or leave it out")
    if begins is not None and until is not None and begins > until:
        raise invalid(f"{text!r} ends before it starts: write the earlier one first")
    return begins, until


def _edge(text: str, *, last: bool) -> datetime | None:
    if text in ("", ".."):
        return None
    found = _DAY.fullmatch(text)
    if found is None:
        return read_moment(text)
    year, month, day = found.groups()
    begins = read_moment(f"{year}-{month or '01'}-{day or '01'}T00:00:00Z", repr(text))
    if not last:
        return begins
    if day is not None:
        return begins + timedelta(days=1, microseconds=-1)
    ends = begins.replace(month=12) if month is None else begins
    return ends.replace(day=monthrange(ends.year, ends.month)[1]) + timedelta(days=1, microseconds=-1)


# ── where ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_box(values: Sequence[Any], what: str = "the bbox") -> Box:
    """West, south, east, north. West beyond east means across the antimeridian. Heights are left out."""
    if not isinstance(values, list | tuple) or len(values) not in (4, 6) or not all(map(_is_number, values)):
        raise invalid(f"{what} is {_shown(values)}: expected four finite numbers, west, south, east, north, in degrees")
    half = len(values) // 2
    west, south, east, north = (float(one) for one in (values[0], values[1], values[half], values[half + 1]))
    for degrees, most, edge in ((west, 180, "west"), (east, 180, "east"), (south, 90, "south"), (north, 90, "north")):
        if abs(degrees) > most + SLACK:
            hint = " Across the antimeridian west is the greater one: 170,-10,-170,10." if most == 180 else ""  # noqa: PLR2004 - degrees
            raise invalid(f"{what} goes {edge} to {degrees:g}: expected degrees from -{most} to {most}.{hint}")
    if south > north:
        raise invalid(
            f"{what} has its south ({south:g}) above its north ({north:g}): the order is west,south,east,north"
        )
    return west, south, east, north


def split_box(box: Box) -> list[Box]:
    """The box; two, if it goes across the antimeridian."""
    west, south, east, north = box
    return [box] if west <= east else [(west, south, 180.0, north), (-180.0, south, east, north)]


def box_geometry(box: Box) -> dict[str, Any]:
    """The box as GeoJSON. One without width or height is a line or a point: a polygon without area meets nothing."""
    west, south, east, north = box
    corners = list(dict.fromkeys([(west, south), (east, south), (east, north), (west, north)]))
    if len(corners) == 1:
        return {"type": "Point", "coordinates": list(corners[0])}
    if len(corners) == 2:  # noqa: PLR2004 - its ends
        return {"type": "LineString", "coordinates": [list(one) for one in corners]}
    return {"type": "Polygon", "coordinates": [[list(one) for one in [*corners, corners[0]]]]}


def outline(box: Box) -> dict[str, Any]:
    """The box as a footprint. Across the antimeridian it is cut there, as GeoJSON asks: whole, it would be the rest."""
    parts = [box_geometry(part) for part in split_box(box)]
    if len(parts) == 1:
        return parts[0]
    if any(part["type"] != "Polygon" for part in parts):
        return {"type": "GeometryCollection", "geometries": parts}
    return {"type": "MultiPolygon", "coordinates": [part["coordinates"] for part in parts]}


def item_box(item: dict[str, Any]) -> Box:
    """The bbox that an item tells."""
    what = f"the bbox of the item {item.get('id')!r}"
    if item.get("bbox") is None:
        raise invalid(f"{what} is missing: west, south, east, north of its geometry")
    return read_box(item["bbox"], what)


def geometry_bounds(geometry: object, name: str) -> Box:
    """The least and greatest coordinates of a GeoJSON geometry."""
    if geometry is None:
        raise invalid(f"{name} has no geometry: nobody could find it by place. Expected a GeoJSON geometry in degrees")
    positions = list(_positions(geometry, name, 0))
    wests, souths = [one[0] for one in positions], [one[1] for one in positions]
    bounds = float(min(wests)), float(min(souths)), float(max(wests)), float(max(souths))
    if bounds[0] < -180 - SLACK or bounds[2] > 180 + SLACK or bounds[1] < -90 - SLACK or bounds[3] > 90 + SLACK:
        raise invalid(
            f"the geometry of {name} reaches from {bounds[0]:g}, {bounds[1]:g} to {bounds[2]:g}, {bounds[3]:g}:"
            " expected longitude (-180 to 180), then latitude (-90 to 90), in degrees. One across the antimeridian is"
            " cut there into a MultiPolygon"
        )
    return bounds


def _positions(geometry: object, name: str, depth: int) -> Iterator[Sequence[float]]:
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    if not isinstance(geometry, dict) or (kind not in _DEPTHS and kind != "GeometryCollection"):
        kinds = ", ".join([*_DEPTHS, "GeometryCollection"])
        raise invalid(f"the geometry of {name} is {_shown(geometry)}: expected GeoJSON, one of {kinds}")
    if kind == "GeometryCollection":
        parts = geometry.get("geometries")
        if not isinstance(parts, list) or not parts or depth:
            raise invalid(f"the geometry of {name} is a GeometryCollection without geometries, or one inside another")
        for part in parts:
            yield from _positions(part, name, depth + 1)
        return
    yield from _nested(geometry.get("coordinates"), _DEPTHS[str(kind)], str(kind), name)


def _nested(values: object, depth: int, kind: str, name: str) -> Iterator[Sequence[float]]:
    if not isinstance(values, list | tuple) or not values:
        raise invalid(f"the {kind} of {name} has no coordinates where some are expected")
    if depth:
        _check_line(values, depth, kind, name)
        for value in values:
            yield from _nested(value, depth - 1, kind, name)
        return
    if len(values) < 2 or not all(map(_is_number, values)):  # noqa: PLR2004 - longitude and latitude
        raise invalid(f"the {kind} of {name} has a position {_shown(values)}: expected finite numbers, lon then lat")
    yield values


def _check_line(values: Sequence[Any], depth: int, kind: str, name: str) -> None:
    """Lines have two positions, rings four, of which the last is the first."""
    if depth != 1 or kind == "MultiPoint":
        return
    least = 4 if "Polygon" in kind else 2
    if len(values) < least:
        raise invalid(f"the {kind} of {name} has a line of {len(values)} positions: at least {least} are needed")
    if "Polygon" in kind and values[0] != values[-1]:
        raise invalid(f"the {kind} of {name} has a ring that is not closed: its last position has to be its first")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# ── a search ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSearch:
    """A search that makes sense: boxes that do not cross the antimeridian, and a span. Empty or None: anything."""

    collections: tuple[str, ...]
    ids: tuple[str, ...]
    boxes: tuple[Box, ...]
    begins: datetime | None
    ends: datetime | None
    limit: int


def read_search(wanted: Search) -> ReadSearch:
    """Read a search, or say what is wrong with it."""
    if wanted.limit < 0:
        raise invalid(f"a limit of {wanted.limit} items: expected none or more")
    begins, ends = (None, None) if wanted.datetime is None else read_interval(wanted.datetime)
    return ReadSearch(
        collections=tuple(check_id(one, "a collection") for one in wanted.collections),
        ids=tuple(check_id(one, "an id") for one in wanted.ids),
        boxes=() if wanted.bbox is None else tuple(split_box(read_box(wanted.bbox))),
        begins=begins,
        ends=ends,
        limit=wanted.limit,
    )


def _shown(value: object) -> str:
    """A value in an error: short."""
    said = repr(value)
    return said if len(said) <= 80 else f"{said[:77]}..."  # noqa: PLR2004 - a line
