"""What the tests of stac handlers share: services in a folder, and small rasters."""

from __future__ import annotations

from typing import Any

from dagmaster.sdk.handler_context import HandlerContext
from dagmaster.sdk.handler_registry import discover
from tests.unit.geo.raster.raster_context import HandlerHarness, numbers, write

REGISTRY = discover(
    [
        "dagmaster.geo.raster.handlers",
        "dagmaster.geo.stac.handlers",
        "dagmaster.geo.maintenance",
    ],
    entry_points=False,
)


class StacHarness(HandlerHarness):
    """A harness that knows the stac handlers too."""

    def context(self, name: str, **params: Any) -> HandlerContext:
        spec = REGISTRY.get(name)
        return HandlerContext(
            params=params,
            services=self.services,
            handler=spec.name,
            handler_version=spec.version,
            workflow="a_test v1",
        )

    def call(self, ctx: HandlerContext, name: str) -> Any:
        try:
            return REGISTRY.get(name).call(ctx).model_dump(mode="json")
        finally:
            ctx.close()

    def raster(self, name: str, zone: str = "silver", seed: int = 1) -> str:
        """Write a small raster into a zone; its URI."""
        path = write(self.folder / zone / name, numbers(20, 30, seed=seed))
        return f"file://{path}"

    def ids(self, collection: str) -> list[str]:
        return [item["id"] for item in self.services.catalog.items(collection)]
