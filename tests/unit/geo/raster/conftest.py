"""A place for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.geo.raster.raster_context import HandlerHarness

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def harness(tmp_path: Path) -> HandlerHarness:
    return HandlerHarness(tmp_path)
