"""What ships: handlers, each a thin shell around a plain function. They see a context, never the store."""

from typing import Final

SHIPPED_HANDLERS: Final = ("dagmaster.handlers.examples", "dagmaster.handlers.builtin")
"""The modules that have them, or announce them."""
