"""A harness for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.geo.stac.stac_context import StacHarness

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def harness(tmp_path: Path) -> StacHarness:
    return StacHarness(tmp_path)
