"""The built-in handlers: thin wrappers around ordinary functions. They see a context, never the store."""

from typing import Final

SHIPPED_HANDLERS: Final = ("dagmaster.handlers.examples", "dagmaster.handlers.builtin")
"""The modules that define or announce them."""
