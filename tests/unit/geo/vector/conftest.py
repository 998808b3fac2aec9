"""Each test has services of its own; those that want PostGIS share a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.postgis import postgis_server
from tests.unit.geo.vector.vector_context import FolderServices

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def services(tmp_path: Path) -> FolderServices:
    return FolderServices(tmp_path)


@pytest.fixture(scope="session")
def postgis() -> Iterator[str]:
    with postgis_server() as url:
        yield url
