"""A small picture of a raster, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from PIL import Image
from rasterio.enums import Resampling

from dagmaster.handlers.gdal import invalid, opened, working
from dagmaster.handlers.raster.grids import Warp, north_up, require_place, warped

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dagmaster.ports.handler_services import Share

_RGB: Final = ("red", "green", "blue")
_COLOURS: Final = 3


def thumbnail(
    path: Path,
    to: Path,
    share: Share,
    *,
    size: int = 512,
    bands: Sequence[int] | None = None,
    percentiles: tuple[float, float] = (2, 98),
) -> tuple[int, int]:
    """Draw a PNG of at most `size` pixels on its longer side; its width and height. Nodata is transparent.

    Three bands are red, green and blue, by their names or colours; one is grey. Values between the percentiles are
    stretched. A palette keeps its colours, and so does a picture (bytes that are called red, green and blue).
    """
    with opened(path, share) as raster:
        require_place(raster)
        shown = list(bands) if bands else _bands(raster)
        if any(not 1 <= band <= raster.count for band in shown):
            raise invalid(f"there are no bands {shown}: the raster has {raster.count}")
        with working(path), warped(raster, north_up(raster), Warp()) as source:
            scale = min(1.0, size / max(source.width, source.height))
            width, height = max(1, round(source.width * scale)), max(1, round(source.height * scale))
            is_palette = source.colorinterp[shown[0] - 1].name == "palette"
            is_simple = is_palette or "complex" in source.dtypes[0]
            pixels = source.read(
                shown,
                out_shape=(len(shown), height, width),
                resampling=Resampling.nearest if is_simple else Resampling.average,
                masked=True,
            )
            table = source.colormap(shown[0]) if is_palette else None
            is_picture = all(source.colorinterp[band - 1].name in _RGB for band in shown) and pixels.dtype == "uint8"
    if np.iscomplexobj(pixels):
        pixels = np.ma.abs(pixels)
    pixels = np.ma.masked_invalid(pixels) if pixels.dtype.kind == "f" else pixels
    seen = ~np.ma.getmaskarray(pixels).all(axis=0)
    if table is not None:
        colours = np.zeros((max(table) + 1, 4), "uint8")
        for value, colour in table.items():
            colours[value] = colour
        picture = colours[np.clip(pixels[0].filled(0), 0, len(colours) - 1)]
    else:
        grey = [band.filled(0).astype("uint8") if is_picture else _stretched(band, percentiles) for band in pixels]
        picture = np.dstack([*(grey * _COLOURS if len(grey) == 1 else grey), np.full((height, width), 255, "uint8")])
    picture[..., 3] = np.where(seen, picture[..., 3], 0)
    Image.fromarray(picture, "RGBA").save(to, "PNG")
    return width, height


def _bands(raster: Any) -> list[int]:
    """Red, green and blue by what the bands are called, then by their colours, then the first ones.

    The names come first: GDAL calls the first three bands of bytes red, green and blue when nobody tells it.
    """
    called = [(one or "").strip().lower() for one in raster.descriptions]
    colours = [one.name for one in raster.colorinterp]
    for names in (called, colours):
        if all(name in names for name in _RGB):
            return [names.index(name) + 1 for name in _RGB]
    return [1, 2, 3] if raster.count >= _COLOURS and "alpha" not in colours[:_COLOURS] else [1]


def _stretched(band: Any, percentiles: tuple[float, float]) -> Any:
    known = band.compressed().astype("float64")
    if known.size == 0:
        return np.zeros(band.shape, "uint8")
    low, high = np.percentile(known, percentiles)
    span = high - low if high > low else 1.0
    return (np.clip((band.filled(low).astype("float64") - low) / span, 0, 1) * 255).round().astype("uint8")
