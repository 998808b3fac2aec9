"""A TIFF tag that names the sources of a COG, for readers who have only the file."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

import rasterio.shutil

from dagmaster.errors import PermanentError
from dagmaster.geo.gdal import gdal_env, open_raster
from dagmaster.geo.raster.earth_positions import storable_crs
from dagmaster.geo.raster.vrts import carry_domains, open_vrt_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rasterio.io import DatasetReader

    from dagmaster.geo.raster.raster_sources import RasterSource
    from dagmaster.ports.handler_services import Share

TAG: Final = "DAGMASTER_MADE_OF"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenanceTag:
    """The sources as pairs of href and version; when the first of them last changed (seconds since 1970)."""

    sources: Sequence[tuple[str, str]] = field(default_factory=tuple)
    modified: float | None = None

    def to_json(self) -> str:
        sources = [list(source) for source in self.sources]
        return json.dumps({"sources": sources, "modified": self.modified}, sort_keys=True)


def read_provenance_tag(raster: DatasetReader) -> ProvenanceTag:
    """Read the tag of a raster; return an empty one if it is missing or another program wrote it."""
    try:
        data = json.loads(raster.tags().get(TAG, "{}"))
        sources = [(str(href), str(version)) for href, version in data.get("sources", ())]
        modified = data.get("modified")
        return ProvenanceTag(sources=sources, modified=None if modified is None else float(modified))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return ProvenanceTag()


def trace_sources(rasters: Sequence[RasterSource], share: Share) -> ProvenanceTag:
    """Return the distinct sources of rasters: those that each one's tag names, else the raster itself."""
    sources: dict[tuple[str, str], None] = {}
    modified = []
    for source in rasters:
        try:
            with gdal_env(share, **source.options), open_raster(source.path, share, whole=False) as raster:
                tag = read_provenance_tag(raster)
        except PermanentError:
            # The step that reads the pixels reports what is wrong.
            tag = ProvenanceTag()
        itself = (source.href, source.version)
        sources.update(dict.fromkeys(tag.sources or [itself]))
        modified += [tag.modified] if tag.modified is not None else []
    return ProvenanceTag(sources=list(sources), modified=min(modified, default=None))


@contextlib.contextmanager
def open_with_tag(
    source: DatasetReader | Any, text: str, vrt_path: Path, template: DatasetReader | Any
) -> Iterator[DatasetReader]:
    """Open the raster with the tag, unless it is empty, through a VRT: a COG cannot be changed later.

    The VRT has the metadata domains of `template`, and no overviews: a source's would be copied,
    however they were made.
    """
    rasterio.shutil.copy(source, str(vrt_path), driver="VRT")
    root = fromstring(vrt_path.read_bytes())  # noqa: S314 - GDAL has just written it here
    metadata = next((element for element in root.findall("Metadata") if not element.get("domain")), None)
    if metadata is None:
        metadata = Element("Metadata")
        root.insert(0, metadata)
    for old in [element for element in metadata if element.get("key") == TAG]:
        metadata.remove(old)
    if text:
        SubElement(metadata, "MDI", key=TAG).text = text
    carry_domains(root, template)
    crs = root.find("SRS")
    if crs is not None and (stored := storable_crs(source.crs)) != source.crs:
        crs.attrib.clear()
        crs.text = stored.to_wkt()
    vrt_path.write_text(tostring(root, encoding="unicode"), encoding="utf-8")
    try:
        with open_vrt_file(str(vrt_path)) as raster:
            yield raster
    finally:
        vrt_path.unlink()
