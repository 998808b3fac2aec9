"""The stac handlers that register a collection, one item, many items, or the tiles of a raster.

All are idempotent.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dagmaster.errors import invalid_input
from dagmaster.geo.optional_imports import require_extra
from dagmaster.geo.queues import LIGHT
from dagmaster.geo.raster.raster_sources import RasterParams
from dagmaster.geo.rules.bounding_boxes import parse_bbox
from dagmaster.geo.stac.catalog_maintenance import catalog_container, rebuild, repair_items
from dagmaster.geo.stac.item_builder import (
    DEFAULT_COLLECTION,
    add_preview,
    assign_collection,
    extent_interval,
    items_extent,
    new_collection,
    override_item,
    remote_file_item,
    stac_metadata,
    stored_raster_item,
)
from dagmaster.geo.stac.registration import Counts, ensure_valid_collection, register_valid_items
from dagmaster.geo.stac_inputs import COG_KEYS, collect_items
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler
from dagmaster.text_format import format_count

__all__ = [
    "catalog_container",
    "ensure_collection",
    "extract_metadata",
    "rebuild",
    "register_collection",
    "register_item",
    "register_items",
    "repair_items",
]

_REMOTE_SCHEMES = ("http://", "https://")


class StrictParams(BaseModel):
    """Params that reject unknown keys and show no values in errors."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class CollectionParams(StrictParams):
    """A collection: a complete document, or an id with some fields."""

    collection: dict[str, Any] | None = Field(default=None, description="A complete STAC collection.")
    collection_id: str | None = Field(default=None, description="The id, if there is no complete collection.")
    title: str | None = None
    description: str | None = None
    license: str | None = Field(default=None, description="An SPDX id, or other.")
    keywords: list[str] | None = None
    bbox: list[float] | None = Field(
        default=None, description="The spatial extent: west, south, east, north."
    )
    interval: str | None = Field(
        default=None,
        description="The temporal extent: start/end, such as 2026-01-01T00:00:00Z/.. (.. is open).",
    )

    def document(self) -> dict[str, Any]:
        if self.collection is not None:
            if self.collection_id not in (None, self.collection.get("id")):
                raise invalid_input(
                    f"the collection has the id {self.collection.get('id')!r}, not {self.collection_id!r}"
                )
            return self.collection
        extent = items_extent([])
        if self.bbox is not None:
            extent["spatial"] = {"bbox": [list(parse_bbox(self.bbox))]}
        if self.interval is not None:
            extent["temporal"] = {"interval": [extent_interval(self.interval)]}
        fields = self.model_dump(include={"title", "description", "license", "keywords"})
        return new_collection(self.collection_id or DEFAULT_COLLECTION, extent=extent, **fields)


class CollectionEnsured(BaseModel):
    """A collection of the catalog."""

    collection_id: str
    created: bool = Field(description="Whether it did not exist before.")
    collection: dict[str, Any] = Field(description="The collection as stored in the catalog.")


@handler(
    "stac.ensure_collection",
    queue=LIGHT,
    timeout_seconds=300,
    aliases=["raster.stac_ensure_collection", "stac_ensure_collection"],
)
def ensure_collection(ctx: HandlerContext, params: CollectionParams) -> CollectionEnsured:
    """Create a collection in the catalog unless it exists."""
    document = params.document()
    created = ensure_valid_collection(ctx, document)
    stored = ctx.catalog.collection(str(document["id"])) or document
    return CollectionEnsured(collection_id=str(document["id"]), created=created, collection=stored)


class ItemParams(StrictParams):
    """An item, or the file to build one from."""

    item: dict[str, Any] | None = Field(
        default=None, description="A STAC item, or an output or payload that contains one."
    )
    cog_url: str | None = Field(default=None, description="A raster to build the item from.")
    cog_path: str | None = Field(default=None, description="Alias of cog_url.")
    href: str | None = Field(default=None, description="Alias of cog_url; or a STAC item in a .json file.")
    collection_id: str | None = Field(
        default=None,
        description="The collection; created if it does not exist. Default: the item's own, else"
        " default-collection.",
    )
    item_id: str | None = Field(
        default=None, description="The id. Default: the item's own, or derived from the file name."
    )
    bbox: list[float] | None = Field(
        default=None,
        description="West, south, east, north of a file that cannot be opened here. Not with an item.",
    )
    datetime: str | None = Field(
        default=None,
        description="The datetime of the measurement. Default: the item's own, or that of the file.",
    )
    properties: dict[str, Any] | None = Field(
        default=None, description="More properties; they override the item's."
    )
    metadata: dict[str, Any] | None = Field(
        default=None,
        description="More properties with lower precedence: only names with a prefix and STAC's common"
        " metadata are used.",
    )
    preview_url: str | None = Field(default=None, description="An image for the asset thumbnail.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        names = [name for name in ("item", "cog_url", "cog_path", "href") if getattr(self, name) is not None]
        if len(names) != 1:
            problem = "none is set" if not names else f"{' and '.join(names)} are set"
            raise ValueError(f"name one thing to register, an item or a cog_url: {problem}")
        return self

    def build_item(self, ctx: HandlerContext) -> dict[str, Any]:
        href = self.cog_url or self.cog_path or self.href
        fields = self.model_dump(
            include={"item_id", "bbox", "datetime", "properties", "metadata"}, exclude_none=True
        )
        if self.item is not None or (href or "").endswith(".json"):
            inputs = collect_items(ctx, self.item or href)
            if len(inputs) != 1:
                raise invalid_input(
                    f"there are {format_count(len(inputs), 'item')}: use stac.register_items for many"
                )
            if "type" in inputs[0]:
                item = self._override(inputs[0])
            else:
                item = build_file_item(ctx, inputs[0] | fields, self.collection_id)
        else:
            item = build_file_item(ctx, fields | {"href": href}, self.collection_id)
        return add_preview(assign_collection(item, self.collection_id), self.preview_url)

    def _override(self, item: dict[str, Any]) -> dict[str, Any]:
        if self.bbox is not None:
            raise invalid_input(
                f"bbox is set, but the item {item.get('id')!r} has its own: leave bbox out, or correct the"
                " geometry and bbox of the item"
            )
        properties = {**stac_metadata(self.metadata), **(self.properties or {})}
        return override_item(item, item_id=self.item_id, datetime=self.datetime, properties=properties)


def build_file_item(ctx: HandlerContext, fields: dict[str, Any], collection: str | None) -> dict[str, Any]:
    """Build the item of a file that params or an output name, with the fields given next to it."""
    href = str(next(fields[name] for name in (*COG_KEYS, "href") if fields.get(name)))
    name = collection or fields.get("collection_id") or DEFAULT_COLLECTION
    properties = {**stac_metadata(fields.get("metadata")), **(fields.get("properties") or {})}
    item_id, datetime = fields.get("item_id"), fields.get("datetime")
    if href.startswith(_REMOTE_SCHEMES):
        if fields.get("bbox") is None:
            raise invalid_input(
                f"{href} is not opened here: set its bbox (west, south, east, north) and its datetime"
            )
        return remote_file_item(
            href, fields["bbox"], collection=name, item_id=item_id, datetime=datetime, properties=properties
        )
    uri = ctx.blobs.resolve(href)
    return stored_raster_item(
        ctx, uri, collection=name, item_id=item_id, datetime=datetime, properties=properties
    )


class ItemRegistered(BaseModel):
    """A registered item."""

    item: dict[str, Any]
    item_id: str
    collection_id: str
    created: bool = Field(description="Whether it did not exist before.")
    updated: bool = Field(description="Whether it replaced a different item with this id.")


@handler(
    "stac.register_item",
    version="4",
    queue=LIGHT,
    timeout_seconds=300,
    aliases=["stac_register", "stac_register_item", "raster.stac_register_item"],
)
def register_item(ctx: HandlerContext, params: ItemParams) -> ItemRegistered:
    """Register one item, as passed or built from a raster. Its collection is created if it does not exist."""
    item = params.build_item(ctx)
    counts = register_valid_items(ctx, [item])
    return ItemRegistered(
        item=item,
        item_id=item["id"],
        collection_id=item["collection"],
        created=counts.created > 0,
        updated=counts.updated > 0,
    )


class ItemsParams(StrictParams):
    """The items to register."""

    items: list[Any] | dict[str, Any] | None = Field(
        default=None,
        description="Items, hrefs of items, outputs that contain items, an ItemCollection or a payload.",
    )
    hrefs: list[str] | None = Field(default=None, description="Items in .json files.")
    collection_id: str | None = Field(default=None, description="The collection of items that name none.")

    def build_items(self, ctx: HandlerContext) -> list[dict[str, Any]]:
        if self.items is None and self.hrefs is None:
            raise invalid_input("there is nothing to register: set items or hrefs")
        return build_all_items(ctx, collect_items(ctx, [self.items, self.hrefs]), self.collection_id)


def build_all_items(
    ctx: HandlerContext, inputs: list[dict[str, Any]], collection: str | None
) -> list[dict[str, Any]]:
    """Return the items among the inputs, and build items for outputs that name only a file."""
    items = []
    for number, value in enumerate(inputs):
        ctx.raise_if_cancelled()
        if "type" not in value:
            ctx.progress(number, len(inputs), "building items")
        item = value if "type" in value else build_file_item(ctx, value, collection)
        items.append(assign_collection(item, collection))
    return items


class ItemsRegistered(Counts):
    """The registered items."""

    item_ids: list[str]
    collection_ids: list[str]


@handler(
    "stac.register_items",
    version="4",
    queue=LIGHT,
    timeout_seconds=1800,
    aliases=["raster.stac_register_items"],
)
def register_items(ctx: HandlerContext, params: ItemsParams) -> ItemsRegistered:
    """Register many items; all are validated before any is stored."""
    items = params.build_items(ctx)
    counts = register_valid_items(ctx, items)
    names = sorted({str(item["collection"]) for item in items})
    return ItemsRegistered(
        **counts.model_dump(), item_ids=[str(item["id"]) for item in items], collection_ids=names
    )


class TilesParams(CollectionParams):
    """The results of tiles, and their collection."""

    tile_results: list[Any] = Field(description="The output of each tile's node: an item, or a cog_url.")


class CollectionRegistered(ItemsRegistered):
    """A collection with its items."""

    collection_id: str
    collection_created: bool
    bbox: list[float] = Field(description="The extent of the items of this call.")


@handler(
    "stac.register_collection",
    version="4",
    queue=LIGHT,
    timeout_seconds=1800,
    aliases=["stac_register_collection"],
)
def register_collection(ctx: HandlerContext, params: TilesParams) -> CollectionRegistered:
    """Create a collection and register the items of all tiles in it. Its extent is that of the tiles."""
    inputs = collect_items(ctx, params.tile_results)
    if not inputs:
        raise invalid_input("no tile has a result, so there is nothing to register: see why the tiles failed")
    own = {str(value["collection"]) for value in inputs if value.get("collection")}
    requested = params.collection_id or (params.collection or {}).get("id")
    if requested is None and len(own) > 1:
        raise invalid_input(
            f"the tiles belong to several collections, {', '.join(sorted(own))}: name one by collection_id"
        )
    name = requested or next(iter(own), DEFAULT_COLLECTION)
    items = build_all_items(ctx, inputs, name)
    with require_extra("stac"):
        from dagmaster.geo.stac.validation import check_stac_item
    for item in items:
        check_stac_item(item)
    extent = items_extent(items)
    fields = params.model_dump(include={"title", "description", "license", "keywords"})
    document = params.collection or new_collection(name, extent=extent, **fields)
    created = ensure_valid_collection(ctx, document)
    counts = register_valid_items(ctx, items)
    return CollectionRegistered(
        **counts.model_dump(),
        item_ids=[str(item["id"]) for item in items],
        collection_ids=[name],
        collection_id=name,
        collection_created=created,
        bbox=extent["spatial"]["bbox"][0],
    )


class ExtractParams(RasterParams):
    """A raster, and the metadata of its item."""

    collection_id: str | None = Field(default=None, description="The collection of the item.")
    item_id: str | None = Field(default=None, description="The id. Default: derived from the file name.")
    datetime: str | None = Field(
        default=None, description="The datetime of the measurement. Default: that of the file."
    )
    properties: dict[str, Any] | None = Field(default=None, description="More properties.")


class Extracted(BaseModel):
    """The metadata of a raster as STAC."""

    item: dict[str, Any] = Field(description="The STAC item, ready to register.")
    bbox: list[float] | None = Field(description="West, south, east, north, in degrees. None off the Earth.")
    geometry: dict[str, Any] | None
    metadata: dict[str, Any] = Field(description="The properties of the item.")


@handler(
    "stac.extract_metadata", version="4", queue=LIGHT, timeout_seconds=600, aliases=["extract_stac_metadata"]
)
def extract_metadata(ctx: HandlerContext, params: ExtractParams) -> Extracted:
    """Build the STAC item of a raster without registering it."""
    item = stored_raster_item(
        ctx,
        params.uri(ctx),
        subdataset=params.subdataset,
        collection=params.collection_id,
        item_id=params.item_id,
        datetime=params.datetime,
        properties=params.properties,
    )
    return Extracted(item=item, bbox=item.get("bbox"), geometry=item["geometry"], metadata=item["properties"])
