"""Thumbnails of rasters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from PIL import Image
from rasterio.enums import Resampling

from dagmaster.errors import invalid_input
from dagmaster.geo.gdal import explain_io_errors, open_raster
from dagmaster.geo.raster.georeferences import require_georeferenced
from dagmaster.geo.raster.grids import Warp, north_up_grid, open_warped
from dagmaster.geo.raster.vrts import color_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dagmaster.ports.handler_services import Share

_RGB: Final = ("red", "green", "blue")
_CHANNELS: Final = 3


def write_thumbnail(
    path: Path | str,
    target: Path,
    share: Share,
    *,
    size: int = 512,
    bands: Sequence[int] | None = None,
    percentiles: tuple[float, float] = (2, 98),
) -> tuple[int, int]:
    """Write a PNG of at most `size` pixels on its longer side; return width and height.

    Nodata is transparent.

    Three bands are red, green and blue, found by their names or colours; one band is grey. Values between the
    percentiles are stretched. A palette keeps its colours, and so does an image (bytes named red, green and
    blue).
    """
    with open_raster(path, share) as raster:
        require_georeferenced(raster)
        selected = list(bands) if bands else _choose_bands(raster)
        if any(not 1 <= band <= raster.count for band in selected):
            raise invalid_input(f"there are no bands {selected}: the raster has {raster.count}")
        with explain_io_errors(path), open_warped(raster, north_up_grid(raster), Warp()) as source:
            scale = min(1.0, size / max(source.width, source.height))
            width, height = max(1, round(source.width * scale)), max(1, round(source.height * scale))
            palette = color_table(source, selected[0])
            use_nearest = palette is not None or "complex" in source.dtypes[0]
            pixels = source.read(
                selected,
                out_shape=(len(selected), height, width),
                resampling=Resampling.nearest if use_nearest else Resampling.average,
                masked=True,
            )
            is_rgb = (
                all(source.colorinterp[band - 1].name in _RGB for band in selected)
                and pixels.dtype == "uint8"
            )
    if np.iscomplexobj(pixels):
        pixels = np.ma.abs(pixels)
    pixels = np.ma.masked_invalid(pixels) if pixels.dtype.kind == "f" else pixels
    is_visible = ~np.ma.getmaskarray(pixels).all(axis=0)
    if palette is not None:
        colours = np.zeros((max(palette) + 1, 4), "uint8")
        for value, colour in palette.items():
            colours[value] = colour
        image = colours[np.clip(pixels[0].filled(0), 0, len(colours) - 1)]
    else:
        channels = [
            band.filled(0).astype("uint8") if is_rgb else _stretch(band, percentiles) for band in pixels
        ]
        opaque = np.full((height, width), 255, "uint8")
        image = np.dstack([*(channels * _CHANNELS if len(channels) == 1 else channels), opaque])
    image[..., 3] = np.where(is_visible, image[..., 3], 0)
    Image.fromarray(image, "RGBA").save(target, "PNG")
    return width, height


def _choose_bands(raster: Any) -> list[int]:
    """Return red, green and blue by band name, then by colour interpretation, else the first bands.

    Names first: GDAL declares the first three byte bands red, green and blue unless a file says otherwise.
    """
    descriptions = [(text or "").strip().lower() for text in raster.descriptions]
    colours = [color.name for color in raster.colorinterp]
    for names in (descriptions, colours):
        if all(name in names for name in _RGB):
            return [names.index(name) + 1 for name in _RGB]
    return [1, 2, 3] if raster.count >= _CHANNELS and "alpha" not in colours[:_CHANNELS] else [1]


def _stretch(band: Any, percentiles: tuple[float, float]) -> Any:
    values = band.compressed().astype("float64")
    if values.size == 0:
        return np.zeros(band.shape, "uint8")
    low, high = np.percentile(values, percentiles)
    span = high - low if high > low else 1.0
    return (np.clip((band.filled(low).astype("float64") - low) / span, 0, 1) * 255).round().astype("uint8")
