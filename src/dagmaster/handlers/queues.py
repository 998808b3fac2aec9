"""The queues of the sources: which workers run what ships."""

from __future__ import annotations

from typing import Final

LIGHT: Final = "functionapp-tasks"
"""Reads a header, a listing or a row."""
HEAVY: Final = "container-tasks"
"""Reads and writes data."""
