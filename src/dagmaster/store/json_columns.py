"""JSON columns of rows, which both stores hold as text."""

from __future__ import annotations

import json
from typing import Any


def from_json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
