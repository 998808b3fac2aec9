"""The login."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginPage:
    """The form for a key. `target`: where it leads."""

    target: str
    problem: str = ""
    title: str = "Log in"
