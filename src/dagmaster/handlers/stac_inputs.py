"""Items wherever they are: alone, in a list, in an ItemCollection, in a payload of stac-task, in outputs of nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from dagmaster.errors import BlobNotFound
from dagmaster.geo.stac_rules import MAX_ITEM_BYTES, invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.ports.handler_context import HandlerContext

HOLDERS: Final = ("item", "items", "features", "item_collection", "payload", "output", "outputs", "result", "results")
"""The keys of an output under which items are looked for."""
FILES: Final = ("cog_url", "cog_path")
_DEEPEST: Final = 6
_MOST_IN_A_FILE: Final = 64 * MAX_ITEM_BYTES


def gathered(ctx: HandlerContext, value: Any) -> list[dict[str, Any]]:
    """All items in a value, and outputs that name a COG and hold no item, in the order they are met."""
    return list(_met(ctx, value, "items", 0))


def _met(ctx: HandlerContext, value: Any, place: str, depth: int) -> Iterator[dict[str, Any]]:
    if depth > _DEEPEST:
        raise invalid(f"{place} is nested too deep to look for items there")
    if value is None:
        # A child that was skipped has no output.
        return
    if isinstance(value, str):
        yield from _met(ctx, _read(ctx, value), value, depth + 1)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _met(ctx, one, f"{place}[{number}]", depth + 1)
    elif isinstance(value, dict):
        yield from _in_object(ctx, value, place, depth)
    else:
        raise invalid(f"{place} is {value!r:.80}: expected a STAC item, an href of one, or an output that holds one")


def _in_object(ctx: HandlerContext, value: dict[str, Any], place: str, depth: int) -> Iterator[dict[str, Any]]:
    if value.get("type") == "Feature" or "stac_version" in value:
        yield value
        return
    held = [name for name in HOLDERS if value.get(name) is not None]
    if not held:
        if any(value.get(name) for name in FILES):
            yield value
            return
        found = ", ".join(list(value)[:8]) or "nothing"
        raise invalid(f"{place} holds no STAC item: it has {found}; expected an item, or one of {', '.join(HOLDERS)}")
    for name in held:
        yield from _met(ctx, value[name], f"{place}.{name}", depth + 1)


def _read(ctx: HandlerContext, href: str) -> Any:
    """The document at an href."""
    uri = ctx.blobs.resolve(href)
    info = ctx.blobs.find(uri)
    if info is None:
        raise invalid(f"there is no STAC document at {uri}")
    if info.size > _MOST_IN_A_FILE:
        raise invalid(f"{uri} has {info.size:,} bytes: that is no STAC document of items")
    try:
        read = json.loads(ctx.blobs.read(uri))
    except BlobNotFound as error:
        raise invalid(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise invalid(f"{uri} is no STAC document: it is not JSON ({error})") from None
    if not isinstance(read, dict | list):
        raise invalid(f"{uri} is no STAC document: expected an object or a list")
    return read
