"""Storage that fails while a file is read: that is tried again, and no fault of the file's."""

from __future__ import annotations

import errno
from typing import Any

import pyarrow.parquet as pq
import pytest
import shapely

from dagmaster.errors import BlobsUnavailable, PermanentError
from dagmaster.geo.rules import arrow_features
from dagmaster.geo.vector import content_checks, dataset_files
from tests.unit.geo.vector.test_bad_input import geoparquet
from tests.unit.geo.vector.test_natural_earth import collection


@pytest.mark.parametrize("suffix", [".geojson", ".parquet"])
def test_a_file_that_goes_away_while_it_is_read_may_come_back(services, monkeypatch, suffix):
    box = shapely.box(0, 0, 1, 1)
    if suffix == ".parquet":
        href = geoparquet(services, "x.parquet", [box], 4326)
    else:
        href = services.put("x.geojson", collection(box))
    look = content_checks.check_content

    def looked_at_and_gone(path: Any, format_: str, max_bytes: int) -> None:
        look(path, format_, max_bytes)
        path.resolve().unlink()

    monkeypatch.setattr(dataset_files, "check_content", looked_at_and_gone)
    with pytest.raises(BlobsUnavailable, match="went away"):
        services.run("vector.prepare", href=href)


def test_a_disk_that_does_not_answer_is_no_fault_of_the_file(services, monkeypatch):
    def unreadable(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    href = services.put("x.geojson", collection(shapely.box(0, 0, 1, 1)))
    monkeypatch.setattr("pyogrio.list_layers", unreadable)
    with pytest.raises(BlobsUnavailable, match="Input/output error"):
        services.run("vector.prepare", href=href)
    monkeypatch.setattr(pq, "ParquetFile", unreadable)
    with pytest.raises(OSError, match="Input/output error"):
        arrow_features.read_chunk(services.folder / "x.geojson")


def test_a_chunk_that_is_broken_is_bad_input_all_the_same(services):
    path = services.put("x.parquet", b"PAR1 and nothing more")
    with pytest.raises(PermanentError, match="not a chunk"):
        services.run("vector.upload_chunk", table="t", chunk_id="c", href=path)
