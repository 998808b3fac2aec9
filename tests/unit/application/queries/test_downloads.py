"""Outputs and results as files: what is in a blob is passed on in chunks, without secrets."""

from __future__ import annotations

import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from dagmaster.adapters.output_blobs_local import LocalBlobs
from dagmaster.application.queries.downloads import download_output, download_result
from dagmaster.errors import BlobNotFound, NodeNotFound
from dagmaster.ports.output_blobs import CHUNK_BYTES
from dagmaster.records.nodes import NodeValues
from tests.unit.application.world import DONE, SECRET, FakeReadStore, a_record, application_on, run

if TYPE_CHECKING:
    from pathlib import Path

    from dagmaster.application.context import Application
    from dagmaster.application.queries.downloads import Download

SIZE = 32 * 1024 * 1024


def an_application(folder: Path, **values: Any) -> Application:
    inputs = values.pop("inputs", {"token": SECRET, "size": 3})
    result_ref = values.pop("result_ref", None)
    store = FakeReadStore(
        [a_record(inputs=inputs, result_ref=result_ref, result=values.pop("result", None))],
        node_records=[DONE],
        values={"fetch": NodeValues(**values)},
    )
    return application_on(store, blobs=LocalBlobs(folder))


async def read(download: Download) -> bytes:
    return b"".join([chunk async for chunk in download.chunks])


async def drain(download: Download) -> tuple[int, int]:
    """Read all chunks, and return the total and the largest."""
    sizes = [len(chunk) async for chunk in download.chunks]
    return sum(sizes), max(sizes)


@pytest.mark.parametrize("inputs", [{}, {"token": SECRET}])
def test_a_large_output_is_never_whole_in_memory(tmp_path, inputs):
    with (tmp_path / "out").open("wb") as file:
        file.write(b'{"a": "')
        for _ in range(SIZE // 1024):
            file.write(b"x" * 1024)
        file.write(b'"}')
    app = an_application(tmp_path, inputs=inputs, output_ref="out")

    async def story() -> tuple[int, int, int]:
        download = await download_output(app, "7", "fetch")
        tracemalloc.start()
        try:
            total, largest = await drain(download)
            return total, largest, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    total, largest, peak = run(story())
    assert total == SIZE + 9
    assert largest <= 2 * CHUNK_BYTES
    assert peak < 16 * CHUNK_BYTES


def test_its_length_is_known_if_nothing_is_redacted(tmp_path):
    (tmp_path / "out").write_bytes(b"[1, 2]")
    for inputs, length in (({}, 6), ({"token": SECRET}, None)):
        download = run(download_result(an_application(tmp_path, inputs=inputs, result_ref="out"), "7"))
        assert (download.bytes, run(read(download))) == (length, b"[1, 2]")


def test_secrets_of_the_job_and_of_the_task_are_redacted_also_between_two_chunks(tmp_path):
    value = {"a": "x" * (CHUNK_BYTES - 10) + SECRET, "b": ["other-secret ü", SECRET]}
    (tmp_path / "out").write_bytes(json.dumps(value, ensure_ascii=False).encode())
    for values in ({"output_ref": "out"}, {"output": value}):
        app = an_application(tmp_path, **values, hidden=("other-secret",))
        document = json.loads(run(read(run(download_output(app, "7", "fetch")))))
        assert document == {"a": "x" * (CHUNK_BYTES - 10) + "***", "b": ["*** ü", "***"]}


def test_what_has_no_value_is_null_and_what_does_not_exist_is_an_error_before_the_first_chunk(tmp_path):
    app = an_application(tmp_path)
    assert run(read(run(download_output(app, "7", "release")))) == b"null"
    assert run(read(run(download_result(app, "7")))) == b"null"
    with pytest.raises(NodeNotFound):
        run(download_output(app, "7", "other"))
    with pytest.raises(BlobNotFound):
        run(download_output(an_application(tmp_path, output_ref="gone"), "7", "fetch"))
    with pytest.raises(BlobNotFound):
        run(download_result(an_application(tmp_path, result_ref="gone"), "7"))
