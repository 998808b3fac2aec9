"""A place for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.geo.raster.raster_context import Bed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)
