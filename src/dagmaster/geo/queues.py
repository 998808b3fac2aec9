"""The queues of the built-in handlers, by the kind of worker they need."""

from __future__ import annotations

from typing import Final

LIGHT: Final = "functionapp-tasks"
"""For handlers that read a header, a listing or a row."""
HEAVY: Final = "container-tasks"
"""For handlers that read and write data."""
