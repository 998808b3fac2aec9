"""What a COG says of itself: of what it was made. Who finds it later, without the task that made it, reads it there."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

import rasterio.shutil
from rasterio._path import _UnparsedPath as UnparsedPath
from rasterio.io import DatasetReader

from dagmaster.errors import PermanentError
from dagmaster.handlers.gdal import opened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from dagmaster.ports.handler_services import Share

TAG: Final = "DAGMASTER_MADE_OF"


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeOf:
    """Pairs of href and version, and when the first of them last changed, in seconds since 1970."""

    sources: Sequence[tuple[str, str]] = field(default_factory=tuple)
    modified: float | None = None

    def written(self) -> str:
        """As the tag holds it."""
        return json.dumps({"sources": [list(one) for one in self.sources], "modified": self.modified}, sort_keys=True)


def made_of(raster: DatasetReader) -> MadeOf:
    """What a raster says; nothing, where it does not or where others wrote something else there."""
    try:
        told = json.loads(raster.tags().get(TAG, "{}"))
        sources = [(str(href), str(version)) for href, version in told.get("sources", ())]
        modified = told.get("modified")
        return MadeOf(sources=sources, modified=None if modified is None else float(modified))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return MadeOf()


def first_sources(files: Sequence[tuple[str, tuple[str, str]]], share: Share) -> MadeOf:
    """Of what files were made: what each says, or else the file itself, each once."""
    found: dict[tuple[str, str], None] = {}
    modified = []
    for path, itself in files:
        try:
            with opened(path, share, whole=False) as raster:
                told = made_of(raster)
        except PermanentError:
            # Who reads the pixels says what is wrong.
            told = MadeOf()
        found.update(dict.fromkeys(told.sources or [itself]))
        modified += [told.modified] if told.modified is not None else []
    return MadeOf(sources=list(found), modified=min(modified, default=None))


@contextlib.contextmanager
def tagged(source: DatasetReader | Any, text: str, beside: Path) -> Iterator[DatasetReader]:
    """The same raster with the tag, by a VRT of our own at `beside`: a COG that is written cannot be changed."""
    rasterio.shutil.copy(source, str(beside), driver="VRT")
    root = fromstring(beside.read_bytes())  # noqa: S314 - GDAL has just written it here
    metadata = next((one for one in root.findall("Metadata") if not one.get("domain")), None)
    if metadata is None:
        metadata = Element("Metadata")
        root.insert(0, metadata)
    for old in [one for one in metadata if one.get("key") == TAG]:
        metadata.remove(old)
    SubElement(metadata, "MDI", key=TAG).text = text
    beside.write_text(tostring(root, encoding="unicode"), encoding="utf-8")
    try:
        with DatasetReader(UnparsedPath(str(beside)), driver="VRT", sharing=False) as raster:
            yield raster
    finally:
        beside.unlink()
