"""Where stacks, cells, their bands and items are stored. Finished work is known by its name.

The fingerprint of a stack covers size and etag of each file, which a listing contains, so that unchanged
terabytes need not be read. That of a cell covers the names of its stacks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dagmaster.geo.result_uris import result_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagmaster.geo.fathom.params import StackParams
    from dagmaster.geo.raster.cog_output import CogFormat
    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.ports.storage import BlobInfo
    from dagmaster.sdk.handler_context import HandlerContext

STACK_HANDLER: Final = ("fathom.band_stack", "1")
MERGE_HANDLER: Final = ("fathom.spatial_merge", "2")


def stack_uri(
    ctx: HandlerContext, params: StackParams, tile: str, group: str, infos: Mapping[str, BlobInfo]
) -> BlobUri:
    """Return where the stack of a tile is: its fingerprint covers size and etag of each file."""
    pixel_params = {**_format_params(params), "monotone": params.monotone}
    sources = [f"{band} {info.uri} {info.size} {info.etag or info.modified}" for band, info in infos.items()]
    return result_uri(
        ctx,
        tile,
        ".tif",
        sources=sources,
        params=pixel_params,
        folder=f"fathom/stacks/{group}",
        producer=STACK_HANDLER,
    )


def cell_uri(
    ctx: HandlerContext, params: CogFormat, cell: str, group: str, stacks: Mapping[str, str]
) -> BlobUri:
    """Return where the COG of a cell is: its fingerprint covers the names of its stacks."""
    return result_uri(
        ctx,
        cell,
        ".tif",
        sources=[f"{tile} {href}" for tile, href in stacks.items()],
        params=_format_params(params),
        folder=f"fathom/cells/{group}",
        producer=MERGE_HANDLER,
    )


def band_uri(uri: BlobUri, band: int) -> BlobUri:
    """Return where one merged band of an unfinished cell is."""
    # The leading dot marks unfinished work, which is never cataloged.
    folder, _, name = uri.name.rpartition("/")
    return replace(uri, name=f"{folder}/parts/{name.removesuffix('.tif')}/.band{band}.tif")


def item_uri(uri: BlobUri) -> BlobUri:
    """Return where the STAC item of a cell is: next to its COG."""
    return replace(uri, name=f"{uri.name.removesuffix('.tif')}.json")


def _format_params(params: CogFormat) -> dict[str, Any]:
    return {
        "compression": params.compression,
        "level": params.compression_level,
        "tile_size": params.tile_size,
    }
