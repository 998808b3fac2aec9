"""Packages that a handler needs and the core does not: imported when it runs, and named when they are not there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dagmaster.errors import PermanentError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def extra(name: str) -> Iterator[None]:
    """Say which extra to install when an import inside fails.

    Example:
        with extra("raster"):
            from dagmaster.handlers.raster import validating
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise PermanentError(
            f"this handler needs {error.name}, which is not installed: pip install 'dagmaster[{name}]'",
            kind="missing_extra",
        ) from error
