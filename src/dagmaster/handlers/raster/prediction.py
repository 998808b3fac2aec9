"""Run a model (ONNX) over a raster, window by window.

Windows overlap, and of each only the middle is kept: a model sees less well at the edge of what it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnxruntime
import rasterio
from rasterio.windows import Window

from dagmaster.handlers.gdal import invalid, opened, working
from dagmaster.handlers.raster.cog_writer import write_cog
from dagmaster.handlers.raster.grids import grid_of, require_north_up, require_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from dagmaster.handlers.raster.cog_writer import CogOptions
    from dagmaster.handlers.raster.grids import Grid
    from dagmaster.ports.handler_services import Share

_RANK: Final = 4
_NO_CLASS: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """How a model is used. It gets `pixel * scale + offset`, as floats, and zeros where there is no data."""

    window: int = 256
    """Pixels of a window's side; a model that takes only one size has its own."""
    overlap: int = 32
    """Pixels that are thrown away on each side."""
    bands: Sequence[int] | None = None
    scale: float = 1.0
    offset: float = 0.0
    classes: bool = False
    """Write the number of the strongest channel as a byte, not the channels."""


def predict(
    path: Path,
    to: Path,
    options: CogOptions,
    share: Share,
    *,
    model: bytes,
    how: Prediction,
    on_round: Callable[[int, int], None] = lambda _done, _all: None,
) -> int:
    """Write what the model says of each pixel, as a COG; how many windows it was shown."""
    with opened(path, share) as raster:
        require_place(raster)
        require_north_up(raster)
        bands = list(how.bands) if how.bands else list(raster.indexes)
        if any(not 1 <= band <= raster.count for band in bands):
            raise invalid(f"there are no bands {bands}: the raster has {raster.count}")
        session = _session(model, share)
        side = _side(session, len(bands), how)
        between = to.with_name(f"{to.stem}-predicted.tif")
        with working(path, to=between):
            count = _write(raster, between, session, bands, side=side, how=how, on_round=on_round)
    with working(path, to=to), rasterio.open(between) as source:
        write_cog(source, to, options, share)
    between.unlink()
    return count


def _session(model: bytes, share: Share) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = share.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        # From bytes: a model that keeps its weights in other files would read them from wherever it says.
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common parent
        raise invalid(f"the model cannot be loaded: expected one ONNX file with its weights in it: {error}") from error


def _side(session: Any, bands: int, how: Prediction) -> int:
    """The side of a window: the model's own, if it takes only one."""
    inputs = session.get_inputs()
    shape = list(inputs[0].shape)
    if len(inputs) != 1 or len(shape) != _RANK or inputs[0].type != "tensor(float)":
        said = "; ".join(f"{one.name}: {one.type} {one.shape}" for one in inputs)
        raise invalid(f"the model takes {said}: expected one tensor(float) of batch, bands, rows, columns")
    if isinstance(shape[1], int) and shape[1] != bands:
        raise invalid(f"the model takes {shape[1]} bands, and is given {bands}: name them with bands")
    fixed = {one for one in shape[2:] if isinstance(one, int)}
    if len(fixed) > 1:
        raise invalid(f"the model takes windows of {shape[2]} x {shape[3]} pixels: expected square ones")
    side = fixed.pop() if fixed else how.window
    if side <= 2 * how.overlap:
        raise invalid(f"an overlap of {how.overlap} pixels leaves nothing of a window of {side}: give a smaller one")
    return side


def _write(
    raster: Any,
    to: Path,
    session: Any,
    bands: list[int],
    *,
    side: int,
    how: Prediction,
    on_round: Callable[[int, int], None],
) -> int:
    windows = list(_windows(grid_of(raster), side - 2 * how.overlap))
    out: Any = None
    try:
        for done, at in enumerate(windows):
            on_round(done, len(windows))
            pixels, known = _seen(raster, bands, at, side, how)
            said = _said(session, pixels, how.overlap)[:, : at.height, : at.width]
            if how.classes:
                if said.shape[0] > _NO_CLASS:
                    raise invalid(
                        f"the model gives {said.shape[0]} channels: at most {_NO_CLASS} classes fit into a byte, beside"
                        " the one for no data. Leave classes away"
                    )
                said = said.argmax(axis=0)[None].astype("uint8")
            said[:, ~known] = _NO_CLASS if how.classes else np.nan
            if out is None:
                out = _made(raster, to, said.shape[0], classes=how.classes)
            out.write(said, window=at)
    finally:
        if out is not None:
            out.close()
    return len(windows)


def _windows(grid: Grid, step: int) -> Iterator[Window]:
    for row in range(0, grid.height, step):
        for column in range(0, grid.width, step):
            yield Window(column, row, min(step, grid.width - column), min(step, grid.height - row))


def _seen(raster: Any, bands: list[int], at: Window, side: int, how: Prediction) -> tuple[Any, Any]:
    """What the model is shown: the window with its surroundings, the edge repeated beyond the raster; what is data."""
    left, top = at.col_off - how.overlap, at.row_off - how.overlap
    first = (max(0, left), max(0, top))
    last = (min(raster.width, left + side), min(raster.height, top + side))
    inside = Window(*first, last[0] - first[0], last[1] - first[1])
    pixels = raster.read(bands, window=inside, masked=True)
    missing = np.ma.getmaskarray(pixels).any(axis=0) | ~np.isfinite(pixels.filled(0)).all(axis=0)
    shown = np.where(missing, 0, pixels.filled(0).astype("float32") * how.scale + how.offset).astype("float32")
    around = ((first[1] - top, top + side - last[1]), (first[0] - left, left + side - last[0]))
    row, column = at.row_off - first[1], at.col_off - first[0]
    known = ~missing[row : row + at.height, column : column + at.width]
    return np.pad(shown, ((0, 0), *around), mode="edge")[None], known


def _said(session: Any, pixels: Any, overlap: int) -> Any:
    try:
        said = np.asarray(session.run(None, {session.get_inputs()[0].name: pixels})[0])
    except Exception as error:  # its exceptions have no common parent
        raise invalid(f"the model fails on a window of {pixels.shape} pixels: {error}") from error
    if said.ndim != _RANK or said.shape[2:] != pixels.shape[2:]:
        raise invalid(f"the model gives {said.shape} for {pixels.shape}: expected a value or channels for each pixel")
    end = pixels.shape[2] - overlap
    return said[0, :, overlap:end, overlap:end].astype("float32")


def _made(raster: Any, to: Path, count: int, *, classes: bool) -> Any:
    # Not compressed: windows and blocks differ, and a block that is written twice would be in the file twice.
    return rasterio.open(
        to,
        "w",
        driver="GTiff",
        dtype="uint8" if classes else "float32",
        nodata=_NO_CLASS if classes else np.nan,
        count=count,
        width=raster.width,
        height=raster.height,
        crs=raster.crs,
        transform=raster.transform,
        tiled=True,
        blockxsize=256,
        blockysize=256,
        bigtiff="IF_SAFER",
        interleave="band",
    )
