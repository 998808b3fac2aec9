"""Each test has services of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.handlers.vector.lent import Lent

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def lent(tmp_path: Path) -> Lent:
    return Lent(tmp_path)
