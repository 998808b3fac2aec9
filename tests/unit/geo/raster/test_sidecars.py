"""The files next to a raster are used as GDAL uses them, on a disk and in an object store, and no other file is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio
from PIL import Image
from rasterio.crs import CRS

from dagmaster.errors import PermanentError
from tests.conformance.object_servers import make_bucket, moto
from tests.unit.geo.raster.raster_context import UTM, UTM_25S, HandlerHarness, numbers, write
from tests.unit.geo.raster.sidecar_files import (
    simple_rpcs,
    write_external_mask,
    write_external_overviews,
    write_imd,
    write_pam,
    write_prj,
    write_rpb,
    write_rpc_text,
    write_world_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SIZE = 40, 60


def mask_of(height: int, width: int) -> Any:
    mask = np.full((height, width), 255, "uint8")
    mask[:10, :20] = 0
    return mask


def make_mask(folder: Path) -> str:
    write(folder / "a.tif", numbers(*SIZE, dtype="uint8"))
    write_external_mask(folder / "a.tif", mask_of(*SIZE))
    return "a.tif"


def make_metadata(folder: Path) -> str:
    write(folder / "a.tif", numbers(*SIZE, dtype="uint8"), crs=None)
    band = (
        "<Description>depth</Description><UnitType>m</UnitType><NoDataValue>7</NoDataValue><Scale>0.5</Scale>"
    )
    write_pam(
        folder / "a.tif.aux.xml",
        f"<SRS>{UTM_25S}</SRS><Metadata><MDI key='SENSOR'>ETM+</MDI></Metadata>"
        f"<PAMRasterBand band='1'>{band}</PAMRasterBand>",
    )
    return "a.tif"


def make_world_file(folder: Path) -> str:
    write(folder / "a.tif", numbers(*SIZE, dtype="uint8"), crs=UTM_25S, transform=None)
    write_world_file(folder / "a.tfw", UTM)
    return "a.tif"


def make_picture(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(numbers(*SIZE, dtype="uint8")[0]).save(folder / "a.png")
    write_world_file(folder / "a.pgw", UTM)
    write_prj(folder / "a.prj", UTM_25S)
    return "a.png"


def make_overviews(folder: Path) -> str:
    write(folder / "a.tif", numbers(*SIZE, dtype="uint8"))
    write_external_overviews(folder / "a.tif", [2, 4])
    return "a.tif"


def make_imagine_overviews(folder: Path) -> str:
    write(folder / "a.tif", numbers(*SIZE, dtype="uint8"))
    write_external_overviews(folder / "a.tif", [2, 4], USE_RRD="YES")
    return "a.tif"


def make_rpcs(folder: Path, name: str) -> str:
    write(folder / "a.tif", numbers(*SIZE, dtype="uint8"))
    (write_rpb if name.endswith("RPB") else write_rpc_text)(folder / name, simple_rpcs(60, 40))
    return "a.tif"


def make_imd(folder: Path) -> str:
    href = make_rpcs(folder, "a.RPB")
    write_imd(folder / "a.IMD")
    return href


MAKERS: dict[str, Callable[[Path], str]] = {
    ".msk": make_mask,
    ".aux.xml": make_metadata,
    ".tfw": make_world_file,
    ".pgw and .prj": make_picture,
    ".ovr": make_overviews,
    ".aux": make_imagine_overviews,
    "_RPC.TXT": lambda folder: make_rpcs(folder, "a_RPC.TXT"),
    "_rpc.txt": lambda folder: make_rpcs(folder, "a_rpc.txt"),
    ".RPB": lambda folder: make_rpcs(folder, "a.RPB"),
    ".IMD": make_imd,
}
USED = {
    ".msk": ["a.tif.msk"],
    ".aux.xml": ["a.tif.aux.xml"],
    ".tfw": ["a.tfw"],
    ".pgw and .prj": ["a.pgw", "a.prj"],
    ".ovr": ["a.tif.ovr"],
    ".aux": ["a.aux"],
    "_RPC.TXT": ["a_RPC.TXT"],
    "_rpc.txt": ["a_rpc.txt"],
    ".RPB": ["a.RPB"],
    ".IMD": ["a.IMD", "a.RPB"],
}
LOST = {
    ".ovr": ["overviews: they are made from the pixels"],
    ".aux": ["overviews: they are made from the pixels"],
    ".IMD": ["metadata domain IMD", "metadata domain IMAGERY"],
}


def facts(path: Path) -> dict[str, Any]:
    """Return what a raster says, to compare with what GDAL says of the source with its sidecars."""
    with rasterio.open(path) as raster:
        return {
            "crs": raster.crs,
            "transform": raster.transform,
            "nodata": raster.nodata,
            "names": raster.descriptions,
            "units": raster.units,
            "scales": raster.scales,
            "rpcs": None if raster.rpcs is None else raster.rpcs.line_num_coeff,
            "sensor": raster.tags().get("SENSOR"),
            "pixels": raster.read().tolist(),
            "mask": raster.dataset_mask().tolist(),
        }


@pytest.mark.parametrize("kind", MAKERS)
def test_a_sidecar_is_used_as_gdal_uses_it(harness: HandlerHarness, kind: str):
    href = MAKERS[kind](harness.folder / "bronze")
    expected = facts(harness.folder / "bronze" / href)
    if ".prj" in kind:
        expected["crs"] = CRS.from_string(UTM_25S)
    result = harness.run("create_cog", href=href)
    assert facts(harness.path(result.cog_url)) == expected
    assert result.sidecars == USED[kind]
    assert [text for text in result.not_carried if "METADATATYPE" not in text] == LOST.get(kind, [])
    assert [
        entry["href"].rpartition("/")[2] for entry in result.item["properties"]["dagmaster:sidecars"]
    ] == USED[kind]
    assert harness.run("raster.validate", href=href).crs == UTM_25S
    # What was used in a tile is used in the mount, too.
    plan = harness.run("raster_plan_tiles", href=href, tile_size=64)
    tile = harness.run("create_cog", tile_spec=plan.tiles[0], use_mount=True)
    assert facts(harness.path(tile.cog_url)) == {**expected, "rpcs": None}


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, moto() as server:
        for name, value in server.env.items():
            patch.setenv(name, value)
        make_bucket(server, "sidecars")
        yield "s3://sidecars"


@pytest.mark.process
@pytest.mark.parametrize("kind", MAKERS)
def test_a_sidecar_in_an_object_store_is_used_when_the_raster_is_fetched_and_when_it_is_read_in_place(
    tmp_path: Path, bucket: str, kind: str
):
    far = HandlerHarness(
        tmp_path, zones={zone: f"{bucket}/{tmp_path.name}/{zone}" for zone in ("bronze", "silver", "gold")}
    )
    href = MAKERS[kind](tmp_path / "local")
    blobs = far.services.blobs
    for path in (tmp_path / "local").iterdir():
        blobs.write(blobs.in_zone("bronze", f"in/{path.name}"), path.read_bytes())
    blobs.write(blobs.in_zone("bronze", "in/abc.tif.aux.xml"), b"not of this raster")
    expected = facts(tmp_path / "local" / href) | {"crs": CRS.from_string(UTM_25S)}
    (tile,) = far.run("raster_plan_tiles", href=f"in/{href}").tiles
    results = [far.run("create_cog", href=f"in/{href}"), far.run("create_cog", tile_spec=tile)]
    for number, result in enumerate(results):
        blobs.fetch(blobs.resolve(result.cog_url), tmp_path / f"{number}.tif")
        assert facts(tmp_path / f"{number}.tif") == (expected if number == 0 else {**expected, "rpcs": None})
        assert result.sidecars == USED[kind]


# ── the fence ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sidecar_that_is_a_link_to_elsewhere_is_not_used(tmp_path: Path):
    secret = write(tmp_path / "secret" / "mask.tif", mask_of(*SIZE))
    harness = HandlerHarness(tmp_path / "data", roots=[str(tmp_path / "data")])
    harness.bronze("a.tif", numbers(*SIZE, dtype="uint8"))
    (tmp_path / "data" / "bronze" / "a.tif.msk").symlink_to(secret)
    result = harness.run("create_cog", href="a.tif")
    assert (result.sidecars, result.metadata["mask"]) == ([], False)


def test_a_mask_in_a_format_that_names_other_files_is_ignored_and_that_is_reported(harness: HandlerHarness):
    secret = write(harness.folder / "secret.tif", mask_of(*SIZE))
    harness.bronze("a.tif", numbers(*SIZE, dtype="uint8"))
    rasterio.shutil.copy(str(secret), str(harness.folder / "bronze" / "a.vrt"), driver="VRT")
    (harness.folder / "bronze" / "a.vrt").rename(harness.folder / "bronze" / "a.tif.msk")
    result = harness.run("create_cog", href="a.tif")
    assert (result.sidecars, result.metadata["mask"]) == ([], False)
    assert result.not_carried == ["a.tif.msk: it is not a TIFF that can be read alone"]


def test_a_raster_that_names_another_file_for_its_overviews_is_refused(harness: HandlerHarness):
    secret = write(harness.folder / "secret.tif", np.full((20, 30), 77, "uint8"))
    harness.bronze("a.tif", numbers(*SIZE, dtype="uint8"))
    with rasterio.open(harness.folder / "bronze" / "a.tif", "r+") as raster:
        raster.update_tags(ns="OVERVIEWS", OVERVIEW_FILE=str(secret))
    for handler in ("raster.validate", "raster.thumbnail", "raster.create_cog"):
        with pytest.raises(PermanentError, match="names another file that holds its overviews"):
            harness.run(handler, href="a.tif")
    harness.bronze("b.tif", numbers(*SIZE, dtype="uint8"))
    tag = f"<Metadata domain='OVERVIEWS'><MDI key='OVERVIEW_FILE'>{secret}</MDI></Metadata>"
    write_pam(harness.folder / "bronze" / "b.tif.aux.xml", tag)
    with pytest.raises(PermanentError, match="names another file that holds its overviews"):
        harness.run("raster.thumbnail", href="b.tif")


def test_a_sidecar_that_is_too_large_is_named(harness: HandlerHarness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dagmaster.geo.raster.sidecars.MAX_TEXT_BYTES", 100)
    href = make_metadata(harness.folder / "bronze")
    with pytest.raises(PermanentError, match=r"a\.tif\.aux\.xml, which belongs to the raster, has") as caught:
        harness.run("create_cog", href=href)
    assert caught.value.kind == "invalid_input"
    small = HandlerHarness(harness.folder, max_file_mb=0)
    with pytest.raises(PermanentError, match="at most 0 MB are allowed"):
        small.run("create_cog", href=href)


def test_a_broken_projection_file_is_reported_and_the_raster_has_no_crs(harness: HandlerHarness):
    href = make_picture(harness.folder / "bronze")
    (harness.folder / "bronze" / "a.prj").write_text("not a CRS")
    with pytest.raises(PermanentError, match="the raster has no CRS"):
        harness.run("create_cog", href=href)


# ── names and plans ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_another_sidecar_gives_another_result_and_an_outdated_plan(harness: HandlerHarness):
    href = make_mask(harness.folder / "bronze")
    (tile,) = harness.run("raster_plan_tiles", href=href).tiles
    first = harness.run("create_cog", href=href)
    write_external_mask(harness.folder / "bronze" / href, np.full(SIZE, 255, "uint8"))
    second = harness.run("create_cog", href=href)
    assert first.cog_url != second.cog_url
    with pytest.raises(PermanentError, match="the files that belong to it were changed, added or removed"):
        harness.run("create_cog", tile_spec=tile)
    (harness.folder / "bronze" / "a.tif.msk").unlink()
    assert harness.run("create_cog", href=href).sidecars == []


def test_what_a_viewer_leaves_next_to_a_result_is_not_part_of_it(harness: HandlerHarness):
    href = make_mask(harness.folder / "bronze")
    result = harness.run("create_cog", href=href)
    cog = harness.path(result.cog_url)
    write_pam(
        cog.with_name(f"{cog.name}.aux.xml"),
        "<PAMRasterBand band='1'><NoDataValue>7</NoDataValue></PAMRasterBand>",
    )
    again = harness.run("create_cog", href=result.cog_url)
    assert (again.sidecars, again.metadata["nodata"]) == ([], None)


def test_a_mounted_copy_has_its_sidecars_next_to_it(harness: HandlerHarness):
    href = make_mask(harness.folder / "bronze")
    mounted = harness.run("raster.blob_to_mount", href=href)
    assert harness.run("create_cog", source_path=mounted.mount_path).sidecars == ["a.tif.msk"]


def test_an_item_has_what_the_sidecars_of_its_raster_say(harness: HandlerHarness):
    href = make_metadata(harness.folder / "bronze")
    expected = harness.run("create_cog", href=href).item["assets"]["data"]["bands"]
    assert expected == [
        {
            "name": "depth",
            "data_type": "uint8",
            "nodata": 7,
            "unit": "m",
            "raster:scale": 0.5,
            "raster:offset": 0,
        }
    ]
