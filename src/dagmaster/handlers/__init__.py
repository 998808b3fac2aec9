"""The built-in handlers: thin wrappers around ordinary functions. They see a context, never the store."""

from typing import Final

from dagmaster.sdk.products import products

SHIPPED_HANDLERS: Final = (
    "dagmaster.handlers.examples",
    *(module for product in products() for module in product.handlers),
)
"""The modules that define or announce them."""
