"""Make items of files and collections of items, of facts alone: twice the same gives twice the same."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import PermanentError, invalid_input
from dagmaster.geo.bounding_boxes import bbox_to_geometry, parse_bbox, split_at_antimeridian
from dagmaster.geo.datetimes import format_datetime, normalize_datetime, parse_datetime
from dagmaster.geo.stac_items import STAC_VERSION, collection_link, item_bbox, item_interval
from dagmaster.handlers.optional_imports import extra
from dagmaster.handlers.provenance import Made
from dagmaster.handlers.result_uris import UNDATED, dated, is_named_by_content, plain_name
from dagmaster.handlers.source_files import local_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.authoring.handler_context import HandlerContext
    from dagmaster.ports.storage import BlobUri

DEFAULT_COLLECTION: Final = "default-collection"
"""As the sources name it."""
RASTERS: Final = (".tif", ".tiff", ".jp2", ".hgt")
_NOT_PROPERTIES: Final = (
    "id",
    "type",
    "bbox",
    "geometry",
    "links",
    "assets",
    "collection",
    "properties",
    "stac_version",
    "stac_extensions",
)
_COMMON: Final = (
    "title",
    "description",
    "keywords",
    "datetime",
    "start_datetime",
    "end_datetime",
    "created",
    "updated",
    "license",
    "providers",
    "platform",
    "instruments",
    "constellation",
    "mission",
    "gsd",
)
FACTS: Final = frozenset(
    (
        "crs",
        "bounds",
        "footprint",
        "width",
        "height",
        "count",
        "dtypes",
        "nodata",
        "mask",
        "palette",
        "resolution",
        "standing",
        "driver",
        "block_shapes",
        "transform",
    )
)
_ASSUMED: Final = "dagmaster:datetime_assumed"
_TYPES: Final = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}


def item_id_of(uri: BlobUri, when: str | None = None) -> str:
    """An id for the item of a file. Files of one name in two folders have two; a name with a fingerprint is enough.

    What is so named may be of many days, so the moment that was told is a part of the id then.
    """
    if is_named_by_content(str(uri)):
        whole = plain_name(uri.name.rpartition("/")[2].removesuffix(uri.suffix))
        return whole if when is None else dated(whole, normalize_datetime(when))
    return f"{plain_name(uri.stem)}-{hashlib.sha256(str(uri).encode()).hexdigest()[:8]}"


def item_of_raster(
    ctx: HandlerContext,
    uri: BlobUri,
    *,
    collection: str | None,
    item_id: str | None = None,
    when: str | None = None,
    properties: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The item of a raster that lies in storage. A copy that was fetched for it is taken away."""
    with extra("raster"):
        from dagmaster.handlers.gdal import gdal
        from dagmaster.handlers.stac.raster_item import Told, raster_item
    given = plain_properties(properties)
    taken, known = _moment_in(given, when)
    if item_id is None and known is None and is_named_by_content(str(uri)):
        given[UNDATED] = True
    file = local_file(ctx, uri)
    info = ctx.blobs.find(uri)
    told = Told(
        item_id=item_id or item_id_of(uri, known),
        href=str(uri),
        sha256=file.sha256,
        size=file.size,
        collection=collection,
        when=taken,
        assumed=None if info is None else info.modified,
        created=None if info is None else info.modified,
        properties=given,
    )
    try:
        with gdal(ctx.share):
            return raster_item(file.path, ctx.share, told, Made.by(ctx, []))
    except PermanentError as error:
        raise PermanentError(f"{uri}: {error}", kind=error.kind, **error.details) from None
    finally:
        if ctx.blobs.local_path(uri) is None:
            file.path.unlink(missing_ok=True)


def item_elsewhere(
    href: str,
    box: Sequence[Any],
    *,
    collection: str,
    item_id: str | None,
    when: str | None,
    properties: Mapping[str, Any],
) -> dict[str, Any]:
    """The item of a file that this machine does not open: what is known of it is what it was told."""
    bounds = parse_bbox(box)
    given = plain_properties(properties)
    told = when or given.get("datetime")
    moment = None if told is None else normalize_datetime(str(told))
    if moment is None and not (given.get("start_datetime") and given.get("end_datetime")):
        raise invalid_input(f"nobody says when {href} was measured: give datetime, as 2026-11-16T05:00:00Z")
    name = href.rstrip("/").rpartition("/")[2].partition(".")[0]
    return {
        "type": "Feature",
        "stac_version": STAC_VERSION,
        "stac_extensions": [],
        "id": item_id or f"{plain_name(name)}-{hashlib.sha256(href.encode()).hexdigest()[:8]}",
        "collection": collection,
        "geometry": bbox_to_geometry(bounds),
        "bbox": list(bounds),
        "properties": {**given, "datetime": moment},
        "links": [collection_link(collection)],
        "assets": {"data": {"href": href, "roles": ["data"]}},
    }


def retold(
    item: dict[str, Any], *, item_id: str | None, when: str | None, properties: Mapping[str, Any]
) -> dict[str, Any]:
    """The item with what is told of it, over what it says itself. A moment that a step assumed is not told."""
    own = item.get("properties")
    if not isinstance(own, dict):
        # Who checks it says what is wrong.
        return item
    given = plain_properties(properties)
    _, known = _moment_in(given, when)
    name, kept = item_id or item.get("id"), dict(own)
    if known is None:
        given.pop(_ASSUMED, None)
    else:
        given["datetime"] = normalize_datetime(known)
        kept.pop(_ASSUMED, None)
        if item_id is None and own.get(UNDATED):
            name = dated(str(name), given["datetime"])
    if name != item.get("id"):
        kept.pop(UNDATED, None)
    return {**item, "id": name, "properties": {**kept, **given}}


def _moment_in(given: dict[str, Any], when: str | None) -> tuple[str | None, str | None]:
    """The moment of an item, and the same where somebody told it. It is taken out of the properties, with what it was.

    `when` was told for itself. What a step assumed, and passes on among its properties, nobody has told.
    """
    own = given.pop("datetime", None)
    given.pop(UNDATED, None)
    if when is not None:
        given.pop(_ASSUMED, None)
        return when, when
    taken = None if own is None else str(own)
    return taken, None if given.get(_ASSUMED) else taken


def plain_properties(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Facts that may stand among an item's properties: not what has its own place in an item, nor what is null."""
    told = given or {}
    # What raster.validate gives is in the item already, by STAC's names.
    known = (*_NOT_PROPERTIES, *(FACTS if told.keys() >= FACTS else ()))
    return {name: value for name, value in told.items() if name not in known and value is not None}


def namespaced(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """What may be taken over of metadata that a step gave: names of an extension, and those that STAC itself has."""
    return {name: value for name, value in (metadata or {}).items() if ":" in name or name in _COMMON}


def placed(item: dict[str, Any], collection: str | None) -> dict[str, Any]:
    """The item in a collection: its own, the asked one, or the default one. Two that differ are refused."""
    own = item.get("collection")
    if own is not None and collection is not None and own != collection:
        raise invalid_input(
            f"the item {item.get('id')!r} is of the collection {own!r}, and {collection!r} is asked for: change one"
        )
    name = own or collection or DEFAULT_COLLECTION
    links = item.get("links") or []
    if not any(isinstance(link, dict) and link.get("rel") == "collection" for link in links):
        links = [*links, collection_link(name)]
    return {**item, "collection": name, "links": links}


def with_preview(item: dict[str, Any], href: str | None) -> dict[str, Any]:
    """The item with a picture of it."""
    if not href:
        return item
    suffix = f".{href.rpartition('.')[2].lower()}"
    kind = {"type": _TYPES[suffix]} if suffix in _TYPES else {}
    picture = {"href": href, **kind, "roles": ["thumbnail"], "title": "Preview"}
    return {**item, "assets": {**item.get("assets", {}), "thumbnail": picture}}


def new_collection(collection_id: str, items: Sequence[dict[str, Any]] = (), **told: Any) -> dict[str, Any]:
    """A collection that spans these items; without any, the whole world and all time."""
    return {
        "type": "Collection",
        "stac_version": STAC_VERSION,
        "id": collection_id,
        "title": told.get("title") or collection_id,
        "description": told.get("description") or f"Data of {collection_id}.",
        "license": told.get("license") or "other",
        **({"keywords": told["keywords"]} if told.get("keywords") else {}),
        "extent": told.get("extent") or extent_of(items),
        "links": [],
    }


def extent_of(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Where and when the items are, together."""
    if not items:
        return {"spatial": {"bbox": [[-180, -90, 180, 90]]}, "temporal": {"interval": [[None, None]]}}
    boxes = [part for item in items for part in split_at_antimeridian(item_bbox(item))]
    spans = [item_interval(item) for item in items]
    return {
        "spatial": {
            "bbox": [
                [
                    min(box[0] for box in boxes),
                    min(box[1] for box in boxes),
                    max(box[2] for box in boxes),
                    max(box[3] for box in boxes),
                ]
            ]
        },
        "temporal": {
            "interval": [
                [format_datetime(min(begins for begins, _ in spans)), format_datetime(max(ends for _, ends in spans))]
            ]
        },
    }


def interval_of(text: str) -> list[str | None]:
    """from/to as a collection's extent writes it."""
    ends = [one.strip() for one in text.split("/")]
    if len(ends) != 2:  # noqa: PLR2004 - from and to
        raise invalid_input(f"{text!r} is no interval: write from/to, where .. is open")
    return [None if one in ("", "..") else format_datetime(parse_datetime(one)) for one in ends]
