"""A warp is what gdalwarp does: over kinds of pixels and masks, and places in every kind of CRS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.geo.raster.warp_comparison import KINDS, PLACES, check_warp

if TYPE_CHECKING:
    from tests.unit.geo.raster.raster_context import HandlerHarness

pytestmark = pytest.mark.slow


def selected() -> list[tuple[str, str]]:
    """Return each kind at two places and each place with several kinds. Odd TIFFs lie in UTM."""
    places = [name for name, place in PLACES.items() if place.fits]
    pairs = {
        (kind, places[(number * step + step) % len(places)])
        for number, kind in enumerate(KINDS)
        for step in (1, 3, 4)
        if KINDS[kind].tiff is None
    }
    pairs |= {(kind, "UTM to degrees") for kind, value in KINDS.items() if value.tiff is not None}
    pairs |= {(kind, "geostationary") for kind in ("bytes", "nodata", "external mask", "alpha")}
    return sorted(pairs)


@pytest.mark.parametrize(("kind_name", "place_name"), selected())
def test_a_warp_of_the_manifest_is_gdals_warp(harness: HandlerHarness, kind_name: str, place_name: str):
    check_warp(harness, KINDS[kind_name], PLACES[place_name])
