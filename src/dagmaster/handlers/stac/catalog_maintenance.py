"""The stac handlers that keep a catalog true to what is stored: catalog a container, rebuild, repair."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagmaster.authoring.handler_context import HandlerContext
from dagmaster.authoring.handler_registry import handler
from dagmaster.errors import PermanentError, invalid_input
from dagmaster.handlers.optional_imports import extra
from dagmaster.handlers.queues import HEAVY
from dagmaster.handlers.stac.asset_references import all_items, blobs_of, referenced
from dagmaster.handlers.stac.item_builder import RASTERS, item_of_raster, placed
from dagmaster.handlers.stac.item_repair import mended, missing_assets
from dagmaster.handlers.stac.registration import Counts, register
from dagmaster.ports.storage import ZONES, BlobInfo, BlobUri

MOST_TOLD = 100
"""Failures that an output names; the others are counted."""
AT_ONCE = 50


class PlaceParams(BaseModel):
    """Where to look."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    container_name: str = Field(default="silver", description="A zone, or a container of the storage.")
    prefix: str = Field(default="", description="Only what is below this folder.")

    def place(self, ctx: HandlerContext) -> BlobUri:
        """The folder that is meant."""
        if self.prefix:
            return ctx.blobs.resolve(self.prefix.strip("/"), container=self.container_name)
        if self.container_name in ZONES:
            return ctx.blobs.in_zone(self.container_name)
        inside = ctx.blobs.resolve("x", container=self.container_name)
        return BlobUri(inside.scheme, inside.container, inside.name[:-1].rstrip("/"))

    def files(self, ctx: HandlerContext) -> list[BlobInfo]:
        """What lies there, in order of names."""
        return list(ctx.blobs.under(self.place(ctx)))

    def rasters(self, ctx: HandlerContext) -> list[BlobUri]:
        """Those that are rasters by their names, and are no writer's unfinished work."""
        files = [info.uri for info in self.files(ctx)]
        return [uri for uri in files if uri.suffix in RASTERS and not uri.name.rpartition("/")[2].startswith(".")]


class Failure(BaseModel):
    """What could not be done, and why."""

    href: str
    error: str


class Indexed(Counts):
    """What became of the files of a place."""

    found: int = Field(default=0, description="Rasters that are there.")
    known: int = Field(default=0, description="Had an item already.")
    failed: int = 0
    failures: list[Failure] = Field(default_factory=list, description=f"The first {MOST_TOLD}.")
    collection_id: str


class ContainerParams(PlaceParams):
    """A container whose rasters are to be in the catalog."""

    container_name: str = Field(default="bronze", description="A zone, or a container of the storage.")
    collection_id: str | None = Field(default=None, description="Default: the name of the container.")
    on_error: Literal["report", "fail"] = Field(default="report", description="What to do about one that is no raster.")


@handler("stac.catalog_container", version="3", queue=HEAVY, timeout_seconds=7200, aliases=["stac_catalog_container"])
def catalog_container(ctx: HandlerContext, params: ContainerParams) -> Indexed:
    """Have an item for each raster of a container. One that an item of the collection speaks of is left alone."""
    name = params.collection_id or params.container_name
    uris = params.rasters(ctx)
    return index(ctx, uris, set(referenced(ctx, name)), name, stop_at_first=params.on_error == "fail")


def index(
    ctx: HandlerContext, uris: list[BlobUri], known: set[BlobUri], collection: str, *, stop_at_first: bool = False
) -> Indexed:
    """Make and register the items of files that have none. What was done before a crash is known by then."""
    done = Indexed(found=len(uris), known=sum(uri in known for uri in uris), collection_id=collection)
    fresh = [uri for uri in uris if uri not in known]
    for begin in range(0, len(fresh), AT_ONCE):
        items = []
        for number, uri in enumerate(fresh[begin : begin + AT_ONCE], begin):
            ctx.raise_if_cancelled()
            ctx.progress(number, len(fresh), f"looking at {uri}")
            try:
                items.append(placed(item_of_raster(ctx, uri, collection=collection), collection))
            except PermanentError as error:
                if stop_at_first or error.kind != "invalid_input":
                    raise
                tell(done, uri, error)
        add(done, register(ctx, items))
    ctx.progress(len(fresh), len(fresh) or 1, "done")
    return done


def tell(done: Any, href: object, error: object) -> None:
    """Count a failure, and name it if there is room."""
    done.failed += 1
    if len(done.failures) < MOST_TOLD:
        done.failures.append(Failure(href=str(href), error=str(error)))


def add(done: Counts, more: Counts) -> None:
    """Add up what became of items."""
    done.total += more.total
    done.created += more.created
    done.updated += more.updated
    done.unchanged += more.unchanged


# ── rebuild ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class RebuildParams(PlaceParams):
    """What to rebuild from."""

    collection_id: str | None = Field(
        default=None, description="The collection to rebuild; files without an item go there. Default: all, the zone's."
    )
    remove_missing: bool = Field(default=False, description="Take away items whose file is gone.")
    allow_all: bool = Field(default=False, description="Also when that is every one of them.")


class Rebuilt(Indexed):
    """What became of the catalog."""

    missing: int = Field(default=0, description="Items whose file is gone.")
    removed: int = 0


@handler("stac.rebuild", version="3", queue=HEAVY, timeout_seconds=7200, aliases=["rebuild_stac"])
def rebuild(ctx: HandlerContext, params: RebuildParams) -> Rebuilt:
    """Bring the catalog to what is stored: each raster is looked at anew, and what its item was told is kept."""
    collection = params.collection_id or params.container_name
    items = referenced(ctx) | (referenced(ctx, params.collection_id) if params.collection_id else {})
    uris = [uri for uri in params.rasters(ctx) if _is_of(items.get(uri), params.collection_id)]
    saved = ctx.checkpoint_data or {}
    done = Rebuilt(**saved["counts"]) if saved else Rebuilt(found=len(uris), collection_id=collection)
    # By name, not by place: files come and go between two attempts.
    left = sorted((uri for uri in uris if uri.name > saved.get("after", "")), key=lambda uri: uri.name)
    before = len(uris) - len(left)
    for begin in range(0, len(left), AT_ONCE):
        chunk = left[begin : begin + AT_ONCE]
        add(done, register(ctx, [item for uri in chunk for item in _anew(ctx, uri, items.get(uri), done)]))
        looked_at = before + begin + len(chunk)
        ctx.checkpoint(f"{looked_at} of {len(uris)}", {"after": chunk[-1].name, "counts": done.model_dump()})
        ctx.progress(looked_at, len(uris), "looking at rasters")
    _take_missing(ctx, params, done)
    return done


def _is_of(item: dict[str, Any] | None, collection: str | None) -> bool:
    """A file that only items of other collections speak of is none of this one's."""
    return item is None or collection is None or item.get("collection") == collection


def _anew(ctx: HandlerContext, uri: BlobUri, old: dict[str, Any] | None, done: Rebuilt) -> list[dict[str, Any]]:
    """The item of a file as it is now: facts from the file, and everything else from the item that was there."""
    ctx.raise_if_cancelled()
    try:
        if old is None:
            return [placed(item_of_raster(ctx, uri, collection=done.collection_id), done.collection_id)]
        done.known += 1
        properties = old.get("properties", {})
        fresh = item_of_raster(
            ctx, uri, collection=str(old["collection"]), item_id=str(old["id"]), when=properties.get("datetime")
        )
    except PermanentError as error:
        if error.kind != "invalid_input":
            raise
        tell(done, uri, error)
        return []
    facts = {name: value for name, value in fresh["properties"].items() if name.startswith("proj:")}
    asset = next(name for name, place in blobs_of(old).items() if place == uri)
    assets = {
        **old["assets"],
        asset: {**old["assets"][asset], **fresh["assets"]["data"], "href": old["assets"][asset]["href"]},
    }
    return [
        {
            **old,
            "geometry": fresh["geometry"],
            "bbox": fresh["bbox"],
            "stac_extensions": sorted({*old.get("stac_extensions", []), *fresh["stac_extensions"]}),
            "properties": {**properties, **facts},
            "assets": assets,
        }
    ]


def _take_missing(ctx: HandlerContext, params: RebuildParams, done: Rebuilt) -> None:
    place, there = params.place(ctx), {info.uri for info in params.files(ctx)}
    folder = f"{place.name}/".lstrip("/")
    gone: dict[str, list[str]] = {}
    inside = 0
    for item in all_items(ctx, params.collection_id):
        blobs = blobs_of(item).values()
        if any(uri.name.startswith(folder) and uri.container == place.container for uri in blobs):
            inside += 1
            if missing_assets(ctx, item, there).data:
                gone.setdefault(str(item["collection"]), []).append(str(item["id"]))
    done.missing = sum(len(ids) for ids in gone.values())
    if params.remove_missing:
        refuse_all(done.missing, inside, allowed=params.allow_all)
        done.removed = sum(ctx.catalog.remove(name, ids) for name, ids in gone.items())


def refuse_all(gone: int, of: int, *, allowed: bool) -> None:
    """A storage that is not mounted looks empty. That is no reason to forget what is in it."""
    if gone == of and gone > 1 and not allowed:
        raise invalid_input(
            f"the files of all {gone:,} items are gone: is the storage there? If they are meant to go, say allow_all"
        )


# ── repair ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class RepairParams(BaseModel):
    """Which items, and what to do about them."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    collection_id: str | None = Field(default=None, description="Default: all collections.")
    policy: Literal["report", "repair", "remove"] = Field(
        default="report",
        description="report: change nothing. repair: mend what can be mended. remove: and take away what cannot.",
    )
    allow_all: bool = Field(default=False, description="Remove also when that is every one of them.")


class Problem(BaseModel):
    """An item that is not right."""

    collection_id: str
    item_id: str
    problem: str
    done: Literal["reported", "repaired", "removed"]


class Repaired(BaseModel):
    """What was found, and what became of it."""

    checked: int = 0
    malformed: int = Field(default=0, description="Not valid STAC, or a bbox that is not the geometry's.")
    missing: int = Field(default=0, description="With an asset that is gone.")
    repaired: int = 0
    removed: int = 0
    problems: list[Problem] = Field(default_factory=list, description=f"The first {MOST_TOLD}.")


@handler("stac.repair_items", queue=HEAVY, timeout_seconds=7200, aliases=["repair_stac_items"])
def repair_items(ctx: HandlerContext, params: RepairParams) -> Repaired:
    """Find items that are malformed or whose files are gone, and report, mend or remove them."""
    if params.collection_id is not None and ctx.catalog.collection(params.collection_id) is None:
        raise invalid_input(f"the catalog has no collection {params.collection_id!r}")
    done = Repaired()
    lost: dict[str, list[str]] = {}
    for item in all_items(ctx, params.collection_id):
        ctx.raise_if_cancelled()
        done.checked += 1
        if done.checked % AT_ONCE == 0:
            ctx.progress(done.checked, message="looking at items")
        if not _look(ctx, item, params.policy, done):
            lost.setdefault(str(item["collection"]), []).append(str(item["id"]))
    if params.policy == "remove":
        refuse_all(sum(map(len, lost.values())), done.checked, allowed=params.allow_all)
        done.removed = sum(ctx.catalog.remove(name, ids) for name, ids in lost.items())
    return done


def _look(ctx: HandlerContext, item: dict[str, Any], policy: str, done: Repaired) -> bool:
    """Look at one item, and mend it if that is asked for. False: nothing mends it."""
    with extra("stac"):
        from dagmaster.handlers.stac.validation import problem_of
    gone = missing_assets(ctx, item)
    better = mended(item, gone)
    problem = problem_of(item)
    wrong = [problem] if problem else []
    if not wrong and better.get("bbox") != item.get("bbox"):
        wrong = [f"its bbox {item.get('bbox')} is not that of its geometry, {better.get('bbox')}"]
    done.malformed += bool(wrong)
    done.missing += bool(gone.names)
    wrong += [f"there is nothing at {uri} (asset {name})" for name, uri in gone.names.items()]
    if not wrong:
        return True
    can_be_mended = not gone.data and problem_of(better) is None
    what: Literal["reported", "repaired", "removed"] = "reported"
    if policy != "report" and can_be_mended:
        register(ctx, [better])
        done.repaired += 1
        what = "repaired"
    elif policy == "remove":
        what = "removed"
    if len(done.problems) < MOST_TOLD:
        name, item_id = str(item.get("collection")), str(item.get("id"))
        done.problems.append(Problem(collection_id=name, item_id=item_id, problem="; ".join(wrong), done=what))
    return can_be_mended
