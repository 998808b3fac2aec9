"""Apply an ONNX model to a raster, window by window.

Windows overlap, and only the middle of each is kept: predictions are worse at the edge of a window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnxruntime
import rasterio
from rasterio.windows import Window

from dagmaster.errors import invalid_input
from dagmaster.geo.gdal import explain_io_errors, open_raster
from dagmaster.geo.raster.cog_writer import write_cog
from dagmaster.geo.raster.georeferences import require_georeferenced
from dagmaster.geo.raster.grids import raster_grid, require_north_up
from dagmaster.text_format import library_words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dagmaster.geo.raster.analysis_handlers import PredictionOptions
    from dagmaster.geo.raster.cog_writer import CogOptions
    from dagmaster.ports.handler_services import Share

_TENSOR_RANK: Final = 4
_NO_CLASS: Final = 255


def write_prediction(
    path: Path | str,
    target: Path,
    options: CogOptions,
    share: Share,
    *,
    model: bytes,
    prediction: PredictionOptions,
    on_window: Callable[[int, int], None] = lambda _done, _count: None,
) -> int:
    """Write the prediction for each pixel as a COG; return the number of windows."""
    with open_raster(path, share) as raster:
        require_georeferenced(raster)
        require_north_up(raster)
        bands = list(prediction.bands) if prediction.bands else list(raster.indexes)
        if any(not 1 <= band <= raster.count for band in bands):
            raise invalid_input(f"there are no bands {bands}: the raster has {raster.count}")
        session = _open_session(model, share)
        side = _window_side(session, len(bands), prediction)
        intermediate = target.with_name(f"{target.stem}-predicted.tif")
        with explain_io_errors(path, target=intermediate):
            count = _predict_windows(
                raster, intermediate, session, bands, side=side, prediction=prediction, on_window=on_window
            )
    with explain_io_errors(path, target=target), rasterio.open(intermediate) as source:
        write_cog(source, target, options, share)
    intermediate.unlink()
    return count


def _open_session(model: bytes, share: Share) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = share.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        # From bytes: a model with external weights would read any file that it names.
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common base class
        raise invalid_input(
            "the model cannot be loaded: expected one ONNX file that contains its weights, of an opset that"
            f" the installed onnxruntime knows{library_words('ONNX', error)}"
        ) from error


def _window_side(session: Any, band_count: int, prediction: PredictionOptions) -> int:
    """Return the side of a window: the model's own if its input size is fixed."""
    inputs = session.get_inputs()
    shape = list(inputs[0].shape)
    if len(inputs) != 1 or len(shape) != _TENSOR_RANK or inputs[0].type != "tensor(float)":
        actual = "; ".join(f"{tensor.name}: {tensor.type} {tensor.shape}" for tensor in inputs)
        raise invalid_input(
            f"the input of the model is {actual}: expected one tensor(float) of batch, bands, rows, columns"
        )
    if isinstance(shape[1], int) and shape[1] != band_count:
        raise invalid_input(
            f"the model expects {shape[1]} bands, and the input has {band_count}: select them by bands"
        )
    fixed = {length for length in shape[2:] if isinstance(length, int)}
    if len(fixed) > 1:
        raise invalid_input(
            f"the model expects windows of {shape[2]} x {shape[3]} pixels: expected square ones"
        )
    side = fixed.pop() if fixed else prediction.window
    if side <= 2 * prediction.overlap:
        raise invalid_input(
            f"an overlap of {prediction.overlap} pixels leaves nothing of a window of {side}: decrease"
            " overlap"
        )
    return side


def _predict_windows(
    raster: Any,
    target: Path,
    session: Any,
    bands: list[int],
    *,
    side: int,
    prediction: PredictionOptions,
    on_window: Callable[[int, int], None],
) -> int:
    windows = list(raster_grid(raster).windows(side - 2 * prediction.overlap))
    output: Any = None
    try:
        for done, window in enumerate(windows):
            on_window(done, len(windows))
            pixels, has_data = _read_input(raster, bands, window, side, prediction)
            channels = _run_model(session, pixels, prediction.overlap)[:, : window.height, : window.width]
            if prediction.classes:
                if channels.shape[0] > _NO_CLASS:
                    raise invalid_input(
                        f"the model returns {channels.shape[0]} channels: a byte holds at most {_NO_CLASS}"
                        " classes next to nodata. Do not set classes"
                    )
                channels = channels.argmax(axis=0)[None].astype("uint8")
            channels[:, ~has_data] = _NO_CLASS if prediction.classes else np.nan
            if output is None:
                output = _create_output(raster, target, channels.shape[0], classes=prediction.classes)
            output.write(channels, window=window)
    finally:
        if output is not None:
            output.close()
    return len(windows)


def _read_input(
    raster: Any, bands: list[int], window: Window, side: int, prediction: PredictionOptions
) -> tuple[Any, Any]:
    """Return the input tensor of a window and its surroundings, and which pixels of the window have data.

    Beyond the raster, its edge is repeated.
    """
    left, top = window.col_off - prediction.overlap, window.row_off - prediction.overlap
    first = (max(0, left), max(0, top))
    last = (min(raster.width, left + side), min(raster.height, top + side))
    inside = Window(*first, last[0] - first[0], last[1] - first[1])
    pixels = raster.read(bands, window=inside, masked=True)
    is_missing = np.ma.getmaskarray(pixels).any(axis=0) | ~np.isfinite(pixels.filled(0)).all(axis=0)
    scaled = pixels.filled(0).astype("float32") * prediction.scale + prediction.offset
    tensor = np.where(is_missing, 0, scaled).astype("float32")
    padding = ((first[1] - top, top + side - last[1]), (first[0] - left, left + side - last[0]))
    row, column = window.row_off - first[1], window.col_off - first[0]
    has_data = ~is_missing[row : row + window.height, column : column + window.width]
    return np.pad(tensor, ((0, 0), *padding), mode="edge")[None], has_data


def _run_model(session: Any, pixels: Any, overlap: int) -> Any:
    try:
        channels = np.asarray(session.run(None, {session.get_inputs()[0].name: pixels})[0])
    except Exception as error:  # its exceptions have no common base class
        raise invalid_input(
            f"the model fails on a window of {pixels.shape[2]} x {pixels.shape[3]} pixels in"
            f" {pixels.shape[1]} bands:"
            f" select its bands by bands, or its window size by window{library_words('ONNX', error)}"
        ) from error
    if channels.ndim != _TENSOR_RANK or channels.shape[2:] != pixels.shape[2:]:
        raise invalid_input(
            f"the model returns {channels.shape} for {pixels.shape}: expected a value or channels for each"
            " pixel"
        )
    end = pixels.shape[2] - overlap
    return channels[0, :, overlap:end, overlap:end].astype("float32")


def _create_output(raster: Any, target: Path, count: int, *, classes: bool) -> Any:
    # Not compressed: windows and blocks differ, and a compressed block written twice would be stored twice.
    return rasterio.open(
        target,
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
