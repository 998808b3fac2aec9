"""Find STAC items in what a handler receives: items, lists, ItemCollections, payloads, node outputs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import BlobNotFound, invalid_input
from dagmaster.geo.rules.stac_items import MAX_ITEM_BYTES
from dagmaster.text_format import library_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.sdk.handler_context import HandlerContext

ITEM_KEYS: Final = (
    "item",
    "items",
    "features",
    "item_collection",
    "payload",
    "output",
    "outputs",
    "result",
    "results",
)
"""The keys of an object that are searched for items."""
COG_KEYS: Final = ("cog_url", "cog_path")
_MAX_DEPTH: Final = 6
_MAX_DOCUMENT_BYTES: Final = 64 * MAX_ITEM_BYTES


def collect_items(ctx: HandlerContext, value: Any) -> list[dict[str, Any]]:
    """Return all items in a value in order, and the outputs that name a COG but contain no item."""
    return list(_collect(ctx, value, "items", 0))


def _collect(ctx: HandlerContext, value: Any, path: str, depth: int) -> Iterator[dict[str, Any]]:
    if depth > _MAX_DEPTH:
        raise invalid_input(f"{path} is nested too deeply to search it for items: name the item itself")
    if value is None:
        # A skipped child has no output.
        return
    if isinstance(value, str):
        yield from _collect(ctx, _read_document(ctx, value), value, depth + 1)
    elif isinstance(value, list | tuple):
        for index, element in enumerate(value):
            yield from _collect(ctx, element, f"{path}[{index}]", depth + 1)
    elif isinstance(value, dict):
        yield from _collect_from_object(ctx, value, path, depth)
    else:
        raise invalid_input(
            f"{path} is {value!r:.80}: expected a STAC item, the href of one, or an output that contains one"
        )


def _collect_from_object(
    ctx: HandlerContext, value: dict[str, Any], path: str, depth: int
) -> Iterator[dict[str, Any]]:
    if value.get("type") == "Feature" or "stac_version" in value:
        yield value
        return
    keys = [name for name in ITEM_KEYS if value.get(name) is not None]
    if not keys:
        if any(value.get(name) for name in COG_KEYS):
            yield value
            return
        present = ", ".join(list(value)[:8]) or "nothing"
        raise invalid_input(
            f"{path} contains no STAC item: it has {present}; expected an item, or one of"
            f" {', '.join(ITEM_KEYS)}"
        )
    for name in keys:
        yield from _collect(ctx, value[name], f"{path}.{name}", depth + 1)


def _read_document(ctx: HandlerContext, href: str) -> Any:
    uri = ctx.blobs.resolve(href)
    info = ctx.blobs.find(uri)
    if info is None:
        raise invalid_input(f"there is no STAC document at {uri}: name the href of an item")
    if info.size > _MAX_DOCUMENT_BYTES:
        raise invalid_input(
            f"{uri} has {info.size:,} bytes: a STAC document of items has at most {_MAX_DOCUMENT_BYTES:,}"
        )
    try:
        document = json.loads(ctx.blobs.read(uri))
    except BlobNotFound as error:
        raise invalid_input(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise invalid_input(
            f"{uri} is not a STAC document: it is not JSON{library_words('JSON', error)}"
        ) from None
    if not isinstance(document, dict | list):
        raise invalid_input(f"{uri} is not a STAC document: expected an object or a list")
    return document
