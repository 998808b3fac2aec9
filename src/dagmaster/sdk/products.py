"""Products: packages that add handlers, services and commands. This is the one place that names them.

A product imports `sdk` and `ports`, and nothing imports a product: what it adds is named as
`module:attribute`, and imported where it is used.
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PRODUCTS: Final = ("dagmaster.geo",)
"""The packages. Each has its `PRODUCT`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductCommand:
    """A command of `dagmaster`."""

    target: str
    sentence: str
    """What the help of `dagmaster` says about it."""
    local_reason: str
    """Why it takes no --url."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """What a package adds to dagmaster."""

    handlers: tuple[str, ...] = ()
    """Modules that define or announce handlers."""
    services: Mapping[str, str] = field(default_factory=dict)
    """Services of a handler's context, by name: a function that opens one at a location."""
    commands: Mapping[str, ProductCommand] = field(default_factory=dict)
    blob_users: str = ""
    """A function that returns what refers to blobs, by URI, as the context of a handler sees it."""


@functools.cache
def products() -> tuple[Product, ...]:
    """Return the products of this installation. Their packages are imported, and nothing inside them."""
    return tuple(importlib.import_module(name).PRODUCT for name in PRODUCTS)


def load(target: str) -> Any:
    """Import what `module:attribute` names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def open_service(name: str, location: str) -> Any:
    """Open a service of a handler's context at a location, with the product that has it."""
    openers = {key: opener for product in products() for key, opener in product.services.items()}
    return load(openers[name])(location)
