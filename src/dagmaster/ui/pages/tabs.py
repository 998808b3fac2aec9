"""Tabs of a job or of a workflow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab, which is a separate page."""

    label: str
    icon: str
    href: str
    is_current: bool
