"""The stacks of a cell side by side: the same pixels, no data where there is no tile, and nothing that does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio
from affine import Affine
from rio_cogeo.cogeo import cog_validate

from dagmaster.errors import PermanentError
from dagmaster.geo.fathom import merge
from dagmaster.geo.fathom.raster_layers import read_tags
from dagmaster.geo.raster.cog_writer import CogOptions
from dagmaster.ports.handler_services import Share
from tests.unit.geo.fathom.rasters import SHARE, pixels, write

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 300


def a_stack(folder: Path, tile: str, *, size: int = SIZE, **other: Any) -> Path:
    rng = np.random.default_rng(sum(map(ord, tile)))
    return write(
        folder / f"{tile}.tif", np.sort(rng.integers(0, 900, (3, size, size)), axis=0), tile, **other
    )


def merged(stacks: dict[str, Path], folder: Path) -> Path:
    canvas = merge.lay_out(stacks, SHARE)
    parts = [folder / f"part{band}.tif" for band in (1, 2, 3)]
    for band, part in enumerate(parts, 1):
        merge.merge_band(canvas, band, part, SHARE, lambda *_: None)
    to = folder / "cell.tif"
    merge.combine_bands(
        canvas, parts, to, options=CogOptions(resampling="nearest"), share=SHARE, tags={"a": "<&\"'>"}
    )
    return to


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    """Three of four tiles: the north-east is sea."""
    folder = tmp_path_factory.mktemp("a cell & more")
    stacks = {tile: a_stack(folder, tile) for tile in ("s01w001", "s01e000", "n00w001")}
    return stacks, merged(stacks, folder)


def test_a_cell_has_the_pixels_of_its_stacks_and_no_data_where_there_is_none(cell):
    stacks, path = cell
    expected = np.full((3, 2 * SIZE, 2 * SIZE), -9999)
    expected[:, SIZE:, :SIZE] = pixels(stacks["s01w001"])
    expected[:, SIZE:, SIZE:] = pixels(stacks["s01e000"])
    expected[:, :SIZE, :SIZE] = pixels(stacks["n00w001"])
    assert np.array_equal(pixels(path), expected)


def test_a_value_for_no_data_with_many_digits_is_kept(tmp_path):
    lowest = -(2**31)
    stack = a_stack(tmp_path, "n00e000", size=16, dtype="int32", nodata=lowest)
    with rasterio.open(merged({"n00e000": stack}, tmp_path)) as raster:
        assert set(raster.nodatavals) == {lowest}


def test_a_cell_is_a_cog_around_its_stacks_with_their_bands(cell):
    stacks, path = cell
    assert cog_validate(str(path), strict=True) == (True, [], [])
    with rasterio.open(path) as raster, rasterio.open(stacks["n00w001"]) as north_west:
        assert tuple(raster.bounds) == (-1, -1, 1, 1)
        assert raster.crs == north_west.crs
        assert tuple(raster.transform) == pytest.approx(tuple(north_west.transform), abs=1e-12)
        assert raster.descriptions == ("1in5", "1in10", "1in15")
        assert (raster.units, raster.nodata, raster.dtypes) == (("cm",) * 3, -9999, ("int16",) * 3)
    assert read_tags(path, SHARE) == {"a": "<&\"'>"}


def test_a_band_is_merged_some_lines_at_a_time_and_may_be_ended_between_them(cell, tmp_path):
    canvas = merge.lay_out(cell[0], SHARE)
    steps: list[tuple[int, int]] = []
    merge.merge_band(canvas, 2, tmp_path / "b.tif", SHARE, lambda *step: steps.append(step))
    assert steps == [(0, 2), (1, 2), (2, 2)]

    def end(done: int, total: int) -> None:
        if done:
            raise PermanentError("the task was asked to stop", kind="cancelled")

    with pytest.raises(PermanentError, match="asked to stop"):
        merge.merge_band(canvas, 2, tmp_path / "b.tif", SHARE, end)


def moved(east: float, size: int = SIZE) -> Affine:
    return Affine(1 / size, 0, 1 + east / size, 0, -1 / size, 1)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"transform": moved(-1)}, "n00e000 and n00e001 overlap in 1 x 300 pixels"),
        ({"transform": moved(0.3)}, "n00e001 is misaligned: its pixels are 0.3 of a pixel"),
        ({"size": 299}, "n00e001 does not match n00e000: pixels of"),
        ({"crs": "EPSG:4258"}, "n00e001 does not match n00e000: crs EPSG:4258 instead of EPSG:4326"),
        ({"nodata": -1}, "nodata -1.0 instead of -9999.0"),
        ({"dtype": "int32"}, "dtype int32 instead of int16"),
    ],
)
def test_stacks_that_do_not_fit_together_are_refused(tmp_path, other, message):
    stacks = {"n00e000": a_stack(tmp_path, "n00e000"), "n00e001": a_stack(tmp_path, "n00e001", **other)}
    with pytest.raises(PermanentError) as caught:
        merge.lay_out(stacks, SHARE)
    assert caught.value.kind == "invalid_input"
    assert message in str(caught.value)


def test_a_grid_whose_coordinates_were_rounded_is_still_one_grid(tmp_path):
    rounded = Affine(round(1 / SIZE, 10), 0, 1.0000001, 0, -round(1 / SIZE, 10), 0.9999999)
    stacks = {
        "n00e000": a_stack(tmp_path, "n00e000"),
        "n00e001": a_stack(tmp_path, "n00e001", transform=rounded),
    }
    canvas = merge.lay_out(stacks, SHARE)
    assert (canvas.width, canvas.height) == (2 * SIZE, SIZE)


def test_stacks_with_other_return_periods_are_refused(tmp_path):
    stacks = {
        "n00e000": a_stack(tmp_path, "n00e000"),
        "n00e001": write(tmp_path / "x.tif", np.zeros((2, SIZE, SIZE)), "n00e001"),
    }
    with pytest.raises(PermanentError, match="bands 1in5, 1in10 instead of 1in5, 1in10, 1in15"):
        merge.lay_out(stacks, SHARE)


def test_a_cell_with_too_many_pixels_is_refused_before_it_is_made(tmp_path):
    stacks = {tile: a_stack(tmp_path, tile, size=8) for tile in ("n00e000", "n09e009")}
    with pytest.raises(PermanentError, match=r"80 x 80 pixels in 3 bands, 19,200 in all.*smaller cell"):
        merge.lay_out(stacks, Share(max_pixels=19_199))
