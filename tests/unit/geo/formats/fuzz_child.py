"""The child process of `fuzzing`: reads the datasets that its parent names, one per line, as handlers do."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any, Final

from dagmaster.errors import DagmasterError

MAX_MEMORY: Final = 4 * 1024**3


def read(task: dict[str, Any]) -> None:
    """Read all of a dataset."""
    folder = Path(task["folder"])
    href = str(folder / task["name"])
    readers = {"vector": _read_features, "raster": _read_raster, "crash": lambda *_: os.abort()}
    readers[task["kind"]](folder, href, task["params"])


def _read_features(folder: Path, href: str, params: dict[str, Any]) -> None:
    """Prepare all features for a table."""
    from tests.unit.geo.vector.vector_context import FolderServices

    FolderServices(folder).run("vector.prepare", href=href, heights="drop", **params)


def _read_raster(folder: Path, href: str, _: dict[str, Any]) -> None:
    """Read every pixel of a raster, or of each raster in the file, also of one without a CRS."""
    from dagmaster.geo.gdal import (
        check_readable,
        explain_io_errors,
        gdal_env,
        open_container,
        open_raster,
    )
    from dagmaster.geo.raster.raster_sources import locate_raster
    from dagmaster.geo.raster.subdatasets import list_subdatasets
    from tests.unit.geo.raster.raster_context import HandlerHarness

    harness = HandlerHarness(folder)
    ctx = harness.context("raster.validate", href=href)
    try:
        source = locate_raster(ctx, ctx.blobs.resolve(href))
        with gdal_env(ctx.share, **source.options):
            with open_container(source.path) as raster:
                subdatasets = list_subdatasets(raster, source.path)
            paths: list[str] = [subdataset.path for subdataset in subdatasets]
            for path in paths or [source.path]:
                with open_raster(path, ctx.share), explain_io_errors(path):
                    check_readable(path)
        harness.call(ctx, "raster.validate")
    finally:
        ctx.close()


def main() -> None:
    """Answer each line of the input with a line: read, refused or raised."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    warnings.simplefilter("ignore")
    # C libraries write to the standard output, too: only our answers go to the parent.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        task = json.loads(line)
        answer = {"outcome": "read", "text": ""}
        try:
            read(task)
        except DagmasterError as error:
            answer = {"outcome": "refused", "text": str(error)}
        except BaseException:  # noqa: BLE001 - that is what the parent wants to know
            answer = {"outcome": "raised", "text": traceback.format_exc()}
        for name in ("scratch", "silver", "tables"):
            shutil.rmtree(Path(task["folder"], name), ignore_errors=True)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
