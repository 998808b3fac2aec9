"""Which handlers a worker has, by their names.

A worker registers the names of its handlers. A package whose functions it may import on demand is registered
as `package.*`, which is the name of no handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container

ANY_FUNCTION: Final = ".*"
"""Ends the name of a package in the handlers of a worker."""


def has_handler(served: Container[str], handler: str, *, by_package: bool = True) -> bool:
    """Return whether a worker has a handler: by its name or, with `by_package`, by its package."""
    if handler in served:
        return True
    package = handler.rpartition(".")[0] if by_package else ""
    while package:
        if f"{package}{ANY_FUNCTION}" in served:
            return True
        package = package.rpartition(".")[0]
    return False
