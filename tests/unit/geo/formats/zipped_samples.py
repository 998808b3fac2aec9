"""Samples of formats in zip archives."""

from __future__ import annotations

import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

AnySample = TypeVar("AnySample", bound=Any)


def zipped(sample: AnySample) -> AnySample:
    """Return a sample of rasters or features in a zip archive."""

    def make(path: Path) -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            sample.make(Path(folder, sample.name))
            for file in sorted(Path(folder).rglob("*")):
                archive.write(file, str(file.relative_to(folder)))

    zipped_sample: AnySample = replace(sample, name=f"{sample.name}.zip", make=make)
    return zipped_sample
