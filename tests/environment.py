"""The environment of commands that tests start."""

from __future__ import annotations

import os
from typing import Final

LOG_DIR: Final = "DAGMASTER_LOG_DIR"
"""It is `off` in tests: none writes the logs of its tasks to the directory of this machine."""


def without_settings() -> dict[str, str]:
    """Return the environment of this process without dagmaster's settings."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == LOG_DIR or not name.startswith("DAGMASTER_")
    }
