"""One COG of the maps of a tile: the same pixels, and depths that were looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio
from affine import Affine
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from rio_cogeo.cogeo import cog_validate

from dagmaster.errors import PermanentError
from dagmaster.geo.fathom import stack, synthetic_data
from dagmaster.geo.fathom.depth_codes import NODATA, PERMANENT_WATER, RETURN_PERIODS, SPECIAL, band_name
from dagmaster.geo.fathom.raster_layers import read_tags
from dagmaster.geo.raster.cog_writer import CogOptions
from tests.unit.geo.fathom.rasters import SHARE, pixels, write

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = CogOptions(resampling="nearest")


def stacked(
    sources: dict[str, Path], to: Path, monotone: Any = "report", tile: str = "n10e020", **other: Any
) -> Any:
    values: dict[str, Any] = {
        "options": OPTIONS,
        "share": SHARE,
        "tags": {},
        "on_block": lambda *_: None,
    } | other
    return stack.write_stack(sources, to, tile=tile, monotone=monotone, **values)


def refused(sources: dict[str, Path], to: Path, **other: Any) -> str:
    with pytest.raises(PermanentError) as caught:
        stacked(sources, to, **other)
    assert caught.value.kind == "invalid_input"
    assert not to.exists()
    return str(caught.value)


@pytest.fixture(scope="module")
def tile(tmp_path_factory):
    """Return a synthetic tile of 700 pixels: more than one window, more than one block, an overview."""
    folder = tmp_path_factory.mktemp("tile")
    grid = synthetic_data.SyntheticGrid(columns=1, rows=1, pixels=700, west=8, south=49)
    paths = synthetic_data.write_grid(folder, grid)
    sources = {band_name(period): path for period, path in zip(RETURN_PERIODS, paths, strict=True)}
    steps: list[tuple[int, int]] = []
    depths = stacked(
        sources,
        folder / "stack.tif",
        tile=grid.tiles[0],
        tags={"sources": {"a": ["x", "y"]}},
        on_block=lambda *step: steps.append(step),
    )
    return {"sources": sources, "stack": folder / "stack.tif", "depths": depths, "steps": steps}


def test_a_stack_has_the_pixels_of_its_sources_band_by_band(tile):
    raster = pixels(tile["stack"])
    assert raster.shape == (8, 700, 700)
    for place, path in enumerate(tile["sources"].values()):
        assert np.array_equal(raster[place], pixels(path)[0])
    assert list(tile["stack"].parent.glob("*-bands.tif")) == []


def test_the_synthetic_maps_have_depths_dry_ground_water_and_sea(tile):
    raster = pixels(tile["stack"])
    assert set(SPECIAL) <= set(np.unique(raster))
    assert (raster == 0).any()
    assert (raster > 100).any()
    assert (np.diff(np.where(raster < 0, 0, raster), axis=0) >= 0).all()
    assert (np.diff(raster.astype(int), axis=0) > 0).any()


def test_a_stack_is_a_cog_on_the_grid_of_its_sources_with_named_bands(tile):
    assert cog_validate(str(tile["stack"]), strict=True) == (True, [], [])
    with rasterio.open(tile["stack"]) as raster, rasterio.open(tile["sources"]["1in5"]) as source:
        assert raster.descriptions == tuple(map(band_name, RETURN_PERIODS))
        assert raster.units == ("cm",) * 8
        assert (raster.crs, raster.transform, raster.dtypes[0]) == (source.crs, source.transform, "int16")
        assert (raster.nodata, raster.interleaving.value) == (NODATA, "BAND")
        assert raster.overviews(8) == [2, 4]
        overview = raster.read(8, out_shape=(350, 350))
    # No overview has a value that no pixel has: marks are not averaged with depths.
    assert set(np.unique(overview)) <= set(np.unique(pixels(tile["stack"])[7]))


def test_what_was_found_is_reported_and_kept_in_the_file(tile):
    nothing = {"violations": 0, "worst_cm": 0, "by_band": {}, "first_at": None, "mask_differences": 0}
    assert tile["depths"] == nothing
    assert read_tags(tile["stack"], SHARE) == {"sources": {"a": ["x", "y"]}, "depths": nothing}
    assert tile["steps"] == [(0, 2), (1, 2), (2, 2)]


DEPTHS = st.one_of(st.integers(0, 300), st.sampled_from([NODATA, PERMANENT_WATER]))
MAPS = arrays.arrays("int16", (3, 5, 5), elements=DEPTHS, fill=st.nothing())


def shallower_than_before(maps: Any) -> Any:
    """By the definition: a depth below some depth of an earlier band at this pixel."""
    result = np.zeros(maps.shape, bool)
    for band in range(1, len(maps)):
        for before in range(band):
            result[band] |= (maps[band] >= 0) & (maps[before] >= 0) & (maps[band] < maps[before])
    return result


@pytest.mark.slow
@settings(max_examples=25)
@given(maps=MAPS)
def test_every_pixel_that_is_shallower_is_counted_and_fixing_leaves_none(tmp_path_factory, maps):
    folder = tmp_path_factory.mktemp("maps")
    sources = {f"1in{5 * (i + 1)}": write(folder / f"{i}.tif", one) for i, one in enumerate(maps)}
    wrong = shallower_than_before(maps)
    target = stacked(sources, folder / "report.tif", options=CogOptions(resampling="nearest", tile_size=16))
    assert target["violations"] == np.count_nonzero(wrong)
    assert target["by_band"] == {
        f"1in{5 * (i + 1)}": int(one.sum()) for i, one in enumerate(wrong) if one.any()
    }
    assert np.array_equal(pixels(folder / "report.tif"), maps)

    fixed = stacked(sources, folder / "fix.tif", "fix")
    after = pixels(folder / "fix.tif")
    assert fixed == target
    assert not shallower_than_before(after).any()
    assert np.array_equal(after[~wrong], maps[~wrong])
    assert ((after < 0) == (maps < 0)).all()


def test_a_tile_with_shallower_pixels_is_refused_by_policy_with_place_and_depth(tmp_path):
    first, second = np.full((4, 4), 50), np.full((4, 4), 60)
    second[1, 2] = 20
    sources = {"1in5": write(tmp_path / "a.tif", first), "1in10": write(tmp_path / "b.tif", second)}
    message = refused(sources, tmp_path / "x.tif", monotone="fail")
    assert "1 pixels are shallower" in message
    assert "1 in 1in10" in message
    assert "30 cm" in message
    # The middle of the pixel in the second line and third column.
    assert "20.625, 10.625" in message


def test_a_pixel_that_is_water_at_one_return_period_only_is_reported(tmp_path):
    first, second = np.zeros((4, 4)), np.zeros((4, 4))
    second[0, :2] = PERMANENT_WATER
    sources = {"1in5": write(tmp_path / "a.tif", first), "1in10": write(tmp_path / "b.tif", second)}
    assert stacked(sources, tmp_path / "x.tif")["mask_differences"] == 2


DRY = np.zeros((8, 8))


@pytest.mark.parametrize(
    ("values", "other", "message"),
    [
        (np.zeros((8, 4)), {}, "4 x 8 pixels instead of 8 x 8"),
        (DRY, {"crs": "EPSG:4258"}, "crs EPSG:4258 instead of EPSG:4326"),
        (DRY, {"dtype": "int32"}, "dtype int32 instead of int16"),
        (DRY, {"nodata": -1}, "nodata -1.0 instead of -9999.0"),
        (DRY, {"transform": Affine(0.125, 0, 20.1, 0, -0.125, 11)}, "corner is 0.8 pixels away"),
        (DRY, {"transform": Affine(0.25, 0, 20, 0, -0.25, 11)}, "pixels of 0.25 x 0.25"),
        (DRY, {"transform": Affine(0.125, 0.01, 20, 0, -0.125, 11)}, "rotated"),
        (DRY, {"transform": Affine(0.125, 0, 20, 0, 0.125, 10)}, "north-up"),
        (DRY, {"crs": None}, "has no CRS"),
        (
            DRY,
            {"crs": 'LOCAL_CS["a site",UNIT["metre",1]]'},
            "'a site' cannot be transformed to longitude and latitude",
        ),
        (DRY, {"dtype": "float32"}, "contains float32: expected depths in cm"),
        (DRY, {"nodata": 0}, "has the nodata value 0"),
        (np.zeros((2, 8, 8)), {}, "has 2 bands: expected one file"),
    ],
)
def test_maps_that_do_not_lie_on_one_grid_are_refused_by_name(tmp_path, values, other, message):
    sources = {"1in5": write(tmp_path / "a.tif", DRY), "1in10": write(tmp_path / "b.tif", values, **other)}
    target = refused(sources, tmp_path / "x.tif")
    assert message in target
    assert "1in10" in target


def test_a_file_that_lies_elsewhere_than_its_name_says_is_refused(tmp_path):
    sources = {"1in5": write(tmp_path / "a.tif", DRY, tile="n10e021")}
    assert "n10e020 is the square degree 20, 10, 21, 11, but its file lies at 21, 10, 22, 11" in refused(
        sources, tmp_path / "x.tif"
    )


def test_a_file_that_is_cut_off_damaged_or_no_raster_is_refused_by_name(tmp_path):
    rng = np.random.default_rng(1)
    first = write(tmp_path / "a.tif", np.zeros((600, 600)))
    broken = write(tmp_path / "b.tif", rng.integers(2, 3000, (600, 600)), compress="DEFLATE")
    sources, data = {"1in5": first, "1in10": broken}, broken.read_bytes()
    half = len(data) // 2
    for bad, message in (
        (data[:half], "truncated"),
        (data[:half] + bytes(5_000) + data[half + 5_000 :], "cannot be read to its end"),
        (b"no raster at all", "a text file, not the GTiff that its suffix .tif says"),
    ):
        broken.write_bytes(bad)
        target = refused(sources, tmp_path / "x.tif")
        assert target.startswith("1in10")
        assert message in target
