"""What a plan says about the blobs that the inputs name."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagmaster.adapters.storage.router import ObjectStorage
from dagmaster.application.commands.publication import publish_workflows
from dagmaster.application.commands.validation import to_sources, validate_text
from dagmaster.application.submission import JobRequest
from dagmaster.application.submission_plan import plan_submission
from dagmaster.sdk.handler_registry import Registry
from tests.unit.application.memory_application import memory_application

if TYPE_CHECKING:
    from pathlib import Path

    from dagmaster.ports.storage import Storage

FLOW = """
workflow_id: flow
version: 1
inputs: {source: {type: string}, others: {type: array, default: []}, secret: {type: string, secret: true, default: ""}}
nodes: {a: {type: wait, seconds: 1}}
"""


def missing(storage: Storage | None, **inputs: Any) -> tuple[str, ...] | None:
    async def main() -> tuple[str, ...] | None:
        app = replace(memory_application(), storage=storage)
        await publish_workflows(app, to_sources([validate_text(FLOW, Registry())]))
        return (await plan_submission(app, JobRequest(workflow_id="flow", inputs=inputs))).missing_blobs

    return asyncio.run(main())


def a_storage(folder: Path) -> ObjectStorage:
    (folder / "bronze").mkdir()
    (folder / "bronze" / "here.tif").write_bytes(b"x")
    return ObjectStorage({"bronze": f"file://{folder}/bronze"})


def test_a_plan_names_the_blobs_of_the_inputs_that_do_not_exist(tmp_path):
    storage, folder = a_storage(tmp_path), f"file://{tmp_path}/bronze"
    inputs = {
        "source": f"{folder}/here.tif",
        "others": [{"uri": f"{folder}/gone.tif"}, f"{folder}/gone.tif", "gone"],
    }
    assert missing(storage, **inputs) == (f"{folder}/gone.tif",)
    assert missing(storage, source="a word") == ()


def test_blobs_outside_the_storage_and_in_secrets_are_not_looked_up(tmp_path):
    storage = a_storage(tmp_path)
    (tmp_path / "private.txt").write_text("x")
    outside = [
        f"file://{tmp_path}/private.txt",
        f"file://{tmp_path}/nothing.txt",
        "s3://other/a.tif",
        "file://../../etc",
    ]
    assert missing(storage, source="a", others=outside, secret=f"file://{tmp_path}/bronze/gone.tif") == ()


def test_without_a_storage_no_blob_is_looked_up():
    assert missing(None, source="az://bronze/a.tif") is None
