"""What a result is named after: the raster itself, not what a param says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from dagmaster.errors import PermanentError
from dagmaster.geo.source_files import LocalFile, local_file
from tests.unit.geo.raster.raster_context import numbers

if TYPE_CHECKING:
    from dagmaster.ports.blob_uris import BlobUri
    from dagmaster.sdk.handler_context import HandlerContext
    from tests.unit.geo.raster.raster_context import HandlerHarness


def test_a_raster_that_was_replaced_since_its_plan_is_refused_though_it_is_as_long(harness: HandlerHarness):
    harness.bronze("a.tif", np.ones((40, 40), "uint8"))
    (tile,) = harness.run("raster_plan_tiles", href="a.tif").tiles
    harness.bronze("a.tif", np.full((40, 40), 2, "uint8"))
    for params in ({"tile_spec": tile}, {"tile_spec": tile, "href": "a.tif"}):
        with pytest.raises(PermanentError, match=r"is not the raster whose tiles were planned.*plan again"):
            harness.run("raster.create_cog", **params)
    assert harness.silver() == []


def test_two_rasters_of_one_long_name_give_two_results(harness: HandlerHarness):
    name = f"{'long' * 30}.tif"
    collected = []
    for seed in (1, 2):
        harness.bronze(name, numbers(20, 20, seed=seed))
        collected.append(harness.run("raster.create_cog", href=name))
        assert np.array_equal(harness.read(collected[-1].cog_url), numbers(20, 20, seed=seed))
    assert collected[0].cog_url != collected[1].cog_url


def test_another_raster_is_not_cut_under_the_version_of_the_first(harness: HandlerHarness):
    harness.bronze("a.tif", numbers(seed=1))
    harness.bronze("b.tif", numbers(seed=2))
    tile = harness.run("raster_plan_tiles", href="a.tif").tiles[0]
    with pytest.raises(PermanentError, match="is not the raster whose tiles were planned"):
        harness.run("raster.process_tile_batch", tiles=[tile], href="b.tif")


def test_one_outline_in_two_coordinate_systems_cuts_two_results(harness: HandlerHarness):
    harness.bronze("a.tif", numbers())
    ring = [[302_000, 9_097_000], [304_000, 9_097_000], [304_000, 9_099_000], [302_000, 9_097_000]]
    result = [
        harness.run(
            "raster.clip",
            href="a.tif",
            geometry={"type": "Polygon", "coordinates": [ring], "crs": {"properties": {"name": code}}},
        ).cog_url
        for code in ("EPSG:32725", "EPSG:31985")
    ]
    assert len(set(result)) == 2


def test_a_raster_that_tells_its_place_in_its_name_is_not_another_with_the_same_bytes(
    harness: HandlerHarness,
):
    for name in ("N00E006.hgt", "N00E007.hgt"):
        (harness.folder / "bronze" / name).write_bytes(bytes(1201 * 1201 * 2))
    result = [harness.run("raster.mosaic", sources=[name]) for name in ("N00E006.hgt", "N00E007.hgt")]
    assert [round(one.bbox[0]) for one in result] == [6, 7]
    assert result[0].cog_url != result[1].cog_url


def test_the_checksum_of_a_raster_is_taken_once_for_all_its_tiles(
    harness: HandlerHarness, monkeypatch: pytest.MonkeyPatch
):
    harness.bronze("a.tif", numbers(40, 60))
    plan = harness.run("raster_plan_tiles", href="a.tif", tile_size=20)
    read: list[str] = []

    def counted(ctx: HandlerContext, uri: BlobUri) -> LocalFile:
        read.append(str(uri))
        return local_file(ctx, uri)

    monkeypatch.setattr("dagmaster.geo.raster.raster_sources.local_file", counted)
    assert harness.run("raster.process_tile_batch", tiles=plan.tiles).count == 6
    assert read == []
