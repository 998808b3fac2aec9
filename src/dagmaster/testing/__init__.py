"""Test doubles and factories for tests of dagmaster and of code that uses it.

The names are in `__init__.pyi`, and are imported when they are first used: `run_workflow` does not need the
factories.
"""

from __future__ import annotations

from dagmaster import lazy_names

__all__, __getattr__ = lazy_names("dagmaster.testing")
