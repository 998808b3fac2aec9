"""What made something, of what: how items say it, whatever they are of."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.authoring.handler_context import HandlerContext

MOST_SOURCES: Final = 100
"""That a COG or an item names. Ten thousand would be megabytes that every reader has to load."""
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """How something was made. `sources` are pairs of href and sha256."""

    handler: str = ""
    handler_version: str = ""
    workflow: str = ""
    sources: Sequence[tuple[str, str]] = field(default_factory=tuple)

    @classmethod
    def by(cls, ctx: HandlerContext, sources: Sequence[tuple[str, str]]) -> Made:
        """By this task."""
        return cls(
            handler=ctx.handler, handler_version=ctx.handler_version, workflow=ctx.workflow, sources=tuple(sources)
        )


def provenance(made: Made, software: dict[str, str]) -> dict[str, Any]:
    """The properties of an item that tell how it was made."""
    said = {
        "processing:software": software,
        "dagmaster:handler": made.handler and f"{made.handler} v{made.handler_version}",
        "dagmaster:workflow": made.workflow,
        "dagmaster:sources": [{"href": href, **_version(known)} for href, known in made.sources[:MOST_SOURCES]],
        "dagmaster:source_count": len(made.sources) if len(made.sources) > MOST_SOURCES else None,
    }
    return {key: value for key, value in said.items() if value}


def source_links(made: Made) -> list[dict[str, str]]:
    """To the source, where there is one. Not derived_from: clients take what that leads to for an item."""
    return [{"rel": "via", "href": href, "title": "The source"} for href, _ in made.sources if len(made.sources) == 1]


def multihash(sha256: str) -> str:
    """As the file extension writes it: which function (0x12: SHA-256), how long (0x20), the digest."""
    return f"1220{sha256}"


@cache
def installed(*packages: str) -> dict[str, str]:
    """The versions of these packages, as far as they are here."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _version(known: str) -> dict[str, str]:
    """A checksum, or the storage's own word for a blob that nobody has read all of."""
    return {"file:checksum": multihash(known)} if _SHA256.fullmatch(known) else {"version": known}
