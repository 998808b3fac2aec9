"""Files that are not what they seem, and rasters that are rare: each with the sentence that tells of it.

Bad input is `invalid_input`, found before anything is published. What can be worked with comes out right.
"""

from __future__ import annotations

import errno
import resource
import zipfile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio
from affine import Affine
from PIL import Image
from rasterio.errors import RasterioIOError

from dagmaster.errors import BlobNameInvalid, BlobsUnavailable, PermanentError
from dagmaster.geo.gdal import explain_io_errors, open_raster
from dagmaster.ports.task_messages import Failed
from dagmaster.worker.handler_call import run_on_thread
from tests.unit.geo.raster.models import mean_model
from tests.unit.geo.raster.raster_context import LANDSAT, REGISTRY, UTM, HandlerHarness, numbers, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOCAL = 'LOCAL_CS["the old mine",UNIT["metre",1]]'
SOUTH_UP = Affine(30, 0, 300_000, 0, 30, 9_000_000)
ROTATED = Affine.translation(300_000, 9_100_000) @ Affine.rotation(30) @ Affine.scale(30, -30)


def refused(harness: HandlerHarness, handler: str, **params: Any) -> str:
    """Return the message of the failure; check that nothing is left behind."""
    with pytest.raises(PermanentError) as caught:
        harness.run(handler, **params)
    assert caught.value.kind == "invalid_input", caught.value
    assert harness.silver() == []
    assert not any((harness.folder / "scratch").rglob("*.tif"))
    return str(caught.value)


# ── no raster ───────────────────────────────────────────────────────────────────────────────────────────────────────


def a_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.tif", b"x")


VRT = """<VRTDataset rasterXSize="10" rasterYSize="10"><VRTRasterBand dataType="Byte" band="1"><SimpleSource>
<SourceFilename>/etc/secret.tif</SourceFilename><SourceBand>1</SourceBand></SimpleSource></VRTRasterBand></VRTDataset>"""


@pytest.mark.parametrize("handler", ["raster.validate", "raster.create_cog"])
@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: path.write_bytes(b""), "the file is empty (0 bytes): copy it again"),
        (
            lambda path: path.write_text("name,height\na,1\n"),
            "the file is a text file, not the GTiff that its suffix .tif says: copy it again",
        ),
        (
            lambda path: path.write_text(VRT),
            "the file is VRT, which refers to other files: name the rasters themselves, or convert it to GeoTIFF",
        ),
        (
            lambda path: path.write_bytes(LANDSAT.read_bytes()[:100]),
            "the file is a TIFF whose directory cannot be read, so it is damaged or truncated: copy it again (GDAL: ",
        ),
        (
            lambda path: path.write_bytes(b"\x00\x01\x02" * 500),
            "the file is not a readable GTiff, as its suffix .tif says: it is damaged, truncated or of another format",
        ),
        (a_zip, "the file is a zip archive: name it with the suffix .zip, or extract the raster in it"),
    ],
    ids=["empty", "text", "vrt", "cut off in its directory", "noise", "zip"],
)
def test_what_is_no_raster_is_reported_for_what_it_is(
    harness: HandlerHarness, handler: str, make: Callable[[Path], Any], sentence: str
):
    make(harness.folder / "bronze" / "a.tif")
    message = refused(harness, handler, href="a.tif")
    assert message.startswith(sentence)


@pytest.mark.parametrize(
    ("handler", "params"),
    [
        ("raster.validate", {}),
        ("raster.create_cog", {}),
        ("raster.reproject", {"target_crs": "EPSG:4326"}),
        ("raster.clip", {"bbox": [-36, -9, -34, -7]}),
        ("raster.stats_zonal", {"zones": [-36, -9, -34, -7]}),
        ("raster.thumbnail", {}),
        ("raster.process_complete", {}),
        ("raster.create_cog", {"tile_spec": {"window": [0, 100, 64, 64]}}),
        ("raster.mosaic", {"sources": ["cut.tif"]}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
@pytest.mark.parametrize("compress", ["deflate", "none"])
def test_a_raster_that_was_cut_off_is_reported_when_its_pixels_are_read(
    harness: HandlerHarness, handler: str, params: dict[str, Any], compress: str
):
    whole = write(
        harness.folder / "whole.tif", numbers(), tiled=True, blockxsize=64, blockysize=64, compress=compress
    )
    cut = whole.read_bytes()[: whole.stat().st_size // 3]
    (harness.folder / "bronze" / "cut.tif").write_bytes(cut)
    values = params if "sources" in params else {"href": "cut.tif", **params}
    assert "the raster is damaged or truncated" in refused(harness, handler, **values)


def test_a_file_that_goes_away_or_stops_is_no_bad_raster(harness: HandlerHarness):
    harness.bronze("a.tif", numbers())
    path = harness.folder / "bronze" / "a.tif"
    share = harness.services.share
    path.unlink()
    with (
        pytest.raises(BlobsUnavailable, match=r"a\.tif cannot be read: No such file"),
        explain_io_errors(path),
    ):
        raise RasterioIOError("Read failed")
    with pytest.raises(BlobsUnavailable, match="cannot be read: No such file"), open_raster(path, share):
        pass


def test_a_failure_without_a_reason_of_gdal_is_described_in_our_words(harness: HandlerHarness):
    harness.bronze("a.tif", numbers())
    message = (
        r"^the result cannot be written: check the disk of the scratch directory \(GDAL: Unknown GDAL Error"
    )
    with (
        pytest.raises(BlobsUnavailable, match=message),
        explain_io_errors(harness.folder / "bronze" / "a.tif"),
    ):
        # As rasterio raises it where GDAL returns nothing and sets no error.
        raise SystemError("Unknown GDAL Error. To debug: https://rasterio.readthedocs.io")


def test_a_bomb_is_refused_before_it_goes_off(harness: HandlerHarness):
    path = harness.folder / "bronze" / "bomb.tif"
    place = {"crs": "EPSG:32725", "transform": UTM, "driver": "GTiff", "count": 1, "dtype": "uint8"}
    big = {"width": 100_000, "height": 100_000, "tiled": True, "blockxsize": 16384, "blockysize": 16384}
    with rasterio.open(path, "w", **place, **big, sparse_ok=True, compress="deflate"):
        pass
    assert path.stat().st_size < 10_000
    for handler in ("raster.validate", "raster.create_cog", "raster_plan_tiles", "raster.thumbnail"):
        message = refused(harness, handler, href="bomb.tif")
        assert "bytes claims 100,000 x 100,000 pixels, 10,000,000,000 bytes" in message


def test_more_pixels_than_are_worked_through_are_refused_and_a_tile_of_them_is_not(tmp_path: Path):
    harness = HandlerHarness(tmp_path, max_pixels=50_000)
    harness.bronze("large.tif", numbers())
    assert "300 x 200 pixels in 1 bands, 60,000 in all: at most 50,000" in refused(
        harness, "create_cog", href="large.tif"
    )
    plan = harness.run("raster_plan_tiles", href="large.tif", tile_size=128)
    assert np.array_equal(
        harness.read(harness.run("create_cog", tile_spec=plan.tiles[0]).cog_url), numbers()[:, :128, :128]
    )
    with pytest.raises(PermanentError, match="make 6 tiles of 128 pixels: at most 5 are allowed"):
        harness.run("raster_plan_tiles", href="large.tif", tile_size=128, max_tiles=5)


def test_a_block_that_does_not_fit_into_memory_is_refused(harness: HandlerHarness):
    path = harness.folder / "bronze" / "strip.tif"
    place = {"crs": "EPSG:32725", "transform": UTM, "driver": "GTiff", "count": 1, "dtype": "float64"}
    with rasterio.open(
        path, "w", **place, width=10_000, height=8_000, blockysize=8_000, sparse_ok=True, compress="deflate"
    ):
        pass
    message = refused(harness, "raster.validate", href="strip.tif")
    assert "one block of the raster has 640,000,000 bytes: at most 536,870,912 can be decoded" in message


# ── no place ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("handler", ["raster.validate", "raster.create_cog", "raster_plan_tiles"])
def test_a_raster_without_a_place_is_refused(harness: HandlerHarness, handler: str):
    harness.bronze("lost.tif", numbers(), crs=None)
    assert "the raster has no CRS" in refused(harness, handler, href="lost.tif")
    Image.fromarray(np.zeros((9, 9, 3), "uint8")).save(harness.folder / "bronze" / "photo.png")
    assert "the raster has no CRS" in refused(harness, handler, href="photo.png")
    harness.bronze("nowhere.tif", numbers(), transform=None)
    assert "but no geotransform, so the place of its pixels is unknown" in refused(
        harness, handler, href="nowhere.tif"
    )


def test_a_coordinate_system_that_nobody_knows_is_refused(harness: HandlerHarness):
    harness.bronze("local.tif", numbers(), crs=LOCAL)
    message = refused(harness, "raster.validate", href="local.tif")
    assert "the CRS 'the old mine' cannot be transformed to longitude and latitude" in message


@pytest.mark.parametrize(
    ("handler", "params"),
    [
        ("raster.create_cog", {"href": "local.tif"}),
        ("raster.create_cog", {"href": "local.tif", "tile_spec": {"window": [0, 0, 64, 64]}}),
        ("raster.process_complete", {"href": "local.tif"}),
        ("raster.process_tile_batch", {"href": "local.tif", "tiles": [{"window": [0, 0, 64, 64]}]}),
        ("raster.reproject", {"href": "local.tif", "target_crs": LOCAL}),
        ("raster.mosaic", {"sources": ["local.tif"]}),
        ("raster.clip", {"href": "local.tif", "bbox": [-36, -9, -34, -7]}),
        ("raster.stats_zonal", {"href": "local.tif", "zones": [-36, -9, -34, -7]}),
        ("raster.ml_predict", {"href": "local.tif", "model": "mean.onnx", "window": 32, "overlap": 4}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_of_a_raster_that_has_no_known_place_nothing_is_published(
    harness: HandlerHarness, handler: str, params: dict[str, Any]
):
    harness.bronze("local.tif", numbers(), crs=LOCAL)
    (harness.folder / "bronze" / "mean.onnx").write_bytes(mean_model())
    message = refused(harness, handler, **params)
    assert "the CRS 'the old mine' cannot be transformed to longitude and latitude" in message
    # Neither GDAL's words nor all that a coordinate system has to say.
    assert len(message) < 300


def test_a_raster_with_an_invalid_moment_publishes_nothing(harness: HandlerHarness):
    harness.bronze("a.tif", numbers())
    assert "'soon' is not a datetime" in refused(harness, "raster.create_cog", href="a.tif", datetime="soon")


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("EPSG:999999", "unknown CRS 'EPSG:999999'"),
        ("/etc/passwd", "'/etc/passwd' is not a CRS: expected a code such as EPSG:4326, or WKT"),
        ("http://example.com/crs", "'http://example.com/crs' is not a CRS"),
        ("nonsense", "'nonsense' is not a CRS"),
    ],
)
def test_a_target_that_nobody_knows_is_refused(harness: HandlerHarness, target: str, sentence: str):
    assert sentence in refused(harness, "raster_reproject", href=str(LANDSAT), target_crs=target)


@pytest.mark.parametrize(
    "href", ["/vsicurl/http://a/b.tif", "../x.tif", "a\x00b.tif", "/etc/passwd", "http://a/b.tif"]
)
def test_a_name_that_leads_elsewhere_is_refused(harness: HandlerHarness, href: str):
    with pytest.raises(BlobNameInvalid):
        harness.run("raster.validate", href=href)


# ── rare, and right ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_south_up_is_turned_without_a_change_to_any_pixel(harness: HandlerHarness):
    harness.bronze("south.tif", numbers(bands=2), transform=SOUTH_UP)
    assert harness.run("raster.validate", href="south.tif").metadata["standing"] == "mirrored"
    result = harness.run("create_cog", href="south.tif")
    assert np.array_equal(harness.read(result.cog_url), numbers(bands=2)[:, ::-1])
    assert result.metadata["standing"] == "north-up"
    assert result.bounds == [300_000, 9_000_000, 309_000, 9_006_000]
    with pytest.raises(
        PermanentError, match=r"the raster is south-up or mirrored .* make it north-up; run one first"
    ):
        harness.run("raster_plan_tiles", href="south.tif")


def test_rotated_is_put_north_up_and_keeps_its_area(harness: HandlerHarness):
    harness.bronze("rotated.tif", np.ones((200, 300), "uint8"), transform=ROTATED, nodata=0)
    seen = harness.run("raster.validate", href="rotated.tif")
    assert seen.metadata["standing"] == "rotated"
    result = harness.run("create_cog", href="rotated.tif")
    assert result.metadata["standing"] == "north-up"
    assert int(harness.read(result.cog_url).sum()) == pytest.approx(200 * 300, rel=0.01)
    # The corners are where they were.
    assert result.bbox == pytest.approx(seen.bbox, abs=1e-3)
    for handler in ("raster_plan_tiles", "raster_mosaic"):
        values: dict[str, Any] = (
            {"sources": ["rotated.tif"]} if "mosaic" in handler else {"href": "rotated.tif"}
        )
        with pytest.raises(PermanentError, match="the raster is rotated"):
            harness.run(handler, **values)


def test_a_raster_of_nodata_alone_stays_one(harness: HandlerHarness):
    harness.bronze("nothing.tif", np.full((300, 300), -9, "int16"), nodata=-9)
    result = harness.run("create_cog", href="nothing.tif")
    assert (harness.read(result.cog_url) == -9).all()
    assert result.metadata["nodata"] == -9


def test_nan_as_nodata_stays_nan(harness: HandlerHarness):
    data = numbers(600, 600, dtype="float32")
    data[:, 100:200] = np.nan
    harness.bronze("nan.tif", data, nodata=np.nan)
    result = harness.run("create_cog", href="nan.tif")
    assert np.array_equal(harness.read(result.cog_url), data, equal_nan=True)
    assert result.metadata["nodata"] == "nan"
    assert result.item["assets"]["data"]["bands"][0]["nodata"] == "nan"


def test_single_bits_stay_bits(harness: HandlerHarness):
    data = numbers(600, 600, dtype="uint8") % 2
    harness.bronze("bits.tif", data, nbits=1)
    result = harness.run("create_cog", href="bits.tif")
    assert np.array_equal(harness.read(result.cog_url), data)
    with rasterio.open(harness.path(result.cog_url), overview_level=0) as overview:
        assert set(np.unique(overview.read())) <= {0, 1}


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_stay_as_they_are(harness: HandlerHarness, dtype: str):
    data = (numbers(600, 600) + 1j * numbers(600, 600, seed=2)).astype(dtype)
    harness.bronze("complex.tif", data)
    result = harness.run("create_cog", href="complex.tif")
    assert np.array_equal(harness.read(result.cog_url), data)
    plan = harness.run("raster_plan_tiles", href="complex.tif", tile_size=400)
    tile = harness.run("create_cog", tile_spec=plan.tiles[3])
    assert np.array_equal(harness.read(tile.cog_url), data[:, 400:, 400:])
    with pytest.raises(PermanentError, match="band 1 contains complex numbers"):
        harness.run("stats_zonal", href="complex.tif", zones=[-36, -9, -34, -7])


@pytest.mark.slow
def test_a_palette_keeps_its_colours_and_its_overviews_are_classes(harness: HandlerHarness):
    colours = {number: (number, 255 - number, 7, 255) for number in range(256)}
    data = np.where(numbers(1200, 1200, dtype="uint8") > 100, 10, 200).astype("uint8")
    harness.bronze("classes.tif", data, colormap=colours, photometric="palette")
    plan = harness.run("raster_plan_tiles", href="classes.tif", tile_size=600)
    tiles = [harness.run("create_cog", tile_spec=spec) for spec in plan.tiles]
    result = [
        harness.run("create_cog", href="classes.tif"),
        harness.run("raster_mosaic", sources=[one.cog_url for one in tiles]),
    ]
    result.append(harness.run("raster_reproject", href="classes.tif", target_crs="EPSG:32725"))
    for one in result:
        with rasterio.open(harness.path(one.cog_url)) as cog:
            assert np.array_equal(cog.read(), data)
            assert cog.colormap(1) == colours
            assert cog.overviews(1)
        with rasterio.open(harness.path(one.cog_url), overview_level=0) as overview:
            assert set(np.unique(overview.read())) <= {10, 200}


@pytest.mark.slow
def test_overviews_of_classes_are_classes_when_asked_for(harness: HandlerHarness):
    data = np.where(numbers(1200, 1200, dtype="uint8") > 100, 10, 200).astype("uint8")
    harness.bronze("classes.tif", data)
    result = {}
    for how in ("auto", "mode", "nearest"):
        output = harness.run("create_cog", href="classes.tif", overview_resampling=how)
        with rasterio.open(harness.path(output.cog_url), overview_level=0) as overview:
            result[how] = set(np.unique(overview.read())) <= {10, 200}
    assert result == {"auto": False, "mode": True, "nearest": True}


def test_a_mask_stays_a_mask_in_cogs_tiles_and_mosaics(harness: HandlerHarness):
    mask = np.full((200, 300), 255, "uint8")
    mask[50:90, 100:250] = 0
    harness.bronze("masked.tif", numbers(bands=3, dtype="uint8"), mask=mask)
    plan = harness.run("raster_plan_tiles", href="masked.tif", tile_size=128)
    tiles = [harness.run("create_cog", tile_spec=spec) for spec in plan.tiles]
    for result in (
        harness.run("create_cog", href="masked.tif"),
        harness.run("raster_mosaic", tiles=[t.cog_url for t in tiles]),
    ):
        with rasterio.open(harness.path(result.cog_url)) as cog:
            assert np.array_equal(cog.dataset_mask(), mask)
            assert np.array_equal(cog.read(), numbers(bands=3, dtype="uint8"))


# ── poles and the antimeridian ──────────────────────────────────────────────────────────────────────────────────────


def validated(
    harness: HandlerHarness, crs: str, transform: Affine, width: int = 100, height: int = 100
) -> tuple[list[float], Any]:
    harness.bronze("there.tif", numbers(height, width), crs=crs, transform=transform)
    seen = harness.run("raster.validate", href="there.tif")
    return seen.bbox, seen.metadata["footprint"]


def test_a_raster_around_a_pole_reaches_once_around_the_earth(harness: HandlerHarness):
    bbox, place = validated(harness, "EPSG:3413", Affine(20_000, 0, -1_000_000, 0, -20_000, 1_000_000))
    assert bbox == [-180, pytest.approx(77.0, abs=0.2), 180, 90]
    assert place["type"] == "Polygon"
    bbox, _ = validated(harness, "EPSG:3031", Affine(20_000, 0, -1_000_000, 0, -20_000, 1_000_000))
    assert bbox == [-180, -90, 180, pytest.approx(-77.0, abs=0.2)]


def test_a_raster_across_the_antimeridian_is_two_polygons_and_its_box_has_west_beyond_east(
    harness: HandlerHarness,
):
    # Zone 1 begins at 180 degrees; this reaches 50 km further west.
    bbox, place = validated(harness, "EPSG:32701", Affine(1_000, 0, 120_000, 0, -1_000, 8_100_000))
    west, south, east, north = bbox
    assert 179 < west < 180
    assert -180 < east < -179
    assert (south, north) == pytest.approx((-18.1, -17.1), abs=0.1)
    assert place["type"] == "MultiPolygon"
    for polygon in place["coordinates"]:
        longitudes = [x for x, _ in polygon[0]]
        assert max(longitudes) - min(longitudes) < 2
        assert max(map(abs, longitudes)) == 180


@pytest.mark.parametrize(
    ("left", "width", "expected"),
    [
        (-180, 360, (-180, 180)),
        (0, 360, (-180, 180)),
        (170, 20, (170, -170)),
        (190, 10, (-170, -160)),
        (-190, 5, (170, 175)),
    ],
)
def test_degrees_beyond_180_are_brought_back(
    harness: HandlerHarness, left: int, width: int, expected: tuple[float, float]
):
    bbox, _ = validated(harness, "EPSG:4326", Affine(1, 0, left, 0, -1, 90), width, 180)
    assert bbox == [expected[0], -90, expected[1], 90]


def test_half_a_pixel_beyond_the_pole_is_the_pole(harness: HandlerHarness):
    bbox, _ = validated(harness, "EPSG:4326", Affine(1, 0, -180.5, 0, -1, 90.5), 361, 181)
    assert bbox == [-180, -90, 180, 90]


def test_a_warp_across_the_antimeridian_does_not_reach_around_the_earth(harness: HandlerHarness):
    harness.bronze(
        "fiji.tif",
        np.ones((100, 100), "uint8"),
        crs="EPSG:32701",
        transform=Affine(1_000, 0, 120_000, 0, -1_000, 8_100_000),
        nodata=0,
    )
    result = harness.run("raster_reproject", href="fiji.tif", target_crs="EPSG:4326")
    assert result.metadata["width"] < 200
    assert int(harness.read(result.cog_url).sum()) == pytest.approx(100 * 100, rel=0.1)
    assert result.bbox[0] > 179 > -179 > result.bbox[2]


def test_a_pole_in_degrees_is_warped(harness: HandlerHarness):
    harness.bronze(
        "pole.tif",
        np.ones((100, 100), "uint8"),
        crs="EPSG:3413",
        transform=Affine(20_000, 0, -1_000_000, 0, -20_000, 1_000_000),
        nodata=0,
    )
    result = harness.run("raster_reproject", href="pole.tif", target_crs="EPSG:4326", resolution=0.5)
    assert result.bbox == pytest.approx([-180, 77, 180, 90], abs=0.6)
    rows = harness.read(result.cog_url)[0]
    assert rows[0].mean() > 0.99


# ── nothing is left ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_full_disk_in_the_middle_of_a_write_may_be_tried_again_and_leaves_nothing(harness: HandlerHarness):
    harness.bronze("noise.tif", numbers(600, 600))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(BlobsUnavailable, match="the result cannot be written"):
            harness.run("create_cog", href="noise.tif")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert harness.silver() == []
    assert not [path for path in (harness.folder / "scratch").rglob("*") if path.is_file()]
    assert np.array_equal(
        harness.read(harness.run("create_cog", href="noise.tif").cog_url), numbers(600, 600)
    )


@pytest.mark.parametrize(
    ("handler", "params"),
    [
        ("create_cog", {"href": "noise.tif"}),
        ("raster.clip", {"href": "noise.tif", "bbox": [-36, -9, -34, -7]}),
        ("raster.mosaic", {"sources": ["noise.tif"]}),
    ],
)
def test_a_disk_without_room_is_reported_so(
    harness: HandlerHarness, monkeypatch: pytest.MonkeyPatch, handler: str, params: dict[str, Any]
):
    harness.bronze("noise.tif", numbers(600, 600))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4_096))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(BlobsUnavailable) as caught:
            harness.run(handler, **params)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "no space left on the disk of the scratch directory (4,096 bytes free). Free space" in str(
        caught.value
    )
    assert harness.silver() == []


def test_what_the_system_says_of_a_full_disk_is_believed(tmp_path: Path):
    with (
        pytest.raises(BlobsUnavailable, match="no space left on the disk of the scratch"),
        explain_io_errors(target=tmp_path / "a"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"crs": "EPSG:32724"}, "convert them first, as with raster.reproject"),
        ({"dtype": "float32"}, "convert them first, as with gdal_translate"),
        ({"bands": 2}, "the sources differ in number of bands: "),
        ({"nodata": 3}, "the sources differ in nodata value: "),
        ({"transform": Affine(60, 0, 300_000, 0, -60, 9_100_000)}, "the sources differ in pixel size: "),
        (
            {"transform": Affine(30, 0, 300_010, 0, -30, 9_100_000)},
            "lies 0.33 pixels off the grid of the other sources",
        ),
        ({"transform": Affine(30, 0, 330_000, 0, -30, 9_100_000)}, "the sources leave gaps between them"),
        ({"transform": Affine(30, 0, 300_000 + 3e9, 0, -30, 9_100_000 + 3e9)}, "the mosaic would have"),
    ],
)
def test_sources_that_do_not_go_together_are_reported(
    harness: HandlerHarness, other: dict[str, Any], sentence: str
):
    harness.bronze("one.tif", numbers())
    shape = {"bands": other.pop("bands", 1), "dtype": other.pop("dtype", "uint16")}
    harness.bronze("two.tif", numbers(**shape), **other)
    assert sentence in refused(harness, "raster_mosaic", sources=["one.tif", "two.tif"])


def test_a_source_that_changed_since_its_tiles_were_planned_is_reported(harness: HandlerHarness):
    harness.bronze("a.tif", numbers())
    plan = harness.run("raster_plan_tiles", href="a.tif", tile_size=128)
    harness.bronze("a.tif", numbers(300, 300))
    assert "is not the raster whose tiles were planned: it has" in refused(
        harness, "create_cog", tile_spec=plan.tiles[0]
    )


def test_a_window_that_is_not_inside_the_raster_is_reported(harness: HandlerHarness):
    harness.bronze("a.tif", numbers())
    message = refused(harness, "create_cog", href="a.tif", tile_spec={"window": [250, 0, 100, 100]})
    assert "the window [250, 0, 100, 100] is not inside the raster of 300 x 200 pixels" in message


# ── which one ───────────────────────────────────────────────────────────────────────────────────────────────────────


def outcome(harness: HandlerHarness, handler: str, **params: Any) -> str:
    """Return what the worker reports."""
    text = run_on_thread(REGISTRY.get(handler), harness.context(handler), params, own=True)
    assert isinstance(text, Failed), text
    message: str = text.error["message"]
    return message


def test_a_failure_names_its_file_once(harness):
    (harness.folder / "bronze").mkdir(exist_ok=True)
    (harness.folder / "bronze" / "noise.tif").write_bytes(b"noise" * 100)
    uri = f"file://{harness.folder}/bronze/noise.tif"
    for handler in (
        "raster.validate",
        "raster.create_cog",
        "raster.thumbnail",
        "raster.generate_tiling_scheme",
    ):
        message = outcome(harness, handler, href="noise.tif")
        assert message.count(uri) == 1, message
    assert outcome(harness, "raster.create_cog", href="gone.tif").count("gone.tif") == 1


def test_a_broken_area_is_named_and_not_the_raster(harness):
    name = harness.bronze("good.tif", np.ones((4, 4), "uint8"))
    (harness.folder / "bronze" / "area.geojson").write_text("{")
    message = outcome(harness, "raster.clip", href=name, boundary="area.geojson")
    assert "area.geojson" in message
    assert "good.tif" not in message
