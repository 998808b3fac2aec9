"""What was not measured stays so, and what was measured too: in mosaics, cuts, tiles and warps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio
from affine import Affine

from dagmaster.errors import PermanentError
from tests.unit.geo.raster.raster_context import UTM, numbers

if TYPE_CHECKING:
    from tests.unit.geo.raster.raster_context import HandlerHarness

BESIDE = UTM @ Affine.translation(60, 0)


@pytest.mark.parametrize(
    "name", ["raster.create_cog", "raster.process_complete", "raster.reproject", "raster.mosaic"]
)
@pytest.mark.parametrize(
    ("own", "nodata", "sentence"),
    [
        (-9999, 0, "has the nodata value -9999, and 0 is requested"),
        (None, 1e9, "int16 cannot represent the nodata value"),
    ],
)
def test_a_nodata_value_that_changes_or_loses_pixels_is_refused(
    harness: HandlerHarness, name: str, own: float | None, nodata: float, sentence: str
):
    harness.bronze("a.tif", numbers(40, 40, dtype="int16"), nodata=own)
    more: dict[str, Any] = {"sources": ["a.tif"]} if name == "raster.mosaic" else {"href": "a.tif"}
    if name == "raster.reproject":
        more["target_crs"] = "EPSG:4326"
    with pytest.raises(PermanentError, match=sentence):
        harness.run(name, nodata=nodata, **more)
    assert harness.silver() == []


def test_a_tile_has_the_nodata_value_that_is_asked_for_and_another_name(harness: HandlerHarness):
    harness.bronze("a.tif", numbers(40, 40))
    (tile,) = harness.run("raster_plan_tiles", href="a.tif").tiles
    plain = harness.run("raster.create_cog", tile_spec=tile)
    result = harness.run("raster.create_cog", tile_spec=tile, nodata=7, use_mount=True)
    with rasterio.open(harness.path(result.cog_url)) as cog:
        assert cog.nodata == 7
    assert result.cog_url != plain.cog_url
    assert np.array_equal(harness.read(result.cog_url), numbers(40, 40))
    assert list((harness.folder / "scratch" / "mount").rglob("a.tif"))


def test_what_is_transparent_hides_nothing_below_it(harness: HandlerHarness):
    rgba: dict[str, Any] = {"photometric": "RGB", "alpha": "yes"}
    top, below = numbers(100, 100, bands=4, dtype="uint8"), numbers(100, 100, bands=4, dtype="uint8", seed=2)
    top[3], below[3] = 255, 255
    top[:, :, 60:] = 0
    harness.bronze("top.tif", top, **rgba)
    harness.bronze("below.tif", below, transform=BESIDE, **rgba)
    pixels = harness.read(harness.run("raster.mosaic", sources=["top.tif", "below.tif"]).cog_url)
    assert np.array_equal(pixels[:, :, :60], top[:, :, :60])
    assert np.array_equal(pixels[:, :, 60:], below)


def test_sources_whose_numbers_mean_other_things_make_no_mosaic(harness: HandlerHarness):
    for name, scale in (("a.tif", 0.1), ("b.tif", 0.01)):
        harness.bronze(name, numbers(60, 60), transform=UTM if name == "a.tif" else BESIDE)
        with rasterio.open(harness.folder / "bronze" / name, "r+") as raster:
            raster.scales = (scale,)
    with pytest.raises(
        PermanentError, match=r"differ in scales, offsets, units or colours.*0\.1 \* x.*0\.01 \* x"
    ):
        harness.run("raster.mosaic", sources=["a.tif", "b.tif"])


@pytest.mark.parametrize("nodata", [None, -9999.0])
def test_what_a_mask_hides_is_nodata_in_a_cut(harness: HandlerHarness, nodata: float | None):
    mask = np.full((40, 40), 255, "uint8")
    mask[10:20, 10:20] = 0
    harness.bronze("a.tif", numbers(40, 40, dtype="float32"), mask=mask, nodata=nodata)
    place = harness.run("raster.validate", href="a.tif").bbox
    result = harness.run(
        "raster.clip", href="a.tif", bbox=[place[0] - 1, place[1] - 1, place[2] + 1, place[3] + 1]
    )
    with rasterio.open(harness.path(result.cog_url)) as cog:
        assert np.array_equal(cog.dataset_mask(), mask)
        assert np.array_equal(cog.read(1)[mask > 0], numbers(40, 40, dtype="float32")[0][mask > 0])


def test_complex_whole_numbers_are_cut(harness: HandlerHarness):
    harness.bronze("a.tif", numbers(40, 40, dtype="complex64"), dtype="complex_int16")
    place = harness.run("raster.validate", href="a.tif").bbox
    result = harness.run("raster.clip", href="a.tif", bbox=place, all_touched=True)
    assert np.array_equal(harness.read(result.cog_url), numbers(40, 40, dtype="complex64"))
