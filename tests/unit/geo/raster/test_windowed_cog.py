"""COGs that are computed window by window: resumed, atomic, with every source named."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio
from rasterio.crs import CRS

from dagmaster.errors import PermanentError
from dagmaster.geo.gdal import gdal_env, open_raster
from dagmaster.geo.provenance import multihash
from dagmaster.geo.raster.cog_output import CogParams, CogResult
from dagmaster.geo.raster.grids import Grid, raster_grid
from dagmaster.geo.raster.windowed_cog import Layout, publish_windowed_cog
from dagmaster.geo.source_files import LocalFile, local_file
from tests.unit.geo.raster.raster_context import UTM, UTM_25S, HandlerHarness, numbers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rasterio.windows import Window

    from dagmaster.sdk.handler_context import HandlerContext

SIDE = 128


def local_files(ctx: HandlerContext, hrefs: list[str]) -> list[LocalFile]:
    return [local_file(ctx, ctx.blobs.resolve(href)) for href in hrefs]


@pytest.fixture
def harness(tmp_path: Path) -> HandlerHarness:
    return HandlerHarness(tmp_path)


def publish(
    harness: HandlerHarness,
    pixels: Any,
    *,
    compute: Callable[[Any], Any] = lambda pixels: pixels,
    reporter: Any = None,
    **layout: Any,
) -> CogResult:
    """Compute a copy of pixels in windows of 128, as a handler does."""
    harness.bronze("one.tif", numbers(300, 200))
    harness.bronze("two.tif", numbers(300, 200, seed=2))
    ctx = harness.context("raster.create_cog")
    ctx.reporter = reporter
    bands, height, width = pixels.shape
    grid = Grid(crs=CRS.from_string(UTM_25S), affine=UTM, width=width, height=height)

    def window_pixels(window: Window) -> Any:
        rows, columns = window.toslices()
        return compute(pixels[:, rows, columns])

    try:
        return publish_windowed_cog(
            ctx,
            local_files(ctx, ["one.tif", "two.tif"]),
            CogParams(datetime="2026-01-01"),
            Layout(**{
                "grid": grid, "dtype": str(pixels.dtype), "bands": [f"band{band}" for band in range(bands)],
                "window_pixels": SIDE, **layout,
            }),
            window_pixels,
            name="copy",
            pixel_params={"kind": "copy"},
        )  # fmt: skip
    finally:
        ctx.close()


class Kills:
    """A reporter whose process dies after some windows."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.phases: list[str] = []
        self.data: dict[str, Any] = {}

    def progress(self, progress: Any) -> None:
        pass

    def checkpoint(self, checkpoint: Any) -> Any:
        self.phases.append(checkpoint.phase)
        self.data = checkpoint.data
        if len(self.phases) == self.after:
            raise KeyboardInterrupt
        return checkpoint


@pytest.mark.parametrize(
    ("dtype", "nodata"),
    [("uint8", 0), ("int16", -9999), ("float32", float("nan")), ("float64", -1.0), ("uint16", None)],
)
def test_the_windows_are_one_cog_with_the_same_pixels(
    harness: HandlerHarness, dtype: str, nodata: float | None
):
    pixels = numbers(300, 200, bands=2, dtype=dtype)
    published = publish(harness, pixels, nodata=nodata)
    with rasterio.open(harness.path(published.cog_url)) as cog:
        assert np.array_equal(cog.read(), pixels)
        assert (cog.descriptions, cog.transform, cog.crs.to_string()) == (("band0", "band1"), UTM, UTM_25S)
        assert str(cog.nodata) == str(None if nodata is None else float(nodata))
        assert cog.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
    assert harness.silver() == [str(harness.path(published.cog_url).relative_to(harness.folder / "silver"))]


@pytest.mark.parametrize("nodata", [0, None])
def test_what_is_masked_is_without_data(harness: HandlerHarness, nodata: int | None):
    pixels = np.ma.masked_greater(numbers(300, 200), 150)
    published = publish(harness, pixels, nodata=nodata)
    with rasterio.open(harness.path(published.cog_url)) as cog:
        read = cog.read(masked=True)
    assert np.array_equal(np.ma.getmaskarray(read), np.ma.getmaskarray(pixels))
    assert np.array_equal(read.compressed(), pixels.compressed())


def test_a_later_attempt_computes_only_the_windows_that_are_not_finished(harness: HandlerHarness):
    pixels, computed = numbers(300, 200), list[tuple[int, ...]]()

    def compute(part: Any) -> Any:
        computed.append(part.shape)
        return part

    killed = Kills(after=4)
    with pytest.raises(KeyboardInterrupt):
        publish(harness, pixels, compute=compute, reporter=killed)
    assert killed.phases == [f"window {number} of 6" for number in range(1, 5)]
    # What is not complete is not there: no COG yet, and four windows whose names no catalog takes.
    assert [name.rpartition("/")[2] for name in harness.silver()] == [
        f".window{number}.tif" for number in range(1, 5)
    ]
    published = publish(harness, pixels, compute=compute)
    assert len(computed) == 6
    assert np.array_equal(harness.read(published.cog_url), pixels)
    assert len(harness.silver()) == 1
    # It is there: nothing is computed.
    assert publish(harness, pixels, compute=compute).cog_url == published.cog_url
    assert len(computed) == 6


@pytest.mark.parametrize("harm", ["deleted", "truncated"])
def test_a_window_that_is_gone_or_damaged_is_computed_again_and_no_other(harness: HandlerHarness, harm: str):
    pixels, computed = numbers(300, 200), list[Any]()

    def compute(part: Any) -> Any:
        computed.append(part[0, 0, 0])
        return part

    with pytest.raises(KeyboardInterrupt):
        publish(harness, pixels, compute=compute, reporter=Kills(after=4))
    (second,) = (harness.folder / "silver").rglob(".window2.tif")
    second.unlink() if harm == "deleted" else second.write_bytes(second.read_bytes()[:100])
    before = len(computed)
    published = publish(harness, pixels, compute=compute)
    assert computed[before:] == [pixels[0, 0, SIDE], pixels[0, 2 * SIDE, 0], pixels[0, 2 * SIDE, SIDE]]
    assert np.array_equal(harness.read(published.cog_url), pixels)


def test_the_checkpoints_keep_what_the_handler_itself_has_saved(harness: HandlerHarness):
    reporter = Kills(after=99)
    harness.bronze("one.tif", numbers(300, 200))
    ctx = harness.context("raster.create_cog")
    ctx.reporter = reporter
    ctx.checkpoint("validated", {"validated": True}, ["one.tif"])
    (file,) = local_files(ctx, ["one.tif"])
    with gdal_env(ctx.share), open_raster(file.path, ctx.share) as raster:
        layout = Layout(grid=raster_grid(raster), dtype="uint16", bands=["b"], nodata=0, window_pixels=SIDE)
        publish_windowed_cog(
            ctx,
            [file],
            CogParams(),
            layout,
            lambda window: raster.read(1, window=window),
            name="n",
            pixel_params={},
        )
    ctx.close()
    assert reporter.data == {"validated": True, "windows": 6}
    assert ctx.last_checkpoint is not None
    assert list(ctx.last_checkpoint.artifacts) == ["one.tif"]


def test_the_item_and_the_file_name_every_source_with_its_checksum(harness: HandlerHarness):
    published = publish(harness, numbers(300, 200))
    ctx = harness.context("raster.create_cog")
    files = local_files(ctx, ["one.tif", "two.tif"])
    expected = [{"href": str(file.uri), "file:checksum": multihash(file.sha256)} for file in files]
    assert published.item["properties"]["dagmaster:sources"] == expected
    with rasterio.open(harness.path(published.cog_url)) as cog:
        assert all(file.sha256 in cog.tags()["DAGMASTER_MADE_OF"] for file in files)


@pytest.mark.parametrize(
    "wrong",
    [lambda pixels: pixels[:, 1:], lambda pixels: pixels[0, 0], lambda pixels: pixels.astype("float64")],
)
def test_pixels_of_another_shape_or_type_are_rejected(harness: HandlerHarness, wrong: Callable[[Any], Any]):
    with pytest.raises(PermanentError, match=r"expected uint16 of shape \(1, 128, 128\)") as caught:
        publish(harness, numbers(300, 200), compute=wrong)
    assert caught.value.kind == "invalid_output"
    assert harness.silver() == []


def test_the_pixels_of_one_window_are_in_memory_at_a_time(harness: HandlerHarness):
    computed: list[weakref.ref[Any]] = []

    def compute(part: Any) -> Any:
        assert max(part.shape) <= SIDE
        assert [one() for one in computed if one() is not None] == []
        copy = part.copy()
        computed.append(weakref.ref(copy))
        return copy

    publish(harness, numbers(300, 200), compute=compute)
    assert len(computed) == 6
