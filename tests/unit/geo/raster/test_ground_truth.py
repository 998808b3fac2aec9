"""Pixels, places and areas, against what rasterio and GDAL themselves say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio
from affine import Affine
from rasterio.warp import Resampling, calculate_default_transform, transform_bounds
from rasterio.warp import reproject as gdal_reproject
from rio_cogeo.cogeo import cog_validate

from tests.unit.geo.raster.raster_context import LANDSAT, UTM, numbers
from tests.unit.geo.raster.raster_manifest import RasterCase, make_raster

if TYPE_CHECKING:
    from tests.unit.geo.raster.raster_context import HandlerHarness

pytestmark = pytest.mark.slow


def landsat() -> Any:
    with rasterio.open(LANDSAT) as raster:
        return raster.read()


# ── a COG ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("compression", ["DEFLATE", "zstd", "LZW", "LERC", "NONE"])
def test_a_cog_has_the_pixels_and_the_place_of_its_source(harness: HandlerHarness, compression: str):
    result = harness.run("raster.create_cog", href=str(LANDSAT), compression=compression)
    assert np.array_equal(harness.read(result.cog_url), landsat())
    with rasterio.open(LANDSAT) as source, rasterio.open(harness.path(result.cog_url)) as cog:
        assert (cog.crs, cog.transform, cog.dtypes) == (source.crs, source.transform, source.dtypes)
        assert cog.block_shapes[0] == (512, 512)
        assert cog.compression is None or cog.compression.name.upper() == compression.upper()
        expected = transform_bounds(source.crs, "OGC:CRS84", *source.bounds)
        assert result.bbox == pytest.approx(expected, abs=1e-7)
        assert result.bounds == list(source.bounds)
    valid, errors, warnings = cog_validate(str(harness.path(result.cog_url)), strict=True)
    assert (valid, errors, warnings) == (True, [], [])


@pytest.mark.parametrize("factors", [[2, 4], [4, 2]], ids=["sorted", "unsorted"])
def test_overviews_are_made_as_asked_for_and_not_copied_from_the_source(
    harness: HandlerHarness, factors: list[int]
):
    pixels = numbers(1100, 1100)
    harness.bronze("with_overviews.tif", pixels, tiled=True, blockxsize=256, blockysize=256)
    for factor in factors:
        with rasterio.open(harness.folder / "bronze" / "with_overviews.tif", "r+") as raster:
            raster.build_overviews([factor], Resampling.nearest)
    result = harness.run("create_cog", href="with_overviews.tif", overview_resampling="average")
    with rasterio.open(harness.path(result.cog_url)) as cog:
        assert cog.overviews(1) == [2, 4]
    with rasterio.open(harness.path(result.cog_url), overview_level=0) as overview:
        corner = pixels[0][:100, :100].reshape(50, 2, 50, 2).mean(axis=(1, 3))
        assert np.abs(overview.read(1)[:50, :50] - corner).max() <= 0.5


def test_twin_runs_give_one_blob_and_the_same_answer(harness: HandlerHarness):
    first, second = (harness.run("create_cog", href=str(LANDSAT), collection_id="a") for _ in range(2))
    assert first == second
    assert len(harness.silver()) == 1


def test_another_source_or_another_way_gives_another_blob(harness: HandlerHarness):
    one = harness.bronze("one.tif", numbers(seed=1))
    result = [harness.run("create_cog", href=one), harness.run("create_cog", href=one, tile_size=256)]
    harness.bronze("one.tif", numbers(seed=2))
    result.append(harness.run("create_cog", href=one))
    assert len({cog.cog_url for cog in result}) == len(harness.silver()) == 3
    # It is an item of the same thing, which replaces the one before.
    assert result[0].item["id"] == result[2].item["id"]


def test_a_result_of_a_result_has_one_fingerprint_in_its_name(harness: HandlerHarness):
    warped = harness.run("raster_reproject", href=str(LANDSAT), target_crs="EPSG:4326")
    result = harness.run("create_cog", href=warped.reprojected_path)
    assert re.fullmatch(r"landsat7_olinda-[0-9a-f]{16}\.tif", harness.path(result.cog_url).name)


def test_a_cog_keeps_nodata_names_units_scales_and_tags(harness: HandlerHarness):
    path = harness.folder / "bronze" / "rich.tif"
    harness.bronze("rich.tif", numbers(bands=2, dtype="int16"), nodata=-9999)
    with rasterio.open(path, "r+") as raster:
        raster.descriptions, raster.units = ("red", "near"), ("m", "K")
        raster.scales, raster.offsets = (0.1, 1.0), (-5.0, 0.0)
        raster.update_tags(SENSOR="ETM+")
    whole = harness.run("create_cog", href="rich.tif")
    tile = harness.run(
        "create_cog", tile_spec=harness.run("raster_plan_tiles", href="rich.tif", tile_size=128).tiles[1]
    )
    for result in (whole, tile):
        with rasterio.open(harness.path(result.cog_url)) as cog:
            assert (cog.nodata, cog.descriptions, cog.units) == (-9999, ("red", "near"), ("m", "K"))
            assert (cog.scales, cog.offsets) == ((0.1, 1.0), (-5.0, 0.0))
            assert cog.tags()["SENSOR"] == "ETM+"
        band = result.item["assets"]["data"]["bands"][0]
        assert band["name"] == "red"
        assert (band["raster:scale"], band["nodata"]) == (0.1, -9999)


def test_tiles_warps_clips_and_mosaics_keep_the_metadata_that_gdals_driver_keeps(harness: HandlerHarness):
    case = RasterCase(dtype="uint16", bands="2", metadata="tags", crs="degrees")
    source = make_raster(case, harness.folder / "bronze" / "a.tif")
    plan = harness.run("raster_plan_tiles", href="a.tif", tile_size=256)
    tile = harness.run("create_cog", tile_spec=plan.tiles[0])
    results = [
        tile,
        harness.run("raster.mosaic", sources=[tile.cog_url]),
        harness.run("raster.reproject", href="a.tif", target_crs="EPSG:3857"),
        harness.run("raster.clip", href="a.tif", bbox=[10.1, 48, 10.5, 49.9]),
    ]
    with rasterio.open(source) as raster:
        expected = (raster.tags(ns="xml:XMP"), raster.tags(1, ns="IMAGERY"), raster.tags()["SENSOR"], "560")
    for result in results:
        with rasterio.open(harness.path(result.cog_url)) as cog:
            tags = (
                cog.tags(ns="xml:XMP"),
                cog.tags(1, ns="IMAGERY"),
                cog.tags()["SENSOR"],
                cog.tags(1)["WAVELENGTH"],
            )
            assert tags == expected
        # Statistics describe all pixels of the source: those of a part, or of other pixels, are not known.
        assert result.not_carried == (["statistics of band 1"] if result is not results[1] else [])


# ── tiles and mosaics ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("tile_size", "overlap"), [(128, 0), (100, 17), (1000, 0)])
def test_tiles_put_together_are_the_source(harness: HandlerHarness, tile_size: int, overlap: int):
    plan = harness.run("raster_plan_tiles", href=str(LANDSAT), tile_size=tile_size, overlap=overlap)
    tiles = [harness.run("raster_cog_docker", tile_spec=spec) for spec in plan.tiles]
    mosaic = harness.run("raster_mosaic", sources=[tile.model_dump() for tile in tiles])
    assert np.array_equal(harness.read(mosaic.cog_url), landsat())
    with rasterio.open(LANDSAT) as source, rasterio.open(harness.path(mosaic.cog_url)) as result:
        assert (result.crs, result.bounds) == (source.crs, source.bounds)
        assert result.transform.almost_equals(source.transform)
    assert plan.count == len(tiles) == mosaic.source_count
    # The scene, not its tiles.
    (named,) = mosaic.item["properties"]["dagmaster:sources"]
    assert named["href"] == LANDSAT.as_uri()
    assert [link["href"] for link in mosaic.item["links"] if link["rel"] == "via"] == [LANDSAT.as_uri()]


def test_a_tile_has_the_pixels_of_its_window_and_lies_there(harness: HandlerHarness):
    plan = harness.run("raster_plan_tiles", href=str(LANDSAT), tile_size=100)
    spec = plan.tiles[5]
    tile = harness.run("raster_cog_docker", tile_spec=spec)
    column, row, width, height = spec["window"]
    assert np.array_equal(
        harness.read(tile.cog_url), landsat()[:, row : row + height, column : column + width]
    )
    assert tile.bbox == pytest.approx(spec["bbox"], abs=1e-7)
    with rasterio.open(LANDSAT) as source:
        window = rasterio.windows.Window(column, row, width, height)
        assert tile.bounds == pytest.approx(source.window_bounds(window))
    assert tile.item["properties"]["dagmaster:sources"][0]["file:checksum"].endswith(spec["source_version"])


def test_tiles_cover_each_pixel_once(harness: HandlerHarness):
    plan = harness.run("raster_plan_tiles", href=str(LANDSAT), tile_size=60)
    times = np.zeros((352, 349), int)
    for spec in plan.tiles:
        column, row, width, height = spec["window"]
        times[row : row + height, column : column + width] += 1
    assert (times == 1).all()
    assert (plan.rows, plan.columns, plan.count) == (6, 6, 36)


def test_tiles_that_are_warped_each_for_itself_agree_with_the_whole_warped_at_once(harness: HandlerHarness):
    plan = harness.run("raster_plan_tiles", href=str(LANDSAT), tile_size=128)
    tiles = [harness.run("raster_cog_docker", tile_spec=spec, target_crs="EPSG:4326") for spec in plan.tiles]
    mosaic = harness.run("raster_mosaic", sources=[tile.cog_path for tile in tiles], nodata=0)
    with rasterio.open(LANDSAT) as source:
        affine, width, height = calculate_default_transform(
            source.crs, "EPSG:4326", source.width, source.height, *source.bounds
        )
        place = {"crs": "EPSG:4326", "transform": affine, "width": width, "height": height}
        with rasterio.vrt.WarpedVRT(source, **place, tolerance=1e-6) as whole:
            assert np.array_equal(harness.read(mosaic.cog_url), whole.read())


def test_where_sources_overlap_the_first_with_data_wins_or_the_last(harness: HandlerHarness):
    one, two = numbers(seed=1, dtype="float32"), numbers(seed=2, dtype="float32")
    one[:, 50:60, 100:120] = np.nan
    harness.bronze("one.tif", one, nodata=np.nan)
    harness.bronze("two.tif", two, nodata=np.nan, transform=UTM @ Affine.translation(50, 20))
    canvas = np.full((1, 220, 350), np.nan, "float32")
    first, last = canvas.copy(), canvas.copy()
    first[:, 20:, 50:] = two
    where = ~np.isnan(one)
    first[:, :200, :300][where] = one[where]
    last[:, :200, :300] = one
    last[:, 20:, 50:] = two
    result = {
        how: harness.run("raster.mosaic", sources=["one.tif", "two.tif"], overlap=how)
        for how in ("first", "last")
    }
    assert np.array_equal(harness.read(result["first"].cog_url), first, equal_nan=True)
    assert np.array_equal(harness.read(result["last"].cog_url), last, equal_nan=True)


# ── warping ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def warped_by_gdal(source: Any, crs: str, *, tolerance: float = 0.125, how: Any = Resampling.nearest) -> Any:
    affine, width, height = calculate_default_transform(
        source.crs, crs, source.width, source.height, *source.bounds
    )
    out = np.zeros((source.count, height, width), source.dtypes[0])
    gdal_reproject(
        rasterio.band(source, list(source.indexes)),
        out,
        dst_transform=affine,
        dst_crs=crs,
        resampling=how,
        tolerance=tolerance,
    )
    return out


@pytest.mark.parametrize(
    ("crs", "how"), [("EPSG:4326", "nearest"), ("EPSG:3857", "bilinear"), ("EPSG:32624", "cubic")]
)
def test_a_warp_is_gdals_warp(harness: HandlerHarness, crs: str, how: str):
    result = harness.run("raster_reproject", source_path=str(LANDSAT), target_crs=crs, resampling=how)
    with rasterio.open(LANDSAT) as source:
        expected = warped_by_gdal(source, crs, how=Resampling[how])
    raster = harness.read(result.reprojected_path)
    assert raster.shape == expected.shape
    # GDAL places pixels to an eighth of a pixel, chunk by chunk, and the chunks differ.
    assert np.mean(np.abs(raster.astype(int) - expected) > 1) < 0.02
    assert abs(raster.mean() - expected.mean()) < 0.2
    assert result.crs == crs
    assert cog_validate(str(harness.path(result.cog_url)))[0]


def test_a_warp_keeps_the_area(harness: HandlerHarness):
    harness.bronze("ones.tif", np.ones((200, 300), "uint8"), nodata=0)
    result = harness.run("raster_reproject", href="ones.tif", target_crs="EPSG:6933", resolution=30)
    # An equal-area system: the number of its pixels is the area.
    assert int(harness.read(result.cog_url).sum()) == pytest.approx(200 * 300, rel=0.005)


def test_pixels_that_no_source_reaches_are_nodata(harness: HandlerHarness):
    harness.bronze("floats.tif", numbers(dtype="float32"))
    result = harness.run("raster_reproject", href="floats.tif", target_crs="EPSG:4326")
    raster = harness.read(result.cog_url)
    assert result.metadata["nodata"] == "nan"
    assert 0 < np.isnan(raster).mean() < 0.1
    assert np.nanmin(raster) >= 1
    harness.bronze("whole.tif", numbers())
    values = harness.run("raster_reproject", href="whole.tif", target_crs="EPSG:4326", nodata=65535)
    assert values.metadata["nodata"] == 65535
    assert set(np.unique(harness.read(values.cog_url))) <= {*range(1, 200), 65535}


def test_whole_numbers_without_nodata_are_masked_where_no_source_reaches(harness: HandlerHarness):
    mask = np.full((200, 300), 255, "uint8")
    mask[50:90, 100:250] = 0
    harness.bronze("plain.tif", numbers(bands=2, dtype="uint8"))
    harness.bronze("masked.tif", numbers(bands=2, dtype="uint8"), mask=mask)
    shares = {}
    for name in ("plain.tif", "masked.tif"):
        result = harness.run("raster_reproject", href=name, target_crs="EPSG:4326")
        with rasterio.open(harness.path(result.cog_url)) as cog:
            known = cog.dataset_mask() > 0
            assert (cog.count, cog.nodata) == (2, None)
            assert cog.read()[:, known].min() >= 1
            shares[name] = known.sum() / (200 * 300)
    assert shares["plain.tif"] == pytest.approx(1, abs=0.01)
    assert shares["masked.tif"] == pytest.approx(1 - 40 * 150 / (200 * 300), abs=0.01)


def test_a_warp_keeps_names_units_and_scales(harness: HandlerHarness):
    harness.bronze("rich.tif", numbers(bands=2, dtype="int16"), nodata=-9999)
    with rasterio.open(harness.folder / "bronze" / "rich.tif", "r+") as raster:
        raster.descriptions, raster.units = ("red", "near"), ("m", "K")
        raster.scales, raster.offsets = (0.1, 1.0), (-5.0, 0.0)
    result = harness.run("raster_reproject", href="rich.tif", target_crs="EPSG:4326")
    with rasterio.open(harness.path(result.cog_url)) as cog:
        assert (cog.descriptions, cog.units, cog.scales) == (("red", "near"), ("m", "K"), (0.1, 1.0))
        assert cog.nodata == -9999


def test_where_masked_sources_overlap_data_shines_through(harness: HandlerHarness):
    mask = np.full((200, 300), 255, "uint8")
    mask[50:60, 100:120] = 0
    one, two = numbers(seed=1, dtype="uint8"), numbers(seed=2, dtype="uint8")
    harness.bronze("one.tif", one, mask=mask)
    harness.bronze(
        "two.tif", two, mask=np.full((200, 300), 255, "uint8"), transform=UTM @ Affine.translation(50, 20)
    )
    result = harness.run("raster.mosaic", sources=["one.tif", "two.tif"])
    with rasterio.open(harness.path(result.cog_url)) as cog:
        matches, known = cog.read(1), cog.dataset_mask() > 0
    assert np.array_equal(matches[50:60, 100:120], two[0, 30:40, 50:70])
    assert np.array_equal(matches[:50, :300], one[0, :50])
    expected = np.zeros((220, 350), bool)
    expected[:200, :300] = expected[20:, 50:] = True
    assert np.array_equal(known, expected)
