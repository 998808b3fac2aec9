"""The names of graphs in code where the source systems have them; they are in `dagmaster.session`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagmaster import lazy_names

if TYPE_CHECKING:
    from dagmaster.session import *  # noqa: F403 - type checkers see the names

__all__, __getattr__ = lazy_names("dagmaster.session")
