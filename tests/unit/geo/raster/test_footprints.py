"""A footprint contains its raster, wherever the projection ends; off the Earth there is none, and the rest is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import numpy as np
import pystac
import pytest
import rasterio
import shapely
from affine import Affine
from rasterio.crs import CRS

from dagmaster.errors import PermanentError
from dagmaster.geo.raster.earth_positions import earth_transform
from dagmaster.geo.raster.footprints import raster_footprint
from dagmaster.geo.stac.item_repair import _corrected_bbox
from dagmaster.geo.stac.validation import check_stac_item
from dagmaster.ports.catalog import Search
from tests.unit.geo.raster.raster_context import numbers

if TYPE_CHECKING:
    from tests.unit.geo.raster.raster_context import HandlerHarness

pytestmark = pytest.mark.slow

GEOSTATIONARY = "+proj=geos +h=35785831 +lon_0={} +sweep=x +ellps=GRS80"
SINUSOIDAL = "+proj=sinu +R=6371007.181"
WORLD_TM = "+proj=tmerc +lon_0=0 +datum=WGS84"
PLACES: dict[str, tuple[str, tuple[float, float, float, float]]] = {
    "UTM": ("EPSG:32631", (5e5, 5e6, 6e5, 5.1e6)),
    "Europe": ("EPSG:3035", (2.6e6, 1.4e6, 7.3e6, 5.4e6)),
    "Lambert": ("EPSG:2154", (1e5, 6e6, 1.2e6, 7.1e6)),
    "across 180": ("EPSG:32701", (120_000, 8_000_000, 220_000, 8_100_000)),
    "web Mercator beyond 180": ("EPSG:3857", (1.9e7, -1e6, 2.1e7, 1e6)),
    "full disk": (GEOSTATIONARY.format(-75), (-5.43e6, -5.43e6, 5.43e6, 5.43e6)),
    "full disk across 180": (GEOSTATIONARY.format(140.7), (-5.5e6, -5.5e6, 5.5e6, 5.5e6)),
    "part of a disk": (GEOSTATIONARY.format(-75), (-3.6e6, 1.5e6, 1.3e6, 4.5e6)),
    "sinusoidal world": (SINUSOIDAL, (-2.001e7, -1.0007e7, 2.001e7, 1.0007e7)),
    "sinusoidal tile at the edge": (SINUSOIDAL, (-2.001e7, 3.3e6, -1.4e7, 6.6e6)),
    "elliptic world": ("ESRI:54009", (-1.804e7, -9.02e6, 1.804e7, 9.02e6)),
    "interrupted world": ("+proj=igh +R=6378137", (-2e7, -8.67e6, 2e7, 8.67e6)),
    "Transverse Mercator world": (WORLD_TM, (-2e7, -2e7, 2e7, 2e7)),
    "Transverse Mercator over both poles": (WORLD_TM, (-3e6, -1.9e7, 3e6, 1.9e7)),
    "Transverse Mercator hemisphere": (WORLD_TM, (-8e6, -1e7, 8e6, 1e7)),
    "UTM far beyond its zone": ("EPSG:32631", (-2e7, -1e7, 2e7, 1e7)),
    "around a pole": ("EPSG:3031", (-4e6, -4e6, 4e6, 4e6)),
    "beside a pole": ("EPSG:3031", (1e6, 1e6, 4e6, 4e6)),
    "seen from space": ("+proj=ortho +lat_0=40 +lon_0=10", (-6.4e6, -6.4e6, 6.4e6, 6.4e6)),
    "azimuthal world": ("+proj=aeqd +lat_0=0 +lon_0=0", (-2e7, -2e7, 2e7, 2e7)),
    "plate carrée world": ("EPSG:4087", (-2.0037e7, -1e7, 2.0037e7, 1e7)),
}


def grid_of(bounds: tuple[float, float, float, float], size: int = 100) -> Affine:
    left, bottom, right, top = bounds
    return Affine((right - left) / size, 0, left, 0, -(top - bottom) / size, top)


@pytest.mark.parametrize("name", PLACES)
def test_a_footprint_contains_every_pixel_that_is_on_the_earth(name: str):
    text, bounds = PLACES[name]
    crs = CRS.from_string(text)
    place = raster_footprint(crs, grid_of(bounds), 100, 100)
    assert place is not None
    random = np.random.default_rng(1)
    u, v = random.uniform(0, 1, (2, 20_000))
    # Many on the edges, where the extremes mostly are.
    u[:2_000], u[2_000:4_000], v[4_000:6_000], v[6_000:8_000] = 0, 1, 0, 1
    xs, ys = bounds[0] + u * (bounds[2] - bounds[0]), bounds[1] + v * (bounds[3] - bounds[1])
    longitudes, latitudes, is_valid = earth_transform(crs).locate(xs, ys)
    longitudes, latitudes, is_edge = (
        longitudes[is_valid],
        latitudes[is_valid],
        (np.arange(20_000) < 8_000)[is_valid],
    )
    west, south, east, north = np.add(place.bbox, np.array([-1, -1, 1, 1]) * 2e-7)
    is_inside = (
        (longitudes >= west) & (longitudes <= east)
        if west <= east
        else (longitudes >= west) | (longitudes <= east)
    )
    assert is_inside.all()
    assert ((latitudes >= south) & (latitudes <= north)).all()
    shape = shapely.geometry.shape(place.geometry)
    assert shape.is_valid
    assert shapely.contains_xy(shape, longitudes[~is_edge], latitudes[~is_edge]).mean() > 0.999
    # Not much more than that. Few pixels show the rim of a disk.
    assert north - south <= 1.05 * np.ptp(latitudes) + 0.5
    assert _corrected_bbox({"geometry": place.geometry, "bbox": place.bbox}) == {}


def test_a_transverse_mercator_map_of_the_world_spans_the_world():
    place = raster_footprint(CRS.from_string(WORLD_TM), grid_of((-2e7, -2e7, 2e7, 2e7)), 100, 100)
    assert place is not None
    assert place.bbox == [-180, -90, 180, 90]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # The sinusoidal map ends where longitude * cos(latitude) is the distance from its middle.
        ("sinusoidal tile at the edge", [-180, 29.68, -144.9, 45.6]),
        ("elliptic world", [-180, -90, 180, 90]),
        ("around a pole", [-180, -90, 180, -41.0]),
        ("Transverse Mercator over both poles", [-180, -90, 180, 90]),
    ],
)
def test_a_footprint_is_where_the_formulas_say(name: str, expected: list[float]):
    text, bounds = PLACES[name]
    place = raster_footprint(CRS.from_string(text), grid_of(bounds), 100, 100)
    assert place is not None
    assert place.bbox == pytest.approx(expected, abs=0.1)


def test_a_full_disk_is_described_by_its_rim():
    text, bounds = PLACES["full disk"]
    place = raster_footprint(CRS.from_string(text), grid_of(bounds), 100, 100)
    assert place is not None
    assert place.bbox == pytest.approx([-156.3, -81.3, 6.3, 81.3], abs=0.3)
    assert len(place.geometry["coordinates"][0]) > 50


def test_a_raster_that_is_nowhere_on_the_earth_is_refused(harness: HandlerHarness):
    crs, transform = GEOSTATIONARY.format(0), Affine(1000, 0, 5.4e6, 0, -1000, 5.5e6)
    harness.bronze("space.tif", numbers(20, 20), crs=crs, transform=transform)
    with pytest.raises(PermanentError, match="no pixel of the raster lies on the Earth"):
        harness.run("raster.validate", href="space.tif")


@pytest.mark.parametrize(
    "name", ["full disk", "full disk across 180", "around a pole", "sinusoidal tile at the edge"]
)
def test_such_a_raster_becomes_a_cog_and_is_warped_without_loss(harness: HandlerHarness, name: str):
    text, bounds = PLACES[name]
    harness.bronze("a.tif", np.ones((100, 100), "uint8"), crs=text, transform=grid_of(bounds), nodata=0)
    result = harness.run("raster.create_cog", href="a.tif")
    assert (harness.read(result.cog_url) == 1).all()
    check_stac_item({**result.item, "collection": "c", "links": [{"rel": "collection", "href": "c.json"}]})
    warped = harness.run("raster.reproject", href="a.tif", target_crs="EPSG:4326")
    assert [abs(side - own) < 2 for side, own in zip(warped.bbox, result.bbox, strict=True)] == [True] * 4


# ── other bodies ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("crs", "transform", "body"),
    [
        ("IAU_2015:30100", Affine(0.1, 0, 10, 0, -0.1, 50), "Moon"),
        ("IAU_2015:30110", Affine(100, 0, 1e5, 0, -100, 2e5), "Moon"),
        ("IAU_2015:30130", Affine(100, 0, -2000, 0, -100, 2000), "Moon"),
        ("IAU_2015:49900", Affine(0.1, 0, 10, 0, -0.1, 50), "Mars"),
        ("IAU_2015:49910", Affine(100, 0, 1e5, 0, -100, 2e5), "Mars"),
        ("+proj=eqc +R=3396190", Affine(100, 0, 1e5, 0, -100, 2e5), "Mars"),
        ("+proj=longlat +R=250000", Affine(0.1, 0, 10, 0, -0.1, 50), None),
    ],
)
def test_a_raster_off_the_earth_becomes_a_cog_with_an_item_that_has_no_place_on_it(
    harness: HandlerHarness, crs: str, transform: Affine, body: str | None
):
    pixels = numbers(40, 40)
    harness.bronze("a.tif", pixels, crs=crs, transform=transform)
    seen = harness.run("raster.validate", href="a.tif")
    assert (seen.bbox, seen.metadata["footprint"]) == (None, None)
    result = harness.run(
        "raster.process_complete", href="a.tif", collection_id="bodies", datetime="2020-01-01T00:00:00Z"
    )
    assert result.bbox is None
    assert np.array_equal(harness.read(result.cog_url), pixels)
    item: dict[str, Any] = result.item
    assert (item["geometry"], "bbox" in item) == (None, False)
    properties = item["properties"]
    assert properties.get("ssys:targets") == (None if body is None else [body])
    assert properties["proj:bbox"] == list(result.bounds)
    # GeoTIFF stores a polar stereographic CRS in a form that has no code.
    if crs.startswith("IAU") and crs != "IAU_2015:30130":
        assert properties["proj:code"] == crs == result.crs
    assert CRS.from_wkt(properties["proj:wkt2"]).is_geographic == CRS.from_string(crs).is_geographic
    pystac.Item.from_dict(item, preserve_dict=True)
    check_stac_item({**item, "collection": "bodies", "links": [{"rel": "collection", "href": "c.json"}]})
    catalog = harness.services.catalog
    assert [items["id"] for items in catalog.search(Search(collections=("bodies",)))] == [result.item_id]
    assert catalog.search(Search(bbox=(-180, -90, 180, 90))) == []


def test_the_resolution_of_degrees_off_the_earth_is_that_of_the_body(harness: HandlerHarness):
    harness.bronze("a.tif", numbers(40, 40), crs="IAU_2015:30100", transform=Affine(0.1, 0, 10, 0, -0.1, 50))
    result = harness.run("raster.create_cog", href="a.tif")
    assert result.item["assets"]["data"]["raster:spatial_resolution"] == pytest.approx(3032, abs=2)


def test_tiles_warps_and_mosaics_work_off_the_earth(harness: HandlerHarness):
    pixels = numbers(40, 40)
    harness.bronze("a.tif", pixels, crs="IAU_2015:30110", transform=Affine(100, 0, 1e5, 0, -100, 2e5))
    plan = harness.run("raster_plan_tiles", href="a.tif", tile_size=20)
    assert (plan.bbox, plan.tiles[0]["bbox"], plan.tiles[0]["footprint"]) == (None, None, None)
    tiles = [harness.run("create_cog", tile_spec=tile).cog_url for tile in plan.tiles]
    assert np.array_equal(harness.read(harness.run("raster.mosaic", sources=tiles).cog_url), pixels)
    warped = harness.run("raster.reproject", href="a.tif", target_crs="IAU_2015:30100")
    assert warped.crs == "IAU_2015:30100"
    assert harness.read(warped.cog_url).max() == pixels.max()
    with pytest.raises(
        PermanentError,
        match="IAU_2015:30110, the CRS of the raster, is of Moon, and EPSG:4326 is of the Earth",
    ):
        harness.run("raster.reproject", href="a.tif", target_crs="EPSG:4326")
    with pytest.raises(PermanentError) as caught:
        harness.run("raster.clip", href="a.tif", bbox=[3, 3, 4, 4])
    assert caught.value.kind == "invalid_input"


# ── coordinate systems that GeoTIFF stores partly or not at all ─────────────────────────────────────────────────────


@pytest.mark.parametrize("crs", ["EPSG:32631+5773", "EPSG:4979", "EPSG:2263", "ESRI:54009", "EPSG:5514"])
def test_compound_solid_and_unusual_crss_are_kept(harness: HandlerHarness, crs: str):
    is_degrees = CRS.from_string(crs).is_geographic
    transform = Affine(0.1, 0, 10, 0, -0.1, 50) if is_degrees else Affine(10, 0, 5e5, 0, -10, 1e6)
    if crs == "EPSG:5514":
        transform = Affine(10, 0, -7e5, 0, -10, -1e6)
    harness.bronze("a.tif", numbers(20, 20), crs=crs, transform=transform)
    result = harness.run("raster.create_cog", href="a.tif")
    with (
        rasterio.open(harness.folder / "bronze" / "a.tif") as source,
        rasterio.open(harness.path(result.cog_url)) as cog,
    ):
        assert cog.crs == source.crs
    assert result.bbox is not None


def test_a_projected_crs_with_heights_is_stored_without_them(harness: HandlerHarness):
    wkt = CRS.from_epsg(32631).to_wkt(version="WKT2_2019")
    solid = wkt.replace("CS[Cartesian,2]", "CS[Cartesian,3]").replace(
        'LENGTHUNIT["metre",1]],USAGE',
        'LENGTHUNIT["metre",1]],AXIS["h",up,ORDER[3],LENGTHUNIT["metre",1]],USAGE',
    )
    path = harness.folder / "bronze" / "a.tif"
    harness.bronze("a.tif", numbers(20, 20), crs="EPSG:32631", transform=Affine(10, 0, 5e5, 0, -10, 1e6))
    path.with_name("a.tif.aux.xml").write_text(f"<PAMDataset><SRS>{escape(solid)}</SRS></PAMDataset>")
    result = harness.run("raster.create_cog", href="a.tif")
    assert result.crs == "EPSG:32631"


def test_a_crs_that_geotiff_cannot_store_is_named_and_can_be_warped(harness: HandlerHarness):
    rotated_pole = "+proj=ob_tran +o_proj=longlat +o_lon_p=0 +o_lat_p=39.25 +lon_0=18 +R=6371229"
    path = harness.folder / "bronze" / "a.tif"
    path.parent.mkdir(exist_ok=True)
    with rasterio.open(
        path, "w", driver="GTiff", width=20, height=20, count=1, dtype="uint8", crs=rotated_pole,
        transform=Affine(0.1, 0, 0, 0, -0.1, 10),
    ) as raster:  # fmt: skip
        raster.write(np.ones((1, 20, 20), "uint8"))
    assert path.with_name("a.tif.aux.xml").exists()
    with pytest.raises(
        PermanentError, match=r"GeoTIFF cannot store the CRS .* warp it to another one, with target_crs"
    ):
        harness.run("raster.create_cog", href="a.tif")
    assert harness.run("raster.create_cog", href="a.tif", target_crs="EPSG:4326").crs == "EPSG:4326"
