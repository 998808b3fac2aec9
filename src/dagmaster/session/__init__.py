"""Graphs of Python code: contexts that store them, jobs, management.

Tasks and groups are in `authoring/python`. The names are in `__init__.pyi`, and are imported when they are
first used.
"""

from __future__ import annotations

from dagmaster import lazy_names

__all__, __getattr__ = lazy_names("dagmaster.session")
