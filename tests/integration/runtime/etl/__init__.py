"""A package of functions that nothing decorates: entrypoints."""

from __future__ import annotations

from datetime import date  # noqa: TC003 - params are read by their annotations
from os import getcwd

__all__ = ["getcwd", "load"]


async def load(day: date, count: int = 2) -> list[str]:
    return [f"{day:%Y-%m}/{number}" for number in range(count)]
