"""The stac handlers that register: a collection, an item, many items, the tiles of a raster. Twice is once."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dagmaster.authoring.handler_context import HandlerContext
from dagmaster.authoring.handler_registry import handler
from dagmaster.errors import invalid_input
from dagmaster.geo.bounding_boxes import parse_bbox
from dagmaster.handlers.optional_imports import extra
from dagmaster.handlers.queues import LIGHT
from dagmaster.handlers.source_files import SourceParams
from dagmaster.handlers.stac.catalog_maintenance import catalog_container, rebuild, repair_items
from dagmaster.handlers.stac.item_builder import (
    DEFAULT_COLLECTION,
    extent_of,
    interval_of,
    item_elsewhere,
    item_of_raster,
    namespaced,
    new_collection,
    placed,
    retold,
    with_preview,
)
from dagmaster.handlers.stac.registration import Counts, ensure, register
from dagmaster.handlers.stac_inputs import COG_KEYS, collect_items

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

_ELSEWHERE = ("http://", "https://")


class Told(BaseModel):
    """Params of these handlers: what is not known is refused, and no value is shown in an error."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class CollectionParams(Told):
    """A collection: as it is, or by its id and what is said of it."""

    collection: dict[str, Any] | None = Field(default=None, description="A whole STAC collection.")
    collection_id: str | None = Field(default=None, description="Its id, where only that is known.")
    title: str | None = None
    description: str | None = None
    license: str | None = Field(default=None, description="An SPDX id, or other.")
    keywords: list[str] | None = None
    bbox: list[float] | None = Field(default=None, description="Where its items will be: west, south, east, north.")
    interval: str | None = Field(default=None, description="When: from/to, as 2026-01-01T00:00:00Z/...")

    def document(self) -> dict[str, Any]:
        """As STAC."""
        if self.collection is not None:
            if self.collection_id not in (None, self.collection.get("id")):
                raise invalid_input(
                    f"the collection has the id {self.collection.get('id')!r}, not {self.collection_id!r}"
                )
            return self.collection
        extent = extent_of([])
        if self.bbox is not None:
            extent["spatial"] = {"bbox": [list(parse_bbox(self.bbox))]}
        if self.interval is not None:
            extent["temporal"] = {"interval": [interval_of(self.interval)]}
        told = self.model_dump(include={"title", "description", "license", "keywords"})
        return new_collection(self.collection_id or DEFAULT_COLLECTION, extent=extent, **told)


class CollectionEnsured(BaseModel):
    """A collection that is there."""

    collection_id: str
    created: bool = Field(description="It was not there before.")
    collection: dict[str, Any] = Field(description="As it is in the catalog.")


@handler(
    "stac.ensure_collection",
    queue=LIGHT,
    timeout_seconds=300,
    aliases=["raster.stac_ensure_collection", "stac_ensure_collection"],
)
def ensure_collection(ctx: HandlerContext, params: CollectionParams) -> CollectionEnsured:
    """Have a collection in the catalog. One that is there stays as it is."""
    document = params.document()
    created = ensure(ctx, document)
    there = ctx.catalog.collection(str(document["id"])) or document
    return CollectionEnsured(collection_id=str(document["id"]), created=created, collection=there)


class ItemParams(Told):
    """An item, or the file that one is made of."""

    item: dict[str, Any] | None = Field(
        default=None, description="A STAC item, or an output or payload that holds one."
    )
    cog_url: str | None = Field(default=None, description="A raster that an item is made of.")
    cog_path: str | None = Field(default=None, description="Another name of cog_url.")
    href: str | None = Field(default=None, description="Another name of cog_url; or a STAC item in a .json file.")
    collection_id: str | None = Field(
        default=None,
        description="Its collection, made if it is not there. Default: the item's own, default-collection.",
    )
    item_id: str | None = Field(default=None, description="Its id. Default: the item's own, or of the file's name.")
    bbox: list[float] | None = Field(
        default=None, description="Where it is, for a file that cannot be opened here. Not with an item."
    )
    datetime: str | None = Field(
        default=None, description="When it was measured. Default: the item's own, the file's own date."
    )
    properties: dict[str, Any] | None = Field(
        default=None, description="More properties; they win over those of an item that is given."
    )
    metadata: dict[str, Any] | None = Field(
        default=None, description="As properties, which win: of it names with a prefix, and STAC's own, are taken."
    )
    preview_url: str | None = Field(default=None, description="A picture of it, for the asset thumbnail.")

    @model_validator(mode="after")
    def _one_thing(self) -> Self:
        given = [name for name in ("item", "cog_url", "cog_path", "href") if getattr(self, name) is not None]
        if len(given) != 1:
            said = "none is given" if not given else f"{' and '.join(given)} are given"
            raise ValueError(f"name one thing to register, an item or a cog_url: {said}")
        return self

    def found(self, ctx: HandlerContext) -> dict[str, Any]:
        """The item, in its collection, with its picture."""
        href = self.cog_url or self.cog_path or self.href
        told = self.model_dump(include={"item_id", "bbox", "datetime", "properties", "metadata"}, exclude_none=True)
        if self.item is not None or (href or "").endswith(".json"):
            met = collect_items(ctx, self.item or href)
            if len(met) != 1:
                raise invalid_input(f"{len(met)} items are given: stac.register_items takes many")
            item = self._with_told(met[0]) if "type" in met[0] else made_of(ctx, met[0] | told, self.collection_id)
        else:
            item = made_of(ctx, told | {"href": href}, self.collection_id)
        return with_preview(placed(item, self.collection_id), self.preview_url)

    def _with_told(self, item: dict[str, Any]) -> dict[str, Any]:
        if self.bbox is not None:
            raise invalid_input(
                f"bbox is given, and the item {item.get('id')!r} says itself where it is: leave bbox out, or correct"
                " the item's geometry and bbox"
            )
        facts = {**namespaced(self.metadata), **(self.properties or {})}
        return retold(item, item_id=self.item_id, when=self.datetime, properties=facts)


def made_of(ctx: HandlerContext, told: dict[str, Any], collection: str | None) -> dict[str, Any]:
    """The item of a file that an output names. What is told of it is added to what the file says."""
    href = str(next(told[name] for name in (*COG_KEYS, "href") if told.get(name)))
    name = collection or told.get("collection_id") or DEFAULT_COLLECTION
    facts = {**namespaced(told.get("metadata")), **(told.get("properties") or {})}
    when = told.get("datetime")
    if href.startswith(_ELSEWHERE):
        if told.get("bbox") is None:
            raise invalid_input(f"{href} is not opened here: give its bbox, west, south, east, north, and its datetime")
        return item_elsewhere(
            href, told["bbox"], collection=name, item_id=told.get("item_id"), when=when, properties=facts
        )
    return item_of_raster(
        ctx, ctx.blobs.resolve(href), collection=name, item_id=told.get("item_id"), when=when, properties=facts
    )


class ItemRegistered(BaseModel):
    """An item that is in the catalog."""

    item: dict[str, Any]
    item_id: str
    collection_id: str
    created: bool = Field(description="It was not there before.")
    updated: bool = Field(description="Another one of this id was there.")


@handler(
    "stac.register_item",
    version="3",
    queue=LIGHT,
    timeout_seconds=300,
    aliases=["stac_register", "stac_register_item", "raster.stac_register_item"],
)
def register_item(ctx: HandlerContext, params: ItemParams) -> ItemRegistered:
    """Have one item in the catalog: as it is given, or made of a raster. Its collection is made if it is not there."""
    item = params.found(ctx)
    counts = register(ctx, [item])
    return ItemRegistered(
        item=item,
        item_id=item["id"],
        collection_id=item["collection"],
        created=counts.created > 0,
        updated=counts.updated > 0,
    )


class ItemsParams(Told):
    """Items, wherever they are."""

    items: list[Any] | dict[str, Any] | None = Field(
        default=None, description="Items, hrefs of items, outputs that hold items, an ItemCollection or a payload."
    )
    hrefs: list[str] | None = Field(default=None, description="Items in .json files.")
    collection_id: str | None = Field(default=None, description="The collection of those that name none.")

    def found(self, ctx: HandlerContext) -> list[dict[str, Any]]:
        """Each in its collection."""
        if self.items is None and self.hrefs is None:
            raise invalid_input("nothing is given to register: expected items or hrefs")
        met = collect_items(ctx, [self.items, self.hrefs])
        return all_made(ctx, met, self.collection_id)


def all_made(ctx: HandlerContext, met: list[dict[str, Any]], collection: str | None) -> list[dict[str, Any]]:
    """Items, and those made of the files that outputs without an item name."""
    found = []
    for number, held in enumerate(met):
        ctx.raise_if_cancelled()
        if "type" not in held:
            ctx.progress(number, len(met), "making items")
        found.append(placed(held if "type" in held else made_of(ctx, held, collection), collection))
    return found


class ItemsRegistered(Counts):
    """What became of many items."""

    item_ids: list[str]
    collection_ids: list[str]


@handler("stac.register_items", version="3", queue=LIGHT, timeout_seconds=1800, aliases=["raster.stac_register_items"])
def register_items(ctx: HandlerContext, params: ItemsParams) -> ItemsRegistered:
    """Have many items in the catalog, all of them right before one of them is there."""
    items = params.found(ctx)
    counts = register(ctx, items)
    names = sorted({str(item["collection"]) for item in items})
    return ItemsRegistered(**counts.model_dump(), item_ids=[str(item["id"]) for item in items], collection_ids=names)


class TilesParams(CollectionParams):
    """The results of tiles, and the collection that they make up."""

    tile_results: list[Any] = Field(description="What each tile's node gave: an item, or a cog_url.")


class CollectionRegistered(ItemsRegistered):
    """A collection with its items."""

    collection_id: str
    collection_created: bool
    bbox: list[float] = Field(description="Where its items of this call are, together.")


@handler(
    "stac.register_collection", version="3", queue=LIGHT, timeout_seconds=1800, aliases=["stac_register_collection"]
)
def register_collection(ctx: HandlerContext, params: TilesParams) -> CollectionRegistered:
    """Have a collection, and in it the items of all tiles. It spans what the tiles span."""
    met = collect_items(ctx, params.tile_results)
    if not met:
        raise invalid_input("no tile has a result: there is nothing to register")
    own = {str(held["collection"]) for held in met if held.get("collection")}
    asked = params.collection_id or (params.collection or {}).get("id")
    if asked is None and len(own) > 1:
        raise invalid_input(
            f"the tiles are of several collections, {', '.join(sorted(own))}: name one by collection_id"
        )
    name = asked or next(iter(own), DEFAULT_COLLECTION)
    items = all_made(ctx, met, name)
    with extra("stac"):
        from dagmaster.handlers.stac.validation import check_stac_item
    for item in items:
        check_stac_item(item)
    spans = extent_of(items)
    told = params.model_dump(include={"title", "description", "license", "keywords"})
    document = params.collection or new_collection(name, extent=spans, **told)
    created = ensure(ctx, document)
    counts = register(ctx, items)
    return CollectionRegistered(
        **counts.model_dump(),
        item_ids=[str(item["id"]) for item in items],
        collection_ids=[name],
        collection_id=name,
        collection_created=created,
        bbox=spans["spatial"]["bbox"][0],
    )


class ExtractParams(SourceParams):
    """A raster, and what is said of it."""

    collection_id: str | None = Field(default=None, description="The collection that the item is for.")
    item_id: str | None = Field(default=None, description="Default: of the file's name.")
    datetime: str | None = Field(default=None, description="When it was measured. Default: the file's own date.")
    properties: dict[str, Any] | None = Field(default=None, description="More properties.")


class Extracted(BaseModel):
    """What a file says of itself, as STAC."""

    item: dict[str, Any] = Field(description="Ready to register.")
    bbox: list[float]
    geometry: dict[str, Any]
    metadata: dict[str, Any] = Field(description="The item's properties.")


@handler("stac.extract_metadata", version="3", queue=LIGHT, timeout_seconds=600, aliases=["extract_stac_metadata"])
def extract_metadata(ctx: HandlerContext, params: ExtractParams) -> Extracted:
    """Tell in STAC what a raster is. Nothing is registered."""
    item = item_of_raster(
        ctx,
        params.uri(ctx),
        collection=params.collection_id,
        item_id=params.item_id,
        when=params.datetime,
        properties=params.properties,
    )
    return Extracted(item=item, bbox=item["bbox"], geometry=item["geometry"], metadata=item["properties"])
