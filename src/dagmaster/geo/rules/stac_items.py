"""The rules an item or a collection must meet before a catalog stores it: identity, place, time and size.

Plain JSON, no other package: every catalog, every handler and the command line apply the same rules.
Validation against the STAC schemas is separate (`geo/stac/validation.py`).
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from dagmaster.errors import invalid_input
from dagmaster.geo.rules.bounding_boxes import geometry_bounds, parse_bbox
from dagmaster.geo.rules.datetimes import parse_datetime
from dagmaster.text_format import format_count, library_words

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from datetime import datetime

    from dagmaster.geo.rules.bounding_boxes import BBox
    from dagmaster.json_types import JsonObject, JsonValue

STAC_VERSION: Final = "1.1.0"
"""The STAC version of every document dagmaster writes."""
PROJECTION_EXTENSION: Final = "https://stac-extensions.github.io/projection/v1.2.0/schema.json"
"""The only version that has both `proj:code` and `proj:epsg`: 2.0 forbids the latter, which stackstac 0.5
requires."""
MAX_ID_CHARACTERS: Final = 512
"""Keeps an id within a PostgreSQL index entry (2,700 bytes)."""
MAX_ITEM_BYTES: Final = 4_000_000
MAX_FILE_NAME_CHARACTERS: Final = 180

_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedItem:
    """An item that meets the rules. `bounds`: of its geometry; equal JSON has an equal `digest`.

    An item off the Earth has no geometry in WGS 84 and no bounds: a search by place does not find it.
    """

    collection: str
    id: str
    start: datetime
    end: datetime
    bounds: BBox | None
    text: str = field(repr=False)
    digest: str = field(repr=False)
    item: JsonObject = field(repr=False)

    @property
    def key(self) -> tuple[str, str]:
        return self.collection, self.id


def check_items(items: Iterable[JsonObject]) -> list[CheckedItem]:
    """Check all items; raise `invalid_input` for the first bad one.

    Equal items count once; two different items with the same id are rejected.
    """
    by_key: dict[tuple[str, str], CheckedItem] = {}
    for item in items:
        checked = check_item(item)
        other = by_key.setdefault(checked.key, checked)
        if other.digest != checked.digest:
            raise invalid_input(
                f"two different items of the collection {checked.collection!r} have the id {checked.id!r}:"
                " register one of them"
            )
    return list(by_key.values())


def check_item(item: JsonValue) -> CheckedItem:
    """Check one item; raise `invalid_input` if a catalog cannot store it."""
    if not isinstance(item, dict) or item.get("type") != "Feature":
        raise invalid_input(f"not a STAC item: expected an object of type 'Feature', found {item!r:.80}")
    item_id = check_id(item.get("id"), "the id of an item")
    label = f"the item {item_id!r}"
    collection = check_id(item.get("collection"), f"the collection of {label}")
    for key, json_type in (("properties", dict), ("assets", dict), ("links", list)):
        if not isinstance(item.get(key), json_type):
            raise invalid_input(
                f"{label} has no {key}: expected {'an object' if json_type is dict else 'a list'}"
            )
    text, digest = encode_document(item, label)
    start, end = item_interval(item)
    bounds = None
    if not is_off_earth(item):
        bounds = geometry_bounds(item.get("geometry"), label)
        item_bbox(item)
    return CheckedItem(
        collection=collection,
        id=item_id,
        start=start,
        end=end,
        bounds=bounds,
        text=text,
        digest=digest,
        item=item,
    )


def item_interval(item: dict[str, Any]) -> tuple[datetime, datetime]:
    """Return the start and end of an item if it has both, else its datetime twice."""
    properties, label = item["properties"], f"the item {item.get('id')!r}"
    start, end = properties.get("start_datetime"), properties.get("end_datetime")
    if start is not None and end is not None:
        interval = (
            parse_datetime(start, f"the start_datetime of {label}"),
            parse_datetime(end, f"the end_datetime of {label}"),
        )
        if interval[0] > interval[1]:
            raise invalid_input(f"{label} ends before it starts: {start} is after {end}. Swap them")
        return interval
    if properties.get("datetime") is None:
        raise invalid_input(
            f"{label} has no datetime: expected properties.datetime, or both start_datetime and end_datetime"
        )
    value = parse_datetime(properties["datetime"], f"the datetime of {label}")
    return value, value


def is_off_earth(item: dict[str, Any]) -> bool:
    """Return whether an item has no geometry in WGS 84 but a place in another CRS, such as a lunar one."""
    properties = item.get("properties") or {}
    has_own_place = properties.get("proj:bbox") and (
        properties.get("proj:code") or properties.get("proj:wkt2")
    )
    return item.get("geometry") is None and item.get("bbox") is None and bool(has_own_place)


def item_bbox(item: dict[str, Any]) -> BBox:
    label = f"the bbox of the item {item.get('id')!r}"
    if item.get("bbox") is None:
        raise invalid_input(f"{label} is missing: expected west, south, east, north of its geometry")
    return parse_bbox(item["bbox"], label)


def check_collection(collection: JsonValue) -> str:
    """Return a collection as JSON text; raise `invalid_input` if a catalog cannot store it."""
    if not isinstance(collection, dict) or collection.get("type") != "Collection":
        raise invalid_input(
            f"not a STAC collection: expected an object of type 'Collection', found {collection!r:.80}"
        )
    collection_id = check_id(collection.get("id"), "the id of a collection")
    return encode_document(collection, f"the collection {collection_id!r}")[0]


def require_collections(names: Iterable[str], existing: Container[str]) -> None:
    """Raise `invalid_input` if a catalog lacks a collection of the items to be registered."""
    missing = [name for name in names if name not in existing]
    if missing:
        raise invalid_input(
            f"the catalog has no collection {', '.join(map(repr, missing))}: create it first, with"
            " stac.ensure_collection"
        )


def collection_file_name(collection_id: str) -> str:
    """Return the file name of a collection. A long name is cut and ends with a digest of the whole."""
    name = quote(collection_id, safe=" ").replace(".", "%2E", collection_id.startswith("."))
    if len(name) > MAX_FILE_NAME_CHARACTERS:
        name = f"{name[: MAX_FILE_NAME_CHARACTERS - 70]}-{hashlib.sha256(name.encode()).hexdigest()}"
    return f"{name}.json"


def projection_code(epsg: int | None) -> JsonObject:
    """Return the code of a CRS for old and new readers; null for both if it has no EPSG code."""
    return {"proj:code": None if epsg is None else f"EPSG:{epsg}", "proj:epsg": epsg}


def collection_link(collection_id: str) -> dict[str, str]:
    """Return the link from an item to its collection, relative to the items of a catalog in a directory.

    A STAC server replaces such links by its own.
    """
    href = f"../collections/{quote(collection_file_name(collection_id))}"
    return {"rel": "collection", "href": href, "type": "application/json"}


def check_id(value: object, label: str) -> str:
    """Return the id of an item or collection. Any script and '/' are allowed, control characters are not."""
    if not isinstance(value, str) or not value:
        raise invalid_input(f"{label} is missing: expected text, found {value!r:.80}")
    if len(value) > MAX_ID_CHARACTERS:
        raise invalid_input(
            f"{label} has {format_count(len(value), 'character')}: at most {MAX_ID_CHARACTERS} are allowed"
        )
    if any(letter < " " or letter == "\x7f" or "\ud800" <= letter <= "\udfff" for letter in value):
        raise invalid_input(
            f"{label} contains a control character or a lone surrogate: {value[:80]!r}. Remove it"
        )
    return value


def encode_document(document: JsonObject, label: str) -> tuple[str, str]:
    """Return a document as JSON text in its own key order, and a digest that ignores the order."""
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
        ordered = json.dumps(document, allow_nan=False, separators=(",", ":"), sort_keys=True)
    except RecursionError:
        raise invalid_input(f"{label} is nested too deeply: move its content to an asset") from None
    except UnicodeEncodeError:
        raise invalid_input(
            f"{label} contains a lone surrogate (half a character) in a text: remove it"
        ) from None
    except (TypeError, ValueError) as error:
        raise invalid_input(
            f"{label} is not JSON, which has no NaN, no infinity and no objects of Python: omit the key, or"
            f" write it as text{library_words('JSON', error)}"
        ) from None
    if size > MAX_ITEM_BYTES:
        raise invalid_input(
            f"{label} is {size / 1e6:,.1f} MB of JSON: at most {MAX_ITEM_BYTES / 1e6:g} MB are allowed. Move"
            " large content to an asset"
        )
    if _NUL.search(text):
        raise invalid_input(f"{label} contains a NUL character in a text: remove it")
    return text, hashlib.sha256(ordered.encode()).hexdigest()
