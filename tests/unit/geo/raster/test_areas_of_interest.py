"""Clipping and zonal statistics: what lies in an area, checked by area and by hand."""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
import zipfile
from typing import TYPE_CHECKING, Any

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rasterio
import shapely
from affine import Affine
from rasterio.features import geometry_mask
from rasterio.warp import transform_bounds, transform_geom

from dagmaster.errors import PermanentError
from tests.unit.geo.raster.raster_context import LANDSAT, UTM, UTM_25S, numbers

if TYPE_CHECKING:
    from tests.unit.geo.raster.raster_context import HandlerHarness

NATURAL_EARTH = LANDSAT.parent / "naturalearth_lowres" / "naturalearth_lowres.shp"
SIZES = {"small.geojson": 1_000, "large.geojson": 2_000}


def degrees(shape: Any, crs: str = UTM_25S) -> dict[str, Any]:
    """Return a shape in metres as GeoJSON."""
    shapes: dict[str, Any] = transform_geom(
        crs, "OGC:CRS84", json.loads(shapely.to_geojson(shape)), precision=12
    )
    return shapes


# ── clip ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_clip_has_the_pixels_whose_centres_are_inside_and_its_area(harness: HandlerHarness):
    data = numbers(dtype="int16")
    harness.bronze("a.tif", data, nodata=-1)
    circle = shapely.Point(304_000, 9_097_000).buffer(2_500)
    result = harness.run("raster_clip", href="a.tif", geometry=degrees(circle))
    outside = geometry_mask([circle], data.shape[1:], UTM)
    with rasterio.open(harness.path(result.clipped_path)) as clipped:
        matches, at = clipped.read(1), clipped.transform
    column, row = round((at.c - UTM.c) / 30), round((at.f - UTM.f) / -30)
    expected = np.where(outside, -1, data[0])[
        row : row + matches.shape[0], column : column + matches.shape[1]
    ]
    assert np.array_equal(matches, expected)
    assert (matches != -1).sum() * 900 == pytest.approx(circle.area, rel=0.005)
    # Cropped to the circle.
    assert matches.shape == pytest.approx((5_000 / 30, 5_000 / 30), abs=2)


def test_whole_numbers_without_nodata_get_a_mask_and_floats_get_nan(harness: HandlerHarness):
    area = degrees(shapely.Point(304_000, 9_097_000).buffer(1_000))
    harness.bronze("bytes.tif", numbers(dtype="uint8", bands=2))
    harness.bronze("floats.tif", numbers(dtype="float32"))
    with rasterio.open(
        harness.path(harness.run("raster_clip", href="bytes.tif", boundary=area).cog_url)
    ) as clipped:
        masked = clipped.dataset_mask() == 0
        assert (clipped.nodata, clipped.count) == (None, 2)
        assert (clipped.read()[:, masked] == 0).all()
        assert 0.1 < masked.mean() < 0.3
    with rasterio.open(
        harness.path(harness.run("raster_clip", href="floats.tif", boundary=area).cog_url)
    ) as clipped:
        assert np.array_equal(np.isnan(clipped.read(1)), masked)


def test_a_box_a_feature_a_collection_and_a_file_are_all_areas(harness: HandlerHarness):
    with rasterio.open(LANDSAT) as source:
        west, south, east, north = transform_bounds(source.crs, "OGC:CRS84", *source.bounds)
    box = [west + 0.02, south + 0.02, east - 0.02, north - 0.02]
    geometry = json.loads(shapely.to_geojson(shapely.box(*box)))
    feature = {"type": "Feature", "properties": {}, "geometry": geometry}
    collection = {"type": "FeatureCollection", "features": [feature]}
    (harness.folder / "bronze" / "aoi.geojson").write_text(json.dumps(collection))
    ways: list[dict[str, Any]] = [
        {"bbox": box},
        *({"boundary": one} for one in (box, geometry, feature, collection, "aoi.geojson")),
    ]
    result = [harness.run("raster_clip", source_path=str(LANDSAT), **way) for way in ways]
    assert len({one.cog_url for one in result}) == 1
    assert result[0].bbox == pytest.approx(box, abs=5e-4)


def test_a_country_of_natural_earth_cuts_a_raster(harness: HandlerHarness):
    degree = Affine(0.5, 0, -180, 0, -0.5, 90)
    harness.bronze("world.tif", np.ones((360, 720), "uint8"), crs="EPSG:4326", transform=degree, nodata=0)
    result = harness.run("raster_clip", href="world.tif", boundary=str(NATURAL_EARTH))
    land = harness.read(result.cog_url)[0]
    latitudes = 90 - 0.5 * (np.arange(360) + 0.5)
    areas = np.cos(np.radians(latitudes))[: land.shape[0], None] * (0.5 * 111.195) ** 2
    # The land of the Earth has 149 million km².
    assert float((land * areas).sum()) == pytest.approx(149e6, rel=0.03)


def test_an_area_across_the_antimeridian_is_found_in_a_raster_that_goes_on_there(harness: HandlerHarness):
    beyond = Affine(0.1, 0, 175, 0, -0.1, 5)
    harness.bronze("fiji.tif", numbers(100, 100), crs="EPSG:4326", transform=beyond, nodata=0)
    result = harness.run("raster_clip", href="fiji.tif", bbox=[179, -2, -179, 2])
    assert result.metadata["width"] == 20
    assert result.bbox == pytest.approx([179, -2, -179, 2])


@pytest.mark.parametrize(
    ("area", "sentence"),
    [
        ({"bbox": [10, 10, 11, 11]}, "the area does not intersect the raster, whose bbox is [-34.9"),
        ({"bbox": [10, 11, 11, 10]}, "is not a bbox: expected west, south, east, north in degrees"),
        ({"boundary": {"type": "Point", "coordinates": [-34.9, -8]}}, "area 0 is a Point and has no extent"),
        ({"boundary": {"type": "Circle"}}, "not a GeoJSON geometry"),
        ({"boundary": {"type": "FeatureCollection", "features": []}}, "there is no area in the input"),
        ({"boundary": "nothing.geojson"}, "there is no file at"),
        ({"boundary": str(LANDSAT)}, "landsat7_olinda.tif has no supported format"),
        ({"bbox": [-34.9, -8.0, -34.89999, -7.99999]}, "no pixel has its centre in the area: it is smaller"),
        ({"bbox": [500500, 5795000, 500900, 5796000]}, "these look like metres"),
    ],
)
def test_an_area_that_cannot_be_used_is_reported(
    harness: HandlerHarness, area: dict[str, Any], sentence: str
):
    with pytest.raises(PermanentError) as caught:
        harness.run("raster_clip", href=str(LANDSAT), **area)
    assert caught.value.kind == "invalid_input"
    assert sentence in str(caught.value)
    assert harness.silver() == []


def test_a_vector_file_that_points_elsewhere_is_not_opened(harness: HandlerHarness):
    text = '<OGRVRTDataSource><OGRVRTLayer name="x"><SrcDataSource>/etc/x.shp</SrcDataSource></OGRVRTLayer></OGRVRTDataSource>'
    (harness.folder / "bronze" / "sly.gpkg").write_text(text)
    with pytest.raises(PermanentError, match="the file is OGR_VRT, which refers to other files"):
        harness.run("raster_clip", href=str(LANDSAT), boundary="sly.gpkg")


def test_every_format_of_features_is_an_area_also_in_a_zip_and_by_layer(harness: HandlerHarness):
    bronze = harness.folder / "bronze"
    harness.bronze("a.tif", numbers(dtype="int16"), nodata=-1)
    frame = geopandas.GeoDataFrame(
        {"name": ["x"]}, geometry=[shapely.box(302_000, 9_095_000, 305_000, 9_098_000)], crs=UTM_25S
    )
    frame.to_file(bronze / "aoi.fgb")
    frame.to_file(bronze / "aoi.shp")
    frame.to_parquet(bronze / "aoi.parquet")
    for layer in ("fields", "others"):
        frame.to_file(bronze / "aoi.gpkg", layer=layer)
    with zipfile.ZipFile(bronze / "aoi.zip", "w") as archive:
        for suffix in ("shp", "shx", "dbf", "prj"):
            archive.write(bronze / f"aoi.{suffix}", f"in/aoi.{suffix}")
    names = ("aoi.fgb", "aoi.shp", "aoi.parquet", "aoi.zip")
    ways: list[dict[str, Any]] = [
        *({"boundary": name} for name in names),
        {"boundary": "aoi.gpkg", "layer": "fields"},
    ]
    assert len({harness.run("raster_clip", href="a.tif", **way).cog_url for way in ways}) == 1
    with pytest.raises(PermanentError, match="2 layers: name one by `layer`: fields, others"):
        harness.run("raster_clip", href="a.tif", boundary="aoi.gpkg")
    # The same file twice is one zone twice.
    measured = harness.run("stats_zonal", href="a.tif", zones=["aoi.fgb", "aoi.fgb"], zone_field="name")
    assert [zone["id"] for zone in measured.zones] == ["x", "x"]


def test_one_of_several_files_in_a_zip_is_an_area_by_its_name(harness: HandlerHarness):
    harness.bronze("a.tif", numbers(dtype="int16"), nodata=-1)
    texts = {
        name: json.dumps(degrees(shapely.Point(304_000, 9_097_000).buffer(size)))
        for name, size in SIZES.items()
    }
    with zipfile.ZipFile(harness.folder / "bronze" / "aoi.zip", "w") as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    with pytest.raises(
        PermanentError, match=r"name one by `member`, or extract it: small\.geojson, large\.geojson"
    ):
        harness.run("raster_clip", href="a.tif", boundary="aoi.zip")
    for name, text in texts.items():
        result, named = (harness.run("raster_clip", href="a.tif", **way) for way in (
            {"boundary": json.loads(text)}, {"boundary": "aoi.zip", "member": name},
        ))  # fmt: skip
        assert result.cog_url == named.cog_url
        measured = harness.run("stats_zonal", href="a.tif", zones="aoi.zip", member=name)
        assert measured.zones[0]["count"] == pytest.approx(3.14 * SIZES[name] ** 2 / 900, rel=0.01)


def test_a_file_that_is_broken_is_reported_by_its_own_name(harness: HandlerHarness):
    (harness.folder / "bronze" / "fields.geojson").write_text('{"type": ')
    with pytest.raises(PermanentError, match=r"bronze/fields\.geojson is not JSON"):
        harness.run("stats_zonal", href=str(LANDSAT), zones=["fields.geojson"])


def test_an_area_with_arcs_is_clipped_to_its_chords(harness: HandlerHarness):
    harness.bronze("a.tif", numbers(100, 100), crs="EPSG:4326", transform=Affine(0.02, 0, 10, 0, -0.02, 52.5))
    points = [(10, 51.5), (11, 52.5), (12, 51.5), (11, 50.5), (10, 51.5)]
    ring = struct.pack("<BII", 1, 8, len(points)) + b"".join(struct.pack("<dd", *point) for point in points)
    circle = struct.pack("<BII", 1, 10, 1) + ring
    geo = {"primary_column": "g", "columns": {"g": {"encoding": "WKB"}}}
    table = pa.table({"g": [circle]}).replace_schema_metadata({"geo": json.dumps(geo)})
    pq.write_table(table, harness.folder / "bronze" / "aoi.parquet")
    measured = harness.run("stats_zonal", href="a.tif", zones="aoi.parquet")
    assert measured.zones[0]["count"] == pytest.approx(3.14159 * 50**2, rel=0.001)


def test_a_vector_file_without_a_coordinate_system_is_no_area(harness: HandlerHarness):
    frame = geopandas.GeoDataFrame(geometry=[shapely.box(0, 0, 1, 1)])
    with pytest.warns(UserWarning, match="'crs' was not provided"):
        frame.to_file(harness.folder / "bronze" / "aoi.fgb")
    with pytest.raises(PermanentError, match="has no CRS, so the place of its areas is unknown"):
        harness.run("raster_clip", href=str(LANDSAT), boundary="aoi.fgb")


# ── zonal ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_statistics_of_whole_pixels_are_numpys(harness: HandlerHarness):
    data = numbers(dtype="float32")
    data[:, 30:40, 20:40] = -1
    harness.bronze("a.tif", data, nodata=-1)
    left, top = 300_000 + 30 * 10, 9_100_000 - 30 * 20
    zone = shapely.box(left, top - 30 * 50, left + 30 * 60, top)
    crs = {"type": "name", "properties": {"name": f"urn:ogc:def:crs:EPSG::{UTM_25S[5:]}"}}
    feature = {
        "type": "Feature",
        "id": "z",
        "properties": {"k": 1},
        "geometry": json.loads(shapely.to_geojson(zone)),
    }
    zones = {"type": "FeatureCollection", "crs": crs, "features": [feature]}
    row = harness.run("stats_zonal", href="a.tif", zones=zones).zones[0]
    inside = data[0, 20:70, 10:70]
    known = inside[inside != -1].astype("float64")
    assert row == {
        "id": "z",
        "band": 1,
        "count": pytest.approx(known.size),
        "sum": pytest.approx(known.sum()),
        "mean": pytest.approx(known.mean()),
        "min": known.min(),
        "max": known.max(),
        "std": pytest.approx(known.std()),
        "properties": {"k": 1},
    }


def test_a_pixel_counts_as_far_as_it_is_inside(harness: HandlerHarness):
    harness.bronze("a.tif", np.ones((50, 50), "uint8"))
    circle = shapely.Point(300_750, 9_099_250).buffer(333, quad_segs=64)
    row = harness.run("stats_zonal", href="a.tif", zones=degrees(circle)).zones[0]
    assert row["count"] * 900 == pytest.approx(circle.area, rel=1e-4)


def test_zones_that_cut_the_raster_up_add_up_to_it(harness: HandlerHarness):
    with rasterio.open(LANDSAT) as source:
        west, south, east, north = transform_bounds(source.crs, "OGC:CRS84", *source.bounds)
        total = source.read(4).astype(int).sum()
    edges = np.linspace(west, east, 8)
    boxes = [[float(a), south - 0.1, float(b), north + 0.1] for a, b in itertools.pairwise(edges)]
    result = harness.run("stats_zonal", href=str(LANDSAT), zones=boxes, bands=[4, 1])
    assert sum(row["sum"] for row in result.zones if row["band"] == 4) == pytest.approx(
        float(total), rel=1e-6
    )
    assert [(row["id"], row["band"]) for row in result.zones[:4]] == [("0", 4), ("0", 1), ("1", 4), ("1", 1)]
    assert result.zone_count == 7
    assert json.loads(harness.path(result.stats_url).read_text())["zones"] == result.zones


def test_a_zone_without_data_has_no_mean(harness: HandlerHarness):
    harness.bronze("empty.tif", np.full((50, 50), np.nan, "float32"), nodata=np.nan)
    inside, outside = degrees(shapely.box(300_100, 9_098_600, 301_000, 9_099_900)), [10, 10, 11, 11]
    for row in harness.run("stats_zonal", href="empty.tif", zones=[inside, outside]).zones:
        assert (row["count"], row["sum"], row["mean"], row["min"], row["std"]) == (0, 0, None, None, None)


def test_zones_of_a_file_are_named_by_a_field(harness: HandlerHarness):
    degree = Affine(1, 0, -180, 0, -1, 90)
    harness.bronze("world.tif", np.ones((180, 360), "uint8"), crs="EPSG:4326", transform=degree)
    result = harness.run("stats_zonal", href="world.tif", zones=str(NATURAL_EARTH), zone_field="name")
    counts = {row["id"]: row["count"] for row in result.zones}
    assert counts["Brazil"] == pytest.approx(shapely_area("Brazil"), rel=1e-5)
    with pytest.raises(PermanentError, match="has no property 'nom'"):
        harness.run("stats_zonal", href="world.tif", zones=str(NATURAL_EARTH), zone_field="nom")


def shapely_area(name: str) -> float:
    import pyogrio

    _, _, shapes, columns = pyogrio.raw.read(str(NATURAL_EARTH), columns=["name"])
    return float(shapely.from_wkb(shapes[list(columns[0]).index(name)]).area)


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float64"]
)
def test_every_kind_of_number_is_measured(harness: HandlerHarness, dtype: str):
    data = numbers(20, 20, dtype="int64") % 100
    harness.bronze("a.tif", data.astype(dtype))
    zone = degrees(shapely.box(300_000, 9_099_400, 300_600, 9_100_000))
    row = harness.run("stats_zonal", href="a.tif", zones=zone).zones[0]
    assert (row["min"], row["max"]) == (data.min(), data.max())
    assert row["mean"] == pytest.approx(data.mean(), rel=1e-3)


def test_scale_and_offset_are_applied(harness: HandlerHarness):
    harness.bronze("a.tif", np.full((20, 20), 50, "int16"))
    with rasterio.open(harness.folder / "bronze" / "a.tif", "r+") as raster:
        raster.scales, raster.offsets = (0.5,), (-5.0,)
    zone = degrees(shapely.box(300_100, 9_099_500, 300_500, 9_099_900))
    assert harness.run("stats_zonal", href="a.tif", zones=zone).zones[0]["mean"] == 20


@pytest.mark.parametrize(("west", "count", "mean"), [(10.355, 500, 50), (10.0, 0, None)])
def test_masked_pixels_are_not_measured_in_a_part_of_a_raster_either(
    harness: HandlerHarness, west: float, count: int, mean: float
):
    pixels = np.full((100, 100), 50, "uint8")
    pixels[:, :40] = 0
    profile = {
        "driver": "GTiff",
        "width": 100,
        "height": 100,
        "count": 1,
        "dtype": "uint8",
        "crs": "EPSG:4326",
    }
    path = harness.folder / "bronze" / "masked.tif"
    path.parent.mkdir(exist_ok=True)
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(
            path, "w", transform=rasterio.transform.from_origin(10, 51, 0.01, 0.01), **profile
        ) as raster,
    ):
        raster.write(pixels, 1)
        raster.write_mask(pixels > 0)
    zone = [[west, 50.2, west + 0.145 if count else 10.395, 50.7]]
    row = harness.run("stats_zonal", href="masked.tif", zones=zone).zones[0]
    assert (round(row["count"], 6), row["mean"]) == (count, mean)


def test_a_sum_that_is_infinite_is_no_zero(harness: HandlerHarness):
    data = numbers(dtype="float32")
    data[0, 5, 5] = np.inf
    harness.bronze("a.tif", data)
    (row,) = harness.run(
        "stats_zonal", href="a.tif", zones=harness.run("raster.validate", href="a.tif").bbox
    ).zones
    assert row["count"] > 50_000
    assert row["sum"] is None


def test_the_file_of_an_area_is_a_source_next_to_the_raster(harness: HandlerHarness):
    """Its bytes decide about the result, so the item and the statistics name it with its checksum."""
    harness.bronze("a.tif", numbers(200, 300))
    box = {
        "type": "Polygon",
        "coordinates": [
            [[-34.81, -8.16], [-34.78, -8.16], [-34.78, -8.14], [-34.81, -8.14], [-34.81, -8.16]]
        ],
    }
    path = harness.folder / "bronze" / "aoi.geojson"
    path.write_text(json.dumps(box))
    expected = [
        {"href": f"file://{file}", "file:checksum": f"1220{hashlib.sha256(file.read_bytes()).hexdigest()}"}
        for file in (harness.folder / "bronze" / "a.tif", path)
    ]
    by_file = harness.run("raster.clip", href="a.tif", boundary="aoi.geojson")
    assert by_file.item["properties"]["dagmaster:sources"] == expected
    # The same area by value is the same result, with one source less.
    by_value = harness.run("raster.clip", href="a.tif", boundary=box)
    assert by_value.cog_url == by_file.cog_url
    assert by_value.item["id"] == by_file.item["id"]
    assert by_value.item["properties"]["dagmaster:sources"] == expected[:1]
    statistics = harness.run("raster.stats_zonal", href="a.tif", zones="aoi.geojson")
    assert json.loads(harness.path(statistics.stats_url).read_text())["sources"] == expected
