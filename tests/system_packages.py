"""What tests need of the system's packages, which `make packages` installs."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def stop_without(package: str) -> NoReturn:
    """Fail a test whose package is missing, or skip it if POSTGIS=0 asks for that: nobody reads what was skipped."""
    if os.environ.get("POSTGIS") == "0":
        pytest.skip(f"POSTGIS=0, and {package} is not installed")
    pytest.fail(f"{package} is not installed: `make packages` installs it; POSTGIS=0 skips")
