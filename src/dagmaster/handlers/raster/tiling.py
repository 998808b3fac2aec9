"""Cut a raster into tiles: windows of pixels that are worked through one by one, and where on Earth each lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dagmaster.handlers.gdal import invalid, opened
from dagmaster.handlers.raster.footprints import footprint
from dagmaster.handlers.raster.grids import crs_text, grid_of, require_north_up, require_place

if TYPE_CHECKING:
    from pathlib import Path

    from dagmaster.ports.handler_services import Share


def plan(
    path: Path | str, share: Share, *, tile_size: int, overlap: int, max_tiles: int, size: int | None = None
) -> dict[str, Any]:
    """The tiles of a raster, row by row from the north-west. Each pixel is in one tile, with `overlap` in more."""
    with opened(path, share, whole=False, size=size) as raster:
        require_place(raster)
        require_north_up(raster)
        columns, rows = -(-raster.width // tile_size), -(-raster.height // tile_size)
        if columns * rows > max_tiles:
            raise invalid(
                f"{raster.width:,} x {raster.height:,} pixels are {columns * rows:,} tiles of {tile_size:,} pixels:"
                f" at most {max_tiles:,} are planned. Give a larger tile_size, or a larger max_tiles"
            )
        if tile_size * tile_size * raster.count > share.max_pixels:
            raise invalid(
                f"tiles of {tile_size:,} pixels are more than may be worked through: give a smaller tile_size"
            )
        grid, crs = grid_of(raster), crs_text(raster.crs)
        tiles: list[dict[str, Any]] = []
        for row in range(rows):
            for column in range(columns):
                left, wide = _span(column, tile_size, overlap, raster.width)
                top, high = _span(row, tile_size, overlap, raster.height)
                window = (left, top, wide, high)
                part = grid.window(*window)
                place = footprint(part.crs, part.affine, part.width, part.height)
                tiles.append(
                    {
                        "index": len(tiles),
                        "column": column,
                        "row": row,
                        "window": list(window),
                        "bbox": place.bbox,
                        "footprint": place.geometry,
                        "bounds": list(part.bounds),
                        "crs": crs,
                    }
                )
        return {
            "tiles": tiles,
            "columns": columns,
            "rows": rows,
            "crs": crs,
            "bbox": footprint(grid.crs, grid.affine, grid.width, grid.height).bbox,
        }


def _span(number: int, tile_size: int, overlap: int, length: int) -> tuple[int, int]:
    """Where a tile begins along one side, and how long it is."""
    first = max(0, number * tile_size - overlap)
    return first, min(length, (number + 1) * tile_size + overlap) - first
