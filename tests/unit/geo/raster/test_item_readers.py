"""Items are read back by the programs that others use: pystac, odc-stac, stackstac and rio-tiler."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import odc.stac
import pandas as pd
import pystac
import pytest
import stackstac
from rasterio.warp import transform
from rio_tiler.io import STACReader

from dagmaster.geo.rules.stac_items import PROJECTION_EXTENSION
from tests.unit.geo.raster.raster_context import UTM, HandlerHarness, numbers

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    # rio-tiler warns of every item whose bands have no statistics.
    pytest.mark.filterwarnings("ignore:Some statistics data in STAC are invalid:UserWarning"),
    # odc-geo uses an older name of shapely's.
    pytest.mark.filterwarnings("ignore:The 'shapely.ops.transform:DeprecationWarning"),
]

LAEA = 'PROJCRS["my own",BASEGEOGCRS["WGS 84",DATUM["World Geodetic System 1984",ELLIPSOID["WGS 84",6378137,298.257223563]]],CONVERSION["mine",METHOD["Lambert Azimuthal Equal Area"],PARAMETER["Latitude of natural origin",-8,ANGLEUNIT["degree",0.0174532925199433]],PARAMETER["Longitude of natural origin",-34,ANGLEUNIT["degree",0.0174532925199433]]],CS[Cartesian,2],AXIS["x",east],AXIS["y",north],LENGTHUNIT["metre",1]]'


@pytest.fixture
def harness(tmp_path: Path) -> HandlerHarness:
    return HandlerHarness(tmp_path)


def an_item(harness: HandlerHarness, pixels: Any, **profile: Any) -> dict[str, Any]:
    """Return the item of a COG of these pixels, through JSON as a catalog has it."""
    harness.bronze("a.tif", pixels, **profile)
    result = harness.run("raster.create_cog", href="a.tif", collection_id="c", datetime="2026-01-02")
    item: dict[str, Any] = json.loads(json.dumps(result.item))
    (harness.folder / "item.json").write_text(json.dumps(item))
    return item


def test_an_item_has_the_code_of_its_crs_for_old_and_for_new_readers(harness: HandlerHarness):
    properties = an_item(harness, numbers(64, 64))["properties"]
    assert (properties["proj:code"], properties["proj:epsg"]) == ("EPSG:32725", 32725)


def test_an_item_without_an_epsg_code_has_null_for_both_and_its_wkt(harness: HandlerHarness):
    item = an_item(harness, numbers(64, 64), crs=LAEA)
    assert PROJECTION_EXTENSION in item["stac_extensions"]
    properties = item["properties"]
    assert (properties["proj:code"], properties["proj:epsg"]) == (None, None)
    assert "Lambert Azimuthal Equal Area" in properties["proj:wkt2"]


def test_pystac_reads_the_crs_the_bands_and_the_place(harness: HandlerHarness):
    item = pystac.Item.from_dict(an_item(harness, numbers(60, 70, bands=3), nodata=0))
    projection = item.ext.proj
    assert (projection.code, projection.epsg, projection.shape) == ("EPSG:32725", 32725, [60, 70])
    assert projection.transform == list(UTM)[:6]
    asset = item.assets["data"]
    assert asset.media_type == pystac.MediaType.COG
    assert [band["name"] for band in asset.extra_fields["bands"]] == ["b1", "b2", "b3"]
    assert str(item.datetime) == "2026-01-02 00:00:00+00:00"
    assert item.to_dict()["properties"]["proj:code"] == "EPSG:32725"


@pytest.mark.parametrize(
    ("dtype", "nodata"), [("uint8", 0), ("uint16", None), ("int16", -9999), ("float32", float("nan"))]
)
def test_odc_stac_loads_the_pixels_with_their_type_and_nodata_on_their_grid(
    harness: HandlerHarness, dtype: str, nodata: float | None
):
    pixels = numbers(60, 70, bands=2, dtype=dtype)
    item = an_item(harness, pixels, nodata=nodata)
    loaded = odc.stac.load([pystac.Item.from_dict(item)])
    assert [loaded[name].dtype.name for name in loaded] == [dtype] * 2
    assert np.array_equal([loaded[name].to_numpy()[0] for name in loaded], pixels)
    assert loaded.odc.geobox.crs.to_epsg() == 32725
    assert loaded.odc.geobox.transform.almost_equals(UTM)
    written = [loaded[name].attrs.get("nodata") for name in loaded]
    assert np.array_equal(np.array(written, float), np.array([nodata] * 2, float), equal_nan=True)


def test_odc_stac_loads_a_raster_whose_crs_has_no_code(harness: HandlerHarness):
    pixels = numbers(60, 70)
    loaded = odc.stac.load([pystac.Item.from_dict(an_item(harness, pixels, crs=LAEA))])
    (band,) = loaded
    assert np.array_equal(loaded[band].to_numpy(), pixels)
    assert loaded.odc.geobox.transform.almost_equals(UTM)


@pytest.mark.parametrize("dtype", ["uint16", "float32"])
def test_stackstac_stacks_the_pixels_on_their_grid(
    harness: HandlerHarness, dtype: str, monkeypatch: pytest.MonkeyPatch
):
    pixels = numbers(60, 70, dtype=dtype)
    item = an_item(harness, pixels, nodata=0)
    # stackstac 0.5 is from 2023: it passes pandas an argument that pandas 3 has no more, and rescales only with NumPy 1.
    monkeypatch.setattr(pd, "to_datetime", lambda texts, **_: pd.DatetimeIndex(texts))
    options = {"assets": ["data"], "rescale": False, "snap_bounds": False, "dtype": dtype}
    stacked = stackstac.stack([item], fill_value=np.dtype(dtype).type(0), **options)
    assert stacked.attrs["crs"] == "epsg:32725"
    assert np.array_equal(stacked.to_numpy()[0], pixels)
    assert (stacked.x.item(0), stacked.y.item(0)) == (UTM.c, UTM.f)
    del item["properties"]["proj:epsg"]
    with pytest.raises(ValueError, match="Cannot pick a common CRS"):
        stackstac.stack([item], **options)


@pytest.mark.parametrize("crs", ["EPSG:32725", LAEA])
def test_rio_tiler_reads_info_pixels_and_a_part(harness: HandlerHarness, crs: str):
    pixels = numbers(600, 700, bands=3)
    an_item(harness, pixels, nodata=0, crs=crs)
    with STACReader(str(harness.folder / "item.json")) as reader:
        assert reader.assets == ["data"]
        info = reader.info(assets=["data"])["data"]
        assert (info.dtype, info.nodata_value, info.width, info.height) == ("uint16", 0, 700, 600)
        whole = reader.preview(assets=["data"], max_size=None)
        assert np.array_equal(whole.array.data, pixels)
        lon, lat = (
            values[0] for values in transform(crs, "EPSG:4326", *([side] for side in UTM * (350.5, 300.5)))
        )
        assert reader.point(lon, lat, assets=["data"]).array.tolist() == pixels[:, 300, 350].tolist()
        assert reader.part((lon, lat, lon + 0.01, lat + 0.01), assets=["data"]).array.count() > 0
