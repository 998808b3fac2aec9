"""Pictures, predictions, lists and copies."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio
from affine import Affine
from PIL import Image
from rasterio.enums import ColorInterp

from dagmaster.errors import BlobNotFound, PermanentError
from tests.unit.geo.raster.models import mean_model
from tests.unit.geo.raster.raster_context import LANDSAT, REGISTRY, UTM, HandlerHarness, numbers

if TYPE_CHECKING:
    from pathlib import Path


def picture(harness: HandlerHarness, url: str) -> Any:
    with Image.open(harness.path(url)) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGBA")).astype(int)


# ── thumbnail ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_thumbnail_stretches_between_percentiles(harness: HandlerHarness):
    result = harness.run("raster_thumbnail", source_path=str(LANDSAT), size=2000, bands=[3, 2, 1])
    shown = picture(harness, result.thumbnail_url)
    with rasterio.open(LANDSAT) as source:
        band = source.read(3).astype(float)
    low, high = np.percentile(band, (2, 98))
    expected = (np.clip((band - low) / (high - low), 0, 1) * 255).round()
    assert (result.width, result.height) == (349, 352)
    assert np.abs(shown[..., 0] - expected).max() <= 1
    assert (shown[..., 3] == 255).all()


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
@pytest.mark.parametrize(
    ("called", "first"),
    [
        (("blue", "Green", " RED ", "nir"), [3, 2, 1]),
        (("nir", "red", "green", "blue"), [2, 3, 4]),
        (("b04", "b03", "b02", "b08"), [1, 2, 3]),
        (("red", None, "blue", None), [1, 2, 3]),
    ],
)
def test_a_thumbnail_has_the_colours_that_its_bands_are_called(
    harness: HandlerHarness, called: tuple[str | None, ...], first: list[int], dtype: str
):
    harness.bronze("a.tif", numbers(40, 40, bands=4, dtype=dtype), alpha="unspecified")
    with rasterio.open(harness.folder / "bronze" / "a.tif", "r+") as raster:
        raster.descriptions = called
    chosen, details = (
        harness.run("raster.thumbnail", href="a.tif", **how).thumbnail_url for how in ({}, {"bands": first})
    )
    assert np.array_equal(picture(harness, chosen), picture(harness, details))


def test_a_thumbnail_has_the_colours_that_its_bands_have(harness: HandlerHarness):
    harness.bronze("a.tif", numbers(40, 40, bands=3))
    with rasterio.open(harness.folder / "bronze" / "a.tif", "r+") as raster:
        raster.colorinterp = [ColorInterp.blue, ColorInterp.green, ColorInterp.red]
    chosen, details = (
        harness.run("raster.thumbnail", href="a.tif", **how).thumbnail_url
        for how in ({}, {"bands": [3, 2, 1]})
    )
    assert np.array_equal(picture(harness, chosen), picture(harness, details))


def test_a_thumbnail_is_small_and_nodata_is_transparent(harness: HandlerHarness):
    data = numbers(400, 600, dtype="float32")
    data[:, :, :300] = np.nan
    harness.bronze("half.tif", data, nodata=np.nan)
    result = harness.run("raster.thumbnail", href="half.tif", size=60)
    shown = picture(harness, result.thumbnail_url)
    assert shown.shape == (40, 60, 4)
    assert (shown[:, :30, 3] == 0).all()
    assert (shown[:, 30:, 3] == 255).all()


def test_a_palette_keeps_its_colours_and_south_up_is_turned(harness: HandlerHarness):
    data = np.zeros((40, 40), "uint8")
    data[:20] = 1
    colours = {0: (255, 0, 0, 255), 1: (0, 0, 255, 255)}
    south_up = Affine(30, 0, 300_000, 0, 30, 9_000_000)
    harness.bronze("classes.tif", data, colormap=colours, photometric="palette", transform=south_up)
    shown = picture(harness, harness.run("raster.thumbnail", href="classes.tif").thumbnail_url)
    assert tuple(shown[0, 0]) == (255, 0, 0, 255)
    assert tuple(shown[-1, 0]) == (0, 0, 255, 255)


def test_a_raster_without_any_data_gives_an_empty_picture(harness: HandlerHarness):
    harness.bronze("nothing.tif", np.full((40, 40), -9, "int16"), nodata=-9)
    assert (
        picture(harness, harness.run("raster.thumbnail", href="nothing.tif").thumbnail_url)[..., 3] == 0
    ).all()


# ── a model ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def means(data: Any) -> Any:
    """Return the mean of 3 x 3 pixels, with the edge repeated."""
    padded = np.pad(data.astype("float64"), 1, mode="edge")
    height, width = data.shape
    return (
        sum(padded[row : row + height, column : column + width] for row in range(3) for column in range(3))
        / 9
    )


@pytest.mark.parametrize("side", [None, 48])
def test_a_model_says_the_same_of_windows_as_of_the_whole(harness: HandlerHarness, side: int | None):
    (harness.folder / "bronze" / "mean.onnx").write_bytes(mean_model(side=side))
    data = numbers(100, 130, dtype="uint8")
    harness.bronze("a.tif", data)
    result = harness.run(
        "ml_predict", href="a.tif", model="mean.onnx", window=40, overlap=4, scale=0.5, offset=1
    )
    raster = harness.read(result.prediction_path)
    assert raster.shape == (2, 100, 130)
    expected = means(data[0] * 0.5 + 1)
    assert np.allclose(raster[0], expected, atol=1e-3)
    assert np.allclose(raster[1], -expected, atol=1e-3)
    assert result.item["assets"]["data"]["bands"][0]["nodata"] == "nan"
    assert len(result.item["properties"]["dagmaster:sources"]) == 2


def test_without_overlap_the_seams_are_seen(harness: HandlerHarness):
    (harness.folder / "bronze" / "mean.onnx").write_bytes(mean_model())
    harness.bronze("a.tif", numbers(100, 130, dtype="uint8"))
    result = harness.run("ml_predict", href="a.tif", model="mean.onnx", window=40, overlap=0)
    differs = ~np.isclose(
        harness.read(result.cog_url)[0], means(numbers(100, 130, dtype="uint8")[0]), atol=1e-3
    )
    assert differs[39, 5]
    assert not differs[20, 20]


def test_classes_are_bytes_and_nodata_stays_nodata(harness: HandlerHarness):
    (harness.folder / "bronze" / "mean.onnx").write_bytes(mean_model(bands=2))
    data = numbers(60, 60, bands=3, dtype="int16")
    data[:, 10:20, 10:20] = -9
    data[1, 30, 30] = -9
    harness.bronze("a.tif", data, nodata=-9)
    result = harness.run(
        "ml_predict", href="a.tif", model="mean.onnx", bands=[1, 3], window=32, overlap=2, classes=True
    )
    raster = harness.read(result.cog_url)
    assert (raster.shape, raster.dtype) == ((1, 60, 60), np.dtype("uint8"))
    expected = np.where((data[[0, 2]] == -9).any(axis=0), 255, 0)
    assert np.array_equal(raster[0], expected)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (b"not a model", "the model cannot be loaded: expected one ONNX file"),
        (mean_model(bands=3), "the model expects 3 bands, and the input has 1"),
        (mean_model(side=8), "an overlap of 4 pixels leaves nothing of a window of 8"),
    ],
)
def test_a_model_that_does_not_fit_is_reported(harness: HandlerHarness, model: bytes, sentence: str):
    (harness.folder / "bronze" / "m.onnx").write_bytes(model)
    harness.bronze("a.tif", numbers(20, 20))
    with pytest.raises(PermanentError) as caught:
        harness.run("ml_predict", href="a.tif", model="m.onnx", overlap=4)
    assert caught.value.kind == "invalid_input"
    assert sentence in str(caught.value)
    assert harness.silver() == []


def test_more_classes_than_a_byte_holds_are_refused(harness: HandlerHarness, monkeypatch: pytest.MonkeyPatch):
    harness.bronze("a.tif", numbers(20, 20, dtype="float32"))
    (harness.folder / "bronze" / "m.onnx").write_bytes(mean_model())
    monkeypatch.setattr(
        "dagmaster.geo.raster.prediction._run_model", lambda *_: np.zeros((256, 24, 24), "float32")
    )
    with pytest.raises(
        PermanentError, match="the model returns 256 channels: a byte holds at most 255 classes"
    ):
        harness.run("ml_predict", href="a.tif", model="m.onnx", window=32, overlap=4, classes=True)


# ── lists and copies ────────────────────────────────────────────────────────────────────────────────────────────────


def test_rasters_are_listed_by_prefix_and_suffix(harness: HandlerHarness):
    for name in ("a/one.tif", "a/two.TIF", "a/b/three.jp2", "ab.tif", "a/note.txt", "a/.half.tif"):
        path = harness.folder / "bronze" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")

    def names(**params: Any) -> list[str]:
        return [file["name"] for file in harness.run("list_raster_files", **params).files]

    assert names() == ["a/b/three.jp2", "a/one.tif", "a/two.TIF", "ab.tif"]
    assert names(prefix="a/") == ["a/b/three.jp2", "a/one.tif", "a/two.TIF"]
    assert names(prefix="a/t") == ["a/two.TIF"]
    assert names(prefix="ab") == ["ab.tif"]
    assert names(suffixes=[".txt"]) == ["a/note.txt"]
    assert names(container_name="gold") == []
    result = harness.run("raster.list_files", limit=2)
    assert (result.count, result.truncated) == (2, True)
    assert result.hrefs[0] == f"file://{harness.folder}/bronze/a/b/three.jp2"


def test_a_folder_that_may_be_read_is_listed_by_its_path_and_by_its_name(harness: HandlerHarness):
    for name in ("a.tif", "deep/b.tif"):
        (harness.folder / "scenes" / name).parent.mkdir(parents=True, exist_ok=True)
        (harness.folder / "scenes" / name).write_bytes(b"1")
    path = f"{harness.folder}/scenes"
    for way in (path, f"{path}/", f"file://{path}", "scenes", "./scenes/"):
        result = harness.run("raster.list_files", container_name=way)
        assert [file["name"] for file in result.files] == ["a.tif", "deep/b.tif"]
        assert result.hrefs[0] == f"file://{path}/a.tif"
    assert harness.run("raster.list_files", container_name=path, prefix="deep/").count == 1
    assert harness.run("raster.list_files", container_name=path, prefix="de").count == 1
    # Bronze comes first, as with a file.
    harness.bronze("scenes/c.tif", numbers(8, 8))
    assert [file["name"] for file in harness.run("raster.list_files", container_name="scenes").files] == [
        "c.tif"
    ]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"container_name": "rasters"}, "there is no container or folder 'rasters'"),
        ({"container_name": "{harness}/none"}, "there is no container or folder"),
        ({"container_name": "file://{harness}/note.txt"}, "is a file, expected a folder or container"),
        ({"container_name": "file:///etc"}, "file:///etc is outside the allowed directories"),
        ({"container_name": "s3://nobody"}, "s3://nobody may not be used here"),
        ({"prefix": "../x"}, r"an empty, '\.' or '\.\.' part"),
        ({"min_count": 1}, "0 files .* are below file://.*bronze/, expected at least 1"),
    ],
)
def test_a_place_that_is_not_there_or_holds_too_few_is_bad_input(
    harness: HandlerHarness, params: dict[str, Any], message: str
):
    (harness.folder / "note.txt").write_text("a file")
    details = {
        name: str(value).format(harness=harness.folder) if name == "container_name" else value
        for name, value in params.items()
    }
    with pytest.raises(PermanentError, match=message) as caught:
        harness.run("raster.list_files", **details)
    assert caught.value.kind == "invalid_input"


def test_as_many_as_are_expected_are_found_or_cannot_be(harness: HandlerHarness):
    harness.bronze("a.tif", numbers(8, 8))
    assert harness.run("raster.list_files", min_count=1).count == 1
    with pytest.raises(PermanentError, match="at most 4 files are listed"):
        harness.run("raster.list_files", min_count=5, limit=4)


def test_a_bucket_that_is_not_there_is_bad_input(harness: HandlerHarness, monkeypatch: pytest.MonkeyPatch):
    def missing(uri: object) -> Any:
        raise BlobNotFound("there is no bucket 'nobody'")

    monkeypatch.setattr(harness.services.blobs, "list_blobs", missing)
    with pytest.raises(PermanentError, match="there is no bucket 'nobody'") as caught:
        harness.run("raster.list_files")
    assert caught.value.kind == "invalid_input"


def test_a_copy_in_the_mount_outlives_its_task_and_is_made_once(harness: HandlerHarness):
    harness.bronze("big.tif", numbers())
    first = harness.run("raster.blob_to_mount", href="big.tif")
    copy = harness.path(first.mount_path)
    before = copy.stat()
    assert copy.read_bytes() == (harness.folder / "bronze" / "big.tif").read_bytes()
    assert copy.is_relative_to(harness.folder / "scratch" / "mount")
    assert harness.run("raster.blob_to_mount", href="big.tif") == first
    assert harness.run("create_cog", href="big.tif", use_mount=True).bbox
    assert copy.stat().st_ino == before.st_ino
    assert [path.name for path in copy.parent.iterdir()] == ["big.tif"]
    # It is a file as any other.
    assert np.array_equal(
        harness.read(harness.run("create_cog", source_path=first.mount_path).cog_url), numbers()
    )


def test_another_version_of_a_blob_is_another_copy_and_old_ones_go(harness: HandlerHarness):
    harness.bronze("big.tif", numbers(seed=1))
    first = harness.path(harness.run("raster.blob_to_mount", href="big.tif").mount_path)
    harness.bronze("big.tif", numbers(seed=2))
    second = harness.path(harness.run("raster.blob_to_mount", href="big.tif").mount_path)
    assert first.exists()
    assert first != second
    long_ago = time.time() - 100 * 3600
    os.utime(first.parent, (long_ago, long_ago))
    harness.run("raster.blob_to_mount", href="big.tif")
    assert (first.exists(), second.exists()) == (False, True)


def test_who_wants_a_copy_for_a_moment_takes_none_away_from_others(harness: HandlerHarness):
    harness.bronze("big.tif", numbers())
    copy = harness.path(harness.run("raster.blob_to_mount", href="big.tif").mount_path)
    an_hour_ago = time.time() - 3600
    os.utime(copy.parent, (an_hour_ago, an_hour_ago))
    harness.bronze("other.tif", numbers())
    other = harness.path(harness.run("raster.blob_to_mount", href="other.tif", keep_hours=0.001).mount_path)
    harness.run("raster.blob_to_mount", href="big.tif", keep_hours=0.001)
    assert copy.parent.stat().st_mtime == pytest.approx(an_hour_ago)
    # Its own goes a day after its last use, and not under who reads it.
    harness.run("raster.blob_to_mount", href="big.tif")
    assert other.exists()
    assert time.time() - other.parent.stat().st_mtime == pytest.approx(48 * 3600, abs=600)


# ── all at once ─────────────────────────────────────────────────────────────────────────────────────────────────────


class MemoryCatalog:
    """A catalog in memory, which may fail once."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.items: dict[str, Any] = {}
        self.collections: dict[str, Any] = {}

    def ensure_collection(self, collection: dict[str, Any]) -> bool:
        return self.collections.setdefault(collection["id"], collection) is collection

    def register(self, items: Any) -> Any:
        from dagmaster.ports.catalog import Registered

        if self.fails:
            raise ConnectionError("it does not answer")
        self.items |= {item["id"]: item for item in items}
        return Registered(created=len(items))


class Reports:
    """Checkpoints, as the worker keeps them."""

    def __init__(self) -> None:
        self.phases: list[str] = []

    def progress(self, progress: Any) -> None:
        pass

    def checkpoint(self, checkpoint: Any) -> Any:
        self.phases.append(checkpoint.phase)
        return checkpoint


def test_all_at_once_is_found_in_the_catalog_and_registered_once(harness: HandlerHarness):
    from dagmaster.ports.catalog import Search

    first, second = (
        harness.run("raster_process_complete", href=str(LANDSAT), target_crs="EPSG:4326") for _ in range(2)
    )
    assert first.registered["created"] == 1
    assert second.registered == {"created": 0, "updated": 0, "unchanged": 1}
    west, south, east, north = first.bbox
    (result,) = harness.services.catalog.search(
        Search(collections=("rasters",), bbox=(west, south, east, north))
    )
    assert (result["id"], result["assets"]["data"]["href"]) == (first.item_id, first.cog_url)
    assert harness.services.catalog.search(Search(bbox=(10, 10, 11, 11))) == []


def test_all_at_once_goes_on_after_what_was_done(tmp_path: Path):
    harness = HandlerHarness(tmp_path)
    catalog = MemoryCatalog(fails=True)
    harness.services.__dict__["catalog"] = catalog
    harness.bronze("a.tif", numbers())
    ctx = harness.context("raster_process_complete", href="a.tif", collection_id="c")
    ctx.reporter = reports = Reports()
    with pytest.raises(ConnectionError):
        harness.call(ctx, "raster_process_complete")
    assert reports.phases == ["validated", "made"]
    catalog.fails = False
    # What was made is not looked for again.
    (tmp_path / "bronze" / "a.tif").unlink()
    again = harness.context("raster_process_complete", href="a.tif", collection_id="c")
    again.last_checkpoint = ctx.last_checkpoint
    done = harness.call(again, "raster_process_complete")
    assert catalog.items[done.item_id]["assets"]["data"]["href"] == done.cog_url
    assert catalog.items[done.item_id]["collection"] == "c"
    assert done.registered == {"created": 1, "updated": 0, "unchanged": 0}
    assert np.array_equal(harness.read(done.cog_url), numbers())
    assert UTM.a == done.metadata["resolution"][0]


def test_all_at_once_makes_only_its_cog_again_if_that_is_gone_when_it_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without the check on resume it succeeded, with an item that points at nothing."""
    from dagmaster.geo.raster import cog_handlers, cog_output, inspection
    from dagmaster.testing import run_workflow

    harness = HandlerHarness(tmp_path)
    harness.bronze("a.tif", numbers())

    class DeletingCatalog(MemoryCatalog):
        def register(self, items: Any) -> Any:
            if self.fails:
                harness.path(items[0]["assets"]["data"]["href"]).unlink()
                self.fails = False
                raise ConnectionError("it does not answer")
            return super().register(items)

    calls: list[str] = []

    describe_raster, publish_cog = inspection.describe_raster, cog_output.publish_cog

    def describe(path: Any, share: Any, *, sample: bool = True, size: int | None = None) -> dict[str, Any]:
        # The COG is described without a sample of its pixels, the source with one.
        calls.extend(["validate"] if sample else [])
        return describe_raster(path, share, sample=sample, size=size)

    def publish(*args: Any, **options: Any) -> Any:
        calls.append("make")
        return publish_cog(*args, **options)

    monkeypatch.setattr(inspection, "describe_raster", describe)
    monkeypatch.setattr(cog_handlers, "publish_cog", publish)
    catalog = harness.services.__dict__["catalog"] = DeletingCatalog(fails=True)
    workflow = """{name: n, nodes: {a: {handler: raster.process_complete, params: {href: a.tif},
                                        retry: {max_attempts: 2}}}}"""
    report = run_workflow(workflow, handlers=REGISTRY, services=harness.services)
    assert (report.status, report.nodes["a"]["attempts"]) == ("COMPLETED", 2)
    assert calls == ["validate", "make", "make"]
    (item,) = catalog.items.values()
    assert np.array_equal(harness.read(item["assets"]["data"]["href"]), numbers())
