"""How long a test waits for something that must happen."""

from __future__ import annotations

from typing import Final

PATIENCE_SECONDS: Final = 60.0
"""Longer than anything here takes on a busy machine. It only ends tests that would fail anyway: no other number does."""
