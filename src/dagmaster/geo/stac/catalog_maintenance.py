"""The stac handlers that keep a catalog consistent with the storage: catalog a container, rebuild, repair."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagmaster.errors import PermanentError, invalid_input
from dagmaster.geo.optional_imports import require_extra
from dagmaster.geo.queues import HEAVY
from dagmaster.geo.stac.asset_references import asset_blobs, iterate_items, referenced_blobs
from dagmaster.geo.stac.item_builder import RASTER_SUFFIXES, assign_collection, stored_raster_item
from dagmaster.geo.stac.item_repair import find_missing_assets, repair_item
from dagmaster.geo.stac.registration import Counts, register_valid_items
from dagmaster.ports.blob_uris import BlobUri
from dagmaster.ports.storage import ZONES, BlobInfo
from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import handler

MAX_REPORTED = 100
"""Failures that an output lists; the others are only counted."""
ITEMS_PER_BATCH = 50


class PlaceParams(BaseModel):
    """Where to search."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    container_name: str = Field(default="silver", description="A zone, or a container of the storage.")
    prefix: str = Field(default="", description="Only blobs below this folder.")

    def folder(self, ctx: HandlerContext) -> BlobUri:
        if self.prefix:
            return ctx.blobs.resolve(self.prefix.strip("/"), container=self.container_name)
        if self.container_name in ZONES:
            return ctx.blobs.in_zone(self.container_name)
        inside = ctx.blobs.resolve("x", container=self.container_name)
        return BlobUri(inside.scheme, inside.container, inside.name[:-1].rstrip("/"))

    def files(self, ctx: HandlerContext) -> list[BlobInfo]:
        return list(ctx.blobs.list_blobs(self.folder(ctx)))

    def rasters(self, ctx: HandlerContext) -> list[BlobUri]:
        files = [info.uri for info in self.files(ctx)]
        return [
            uri
            for uri in files
            if uri.suffix in RASTER_SUFFIXES and not uri.name.rpartition("/")[2].startswith(".")
        ]


class Failure(BaseModel):
    """A file that could not be processed, and why."""

    href: str
    error: str


class Indexed(Counts):
    """The result of cataloging files."""

    found: int = Field(default=0, description="Rasters that exist.")
    known: int = Field(default=0, description="Rasters that already had an item.")
    failed: int = 0
    failures: list[Failure] = Field(default_factory=list, description=f"The first {MAX_REPORTED}.")
    collection_id: str


class ContainerParams(PlaceParams):
    """The container to catalog."""

    container_name: str = Field(default="bronze", description="A zone, or a container of the storage.")
    collection_id: str | None = Field(default=None, description="Default: the name of the container.")
    on_error: Literal["report", "fail"] = Field(
        default="report", description="What to do with a file that is not a raster."
    )


@handler(
    "stac.catalog_container",
    version="3",
    queue=HEAVY,
    timeout_seconds=7200,
    aliases=["stac_catalog_container"],
)
def catalog_container(ctx: HandlerContext, params: ContainerParams) -> Indexed:
    """Register an item for each raster of a container that no item of the collection references."""
    name = params.collection_id or params.container_name
    uris = params.rasters(ctx)
    return index_rasters(
        ctx, uris, set(referenced_blobs(ctx, name)), name, fail_fast=params.on_error == "fail"
    )


def index_rasters(
    ctx: HandlerContext, uris: list[BlobUri], known: set[BlobUri], collection: str, *, fail_fast: bool = False
) -> Indexed:
    """Build and register items for files without one.

    After a crash, the finished ones are among the known.
    """
    result = Indexed(found=len(uris), known=sum(uri in known for uri in uris), collection_id=collection)
    new = [uri for uri in uris if uri not in known]
    for begin in range(0, len(new), ITEMS_PER_BATCH):
        items = []
        for number, uri in enumerate(new[begin : begin + ITEMS_PER_BATCH], begin):
            ctx.raise_if_cancelled()
            ctx.progress(number, len(new), f"reading {uri}")
            try:
                items.append(
                    assign_collection(stored_raster_item(ctx, uri, collection=collection), collection)
                )
            except PermanentError as error:
                if fail_fast or error.kind != "invalid_input":
                    raise
                _add_failure(result, uri, error)
        _add_counts(result, register_valid_items(ctx, items))
    ctx.progress(len(new), len(new) or 1, "done")
    return result


def _add_failure(result: Indexed, href: object, error: object) -> None:
    result.failed += 1
    if len(result.failures) < MAX_REPORTED:
        result.failures.append(Failure(href=str(href), error=str(error)))


def _add_counts(result: Counts, batch: Counts) -> None:
    result.total += batch.total
    result.created += batch.created
    result.updated += batch.updated
    result.unchanged += batch.unchanged


# ── rebuild ─────────────────────────────────────────────────────────────────────────────────────────────────


class RebuildParams(PlaceParams):
    """What to rebuild."""

    collection_id: str | None = Field(
        default=None,
        description="The collection to rebuild, also of files without an item. Default: all; the container's"
        " name.",
    )
    remove_missing: bool = Field(default=False, description="Remove items whose file is missing.")
    allow_all: bool = Field(default=False, description="Allow remove_missing to remove every item.")


class Rebuilt(Indexed):
    """The result of a rebuild."""

    missing: int = Field(default=0, description="Items whose file is missing.")
    removed: int = 0


@handler("stac.rebuild", version="3", queue=HEAVY, timeout_seconds=7200, aliases=["rebuild_stac"])
def rebuild(ctx: HandlerContext, params: RebuildParams) -> Rebuilt:
    """Update the catalog from the storage: read each raster again; keep what only its item states."""
    collection = params.collection_id or params.container_name
    items = referenced_blobs(ctx) | (
        referenced_blobs(ctx, params.collection_id) if params.collection_id else {}
    )
    uris = [uri for uri in params.rasters(ctx) if _is_in_collection(items.get(uri), params.collection_id)]
    checkpoint = ctx.checkpoint_data or {}
    result = (
        Rebuilt(**checkpoint["counts"]) if checkpoint else Rebuilt(found=len(uris), collection_id=collection)
    )
    # Resume by name, not by index: files may come and go between two attempts.
    remaining = sorted(
        (uri for uri in uris if uri.name > checkpoint.get("after", "")), key=lambda uri: uri.name
    )
    earlier = len(uris) - len(remaining)
    for begin in range(0, len(remaining), ITEMS_PER_BATCH):
        batch = remaining[begin : begin + ITEMS_PER_BATCH]
        rebuilt = [item for uri in batch for item in _rebuild_item(ctx, uri, items.get(uri), result)]
        _add_counts(result, register_valid_items(ctx, rebuilt))
        done = earlier + begin + len(batch)
        ctx.checkpoint(f"{done} of {len(uris)}", {"after": batch[-1].name, "counts": result.model_dump()})
        ctx.progress(done, len(uris), "reading rasters")
    _handle_missing(ctx, params, result)
    return result


def _is_in_collection(item: dict[str, Any] | None, collection: str | None) -> bool:
    """Return whether a file belongs to the collection; one referenced only by other collections does not."""
    return item is None or collection is None or item.get("collection") == collection


def _rebuild_item(
    ctx: HandlerContext, uri: BlobUri, old: dict[str, Any] | None, result: Rebuilt
) -> list[dict[str, Any]]:
    """Return the current item of a file: facts from the file, everything else from the old item."""
    ctx.raise_if_cancelled()
    try:
        if old is None:
            new = stored_raster_item(ctx, uri, collection=result.collection_id)
            return [assign_collection(new, result.collection_id)]
        result.known += 1
        properties = old.get("properties", {})
        new = stored_raster_item(
            ctx,
            uri,
            collection=str(old["collection"]),
            item_id=str(old["id"]),
            datetime=properties.get("datetime"),
        )
    except PermanentError as error:
        if error.kind != "invalid_input":
            raise
        _add_failure(result, uri, error)
        return []
    facts = {name: value for name, value in new["properties"].items() if name.startswith("proj:")}
    asset = next(name for name, blob in asset_blobs(old).items() if blob == uri)
    assets = {
        **old["assets"],
        asset: {**old["assets"][asset], **new["assets"]["data"], "href": old["assets"][asset]["href"]},
    }
    return [
        {
            **old,
            "geometry": new["geometry"],
            **({"bbox": new["bbox"]} if "bbox" in new else {}),
            "stac_extensions": sorted({*old.get("stac_extensions", []), *new["stac_extensions"]}),
            "properties": {**properties, **facts},
            "assets": assets,
        }
    ]


def _handle_missing(ctx: HandlerContext, params: RebuildParams, result: Rebuilt) -> None:
    folder, existing = params.folder(ctx), {info.uri for info in params.files(ctx)}
    prefix = f"{folder.name}/".lstrip("/")
    missing: dict[str, list[str]] = {}
    item_count = 0
    for item in iterate_items(ctx, params.collection_id):
        blobs = asset_blobs(item).values()
        if any(uri.name.startswith(prefix) and uri.container == folder.container for uri in blobs):
            item_count += 1
            if find_missing_assets(ctx, item, existing).is_all_data:
                missing.setdefault(str(item["collection"]), []).append(str(item["id"]))
    result.missing = sum(len(ids) for ids in missing.values())
    if params.remove_missing:
        _refuse_to_remove_all(result.missing, item_count, allowed=params.allow_all)
        result.removed = sum(ctx.catalog.remove(name, ids) for name, ids in missing.items())


def _refuse_to_remove_all(missing: int, total: int, *, allowed: bool) -> None:
    """Raise if every item would be removed: a storage that is not mounted looks empty."""
    if missing == total and missing > 1 and not allowed:
        raise invalid_input(
            f"the files of all {missing:,} items are missing: is the storage mounted? To remove them, set"
            " allow_all"
        )


# ── repair ──────────────────────────────────────────────────────────────────────────────────────────────────


class RepairParams(BaseModel):
    """Which items to check, and what to do with those that have a problem."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    collection_id: str | None = Field(default=None, description="Default: all collections.")
    policy: Literal["report", "repair", "remove"] = Field(
        default="report",
        description="report: change nothing. repair: repair what can be repaired. remove: also remove what"
        " cannot.",
    )
    allow_all: bool = Field(default=False, description="Allow policy remove to remove every item.")


class Problem(BaseModel):
    """An item with a problem."""

    collection_id: str
    item_id: str
    problem: str
    done: Literal["reported", "repaired", "removed"]


class Repaired(BaseModel):
    """The problems found, and how many were repaired or removed."""

    checked: int = 0
    malformed: int = Field(
        default=0, description="Items that are not valid STAC, or whose bbox is not the geometry's."
    )
    missing: int = Field(default=0, description="Items with a missing asset.")
    repaired: int = 0
    removed: int = 0
    problems: list[Problem] = Field(default_factory=list, description=f"The first {MAX_REPORTED}.")


@handler("stac.repair_items", queue=HEAVY, timeout_seconds=7200, aliases=["repair_stac_items"])
def repair_items(ctx: HandlerContext, params: RepairParams) -> Repaired:
    """Find items that are malformed or whose files are missing, and report, repair or remove them."""
    if params.collection_id is not None and ctx.catalog.collection(params.collection_id) is None:
        raise invalid_input(
            f"the catalog has no collection {params.collection_id!r}: name another, or create it first"
        )
    result = Repaired()
    irreparable: dict[str, list[str]] = {}
    for item in iterate_items(ctx, params.collection_id):
        ctx.raise_if_cancelled()
        result.checked += 1
        if result.checked % ITEMS_PER_BATCH == 0:
            ctx.progress(result.checked, message="checking items")
        if not _check_and_repair(ctx, item, params.policy, result):
            irreparable.setdefault(str(item["collection"]), []).append(str(item["id"]))
    if params.policy == "remove":
        _refuse_to_remove_all(sum(map(len, irreparable.values())), result.checked, allowed=params.allow_all)
        result.removed = sum(ctx.catalog.remove(name, ids) for name, ids in irreparable.items())
    return result


def _check_and_repair(ctx: HandlerContext, item: dict[str, Any], policy: str, result: Repaired) -> bool:
    """Check one item and repair it if the policy allows; return whether it is valid or can be repaired."""
    with require_extra("stac"):
        from dagmaster.geo.stac.validation import item_problem
    missing = find_missing_assets(ctx, item)
    repaired = repair_item(item, missing)
    problem = item_problem(item)
    problems = [problem] if problem else []
    if not problems and repaired.get("bbox") != item.get("bbox"):
        problems = [f"its bbox {item.get('bbox')} is not that of its geometry, {repaired.get('bbox')}"]
    result.malformed += bool(problems)
    result.missing += bool(missing.blobs)
    problems += [f"there is no file at {uri} (asset {name})" for name, uri in missing.blobs.items()]
    if not problems:
        return True
    is_reparable = not missing.is_all_data and item_problem(repaired) is None
    action: Literal["reported", "repaired", "removed"] = "reported"
    if policy != "report" and is_reparable:
        register_valid_items(ctx, [repaired])
        result.repaired += 1
        action = "repaired"
    elif policy == "remove":
        action = "removed"
    if len(result.problems) < MAX_REPORTED:
        name, item_id = str(item.get("collection")), str(item.get("id"))
        result.problems.append(
            Problem(collection_id=name, item_id=item_id, problem="; ".join(problems), done=action)
        )
    return is_reparable
