"""The built-in handlers: thin wrappers around ordinary functions. They see a context, never the store."""

from typing import Final

SHIPPED_HANDLERS: Final = ("dagmaster.handlers.examples", "dagmaster.geo.handler_table")
"""The modules that define or announce them."""
