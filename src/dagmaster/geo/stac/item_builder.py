"""Build items from files, and collections from items. Only facts go in, so the result is reproducible."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import PermanentError, invalid_input
from dagmaster.geo.optional_imports import require_extra
from dagmaster.geo.provenance import Provenance
from dagmaster.geo.raster.raster_sources import fetch_raster
from dagmaster.geo.result_uris import UNDATED_ID, dated_id, has_fingerprint, safe_name
from dagmaster.geo.rules.bounding_boxes import bbox_to_geometry, bbox_union, parse_bbox, split_at_antimeridian
from dagmaster.geo.rules.datetimes import format_datetime, normalize_datetime, parse_datetime
from dagmaster.geo.rules.stac_items import (
    STAC_VERSION,
    collection_link,
    is_off_earth,
    item_bbox,
    item_interval,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.sdk.handler_context import HandlerContext

DEFAULT_COLLECTION: Final = "default-collection"
"""The name that existing workflows use."""
RASTER_SUFFIXES: Final = (".tif", ".tiff", ".jp2", ".hgt")
_ITEM_KEYS: Final = (
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
_COMMON_METADATA: Final = (
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
RASTER_FACTS: Final = frozenset(
    (
        "crs",
        "georeference",
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
_DATETIME_ASSUMED: Final = "dagmaster:datetime_assumed"
_IMAGE_TYPES: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
}


def file_item_id(uri: BlobUri, datetime: str | None = None) -> str:
    """Return the id of a file's item: its name with a digest of its URI, or the fingerprint it has.

    A file named by its content may be of many days, so a stated datetime is then part of the id.
    """
    if has_fingerprint(str(uri)):
        name = safe_name(uri.name.rpartition("/")[2].removesuffix(uri.suffix))
        return name if datetime is None else dated_id(name, normalize_datetime(datetime))
    return f"{safe_name(uri.stem)}-{hashlib.sha256(str(uri).encode()).hexdigest()[:8]}"


def stored_raster_item(
    ctx: HandlerContext,
    uri: BlobUri,
    *,
    collection: str | None,
    subdataset: str | None = None,
    item_id: str | None = None,
    datetime: str | None = None,
    properties: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Build the item of a raster in storage. A copy fetched for it is deleted."""
    with require_extra("raster"):
        from dagmaster.geo.gdal import gdal_env
        from dagmaster.geo.stac.raster_item import ItemMetadata, raster_item
    properties = item_properties(properties)
    item_datetime, stated_datetime = _pop_datetime(properties, datetime)
    if item_id is None and stated_datetime is None and has_fingerprint(str(uri)):
        properties[UNDATED_ID] = True
    source = fetch_raster(ctx, uri, subdataset=subdataset)
    metadata = ItemMetadata(
        item_id=item_id or file_item_id(uri, stated_datetime),
        href=str(uri),
        sha256=source.sha256 or source.version,
        size=source.size,
        collection=collection,
        datetime=item_datetime,
        source_modified=source.modified,
        created=source.modified,
        properties=properties,
    )
    try:
        with gdal_env(ctx.share, **source.options):
            return raster_item(source.path, ctx.share, metadata, Provenance.of_task(ctx, []))
    except PermanentError as error:
        raise PermanentError(f"{uri}: {error}", kind=error.kind, **error.details) from None
    finally:
        if ctx.blobs.local_path(uri) is None:
            for path in (source.path, *(part.path for part in source.sidecars)):
                if Path(path).is_file():
                    Path(path).resolve().unlink()


def remote_file_item(
    href: str,
    bbox: Sequence[Any],
    *,
    collection: str,
    item_id: str | None,
    datetime: str | None,
    properties: Mapping[str, Any],
) -> dict[str, Any]:
    """Build the item of a file that this machine does not open, from the params alone."""
    bounds = parse_bbox(bbox)
    properties = item_properties(properties)
    stated = datetime or properties.get("datetime")
    item_datetime = None if stated is None else normalize_datetime(str(stated))
    if item_datetime is None and not (properties.get("start_datetime") and properties.get("end_datetime")):
        raise invalid_input(f"the datetime of {href} is unknown: set datetime, such as 2026-11-16T05:00:00Z")
    name = href.rstrip("/").rpartition("/")[2].partition(".")[0]
    return {
        "type": "Feature",
        "stac_version": STAC_VERSION,
        "stac_extensions": [],
        "id": item_id or f"{safe_name(name)}-{hashlib.sha256(href.encode()).hexdigest()[:8]}",
        "collection": collection,
        "geometry": bbox_to_geometry(bounds),
        "bbox": list(bounds),
        "properties": {**properties, "datetime": item_datetime},
        "links": [collection_link(collection)],
        "assets": {"data": {"href": href, "roles": ["data"]}},
    }


def override_item(
    item: dict[str, Any], *, item_id: str | None, datetime: str | None, properties: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the item with these values instead of the ones it has.

    A datetime that a step only assumed does not override.
    """
    own = item.get("properties")
    if not isinstance(own, dict):
        # The validation reports what is wrong.
        return item
    overrides = item_properties(properties)
    _, stated_datetime = _pop_datetime(overrides, datetime)
    new_id, kept = item_id or item.get("id"), dict(own)
    if stated_datetime is None:
        overrides.pop(_DATETIME_ASSUMED, None)
    else:
        overrides["datetime"] = normalize_datetime(stated_datetime)
        kept.pop(_DATETIME_ASSUMED, None)
        if item_id is None and own.get(UNDATED_ID):
            new_id = dated_id(str(new_id), overrides["datetime"])
    if new_id != item.get("id"):
        kept.pop(UNDATED_ID, None)
    return {**item, "id": new_id, "properties": {**kept, **overrides}}


def _pop_datetime(properties: dict[str, Any], datetime: str | None) -> tuple[str | None, str | None]:
    """Remove the datetime from properties; return it, and again if it was stated, not assumed by a step.

    The `datetime` param is always stated, and wins.
    """
    own = properties.pop("datetime", None)
    properties.pop(UNDATED_ID, None)
    if datetime is not None:
        properties.pop(_DATETIME_ASSUMED, None)
        return datetime, datetime
    text = None if own is None else str(own)
    return text, None if properties.get(_DATETIME_ASSUMED) else text


def item_properties(properties: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the values that may be properties of an item: no nulls, no keys of the item itself."""
    values = properties or {}
    # The facts of raster.validate are already in the item under STAC's names.
    excluded = (*_ITEM_KEYS, *(RASTER_FACTS if values.keys() >= RASTER_FACTS else ()))
    return {name: value for name, value in values.items() if name not in excluded and value is not None}


def stac_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the entries of a step's metadata that STAC knows: names with a prefix, and common metadata."""
    return {
        name: value for name, value in (metadata or {}).items() if ":" in name or name in _COMMON_METADATA
    }


def assign_collection(item: dict[str, Any], collection: str | None) -> dict[str, Any]:
    """Return the item in its own, the requested or the default collection. Reject two that differ."""
    own = item.get("collection")
    if own is not None and collection is not None and own != collection:
        raise invalid_input(
            f"the item {item.get('id')!r} belongs to the collection {own!r}, and {collection!r} is"
            " requested: change one of them"
        )
    name = own or collection or DEFAULT_COLLECTION
    links = item.get("links") or []
    if not any(isinstance(link, dict) and link.get("rel") == "collection" for link in links):
        links = [*links, collection_link(name)]
    return {**item, "collection": name, "links": links}


def add_preview(item: dict[str, Any], href: str | None) -> dict[str, Any]:
    if not href:
        return item
    suffix = f".{href.rpartition('.')[2].lower()}"
    media_type = {"type": _IMAGE_TYPES[suffix]} if suffix in _IMAGE_TYPES else {}
    asset = {"href": href, **media_type, "roles": ["thumbnail"], "title": "Preview"}
    return {**item, "assets": {**item.get("assets", {}), "thumbnail": asset}}


def new_collection(collection_id: str, items: Sequence[dict[str, Any]] = (), **fields: Any) -> dict[str, Any]:
    """Build a collection with the extent of these items; without items, the whole world and all time."""
    return {
        "type": "Collection",
        "stac_version": STAC_VERSION,
        "id": collection_id,
        "title": fields.get("title") or collection_id,
        "description": fields.get("description") or f"Data of {collection_id}.",
        "license": fields.get("license") or "other",
        **({"keywords": fields["keywords"]} if fields.get("keywords") else {}),
        "extent": fields.get("extent") or items_extent(items),
        "links": [],
    }


def items_extent(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not items:
        return {"spatial": {"bbox": [[-180, -90, 180, 90]]}, "temporal": {"interval": [[None, None]]}}
    boxes = [
        part for item in items if not is_off_earth(item) for part in split_at_antimeridian(item_bbox(item))
    ]
    intervals = [item_interval(item) for item in items]
    start, end = min(first for first, _ in intervals), max(last for _, last in intervals)
    return {
        "spatial": {"bbox": [list(bbox_union(boxes)) if boxes else [-180, -90, 180, 90]]},
        "temporal": {"interval": [[format_datetime(start), format_datetime(end)]]},
    }


def extent_interval(text: str) -> list[str | None]:
    """Parse `start/end` to the interval of a collection's extent."""
    ends = [end.strip() for end in text.split("/")]
    if len(ends) != 2:  # noqa: PLR2004 - start and end
        raise invalid_input(f"{text!r} is not an interval: write start/end, where .. is open")
    return [None if end in ("", "..") else format_datetime(parse_datetime(end)) for end in ends]
