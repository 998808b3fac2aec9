"""Every raster driver has a rule: it reads a file of its format, or is refused, whatever the file is called."""

from __future__ import annotations

import json
import warnings
import zipfile
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest
import rasterio
import rasterio.shutil
from affine import Affine
from rasterio.crs import CRS

from dagmaster.adapters.storage.router import ObjectStorage
from dagmaster.errors import PermanentError
from dagmaster.geo.formats import hdf5_references, raster_files
from dagmaster.geo.formats.driver_rules import UNKNOWN, complete
from dagmaster.geo.formats.raster_drivers import RASTER_DRIVERS
from dagmaster.geo.formats.vector_drivers import VECTOR_DRIVERS
from dagmaster.geo.gdal import NO_NETWORK, SIDECAR_OPTIONS, gdal_env, open_raster
from dagmaster.geo.raster.raster_sources import fetch_raster
from tests.unit.geo.formats.raster_samples import (
    NORTH_UP,
    SAMPLES,
    VARIABLES,
    Sample,
    pixels,
    write_hdf5,
    write_raster,
)
from tests.unit.geo.raster.raster_context import HandlerHarness, numbers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

SECRET = b"a secret of another file" * 20


@pytest.fixture
def harness(tmp_path: Path) -> HandlerHarness:
    return HandlerHarness(tmp_path)


def make(harness: HandlerHarness, sample: Sample, folder: str = "bronze") -> Path:
    path = harness.folder / folder / sample.name
    path.parent.mkdir(exist_ok=True)
    sample.make(path)
    return path


def named(name: str) -> Sample:
    return next(sample for sample in SAMPLES if sample.name == name)


def refuse(
    harness: HandlerHarness, href: str, message: str, handler: str = "raster.validate", **params: Any
) -> str:
    with pytest.raises(PermanentError, match=message) as caught:
        harness.run(handler, href=href, **params)
    assert caught.value.kind == "invalid_input"
    assert str(harness.folder / "scratch") not in str(caught.value)
    return str(caught.value)


def files_of(path: Path) -> list[Path]:
    """Return all files of a sample."""
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    return sorted(file for file in path.parent.glob(f"{path.stem}.*") if file.is_file())


# ── The rules ──


def test_every_driver_of_the_installed_rasterio_has_a_rule():
    rules = complete({**VECTOR_DRIVERS, **RASTER_DRIVERS}, raster_files.installed_drivers())
    assert [name for name, rule in rules.items() if rule.reason == UNKNOWN] == []


def test_every_driver_that_reads_is_installed_and_has_a_sample():
    read = {name for name, rule in RASTER_DRIVERS.items() if rule.is_read}
    assert read - raster_files.installed_drivers() == set()
    # The driver of a raster in an HDF5 file.
    assert {sample.driver for sample in SAMPLES} == read - {"HDF5Image"}


def test_a_driver_that_recognises_anything_needs_its_suffix():
    assert "XYZ" not in raster_files.readable_drivers("a.csv")
    assert "XYZ" in raster_files.readable_drivers("a.XYZ")
    assert "VRT" not in raster_files.readable_drivers("a.vrt")
    assert set(raster_files.readable_drivers("a", in_place=True)) < set(raster_files.IN_PLACE_DRIVERS)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.driver}-{sample.name}")
def test_a_file_of_every_format_is_read(harness: HandlerHarness, sample: Sample):
    make(harness, sample)
    if sample.subdatasets:
        output = harness.run("raster.validate", href=sample.name)
        assert tuple(entry["name"] for entry in output.subdatasets) == sample.subdatasets
        assert (output.crs, output.metadata) == (None, {})
        return
    ctx = harness.context("raster.validate", href=sample.name)
    source = fetch_raster(ctx, ctx.blobs.resolve(sample.name))
    with gdal_env(ctx.share, **source.options), open_raster(source.path, ctx.share) as raster:
        assert raster.driver == sample.driver
        values = raster.read()
        assert (raster.crs is not None) == sample.has_crs
    ctx.close()
    if sample.pixels is not None:
        assert np.array_equal(values, sample.pixels)
    if sample.has_crs:
        cog = harness.run("raster.create_cog", href=sample.name)
        assert np.array_equal(harness.read(cog.cog_url), values)


@pytest.mark.parametrize("name", ["ascii.grd", "x.xyz", "x.map"])
def test_a_format_without_a_crs_takes_that_of_a_prj_file(harness: HandlerHarness, name: str):
    path = make(harness, named(name))
    refuse(harness, name, r"has no CRS, so its place is unknown: put a \.prj file with its WKT next to it")
    path.with_suffix(".prj").write_text(CRS.from_epsg(4326).to_wkt())
    assert harness.run("raster.validate", href=name).crs == "EPSG:4326"


def test_a_driver_that_is_refused_reads_nothing(harness: HandlerHarness):
    for name in ("PCIDSK", "ISIS3", "ERS", "PDS4"):
        path = harness.folder / "bronze" / f"{name.lower()}.dat"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            write_raster(path, name, pixels(), crs="EPSG:4326", transform=NORTH_UP)
        refuse(
            harness,
            path.name,
            "the file (is not a readable ENVI|has no .hdr next to it|is a text file|is PDS4)",
        )


# ── Several rasters in a file ──


@pytest.mark.parametrize("name", ["two.nc", "x.h5", "two.zarr"])
def test_a_raster_of_several_has_to_be_named(harness: HandlerHarness, name: str):
    make(harness, named(name))
    refuse(
        harness,
        name,
        "the file contains 2 rasters: name one by `subdataset`. raster.validate lists them",
        "raster.create_cog",
    )
    refuse(harness, name, "has no subdataset 'rain': its subdatasets are t2m, tp", subdataset="rain")


def test_each_variable_of_a_netcdf_file_has_its_cog_and_its_item(harness: HandlerHarness):
    make(harness, named("two.nc"))
    cogs = [harness.run("raster.create_cog", href="two.nc", subdataset=name) for name in VARIABLES]
    for number, cog in enumerate(cogs):
        assert np.array_equal(harness.read(cog.cog_url), pixels("float32", 2)[number : number + 1])
        assert cog.item["properties"]["dagmaster:sources"][0]["href"].endswith(f"two.nc#{VARIABLES[number]}")
    assert len({cog.cog_url for cog in cogs}) == len({cog.item["id"] for cog in cogs}) == 2
    assert cogs[0].item["id"].startswith("two_t2m-")
    output = harness.run("raster.validate", href="two.nc", subdataset="tp")
    assert (output.subdataset, output.metadata["driver"], len(output.subdatasets)) == ("tp", "netCDF", 2)


def test_a_variable_is_tiled_like_any_raster(harness: HandlerHarness):
    make(harness, named("two.nc"))
    plan = harness.run("raster.generate_tiling_scheme", href="two.nc", subdataset="tp", tile_size=16)
    assert {tile["subdataset"] for tile in plan.tiles} == {"tp"}
    batch = harness.run("raster.process_tile_batch", tiles=plan.tiles)
    assert np.array_equal(harness.read(batch.cog_urls[0]), pixels("float32", 2)[1:, :16, :16])
    assert harness.run("raster.thumbnail", href="two.nc", subdataset="tp").width
    zones = harness.run("raster.stats_zonal", href="two.nc", subdataset="tp", zones=[10, 49, 11, 50])
    assert zones.zones


def test_a_page_of_a_tiff_may_be_chosen(harness: HandlerHarness):
    path = harness.folder / "bronze" / "pages.tif"
    write_raster(path, "GTiff", pixels(), crs="EPSG:4326", transform=NORTH_UP)
    write_raster(path, "GTiff", pixels("int16"), crs="EPSG:4326", transform=NORTH_UP, APPEND_SUBDATASET="YES")
    output = harness.run("raster.validate", href="pages.tif")
    assert [entry["name"] for entry in output.subdatasets] == ["1", "2"]
    assert output.metadata["dtypes"] == ["uint8"]
    assert harness.run("raster.validate", href="pages.tif", subdataset="2").metadata["dtypes"] == ["int16"]


# ── Sets, directories and archives ──

SETS = [
    named(name)
    for name in ("x.zarr", "v3.zarr", "x.dat", "x.bil", "x.sdat", "x.slc", "x.int", "r.grd", "x.rst", "x.asc")
]


@pytest.mark.parametrize("folder", ["", "data/"])
@pytest.mark.parametrize("sample", SETS, ids=lambda sample: sample.name)
def test_a_set_of_files_is_read_from_a_zip_archive(harness: HandlerHarness, sample: Sample, folder: str):
    path = make(harness, sample, "made")
    with zipfile.ZipFile(harness.folder / "bronze" / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files_of(path):
            archive.write(file, f"{folder}{file.relative_to(path.parent)}")
    cog = harness.run("raster.create_cog", href="x.zip")
    assert sample.pixels is not None
    assert np.array_equal(harness.read(cog.cog_url), sample.pixels)


def test_a_zarr_store_may_be_the_root_of_an_archive(harness: HandlerHarness):
    path = make(harness, named("two.zarr"), "made")
    with zipfile.ZipFile(harness.folder / "bronze" / "two.zarr.zip", "w") as archive:
        for file in files_of(path):
            archive.write(file, str(file.relative_to(path)))
    output = harness.run("raster.validate", href="two.zarr.zip")
    assert [entry["name"] for entry in output.subdatasets] == list(VARIABLES)


@pytest.mark.parametrize("sample", SETS, ids=lambda sample: sample.name)
def test_a_set_of_files_is_read_from_a_bucket(harness: HandlerHarness, sample: Sample):
    path = make(harness, sample, "made")
    zones = {zone: f"memory://{harness.folder.name}/{zone}" for zone in ("bronze", "silver", "gold")}
    harness.services.blobs = ObjectStorage(zones)
    for file in files_of(path):
        name = f"sets/{file.relative_to(path.parent)}"
        harness.services.blobs.write(harness.services.blobs.in_zone("bronze", name), file.read_bytes())
    assert harness.run("raster.validate", href=f"sets/{sample.name}").metadata["driver"] == sample.driver


def test_the_sidecars_of_a_raster_in_an_archive_are_used(harness: HandlerHarness):
    path = harness.folder / "made" / "scene.tif"
    path.parent.mkdir()
    write_raster(path, "GTiff", pixels(), crs=None, transform=NORTH_UP)
    with zipfile.ZipFile(harness.folder / "bronze" / "x.zip", "w") as archive:
        archive.write(path, "data/Scene.TIF")
        archive.writestr("data/Scene.prj", CRS.from_epsg(4326).to_wkt())
        archive.writestr("data/preview.jpg", b"x")
        archive.writestr("other/Scene.tfw", b"1\n0\n0\n1\n0\n0\n")
    cog = harness.run("raster.create_cog", href="x.zip")
    assert (cog.crs, cog.sidecars) == ("EPSG:4326", ["Scene.prj"])
    assert cog.bounds[0] == pytest.approx(10)


@pytest.mark.parametrize(
    ("name", "options"), [("x.dat", {"SUFFIX": "ADD"}), ("x.img", {"SUFFIX": "ADD"}), ("x", {})]
)
def test_the_header_of_envi_may_follow_the_whole_name_and_the_name_may_have_no_suffix(
    harness: HandlerHarness, name: str, options: Any
):
    path = harness.folder / "bronze" / name
    with rasterio.Env(GDAL_PAM_ENABLED="NO"):
        write_raster(path, "ENVI", pixels(), crs="EPSG:4326", transform=NORTH_UP, **options)
    made = harness.run("raster.create_cog", href=name)
    assert made.sidecars == [f"{name}.hdr"]
    assert np.array_equal(harness.read(made.cog_url), pixels())
    with zipfile.ZipFile(harness.folder / "bronze" / "x.zip", "w") as archive:
        for file in (path, path.with_name(f"{name}.hdr")):
            archive.write(file, f"x.dat{file.name.removeprefix(name)}")
    assert harness.run("raster.validate", href="x.zip").metadata["driver"] == "ENVI"


def test_an_archive_with_several_rasters_is_refused(harness: HandlerHarness):
    with zipfile.ZipFile(harness.folder / "bronze" / "x.zip", "w") as archive:
        for name in ("a.tif", "b.tif"):
            archive.write(make(harness, named("x.tif"), "made"), name)
    refuse(harness, "x.zip", "the zip archive has 2 datasets")


@pytest.mark.parametrize("name", ["x.bil", "x.dat", "x.rst", "x.slc"])
def test_a_file_without_the_one_that_describes_it_is_refused(harness: HandlerHarness, name: str):
    path = make(harness, named(name))
    for file in files_of(path):
        if file != path:
            file.unlink()
    refuse(
        harness,
        name,
        r"the file has no \.[a-z]+( or \.[a-z]+)* next to it, which describes a \.[a-z]+ file: put it there",
    )


def test_a_file_that_another_one_may_describe_names_it(harness: HandlerHarness):
    path = harness.folder / "bronze" / "x.bin"
    write_raster(path, "ENVI", pixels(), crs="EPSG:4326", transform=NORTH_UP)
    assert np.array_equal(harness.read(harness.run("raster.create_cog", href="x.bin").cog_url), pixels())
    path.with_suffix(".hdr").unlink()
    refuse(
        harness,
        "x.bin",
        r"not a readable ENVI or NGSGEOID or NSIDCbin.*truncated or of another format, or lacks the \.hdr that",
    )


# ── What a file may not reach ──


def external_link(file: h5py.File, secret: Path) -> None:
    file["x"] = h5py.ExternalLink(str(secret), "/x")


def external_storage(file: h5py.File, secret: Path) -> None:
    file.create_dataset("x", (10, 10), "u1", external=[(str(secret), 0, 100)])


def virtual_dataset(file: h5py.File, secret: Path) -> None:
    layout = h5py.VirtualLayout((10,), "u1")
    layout[:] = h5py.VirtualSource(str(secret), "x", (10,))
    file.create_virtual_dataset("x", layout)


REFERENCES = [external_link, external_storage, virtual_dataset]


@pytest.mark.parametrize(
    "options",
    [{}, {"libver": "latest", "track_order": True}, {"userblock_size": 512}],
    ids=["old", "new", "block"],
)
@pytest.mark.parametrize("refer", REFERENCES)
@pytest.mark.parametrize("name", ["x.h5", "x.nc", "x.bag", "x.tif"])
def test_hdf5_that_names_another_file_is_refused_before_it_is_opened(
    harness: HandlerHarness, name: str, refer: Callable[[h5py.File, Path], None], options: dict[str, Any]
):
    secret = harness.folder / "secret"
    secret.write_bytes(SECRET)
    with h5py.File(harness.folder / "bronze" / name, "w", **options) as file:
        for number in range(20):
            file[f"deep/group/v{number}"] = number
        refer(file.require_group("deep/group/below"), secret)
    message = refuse(harness, name, "the HDF5 file refers to another file: '/deep/group/below/x' is")
    assert "secret" not in message


def test_links_within_an_hdf5_file_are_no_references(harness: HandlerHarness):
    path = harness.folder / "bronze" / "x.h5"
    write_hdf5(path)
    with h5py.File(path, "a") as file:
        file["soft"] = h5py.SoftLink("/nowhere")
        file["hard"] = file["t2m"]
        file.create_group("a")["loop"] = file
        layout = h5py.VirtualLayout((32, 32), "f4")
        layout[:] = h5py.VirtualSource(".", "t2m", (32, 32))
        file.create_virtual_dataset("view", layout)
    hdf5_references.reject_hdf5_references(path)


def test_hdf5_with_too_many_objects_is_refused(harness: HandlerHarness, monkeypatch):
    monkeypatch.setattr(hdf5_references, "MAX_OBJECTS", 3)
    make(harness, named("cf.h5"))
    refuse(harness, "cf.h5", "the HDF5 file has more than 3 objects: split it")


def test_an_img_file_whose_pixels_are_elsewhere_is_refused(harness: HandlerHarness):
    link = "../elsewhere.ige"
    path = harness.folder / "bronze" / f"{'a' * (len(link) - len('.ige'))}.img"
    write_raster(path, "HFA", pixels(side=64), crs="EPSG:4326", transform=NORTH_UP, USE_SPILL="YES")
    spill = path.with_suffix(".ige")
    assert np.array_equal(
        harness.read(harness.run("raster.create_cog", href=path.name).cog_url), pixels(side=64)
    )
    spill.rename(harness.folder / "elsewhere.ige")
    data = path.read_bytes()
    assert data.count(spill.name.encode()) == 1
    path.write_bytes(data.replace(spill.name.encode(), link.encode()))
    with (
        gdal_env(harness.services.share, **SIDECAR_OPTIONS),
        pytest.raises(PermanentError, match=r"outside its folder, 'elsewhere\.ige', which is not opened"),
        open_raster(path, harness.services.share),
    ):
        pass


@pytest.mark.parametrize("name", ["../secret", "..\\secret", "/tmp/secret"])
def test_an_idrisi_raster_whose_reference_system_is_another_file_is_refused(
    harness: HandlerHarness, name: str
):
    path = make(harness, named("x.rst"))
    description = path.with_suffix(".rdc")
    lines = description.read_text().splitlines()
    described = [f"ref. system : {name}" if line.startswith("ref. system") else line for line in lines]
    assert described != lines
    description.write_text("\n".join(described))
    refuse(harness, "x.rst", "its .rdc refers to another file, in which its reference system is defined")


def test_an_idrisi_description_that_is_not_read_to_its_end_is_refused(harness: HandlerHarness):
    description = make(harness, named("x.rst")).with_suffix(".rdc")
    description.write_text(
        f"{description.read_text()}\ncomment : {' ' * 1024 * 1024}\nref. system : ../secret\n"
    )
    refuse(harness, "x.rst", "its .rdc has over 1,048,576 bytes")


HOSTILE = {
    "vrt": '<VRTDataset rasterXSize="10" rasterYSize="10"><VRTRasterBand dataType="Byte" band="1" subClass="VRTRawRasterBand"><SourceFilename>{secret}</SourceFilename></VRTRasterBand></VRTDataset>',
    "vrt-in-grid": "ncols 1\nnrows 1\nxllcorner 0\nyllcorner 0\ncellsize 1\n<VRTDataset></VRTDataset>\n",
    "index": "<GDALTileIndexDataset><IndexDataset>{secret}</IndexDataset></GDALTileIndexDataset>",
    "wms": "<GDAL_WMS><Service name='TMS'><ServerUrl>{url}/${{z}}</ServerUrl></Service></GDAL_WMS>",
    "mrf": "<MRF_META><Raster><Size x='2' y='2' c='1'/><DataFile>{secret}</DataFile></Raster></MRF_META>",
    "pipeline": '{{"type": "gdal_streamed_alg", "command_line": "gdal raster pipeline ! read {secret} ! write --of stream x"}}',
}  # fmt: skip


def test_a_file_that_names_others_is_refused_under_every_name(
    harness: HandlerHarness, server: tuple[str, list[str]]
):
    url, requests = server
    secret = harness.folder / "secret"
    secret.write_bytes(SECRET)
    texts = [text.format(secret=secret, url=url) for text in HOSTILE.values()]
    suffixes = [suffix for suffix, file_type in raster_files.FILE_TYPES.items() if not file_type.markers]
    # Each text under one name, and each name with one text.
    for number, suffix in enumerate([*([".tif"] * len(texts)), *suffixes]):
        (harness.folder / "bronze" / f"x{suffix}").write_text(texts[number % len(texts)])
        refuse(harness, f"x{suffix}", "which (refers to other files|runs a program|reads from a server)")
    assert requests == []


def test_no_local_file_is_read_over_the_network(harness: HandlerHarness, server: tuple[str, list[str]]):
    url, requests = server
    with gdal_env(harness.services.share), pytest.raises(rasterio.errors.RasterioIOError):
        rasterio.open(f"/vsicurl/{url}/a.tif")
    assert requests == []
    assert set(NO_NETWORK) >= {"CPL_VSIL_CURL_ALLOWED_EXTENSIONS", "GDAL_HTTP_PROXY"}


def test_zarr_whose_chunks_are_in_other_files_is_refused(harness: HandlerHarness):
    path = make(harness, named("two.zarr"))
    (path / ".zmetadata").write_text(json.dumps({"metadata": {}, "record_size": 10}))
    refuse(
        harness,
        "two.zarr",
        "the Zarr directory refers to other files, in which its chunks are: name those files",
    )


# ── Messages ──


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "x.asc",
            "not a grid",
            "the file is not a readable AAIGrid or GRASSASCIIGrid, as its suffix .asc says",
        ),
        ("x.asc", "ncols 3\nnrows 2\nxllcorner", "the file is not a readable AAIGrid or GRASSASCIIGrid"),
        ("x.nc", "hello", "the file is a text file, not the netCDF that its suffix .nc says: copy it again"),
        ("x.h5", "hello", "the file is a text file, not the HDF5 or S102 that its suffix .h5 says"),
        (
            "notes.txt",
            "hello",
            "the file is a text file: expected a raster such as GeoTIFF, JPEG 2000, netCDF",
        ),
        ("noise", "\0\1\2", "the file is not a raster of a format that is read: expected a raster such as"),
        ("x.zarr", "hello", "the file is a text file, not the Zarr that its suffix .zarr says"),
    ],
)
def test_a_file_that_is_no_raster_is_described(
    harness: HandlerHarness, name: str, content: str, message: str
):
    (harness.folder / "bronze" / name).write_text(content)
    refuse(harness, name, message)


@pytest.mark.parametrize("crs", ["EPSG:4326+3855", "EPSG:32725+5773", "EPSG:7415"])
def test_a_compound_crs_is_a_crs(harness: HandlerHarness, crs: str):
    transform = (
        Affine(30, 0, 300_000, 0, -30, 9_100_000)
        if "32725" in crs
        else Affine(10, 0, 155_000, 0, -10, 463_000)
    )
    harness.bronze(
        "a.tif", numbers(), crs=CRS.from_string(crs), transform=NORTH_UP if "4326" in crs else transform
    )
    output = harness.run("raster.validate", href="a.tif")
    assert output.crs
    assert output.bbox is not None
    cog = harness.run("raster.create_cog", href="a.tif")
    assert cog.item["bbox"] == pytest.approx(output.bbox)
