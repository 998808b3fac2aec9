"""Plan the tiles of a raster: pixel windows with their footprints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.errors import invalid_input
from dagmaster.geo.gdal import open_raster
from dagmaster.geo.raster.footprints import describe_footprint, raster_footprint
from dagmaster.geo.raster.georeferences import require_georeferenced
from dagmaster.geo.raster.grids import crs_text, raster_grid, require_north_up

if TYPE_CHECKING:
    from pathlib import Path

    from dagmaster.ports.handler_services import Share


def plan_tiles(
    path: Path | str, share: Share, *, tile_size: int, overlap: int, max_tiles: int, size: int | None = None
) -> dict[str, Any]:
    """Return the tiles of a raster, row by row from the north-west.

    With `overlap`, a pixel may be in several.
    """
    with open_raster(path, share, whole=False, size=size) as raster:
        require_georeferenced(raster)
        require_north_up(raster)
        columns, rows = -(-raster.width // tile_size), -(-raster.height // tile_size)
        if columns * rows > max_tiles:
            raise invalid_input(
                f"{raster.width:,} x {raster.height:,} pixels make {columns * rows:,} tiles of"
                f" {tile_size:,} pixels: at most {max_tiles:,} are allowed. Increase tile_size or max_tiles"
            )
        if tile_size * tile_size * raster.count > share.max_pixels:
            raise invalid_input(
                f"a tile of {tile_size:,} x {tile_size:,} pixels in {raster.count} bands exceeds the limit of"
                f" {share.max_pixels:,} (DAGMASTER_RASTER_MAX_PIXELS): decrease tile_size"
            )
        grid, crs = raster_grid(raster), crs_text(raster.crs)
        tiles: list[dict[str, Any]] = []
        for row in range(rows):
            for column in range(columns):
                left, width = _pixel_span(column, tile_size, overlap, raster.width)
                top, height = _pixel_span(row, tile_size, overlap, raster.height)
                window = (left, top, width, height)
                part = grid.window(*window)
                footprint = raster_footprint(part.crs, part.affine, part.width, part.height)
                tiles.append(
                    {
                        "index": len(tiles),
                        "column": column,
                        "row": row,
                        "window": list(window),
                        **describe_footprint(footprint),
                        "bounds": list(part.bounds),
                        "crs": crs,
                    }
                )
        whole = raster_footprint(grid.crs, grid.affine, grid.width, grid.height)
        return {
            "tiles": tiles,
            "columns": columns,
            "rows": rows,
            "crs": crs,
            "bbox": describe_footprint(whole)["bbox"],
        }


def _pixel_span(index: int, tile_size: int, overlap: int, length: int) -> tuple[int, int]:
    first = max(0, index * tile_size - overlap)
    return first, min(length, (index + 1) * tile_size + overlap) - first
