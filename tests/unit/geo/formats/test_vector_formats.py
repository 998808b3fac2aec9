"""Every vector driver has a rule: it reads a file of its format, or is refused, whatever the file is called."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import zipfile
from typing import TYPE_CHECKING, Any

import pyogrio
import pytest
import shapely

from dagmaster.adapters.storage.router import ObjectStorage
from dagmaster.errors import PermanentError
from dagmaster.geo.formats.driver_rules import UNKNOWN, complete, reads
from dagmaster.geo.formats.vector_drivers import ARROW_FORMATS, VECTOR_DRIVERS
from dagmaster.geo.vector.dataset_files import FILE_TYPES
from dagmaster.geo.vector.gdal_fence import fenced_gdal
from tests.unit.geo.formats.vector_samples import SAMPLES, Sample

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.geo.vector.vector_context import FolderServices

SECRET = "a-secret-of-another-file"


def prepare(services: FolderServices, href: str | Path, **params: Any) -> Any:
    return services.run("vector.prepare", href=str(href), **params)


@pytest.fixture
def secret(services: FolderServices) -> str:
    """Return a file whose content may not appear anywhere."""
    return services.put("secret.csv", f"wkt,name\nPOINT (1 2),{SECRET}\n")


def refuse(services: FolderServices, href: str, message: str = ".", **params: Any) -> str:
    with pytest.raises(PermanentError, match=message) as caught:
        prepare(services, href, **params)
    assert caught.value.kind == "invalid_input"
    assert SECRET not in str(caught.value)
    return str(caught.value)


# ── The rules ──


def test_every_driver_of_the_installed_pyogrio_has_a_rule():
    rules = complete(VECTOR_DRIVERS, pyogrio.list_drivers())
    assert [name for name, rule in rules.items() if rule.reason == UNKNOWN] == []


def test_a_driver_without_a_rule_is_refused():
    rules = complete({"A": reads(".a")}, ["b", "A"])
    assert {name: rule.is_read for name, rule in rules.items()} == {"A": True, "b": False}
    assert rules["b"].reason == UNKNOWN


def test_every_driver_that_reads_is_installed_and_has_a_sample():
    read = {name for name, rule in VECTOR_DRIVERS.items() if rule.is_read}
    assert read - set(pyogrio.list_drivers(read=True)) == set()
    assert {sample.driver for sample in SAMPLES} == read | set(ARROW_FORMATS)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.driver}-{sample.name}")
def test_a_file_of_every_format_is_read(services, sample: Sample):
    path = services.folder / sample.name
    sample.make(path)
    output = prepare(services, path, **sample.params)
    assert output["counts"]["rows"] == sample.rows
    assert output["bbox"] == pytest.approx(sample.bounds, abs=1e-3)


# ── Sets, directories and archives ──


SETS = [sample for sample in SAMPLES if sample.name in ("x.gdb", "x.tab", "x.mif", "x.shp", "x.gml", "x.kmz")]


def files_of(path: Path) -> list[Path]:
    """Return all files of a sample."""
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    return sorted(file for file in path.parent.glob(f"{path.stem}.*") if file.is_file())


@pytest.mark.parametrize("folder", ["", "data/"])
@pytest.mark.parametrize("sample", SETS, ids=lambda sample: sample.name)
def test_a_set_of_files_is_read_from_a_zip_archive(services, sample: Sample, folder: str):
    path = services.folder / "made" / sample.name
    path.parent.mkdir()
    sample.make(path)
    with zipfile.ZipFile(services.folder / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files_of(path):
            archive.write(file, f"{folder}{file.relative_to(path.parent)}")
    output = prepare(services, services.folder / "x.zip", **sample.params)
    assert output["counts"]["rows"] == sample.rows


def test_a_geodatabase_may_be_the_root_of_an_archive(services):
    path = services.folder / "made.gdb"
    next(sample for sample in SAMPLES if sample.driver == "OpenFileGDB").make(path)
    with zipfile.ZipFile(services.folder / "x.gdb.zip", "w") as archive:
        for file in files_of(path):
            archive.write(file, file.name)
    assert prepare(services, services.folder / "x.gdb.zip")["counts"]["rows"] == 3


@pytest.mark.parametrize("sample", SETS, ids=lambda sample: sample.name)
def test_a_set_of_files_is_read_from_a_bucket(services, sample: Sample):
    path = services.folder / "made" / sample.name
    path.parent.mkdir()
    sample.make(path)
    services.blobs = ObjectStorage(
        {zone: f"memory://{services.folder.name}/{zone}" for zone in ("bronze", "silver", "gold")}
    )
    for file in files_of(path):
        name = f"sets/{file.relative_to(path.parent)}"
        services.blobs.write(services.blobs.in_zone("bronze", name), file.read_bytes())
    output = prepare(services, f"sets/{sample.name}", **sample.params)
    assert output["counts"]["rows"] == sample.rows


def test_the_checksum_of_a_directory_covers_its_files(services):
    path = services.folder / "x.gdb"
    next(sample for sample in SAMPLES if sample.driver == "OpenFileGDB").make(path)
    first = prepare(services, path)["source"]["sha256"]
    (path / "more").write_bytes(b"x")
    assert prepare(services, path)["source"]["sha256"] != first


def test_an_idrisi_file_whose_reference_system_is_another_file_is_refused(services):
    path = services.folder / "x.vct"
    next(sample for sample in SAMPLES if sample.driver == "Idrisi").make(path)
    description = path.with_suffix(".vdc")
    description.write_text(description.read_text().replace("latlong", "../secret"))
    refuse(services, str(path), "its .vdc refers to another file, in which its reference system is defined")


def test_a_link_in_a_directory_leads_nowhere_else(services, tmp_path_factory):
    path = services.folder / "x.gdb"
    next(sample for sample in SAMPLES if sample.driver == "OpenFileGDB").make(path)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for file in files_of(path):
        shutil.move(file, elsewhere / file.name)
        file.symlink_to(elsewhere / file.name)
    refuse(services, str(path))


@pytest.mark.parametrize(
    ("name", "message"),
    [("empty.gdb", "there is no file at"), ("file.gdb", "expected a directory with this suffix")],
)
def test_what_is_no_geodatabase_is_refused(services, name, message):
    (services.folder / "empty.gdb").mkdir()
    services.put("file.gdb", b"x")
    refuse(services, str(services.folder / name), message)
    services.put("other.gdb/readme.txt", b"x")
    refuse(
        services,
        str(services.folder / "other.gdb"),
        "is not a complete .gdb directory: it has 1 file, and none",
    )


def test_a_missing_part_is_named(services):
    path = services.folder / "x.tab"
    next(sample for sample in SAMPLES if sample.name == "x.tab").make(path)
    (services.folder / "x.dat").unlink()
    refuse(
        services,
        str(path),
        r"x\.tab is incomplete without its \.dat: put it next to it, or zip all of \.tab, \.dat",
    )


def test_the_only_layer_with_geometries_is_chosen(services):
    path = services.folder / "x.gpkg"
    next(sample for sample in SAMPLES if sample.name == "x.gpkg").make(path)
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, b TEXT)")
        database.execute("INSERT INTO gpkg_contents (table_name, data_type) VALUES ('plain', 'attributes')")
    database.close()
    assert len(pyogrio.list_layers(path)) == 2
    assert prepare(services, path)["counts"]["rows"] == 3


def test_of_the_five_layers_of_gpx_those_with_features_are_meant(services):
    path = services.folder / "x.gpx"
    point = '<trkpt lat="50" lon="10"/><trkpt lat="51" lon="11"/>'
    path.write_text(f'<gpx version="1.1" creator="a"><trk><trkseg>{point}</trkseg></trk></gpx>')
    refuse(services, str(path), "the file has 2 layers: name one by `layer`: tracks, track_points")
    assert prepare(services, path, layer="tracks")["counts"]["rows"] == 1
    path.write_text('<gpx version="1.1" creator="a"></gpx>')
    refuse(services, str(path), "the file contains no features")


# ── What a file may not reach ──

HOSTILE = {
    "vrt": '<OGRVRTDataSource><OGRVRTLayer name="a"><SrcDataSource>{secret}</SrcDataSource></OGRVRTLayer></OGRVRTDataSource>',
    "vrt-in-kml": '<kml/><OGRVRTDataSource><OGRVRTLayer name="a"><SrcDataSource>{secret}</SrcDataSource></OGRVRTLayer></OGRVRTDataSource>',
    "vrt-in-json": '{{"type": "FeatureCollection", "features": [], "x": "<OGRVRTDataSource"}}',
    "pipeline": '{{"type": "gdal_streamed_alg", "command_line": "gdal vector pipeline ! read {secret} ! write --of stream x"}}',
    "wfs": "<OGRWFSDataSource><URL>{url}</URL></OGRWFSDataSource>",
    "capabilities": '<WFS_Capabilities xmlns:xlink="http://www.w3.org/1999/xlink"><OnlineResource xlink:href="{url}"/></WFS_Capabilities>',
}  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE)
def test_a_file_that_names_others_is_refused_under_every_name(services, server, secret, content):
    url, requests = server
    text = HOSTILE[content].format(secret=secret, url=url)
    for suffix in FILE_TYPES:
        if not FILE_TYPES[suffix].markers:
            for part in FILE_TYPES[suffix].required:
                services.put(f"x{part}", b"x")
            refuse(
                services,
                services.put(f"x{suffix}", text),
                "which (refers to other files|runs a program|reads from a)",
            )
    assert requests == []


GML = """<?xml version="1.0"?><ogr:FeatureCollection xmlns:ogr="http://ogr.maptools.org/" xmlns:gml="http://www.opengis.net/gml"
 xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:wfs="http://www.opengis.net/wfs"
 xsi:schemaLocation="http://ogr.maptools.org/ {url}/wfs?request=DescribeFeatureType&amp;typename=x http://www.opengis.net/wfs {url}/wfs.xsd">
<gml:featureMember><ogr:x fid="x.0"><ogr:geometryProperty><gml:Point srsName="{srs}"><gml:coordinates>1,2</gml:coordinates></gml:Point>
</ogr:geometryProperty><ogr:other xlink:href="{url}/linked.gml#a"/><ogr:name>a</ogr:name></ogr:x></gml:featureMember></ogr:FeatureCollection>"""
KML = """<kml xmlns="http://www.opengis.net/kml/2.2"><Document>
<NetworkLink><name>n</name><Link><href>{url}/other.kml</href></Link></NetworkLink>
<Placemark><name>a</name><styleUrl>{url}/style.kml#s</styleUrl><Point><coordinates>1,2</coordinates></Point></Placemark>
<GroundOverlay><Icon><href>{url}/icon.png</href></Icon><LatLonBox><north>1</north><south>0</south><east>1</east><west>0</west></LatLonBox></GroundOverlay>
</Document></kml>"""  # fmt: skip


@pytest.mark.parametrize("srs", ["EPSG:4326", "{url}/crs"])
def test_gml_fetches_no_schema_no_link_and_no_crs(services, server, srs):
    url, requests = server
    href = services.put("x.gml", GML.format(url=url, srs=srs.format(url=url)))
    assert (
        prepare(services, href, **({} if srs == "EPSG:4326" else {"source_crs": "EPSG:4326"}))["counts"][
            "rows"
        ]
        == 1
    )
    assert requests == []


def test_a_schema_next_to_gml_imports_nothing(services, server):
    url, requests = server
    schema = '<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:import schemaLocation="{0}/a.xsd"/><xs:include schemaLocation="{0}/b.xsd"/></xs:schema>'
    services.put("x.xsd", schema.format(url))
    assert (
        prepare(services, services.put("x.gml", GML.format(url=url, srs="EPSG:4326")))["counts"]["rows"] == 1
    )
    assert requests == []


@pytest.mark.parametrize("name", ["x.kml", "x.kmz"])
def test_kml_follows_no_link(services, server, name):
    url, requests = server
    text = KML.format(url=url)
    if name == "x.kmz":
        with zipfile.ZipFile(services.folder / name, "w") as archive:
            archive.writestr("doc.kml", text)
    else:
        services.put(name, text)
    assert prepare(services, services.folder / name, heights="drop")["counts"]["rows"] == 2
    assert requests == []


@pytest.mark.parametrize(
    "crs",
    [
        {"crs": {"type": "link", "properties": {"href": "{url}/crs", "type": "ogcwkt"}}},
        {"crs": {"type": "name", "properties": {"name": "{url}/crs"}}},
        {"coordRefSys": "{url}/crs"},
    ],
)
@pytest.mark.parametrize("suffix", [".geojson", ".json", ".geojsonl", ".fgjson", ".topojson"])
def test_json_fetches_no_crs(services, server, crs, suffix):
    url, requests = server
    point = {"type": "Feature", "properties": {"a": 1}, "geometry": {"type": "Point", "coordinates": [1, 2]}}
    document = {"type": "FeatureCollection", "features": [point], **crs}
    with contextlib.suppress(PermanentError):
        prepare(
            services,
            services.put(f"x{suffix}", json.dumps(document).replace("{url}", url)),
            source_crs="EPSG:4326",
        )
    assert requests == []


def test_a_table_of_a_database_that_is_another_file_is_not_read(services, secret):
    path = services.folder / "x.sqlite"
    next(sample for sample in SAMPLES if sample.name == "x.sqlite").make(path)
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA writable_schema = ON")
        for name, statement in (
            ("stolen", f"CREATE VIRTUAL TABLE stolen USING VirtualOGR(''{secret}'')"),
            ("seen", "CREATE VIEW seen AS SELECT * FROM stolen"),
        ):
            kind = "table" if "TABLE" in statement else "view"
            database.execute(
                f"INSERT INTO sqlite_master VALUES ('{kind}', '{name}', '{name}', 0, '{statement}')"
            )
    database.close()
    for layer in ("stolen", "seen"):
        refuse(services, str(path), layer=layer)
    assert prepare(services, path, layer="x")["counts"]["rows"] == 3


@pytest.mark.parametrize("function", ["load_extension('x')", "ogr_datasource_load_layers('{secret}')", "readfile('{secret}')"])  # fmt: skip
def test_a_view_of_a_geopackage_calls_no_function_that_opens_files(services, secret, function):
    path = services.folder / "x.gpkg"
    next(sample for sample in SAMPLES if sample.name == "x.gpkg").make(path)
    with sqlite3.connect(path) as database:
        quoted = function.format(secret=secret).replace("'", "''")
        view = f"CREATE VIEW v AS SELECT fid, geom, {quoted} AS stolen FROM x"
        database.execute("PRAGMA writable_schema = ON")
        database.execute(f"INSERT INTO sqlite_master VALUES ('view', 'v', 'v', 0, '{view}')")
        database.execute(
            "INSERT INTO gpkg_contents (table_name, data_type, identifier) VALUES ('v', 'features', 'v')"
        )
        database.execute("INSERT INTO gpkg_geometry_columns VALUES ('v', 'geom', 'POLYGON', 4326, 0, 0)")
    database.close()
    with contextlib.suppress(PermanentError):
        prepare(services, path, layer="v")
    assert not [
        chunk
        for chunk in (services.folder / "silver").rglob("*.parquet")
        if SECRET.encode() in chunk.read_bytes()
    ]


@pytest.mark.parametrize("view", ['create view "v" as Select * From "other"', '"\\IsSeamless" = "TRUE"'])
def test_a_mapinfo_table_of_other_tables_is_refused(services, view):
    services.put("x.dat", b"x")
    href = services.put(
        "x.tab", f"!table\n!version 300\nDefinition Table\n  Type NATIVE\n  Fields 1\n{view}\n"
    )
    refuse(services, href, "refers to other tables: name those, or export it as one table")


def test_a_kmz_that_expands_too_far_is_refused(services):
    with zipfile.ZipFile(services.folder / "x.kmz", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(3):
            archive.writestr(f"{number}.kml", b" " * 1_000_000 if number else b"<kml/>")
    services.share = type(services.share)(scratch=services.share.scratch, max_file_mb=1)
    refuse(services, str(services.folder / "x.kmz"), "expands to 2 MB: at most 1 MB")


def test_the_fence_is_taken_down_after_the_last_reader(tmp_path):
    pyogrio.set_gdal_config_options({"GDAL_HTTP_PROXY": "http://proxy:1", "GML_DOWNLOAD_SCHEMA": None})
    try:
        with fenced_gdal(tmp_path):
            with fenced_gdal(tmp_path):
                pass
            assert pyogrio.get_gdal_config_option("GDAL_HTTP_PROXY") == "http://127.0.0.1:9"
            assert pyogrio.get_gdal_config_option("GML_DOWNLOAD_SCHEMA") == "NO"
        assert pyogrio.get_gdal_config_option("GDAL_HTTP_PROXY") == "http://proxy:1"
        assert pyogrio.get_gdal_config_option("GML_DOWNLOAD_SCHEMA") is None
    finally:
        pyogrio.set_gdal_config_options({"GDAL_HTTP_PROXY": None})


def test_a_layer_is_named_after_the_file(services):
    path = services.folder / "roads.of 2026.geojson"
    next(sample for sample in SAMPLES if sample.name == "x.geojson").make(path)
    text = path.read_text().replace('"name": "roads.of 2026",', "")
    href = services.put("roads.of 2026.geojson", text)
    assert prepare(services, href, layer="roads")["counts"]["rows"] == 3
    assert shapely.box(*prepare(services, href)["bbox"]).equals(shapely.box(0, 0, 3, 3))
