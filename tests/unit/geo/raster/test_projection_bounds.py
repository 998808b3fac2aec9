"""Rasters at the edges of maps: the poles of Mercator's, and degrees that go on beyond 180."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from affine import Affine

from dagmaster.errors import PermanentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.unit.geo.raster.raster_context import HandlerHarness

pytestmark = pytest.mark.slow


def ones(
    harness: HandlerHarness, left: float, top: float, size: tuple[int, int], pixel: float, **profile: Any
) -> str:
    """Return a raster in degrees without a gap: what is missing after a warp was lost there."""
    width, height = size
    place = {"crs": "EPSG:4326", "transform": Affine(pixel, 0, left, 0, -pixel, top), "nodata": 0} | profile
    return harness.bronze("ones.tif", np.ones((height, width), "uint8"), **place)


def refused(harness: HandlerHarness, href: str, target: str) -> str:
    with pytest.raises(PermanentError) as caught:
        harness.run("raster.reproject", href=href, target_crs=target)
    assert caught.value.kind == "invalid_input"
    return str(caught.value)


def boxes(sentence: str) -> list[Sequence[float]]:
    return [json.loads(one) for one in re.findall(r"bbox=(\[.*?\])", sentence)]


@pytest.mark.parametrize("target", ["EPSG:3857", "EPSG:3832"])
@pytest.mark.parametrize("pixel", [1, 5])
def test_poles_are_refused_on_a_map_of_mercator_and_what_is_advised_helps(
    harness: HandlerHarness, target: str, pixel: int
):
    href = ones(harness, -180, 90, (360 // pixel, 180 // pixel), pixel)
    for handler in ("raster.reproject", "raster.create_cog"):
        with pytest.raises(
            PermanentError, match=f"from latitude -90 to 90, beyond what {target} can represent"
        ):
            harness.run(handler, href=href, target_crs=target)
    (box,) = boxes(refused(harness, href, target))
    assert box == [-180, -85, 180, 85]
    assert harness.silver() == []
    clipped = harness.run("raster.clip", href=href, bbox=box)
    result = harness.run("raster.reproject", href=clipped.cog_url, target_crs=target)
    assert max(map(abs, result.bounds)) < 20_200_000
    assert harness.read(result.cog_url).mean() > 0.98


@pytest.mark.parametrize("target", ["EPSG:4978", "EPSG:5773"])
def test_a_crs_without_a_plane_is_no_target(harness: HandlerHarness, target: str):
    href = harness.bronze("a.tif", np.ones((1, 18, 36), "uint8"))
    with pytest.raises(
        PermanentError, match=f"{target} has no plane .* expected a projected or geographic CRS"
    ):
        harness.run("raster.reproject", href=href, target_crs=target)


RD = {"crs": "EPSG:7415", "transform": Affine(10, 0, 155_000, 0, -10, 463_000)}
"""Near Amersfoort, with heights above NAP."""


@pytest.mark.parametrize("target", ["EPSG:4979", "EPSG:4326+5773"])
def test_heights_are_not_relabelled(harness: HandlerHarness, target: str):
    href = harness.bronze("a.tif", np.full((1, 20, 20), 7, "float32"), **RD)
    with pytest.raises(
        PermanentError, match=r"refer to NAP height, and EPSG:\d+ to .*: heights are not transformed"
    ):
        harness.run("raster.reproject", href=href, target_crs=target)


@pytest.mark.parametrize(
    ("target", "lost"),
    [
        ("EPSG:32631", ["vertical CRS NAP height"]),
        ("EPSG:32631+5709", []),
        ("EPSG:28992", ["vertical CRS NAP height"]),
    ],
)
def test_a_warp_that_drops_the_vertical_crs_says_so(harness: HandlerHarness, target: str, lost: list[str]):
    href = harness.bronze("a.tif", np.full((1, 20, 20), 7, "float32"), **RD)
    result = harness.run("raster.reproject", href=href, target_crs=target)
    assert result.not_carried == lost
    assert harness.run("raster.create_cog", href=href).not_carried == []


@pytest.mark.parametrize(
    ("crs", "target", "message"),
    [
        (
            "IAU_2015:30100",
            "EPSG:4326",
            "is of Moon, and EPSG:4326 is of the Earth: choose a target_crs of Moon",
        ),
        ("EPSG:4326", "IAU_2015:49900", "is of the Earth, and IAU_2015:49900 is of Mars"),
        ("IAU_2015:30100", "IAU_2015:49900", "is of Moon, and IAU_2015:49900 is of Mars"),
    ],
)
def test_a_warp_stays_on_its_celestial_body(harness: HandlerHarness, crs: str, target: str, message: str):
    href = harness.bronze(
        "a.tif", np.ones((1, 18, 36), "uint8"), crs=crs, transform=Affine(0.1, 0, 10, 0, -0.1, 50)
    )
    with pytest.raises(PermanentError, match=message):
        harness.run("raster.reproject", href=href, target_crs=target)


@pytest.mark.parametrize("target", ["EPSG:3031", "EPSG:3413"])
def test_one_pole_is_refused_on_a_map_of_the_other(harness: HandlerHarness, target: str):
    world = Affine(10, 0, -180, 0, -10, 90)
    href = harness.bronze("a.tif", np.ones((1, 18, 36), "uint8"), crs="EPSG:4326", transform=world)
    with pytest.raises(
        PermanentError, match=r"infinitely far away, as one pole is .* clip it first with raster\.clip"
    ):
        harness.run("raster.reproject", href=href, target_crs=target)


def test_a_pixel_beyond_the_end_of_mercator_is_no_pole(harness: HandlerHarness):
    href = ones(harness, -180, 90, (360, 180), 1)
    clipped = harness.run("raster.clip", href=href, bbox=[-180, -85.06, 180, 85.06])
    assert clipped.bbox == [-180, -86, 180, 86]
    assert harness.run("raster.reproject", href=clipped.cog_url, target_crs="EPSG:3857").bbox[
        3
    ] == pytest.approx(86)


def test_a_pole_in_metres_is_refused_on_a_map_of_mercator(harness: HandlerHarness):
    polar = Affine(20_000, 0, -1_000_000, 0, -20_000, 1_000_000)
    href = ones(harness, 0, 0, (100, 100), 1, crs="EPSG:3413", transform=polar)
    assert "Reproject it to EPSG:4326 and clip it to 85.06 degrees" in refused(harness, href, "EPSG:3857")


@pytest.mark.parametrize("target", ["EPSG:3857", "EPSG:6933"])
@pytest.mark.parametrize(
    ("left", "pixel"), [(179.5, 0.01), (-180.5, 0.01), (179.5, 0.03)], ids=["east", "west", "odd"]
)
def test_a_raster_on_both_ends_of_a_map_is_refused_and_what_is_advised_helps(
    harness: HandlerHarness, target: str, left: float, pixel: float
):
    href = ones(harness, left, 0, (100, 100), pixel)
    message = refused(harness, href, target)
    assert f"the raster lies on both sides of 180 degrees, where the projection of {target} ends" in message
    halves = [harness.run("raster.clip", href=href, bbox=box) for box in boxes(message)]
    assert sum(half.metadata["width"] for half in halves) == (99 if pixel == 0.03 else 100)
    for half in halves:
        result = harness.run("raster.reproject", href=half.cog_url, target_crs=target)
        west, _, east, _ = result.bbox
        assert west < east
        assert harness.read(result.cog_url).mean() > 0.9


def test_a_raster_in_metres_on_both_ends_of_a_map_is_refused(harness: HandlerHarness):
    fiji = Affine(1_000, 0, 120_000, 0, -1_000, 8_100_000)
    message = refused(
        harness, ones(harness, 0, 0, (100, 100), 1, crs="EPSG:32701", transform=fiji), "EPSG:3857"
    )
    assert "reproject it to EPSG:4326 first, and split that at 180 with raster.clip" in message


def test_a_map_may_end_elsewhere_than_at_180(harness: HandlerHarness):
    message = refused(harness, ones(harness, -30.5, 0, (100, 100), 0.01), "EPSG:3832")
    assert "on both sides of 30 degrees west, where the projection of EPSG:3832 ends" in message


@pytest.mark.parametrize(
    ("left", "width", "pixel", "target"),
    [
        (185, 100, 0.1, "EPSG:3857"),
        (180, 50, 0.01, "EPSG:3857"),
        (-180.5, 50, 0.01, "EPSG:3857"),
        (0, 360, 0.5, "EPSG:3857"),
        (0, 360, 1, "EPSG:3857"),
        (179.5, 100, 0.01, "EPSG:3832"),
        (179.5, 100, 0.01, "EPSG:32660"),
        (-180.5, 100, 0.01, "EPSG:32660"),
    ],
)
def test_degrees_beyond_180_lose_no_pixel_on_a_map(
    harness: HandlerHarness, left: float, width: int, pixel: float, target: str
):
    result = harness.run(
        "raster.reproject", href=ones(harness, left, 40 * pixel, (width, 80), pixel), target_crs=target
    )
    assert harness.read(result.cog_url).mean() > 0.98


def test_tiles_beyond_180_are_the_pixels_of_the_whole(harness: HandlerHarness):
    place = Affine(0.01, 0, 179.5, 0, -0.01, 0)
    values = np.arange(1, 10_001, dtype="uint16").reshape(100, 100)
    harness.bronze("fiji.tif", values, crs="EPSG:4326", transform=place, nodata=0)
    plan = harness.run("raster_plan_tiles", href="fiji.tif", tile_size=64)
    tiles = [
        harness.run("create_cog", tile_spec=spec, target_crs="EPSG:32660").cog_url for spec in plan.tiles
    ]
    whole = harness.run("raster.reproject", href="fiji.tif", target_crs="EPSG:32660")
    pixels = harness.read(whole.cog_url)
    assert len(np.unique(pixels)) > 9_500
    apart = harness.read(harness.run("raster.mosaic", sources=tiles).cog_url)
    assert (apart == pixels).mean() > 0.99


def test_a_raster_that_would_have_no_pixels_is_reported(harness: HandlerHarness):
    # It ends where the map begins: GDAL puts that at the other end.
    message = refused(harness, ones(harness, -30.5, 0, (50, 100), 0.01), "EPSG:3832")
    assert (
        "would be 112 x 0 pixels, less than one high or wide: choose a finer resolution, or another"
        in message
    )
