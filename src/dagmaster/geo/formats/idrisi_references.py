"""Descriptions of Idrisi's files before GDAL reads them: a reference system names a file, `NAME.ref`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dagmaster.errors import invalid_input

if TYPE_CHECKING:
    from pathlib import Path

_PATH_IN_NAME: Final = re.compile(rb"ref\.\s*system\s*[:=][^\r\n]*[/\\]", re.IGNORECASE)
_MAX_BYTES: Final = 1024 * 1024


def reject_idrisi_reference(description: Path) -> None:
    """Reject a description whose reference system is a file of another folder."""
    try:
        with description.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return
    if len(content) > _MAX_BYTES:
        raise invalid_input(
            f"its {description.suffix} has over {_MAX_BYTES:,} bytes, which is no description of a file"
        )
    if _PATH_IN_NAME.search(content):
        raise invalid_input(
            f"its {description.suffix} refers to another file, in which its reference system is defined:"
            " name a reference system such as latlong or utm-30n"
        )
