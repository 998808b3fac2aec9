"""Where a handler's data comes from and goes to: by every name, whole, and with a sentence for bad input."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from dagmaster.adapters.storage.router import ObjectStorage
from dagmaster.errors import BlobsUnavailable, PermanentError
from dagmaster.geo.raster.cog_handlers import CompleteParams
from dagmaster.geo.raster.tile_handlers import TileOptions
from dagmaster.geo.result_uris import publish_file, result_uri
from dagmaster.geo.source_files import CrsName, SourceParams, local_file
from dagmaster.geo.vector.models import PrepareParams
from dagmaster.ports.blob_uris import BlobUri
from dagmaster.ports.handler_services import Share
from dagmaster.sdk.handler_context import HandlerContext

if TYPE_CHECKING:
    from pathlib import Path

    from dagmaster.ports.handler_reports import Checkpoint, Progress


@dataclass
class Lent:
    blobs: ObjectStorage
    share: Share


class RecordedReports:
    def __init__(self) -> None:
        self.reports: list[Progress] = []

    def progress(self, progress: Progress) -> None:
        self.reports.append(progress)

    def checkpoint(self, checkpoint: Checkpoint) -> Checkpoint:
        return checkpoint


def context(folder: Path, url: str = "memory://box", **share: Any) -> HandlerContext:
    blobs = ObjectStorage(
        {zone: f"{url}/{zone}" for zone in ("bronze", "silver", "gold")}, roots=[folder / "root"]
    )
    lent = Lent(blobs, Share(scratch=folder / "scratch", **share))
    return HandlerContext(services=lent, reporter=RecordedReports(), handler="h", handler_version="1")  # type: ignore[arg-type]


def on_disk(folder: Path, **share: Any) -> HandlerContext:
    return context(folder, f"file://{folder}", **share)


@pytest.mark.parametrize(
    "params",
    [
        {"href": "a/b.tif"},
        {"source_url": "memory://box/bronze/a/b.tif"},
        {"source_path": "a/b.tif"},
        {"input_path": "a/b.tif"},
        {"blob_path": "a/b.tif"},
        {"container_name": "bronze", "blob_name": "a/b.tif"},
        {"container_name": "a", "file_name": "b.tif"},
        {"item": {"assets": {"data": {"href": "a/b.tif", "roles": ["data"]}, "preview": {"href": "x"}}}},
    ],
)
def test_a_file_may_be_given_by_each_of_its_names(tmp_path, params):
    ctx = context(tmp_path)
    assert str(SourceParams.model_validate(params).uri(ctx)) == "memory://box/bronze/a/b.tif"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"href": ""}, "1 to 1,024 bytes, not 0"),
        ({"href": "../x.tif"}, r"'\.\.' part"),
        ({"href": "/etc/passwd"}, "outside the allowed directories"),
        ({"href": "/vsicurl/http://host/x.tif"}, "is not a data URI"),
        ({"href": "vsizip/x.zip"}, "is a GDAL path"),
        ({"href": "https://host/x.tif?sig=abc"}, "has to begin with one of"),
        ({"href": "a\x00b"}, "control character"),
        ({"href": "nothing.tif"}, "there is no file at memory://box/bronze/nothing.tif"),
        ({"container_name": "../..", "blob_name": "x"}, r"'\.\.' part"),
        (
            {"item": {"id": "i", "assets": {"a": {"href": "1"}, "b": {"href": "2"}}}},
            "no asset with the role 'data': its assets are a, b",
        ),
        ({"item": {"id": "i", "assets": ["x"]}}, "no asset with the role 'data': its assets are none"),
        (
            {"item": {"id": "i", "assets": {"data": "x"}}},
            "no asset with the role 'data': its assets are none",
        ),
    ],
)
def test_what_is_no_file_is_bad_input_with_its_reason(tmp_path, params, message):
    ctx = context(tmp_path)
    with pytest.raises(PermanentError, match=message) as error:
        local_file(ctx, SourceParams.model_validate(params).uri(ctx))
    assert error.value.kind == "invalid_input"


def test_a_bucket_that_is_not_there_is_bad_input_and_a_storage_that_is_away_is_not(tmp_path, monkeypatch):
    ctx = context(tmp_path)
    from dagmaster.errors import BlobNotFound

    def missing(_uri: BlobUri) -> None:
        raise BlobNotFound("there is no bucket 'b'")

    monkeypatch.setattr(ctx.blobs, "find", missing)
    with pytest.raises(PermanentError, match="there is no bucket 'b'") as error:
        local_file(ctx, BlobUri.parse("s3://b/x"))
    assert error.value.kind == "invalid_input"

    def away(_uri: BlobUri) -> None:
        raise BlobsUnavailable

    monkeypatch.setattr(ctx.blobs, "find", away)
    with pytest.raises(BlobsUnavailable):
        local_file(ctx, BlobUri.parse("s3://b/x"))


def test_two_sources_of_one_last_word_do_not_meet(tmp_path):
    ctx = context(tmp_path)
    files = []
    for folder in ("a", "b"):
        ctx.blobs.write(ctx.blobs.in_zone("bronze", f"{folder}/N00E001.hgt"), folder.encode())
        files.append(local_file(ctx, ctx.blobs.resolve(f"{folder}/N00E001.hgt")))
    assert [file.path.read_text() for file in files] == ["a", "b"]
    assert [file.path.name for file in files] == ["N00E001.hgt"] * 2
    assert [file.sha256 for file in files] == [hashlib.sha256(text).hexdigest() for text in (b"a", b"b")]
    ctx.close()
    assert not files[0].path.exists()


def test_a_word_that_is_too_long_for_a_disk_keeps_its_end(tmp_path):
    ctx = context(tmp_path)
    name = f"{'ü' * 400}.tif"
    ctx.blobs.write(ctx.blobs.in_zone("bronze", name), b"1")
    file = local_file(ctx, ctx.blobs.resolve(name))
    assert file.path.suffix == ".tif"
    assert file.path.read_bytes() == b"1"


def test_a_file_of_this_machine_is_read_where_it_lies(tmp_path):
    ctx = on_disk(tmp_path)
    ctx.blobs.write(ctx.blobs.in_zone("bronze", "a.tif"), b"12345")
    file = local_file(ctx, ctx.blobs.resolve("a.tif"))
    assert file.path == tmp_path / "bronze" / "a.tif"
    assert (file.size, file.sha256) == (5, hashlib.sha256(b"12345").hexdigest())
    assert [report.current for report in ctx.reporter.reports] == [5]  # type: ignore[union-attr]
    assert ctx.reporter.reports[0].message == f"reading file://{tmp_path}/bronze/a.tif"  # type: ignore[union-attr]


@pytest.mark.parametrize("make", [context, on_disk])
def test_a_task_that_is_to_stop_stops_while_it_reads_or_publishes(tmp_path, make):
    ctx = make(tmp_path)
    uri = ctx.blobs.in_zone("bronze", "a.tif")
    ctx.blobs.write(uri, b"12345")
    target = tmp_path / "made"
    target.write_bytes(b"result")
    ctx.cancel()
    with pytest.raises(PermanentError) as error:
        local_file(ctx, uri)
    assert error.value.kind == "cancelled"
    there = result_uri(ctx, "r", ".tif", sources=[], params={})
    with pytest.raises(PermanentError):
        publish_file(ctx, target, there)
    assert ctx.blobs.find(there) is None


def test_a_file_over_the_limit_is_not_read(tmp_path):
    ctx = context(tmp_path, max_file_mb=1)
    ctx.blobs.write(ctx.blobs.in_zone("bronze", "a.tif"), bytes(2_000_000))
    with pytest.raises(
        PermanentError, match=r"has 2 MB: at most 1 MB are allowed \(DAGMASTER_RASTER_MAX_FILE_MB\)"
    ):
        local_file(ctx, ctx.blobs.resolve("a.tif"))


def test_a_result_is_named_by_what_it_is_made_from(tmp_path):
    ctx = context(tmp_path)

    def name(**changed: object) -> str:
        values = {"sources": ["s1"], "params": {"a": 1}} | changed
        return str(result_uri(ctx, "my scene!", ".tif", folder="cogs", **values))  # type: ignore[arg-type]

    assert name().startswith("memory://box/silver/cogs/my_scene-")
    assert name() == name()
    assert len({name(), name(sources=["s2"]), name(params={"a": 2})}) == 3
    before = name()
    ctx.handler_version = "2"
    assert name() != before


@pytest.mark.parametrize(("message", "read"), [(4326, "EPSG:4326"), ("EPSG:3857", "EPSG:3857")])
@pytest.mark.parametrize("params", [PrepareParams, TileOptions, CompleteParams])
def test_a_crs_may_be_said_by_its_number(params, message, read):
    details = {"target_crs": message} if params is TileOptions else {"target_crs": message, "href": "x"}
    assert params.model_validate(details).target_crs == read
    with pytest.raises(ValidationError):
        params.model_validate({**details, "target_crs": True})


@pytest.mark.parametrize(
    ("message", "expected"),
    [(4326, "EPSG:4326"), ("4326", "EPSG:4326"), ("ESRI:54009", "ESRI:54009"), ("12", "12")],
)
def test_a_number_is_a_code_of_epsg_also_as_text(message, expected):
    assert TypeAdapter(CrsName).validate_python(message) == expected
