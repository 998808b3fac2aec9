"""The provenance of a result: the properties and links of an item that name handler, workflow and sources."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dagmaster.sdk.handler_context import HandlerContext

MAX_SOURCES: Final = 100
"""How many sources a COG or an item lists. Ten thousand would be megabytes that every reader has to load."""
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How a result was produced.

    `sources` are pairs of href and version: a sha256, or the storage's own version.
    """

    handler: str = ""
    handler_version: str = ""
    workflow: str = ""
    sources: Sequence[tuple[str, str]] = field(default_factory=tuple)

    @classmethod
    def of_task(cls, ctx: HandlerContext, sources: Sequence[tuple[str, str]]) -> Provenance:
        return cls(
            handler=ctx.handler,
            handler_version=ctx.handler_version,
            workflow=ctx.workflow,
            sources=tuple(sources),
        )


def provenance_properties(provenance: Provenance, software: dict[str, str]) -> dict[str, Any]:
    sources = provenance.sources
    properties = {
        "processing:software": software,
        "dagmaster:handler": provenance.handler and f"{provenance.handler} v{provenance.handler_version}",
        "dagmaster:workflow": provenance.workflow,
        "dagmaster:sources": source_entries(sources),
        "dagmaster:source_count": len(sources) if len(sources) > MAX_SOURCES else None,
    }
    return {key: value for key, value in properties.items() if value}


def source_entries(sources: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Return sources, as pairs of href and version, for an item; at most `MAX_SOURCES`."""
    return [{"href": href, **_version(version)} for href, version in sources[:MAX_SOURCES]]


def source_links(provenance: Provenance) -> list[dict[str, str]]:
    """Return a link to the source if there is exactly one.

    Its relation is `via`, not `derived_from`: clients expect an item behind the latter.
    """
    sources = provenance.sources
    return [{"rel": "via", "href": href, "title": "The source"} for href, _ in sources if len(sources) == 1]


def multihash(sha256: str) -> str:
    """Encode a checksum for the file extension: hash function (0x12: SHA-256), length (0x20), digest."""
    return f"1220{sha256}"


@cache
def installed_versions(*packages: str) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    versions = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def _version(text: str) -> dict[str, str]:
    """Return a checksum, or the storage's own version of a blob that was not read completely."""
    return {"file:checksum": multihash(text)} if _SHA256.fullmatch(text) else {"version": text}
