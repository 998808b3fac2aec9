"""The tour of docs/tutorial/page.md: submit, watch, find out why a job failed, repair, resume.

With SCREENSHOTS=1 (`make screenshots`) it makes the pictures of the tutorial and of the README.
"""

from __future__ import annotations

import asyncio
import io
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image
from playwright.sync_api import expect

from dagmaster.sdk.handler_registry import Registry, handler
from dagmaster.ui.navigation import Mode
from dagmaster.ui.site import Site
from tests.unit.http.loopback import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page

    from tests.browser.visitor import Visitor
    from tests.unit.http.loopback import Loopback

IMAGES = Path(__file__).parents[2] / "docs" / "tutorial" / "images"
MAX_BYTES, MAX_TOTAL = 120_000, 800_000
COLUMNS, ROWS = 8, 5
HELD = 24
"""The first tile that waits until the pictures of the running job are made."""


class World:
    """What the test decides: whether tiles may continue, and whether one of them has no data."""

    def __init__(self) -> None:
        self.is_open = False
        self.is_broken = True


WORLD = World()


@handler("raster_validate", queue="raster")
async def validate(href: str) -> dict[str, Any]:
    """Check that a raster can be read."""
    return {"href": href, "bands": 3, "crs": "EPSG:4326"}


@handler("raster_plan_tiles", queue="raster")
async def plan(href: str) -> dict[str, Any]:
    """Plan the tiles of a raster, with their footprints."""
    tiles = [
        {
            "tile": f"r{row}c{column}",
            "number": row * COLUMNS + column,
            "href": href,
            "bbox": bbox(column, row),
        }
        for row in range(ROWS)
        for column in range(COLUMNS)
    ]
    return {"tiles": tiles}


def bbox(column: int, row: int) -> list[float]:
    west, north = -37.6 + column * 0.5, -6.4 - row * 0.5
    return [round(west, 2), round(north - 0.5, 2), round(west + 0.5, 2), round(north, 2)]


@handler("raster_cog", queue="raster")
async def make_cog(tile: dict[str, Any]) -> dict[str, Any]:
    """Write a tile as a Cloud-Optimized GeoTIFF."""
    number = tile["number"]
    await asyncio.sleep(random.Random(number).uniform(0.05, 0.3) if IS_DRAWN else 0)
    while not WORLD.is_open and number >= HELD:  # noqa: ASYNC110 - the test is in another thread
        await asyncio.sleep(0.01)
    if WORLD.is_broken and number == 19:
        raise ValueError(f"{tile['tile']}.tif: band 2 has no data in this window")
    return {"cog": f"silver/flood/{tile['tile']}.tif", "bbox": tile["bbox"]}


@handler("raster_mosaic", queue="raster")
async def mosaic(tiles: int) -> dict[str, Any]:
    """Put tiles together."""
    return {"mosaic": "gold/flood.tif", "tiles": tiles}


@handler("stac_register", queue="raster")
async def register(mosaic: str) -> dict[str, Any]:
    """Register an item in the catalog."""
    return {"item_id": "flood-recife", "asset": mosaic}


HANDLERS: list[Callable[..., Any]] = [validate, plan, make_cog, mosaic, register]
IS_DRAWN = os.environ.get("SCREENSHOTS") == "1"
FLOW = """
workflow_id: flood_tiles
name: Flood map of Recife
version: 1
description: Cuts a raster into tiles, makes a COG of each in parallel, and registers the mosaic.
tags: [raster, demo]
inputs:
  href: {type: string, default: bronze/flood_recife.tif, description: The raster to cut into tiles.}
nodes:
  validate: {handler: raster_validate, params: {href: "{{ inputs.href }}"}, next: plan_tiles}
  plan_tiles: {handler: raster_plan_tiles, params: {href: "{{ nodes.validate.output.href }}"}, next: create_tiles}
  create_tiles:
    type: fan_out
    source: "{{ nodes.plan_tiles.output.tiles }}"
    max_parallel: 12
    task: {handler: raster_cog, params: {tile: "{{ item }}"}, retry: {max_attempts: 1}}
    next: [mosaic, quality]
  mosaic: {handler: raster_mosaic, params: {tiles: "{{ nodes.create_tiles.output.fan_out_count }}"}, next: register}
  quality: {handler: raster_validate, params: {href: gold/flood.tif}, next: register}
  register: {handler: stac_register, params: {mosaic: "{{ nodes.mosaic.output.mosaic }}"}}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    """Return a server on which nothing has run."""
    with serve(Registry(HANDLERS), Site(Mode.DEV)) as loopback:
        yield loopback


def draw(page: Page, name: str, scheme: str = "light", height: int = 800) -> None:
    """Make a picture of the page, if pictures are asked for."""
    if not IS_DRAWN:
        return
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
    page.set_viewport_size({"width": 1280, "height": height})
    page.evaluate(
        "() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))"
    )
    picture = Image.open(io.BytesIO(page.screenshot()))
    # 256 colours are enough for a page, and a third of the bytes.
    picture.convert("RGB").quantize(256).save(IMAGES / f"{name}.png", optimize=True)
    page.emulate_media(color_scheme="light")


def test_the_tour_of_the_tutorial(visitor: Visitor):
    visitor.api.post("/api/v1/workflows", json={"text": FLOW}).raise_for_status()
    page = visitor.page("/ui/", viewport={"width": 1280, "height": 800})
    expect(page.get_by_role("heading", name="Welcome")).to_be_visible()
    draw(page, "first-run", height=640)
    page.get_by_role("main").get_by_role("link", name="flood_tiles").click()
    page.get_by_label("Name", exact=True).fill("Flood map of Recife")
    draw(page, "submit", height=720)
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("heading", name="Flood map of Recife")).to_be_visible()
    job = page.url
    counts = page.locator("tr[data-node=create_tiles] .count", has_text="completed")
    expect(counts).to_have_text(f"{HELD - 1} completed")
    expect(page.locator(".toast")).to_have_count(0)
    draw(page, "graph", height=1000)
    page.get_by_role("link", name="Map", exact=True).click()
    expect(page.locator(".map-count")).to_have_text(f"{COLUMNS * ROWS} footprints")
    draw(page, "map", "dark", height=1000)
    act_on_selected_tiles(page, job)
    page.get_by_role("link", name="Timeline", exact=True).click()
    expect(page.locator("job-timeline canvas").first).to_be_visible()
    WORLD.is_open = True
    visitor.until(job.rsplit("/", 1)[1], "FAILED")
    page.reload()
    expect(page.locator("job-timeline canvas").first).to_be_visible()
    draw(page, "timeline", height=860)
    expect(page.locator("[data-why]")).to_contain_text("band 2 has no data")
    page.goto(job)
    page.get_by_role("link", name="First failure").click()
    expect(
        page.get_by_role("dialog", name="Node").get_by_role("heading", name="create_tiles__19")
    ).to_be_visible()
    draw(page, "failure", "dark", height=860)
    page.keyboard.press("Escape")
    WORLD.is_broken = False
    page.get_by_role("link", name="Resume").click()
    dialog = page.get_by_role("dialog", name="Resume")
    expect(dialog.get_by_text("Run again", exact=True)).to_be_visible()
    draw(page, "resume", height=720)
    dialog.get_by_role("button", name="Resume").click()
    expect(page.locator(".page-head .status")).to_have_text("completed")


def act_on_selected_tiles(page: Page, job: str) -> None:
    """Select tiles of a running job: each action is about them, and says how many of them it concerns."""
    offered = page.locator("[data-map-actions]").get_by_role("link")
    page.get_by_label("Select create_tiles__19").check()
    expect(offered).to_have_text(["Retry", "Open logs", "Cancel the job"])
    page.get_by_label("Select create_tiles__24").check()
    expect(offered).to_have_text(["Retry", "Cancel", "Open logs", "Cancel the job"])
    expect(page.locator("[data-map-actions]")).to_contain_text("2 selected")
    offered.nth(1).click()
    dialog = page.get_by_role("dialog", name="Cancel create_tiles__24")
    expect(dialog).to_contain_text("1 of 2 selected nodes stays as it is")
    dialog.get_by_role("link", name="Back").click()
    offered.nth(2).click()
    expect(page.get_by_text("Log of create_tiles__19, create_tiles__24")).to_be_visible()
    page.goto(f"{job}/map")


def test_the_pictures_of_the_tutorial_are_small():
    sizes = {path.name: path.stat().st_size for path in IMAGES.iterdir()}
    assert max(sizes.values()) <= MAX_BYTES, sizes
    assert sum(sizes.values()) <= MAX_TOTAL, sizes
