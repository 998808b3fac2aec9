"""Optional dependencies: imported when a handler runs, with an error that names the extra to install."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from dagmaster.errors import PermanentError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def require_extra(name: str) -> Iterator[None]:
    """Name the extra to install if an import inside fails.

    Example:
        with require_extra("raster"):
            from dagmaster.geo.raster import inspection
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise PermanentError(
            f"this handler needs {error.name}, which is not installed: pip install 'dagmaster[{name}]'",
            kind="missing_extra",
        ) from error
