"""The built-in handlers: thin shells around plain functions. They see a context, never the store."""

from typing import Final

SHIPPED_HANDLERS: Final = ("dagmaster.handlers.examples", "dagmaster.handlers.builtin")
"""The modules that define or announce them."""
