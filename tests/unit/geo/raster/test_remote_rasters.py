"""Rasters in an object store: looked at and cut where they lie; what is made of them lies there too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio
from rasterio.errors import RasterioIOError

from dagmaster.errors import BlobsUnavailable, PermanentError
from dagmaster.geo.gdal import check_readable, open_raster
from tests.conformance.object_servers import make_bucket, moto
from tests.unit.geo.raster.raster_context import UTM, UTM_25S, HandlerHarness, numbers, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, moto() as server:
        for name, value in server.env.items():
            patch.setenv(name, value)
        make_bucket(server, "rasters")
        yield "s3://rasters"


@pytest.fixture
def far(tmp_path: Path, bucket: str) -> HandlerHarness:
    zones = {zone: f"{bucket}/{tmp_path.name}/{zone}" for zone in ("bronze", "silver", "gold")}
    return HandlerHarness(tmp_path, zones=zones)


def put(harness: HandlerHarness, name: str, data: bytes) -> None:
    harness.services.blobs.write(harness.services.blobs.in_zone("bronze", name), data)


def read(harness: HandlerHarness, url: str) -> Any:
    to = harness.folder / "read.tif"
    harness.services.blobs.fetch(harness.services.blobs.resolve(url), to)
    return harness.read(str(to))


def test_it_is_looked_at_planned_and_cut_without_being_fetched(
    far: HandlerHarness, monkeypatch: pytest.MonkeyPatch
):
    path = write(
        far.folder / "a.tif", numbers(), tiled=True, blockxsize=64, blockysize=64, compress="deflate"
    )
    put(far, "a.tif", path.read_bytes())
    fetched: list[Any] = []
    monkeypatch.setattr(far.services.blobs, "fetch", lambda uri, *rest: fetched.append(uri))
    seen = far.run("raster.validate", href="a.tif")
    assert (seen.sha256, seen.metadata["width"]) == (None, 300)
    plan = far.run("raster_plan_tiles", source_url=seen.blob_url, tile_size=128)
    tiles = [far.run("raster_cog_docker", tile_spec=spec) for spec in plan.tiles]
    assert fetched == []
    assert "version" in tiles[0].item["properties"]["dagmaster:sources"][0]
    monkeypatch.undo()
    mosaic = far.run("raster_mosaic", sources=[tile.cog_url for tile in tiles])
    assert mosaic.cog_url.startswith("s3://rasters/")
    assert np.array_equal(read(far, mosaic.cog_url), numbers())
    # A twin finds what is there.
    assert far.run("raster_mosaic", sources=[tile.cog_url for tile in tiles]) == mosaic


def test_what_lies_there_and_is_no_raster_is_reported(far: HandlerHarness):
    put(far, "a.tif", b"name,height\n" * 1000)
    with pytest.raises(
        PermanentError, match="not a raster that is read in an object store: expected GTiff, "
    ):
        far.run("raster.validate", href="a.tif")
    with pytest.raises(PermanentError, match="a text file, not the GTiff that its suffix"):
        far.run("raster.create_cog", href="a.tif")


def test_a_storage_that_does_not_answer_is_no_bad_raster(
    far: HandlerHarness, monkeypatch: pytest.MonkeyPatch
):
    path = write(far.folder / "a.tif", numbers())
    put(far, "a.tif", path.read_bytes())
    uri = far.services.blobs.resolve("a.tif")
    place = far.services.blobs.gdal_path(uri)
    refusing = type(place)(path=place.path, options={**place.options, "AWS_S3_ENDPOINT": "127.0.0.1:9"})
    monkeypatch.setattr(far.services.blobs, "gdal_path", lambda _: refusing)
    with pytest.raises(BlobsUnavailable, match="cannot be read in place"):
        far.run("raster.validate", href="a.tif")


def test_a_blob_that_was_replaced_since_its_plan_is_refused(far: HandlerHarness):
    ones, twos = (
        write(far.folder / "a.tif", np.full((40, 40), value, "uint8")).read_bytes() for value in (1, 2)
    )
    put(far, "a.tif", ones)
    (tile,) = far.run("raster_plan_tiles", href="a.tif").tiles
    put(far, "a.tif", twos)
    with pytest.raises(PermanentError, match="is not the raster whose tiles were planned: its version is"):
        far.run("raster.create_cog", tile_spec=tile)


def test_a_bomb_is_refused_where_it_lies(far: HandlerHarness):
    path = far.folder / "bomb.tif"
    place: dict[str, Any] = {
        "driver": "GTiff",
        "count": 1,
        "dtype": "uint8",
        "crs": UTM_25S,
        "transform": UTM,
    }
    with rasterio.open(
        path, "w", width=50_000, height=50_000, tiled=True, sparse_ok=True, compress="deflate", **place
    ):
        pass
    put(far, "bomb.tif", path.read_bytes())
    for name in ("raster.validate", "raster_plan_tiles"):
        with pytest.raises(PermanentError, match="claims 50,000 x 50,000 pixels"):
            far.run(name, href="bomb.tif")
    small = HandlerHarness(far.folder, zones=far.services._config["zones"], max_file_mb=0)
    with pytest.raises(PermanentError, match="at most 0 MB are allowed"):
        small.run("raster.validate", href="bomb.tif")


def test_what_a_storage_says_of_what_was_signed_is_not_told(
    far: HandlerHarness, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: Any, **__: Any) -> None:
        raise RasterioIOError("HTTP response code: 403 - <StringToSign>AWS4-SECRET</StringToSign>")

    monkeypatch.setattr("dagmaster.geo.gdal.DatasetReader", refuse)
    with (
        pytest.raises(BlobsUnavailable, match="HTTP status 403") as caught,
        open_raster("/vsis3/a/b.tif", far.services.share),
    ):
        pass
    assert "SECRET" not in str(caught.value)
    # Nor is it bad input for good, when that comes in the middle of work.
    with pytest.raises(BlobsUnavailable, match="HTTP status 403"):
        check_readable("/vsis3/a/b.tif")
    assert caught.value.__suppress_context__


def test_an_envi_file_without_a_suffix_is_fetched_with_its_header(far: HandlerHarness):
    path = far.folder / "scene"
    write(path, numbers(), driver="ENVI")
    put(far, "scene", path.read_bytes())
    put(far, "scene.hdr", path.with_suffix(".hdr").read_bytes())
    assert far.run("raster.validate", href="scene").metadata["driver"] == "ENVI"
    plan = far.run("raster_plan_tiles", href="scene", tile_size=128)
    tile = far.run("raster_cog_docker", tile_spec=plan.tiles[0])
    assert np.array_equal(read(far, tile.cog_url), numbers()[..., :128, :128])
