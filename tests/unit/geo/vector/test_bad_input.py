"""Files as the world sends them: each is handled, or refused in a sentence, and nothing half-made is left."""

from __future__ import annotations

import io
import json
import re
import shutil
import sqlite3
import struct
import zipfile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyogrio
import pytest
import shapely

from dagmaster.errors import PermanentError
from tests.unit.geo.vector.test_natural_earth import SHAPEFILE, collection, loaded, shapes_of

BOX = shapely.box(0, 0, 1, 1)
BOW_TIE = shapely.Polygon([(0, 0), (2, 2), (2, 0), (0, 2)])


def refused(services, text: str, **params: Any) -> None:
    """Check that the handler fails with this sentence and leaves nothing behind."""
    with pytest.raises(PermanentError, match=text) as caught:
        services.run("vector.prepare", **params)
    assert caught.value.kind == "invalid_input"
    message = str(caught.value)
    assert "Traceback" not in message
    assert str(services.folder / "scratch") not in message
    assert not list((services.folder / "silver").rglob("*"))


# ── Names ──


@pytest.mark.parametrize(
    "href",
    [
        "/vsicurl/https://example.com/x.geojson", "/vsizip/x.zip/y.shp", "PG:dbname=x", "PG:x.geojson", "https://example.com/x.geojson",
        "../x.geojson", "/etc/passwd", "x\0.geojson", "ftp://x/y.geojson", "x.vrt", "x.kml", "x", "MySQL:x.shp", "a/../b.geojson",
    ],
)  # fmt: skip
def test_only_files_are_read_and_only_some(services, href):
    refused(services, ".", href=href)


def test_two_files_are_one_too_many(services):
    with pytest.raises(PermanentError, match="the params do not fit: name one file"):
        services.run("vector.prepare", href="a.geojson", blob_name="b.geojson")


def test_a_file_that_is_not_there(services):
    refused(services, "there is no file at", href="nothing.geojson")


@pytest.mark.parametrize(
    ("name", "table"), [("a.geojson", 'x"; DROP TABLE y; --'), ("a.geojson", "a/b"), ("a.geojson", "ä")]
)
def test_a_table_that_cannot_be(services, name, table):
    refused(services, "is not a valid table name", href=services.put(name, collection(BOX)), table=table)


def test_a_table_is_named_after_its_file(services):
    prepared = services.run("vector.prepare", href=services.put("2024 Änderung.x.geojson", collection(BOX)))
    assert prepared["table"] == "_2024_anderung"


# ── What the bytes are ──

VRT = "<OGRVRTDataSource><OGRVRTLayer name='a'><SrcDataSource>{}</SrcDataSource></OGRVRTLayer></OGRVRTDataSource>"


@pytest.mark.parametrize("name", ["x.geojson", "x.json", "x.gpkg", "x.fgb", "x.parquet", "x.csv"])
def test_a_vrt_under_another_name_leads_nowhere(services, name):
    secret = services.put("secret.geojson", collection(BOX))
    refused(
        services,
        "the file is OGR_VRT, which refers to other files",
        href=services.put(name, VRT.format(secret)),
    )


def test_a_vrt_as_a_shapefile_leads_nowhere(services):
    folder = services.folder / "x"
    shutil.copytree(SHAPEFILE.parent, folder)
    (folder / "naturalearth_lowres.shp").write_text(VRT.format("/etc/passwd"))
    refused(services, "the file is OGR_VRT", href=str(folder / "naturalearth_lowres.shp"))


@pytest.mark.parametrize("kind", ["link", "URL"])
def test_a_geojson_whose_crs_is_elsewhere_is_refused(services, kind):
    crs = {"type": kind, "properties": {"href": "http://127.0.0.1:9/crs", "type": "proj4"}}
    refused(services, "as a link: name it", href=services.put("x.geojson", {**collection(BOX), "crs": crs}))
    # A feature may be called so.
    data = collection(BOX)
    data["features"][0]["properties"] = {"type": "link", "crs": "x"}
    assert services.run("vector.prepare", href=services.put("y.geojson", data))["counts"]["rows"] == 1


@pytest.mark.parametrize(("plain", "escaped"), [('"crs":', r'"\u0063rs":'), ('"link"', r'"l\u0069nk"')])
def test_a_link_that_is_written_otherwise_is_not_followed(services, plain, escaped):
    import http.server
    import threading

    asked = []

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        crs = {
            "type": "link",
            "properties": {"href": f"http://127.0.0.1:{server.server_port}/crs", "type": "proj4"},
        }
        text = json.dumps({**collection(BOX), "crs": crs}).replace(plain, escaped)
        assert escaped in text
        refused(services, "as a link: name it", href=services.put("x.geojson", text))
        server.shutdown()
        thread.join()
    assert asked == []


def test_a_database_that_is_no_geopackage_is_refused(services):
    with sqlite3.connect(services.folder / "x.gpkg") as database:
        database.execute("CREATE TABLE a (b)")
    database.close()
    refused(
        services,
        r"cannot be opened as GPKG: it is damaged, or not what .* \(GDAL: ",
        href=str(services.folder / "x.gpkg"),
    )


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"type": "FeatureCollection"', "not json", "\xff\xfe"]
)
def test_what_is_no_geojson_is_refused(services, text):
    refused(services, ".", href=services.put("x.geojson", text.encode("latin-1")))


@pytest.mark.parametrize("suffix", [".shp", ".fgb", ".gpkg", ".parquet"])
def test_half_a_file_is_refused(services, suffix):
    whole = services.folder / f"whole{suffix}"
    shape = shapely.segmentize(shapely.box(0, 0, 9, 9), 0.001)
    table = pa.table({"n": [1, 2], "wkb_geometry": pa.array(shapely.to_wkb([shape, shape]), pa.binary())})
    if suffix == ".parquet":
        geo = {"primary_column": "wkb_geometry", "columns": {"wkb_geometry": {"encoding": "WKB"}}}
        pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), whole)
    else:
        pyogrio.raw.write_arrow(
            table, whole, geometry_name="wkb_geometry", geometry_type="Polygon", crs="EPSG:4326"
        )
    data = whole.read_bytes()
    whole.write_bytes(data[: len(data) // 2])
    refused(services, ".", href=str(whole))


def test_half_a_geopackage_is_reported_without_what_sqlite_was_asked(services):
    whole = services.folder / "whole.gpkg"
    pyogrio.raw.write(
        str(whole),
        geometry=shapely.to_wkb(shapely.points(np.arange(4000).reshape(-1, 2) % 90)),
        field_data=[np.arange(2000)],
        fields=["n"],
        geometry_type="Point",
        crs="EPSG:4326",
    )
    data = whole.read_bytes()
    refused(
        services,
        "is damaged.*Copy it again from its origin, or export it again$",
        href=services.put("half.gpkg", data[: len(data) // 2]),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"hello": 1}',
            "JSON, but not GeoJSON with features: it has 'hello'. Expected a FeatureCollection, a",
        ),
        ("{}", "JSON, but not GeoJSON with features. Expected a FeatureCollection, a Feature or a geometry$"),
        ('{"hello": ', "not JSON, or it is truncated: copy it again"),
    ],
)
def test_json_without_features_is_reported_for_what_it_is(services, text, message):
    refused(services, f"^the file is {message}", href=services.put("a.geojson", text.encode()))


@pytest.mark.parametrize(
    ("head", "message"), [(b"hello", "it begins with 'hello'"), (b"\xff\x01", "the bytes ff 01")]
)
def test_what_a_file_begins_with_is_shown_as_letters_or_bytes(services, head, message):
    refused(services, message, href=services.put("x.gpkg", head))


def test_parquet_without_places_is_refused(services):
    pq.write_table(pa.table({"a": [1]}), services.folder / "x.parquet")
    refused(services, "not GeoParquet", href=str(services.folder / "x.parquet"))


@pytest.mark.parametrize(
    "crs", ["+init=/etc/passwd:x", "EPSG:4326", {"init": "/etc/passwd:x"}, {"proj": "longlat"}, {}]
)
def test_the_crs_of_a_geoparquet_is_an_object_that_names_no_file(services, crs):
    href = geoparquet(services, "x.parquet", [BOX], 4326)
    table = pq.read_table(href)
    geo = json.loads(table.schema.metadata[b"geo"])
    geo["columns"]["geometry"]["crs"] = crs
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), href)
    refused(services, "is not PROJJSON", href=href)


def test_a_file_without_features_is_refused(services):
    refused(services, "contains no features", href=services.put("x.geojson", collection()))
    refused(services, "contains no features", href=services.put("x.csv", "lon,lat\n"))


def test_a_layer_has_to_be_named_where_there_are_several(services):
    path = services.folder / "x.gpkg"
    table = pa.table({"geom": pa.array(shapely.to_wkb([BOX]), pa.binary())})
    for layer in ("one", "two"):
        pyogrio.raw.write_arrow(table, path, layer=layer, geometry_name="geom", geometry_type="Polygon", crs="EPSG:4326", append=path.exists())  # fmt: skip
    refused(services, "has 2 layers: name one by `layer`: one, two", href=str(path))
    refused(services, "has no layer 'three'", href=str(path), layer="three")
    assert services.run("vector.prepare", href=str(path), layer="two")["counts"]["rows"] == 1


# ── Shapefiles and zips ──


def zipped(services, files: dict[str, bytes], name: str = "x.zip", **how: Any) -> str:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, content in files.items():
            archive.writestr(each, content, **how)
    return str(services.put(name, data.getvalue()))


def parts(*suffixes: str, stem: str = "data/ne") -> dict[str, bytes]:
    return {f"{stem}{suffix}": SHAPEFILE.with_suffix(suffix).read_bytes() for suffix in suffixes}


ALL = (".shp", ".shx", ".dbf", ".prj", ".cpg")


def test_a_zipped_shapefile_is_read(services):
    href = zipped(services, {**parts(*ALL), "README.txt": b"x", "__MACOSX/data/ne.shp": b"x"})
    _, back = loaded(services, href)
    assert back.num_rows == 177
    upper = zipped(services, {name.upper(): data for name, data in parts(*ALL).items()}, "upper.zip")
    assert services.run("vector.prepare", href=upper)["counts"]["rows"] == 177


def test_a_shapefile_without_prj_has_no_crs_unless_it_is_said(services):
    href = zipped(services, parts(".shp", ".shx", ".dbf", ".cpg"))
    refused(
        services,
        r"the ESRI Shapefile file has no CRS.*: put its \.prj next to it, or set source_crs",
        href=href,
    )
    prepared = services.run("vector.prepare", href=href, source_crs="EPSG:4326")
    assert prepared["source_crs"] == "EPSG:4326"


@pytest.mark.parametrize("missing", [".shx", ".dbf"])
def test_a_shapefile_without_a_part_of_it_is_refused(services, missing):
    rest = [suffix for suffix in ALL if suffix != missing]
    refused(services, f"its {missing} is missing", href=zipped(services, parts(*rest)))
    for suffix in rest:
        shutil.copy(SHAPEFILE.with_suffix(suffix), services.folder / f"half{suffix}")
    refused(services, f"without its {missing}", href=str(services.folder / "half.shp"))


def test_parts_of_a_shapefile_are_not_read_from_elsewhere(services, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for suffix in ALL:
        shutil.copy(
            SHAPEFILE.with_suffix(suffix), (elsewhere if suffix == ".dbf" else services.folder) / f"a{suffix}"
        )
    (services.folder / "a.dbf").symlink_to(elsewhere / "a.dbf")
    refused(services, "outside the allowed directories", href=str(services.folder / "a.shp"))


def test_a_shapefile_of_a_bucket_comes_with_its_parts(services):
    from dagmaster.adapters.storage.router import ObjectStorage

    services.blobs = ObjectStorage({zone: f"memory://x/{zone}" for zone in ("bronze", "silver", "gold")})
    for suffix in ALL:
        services.blobs.write(
            services.blobs.in_zone("bronze", f"a/ne{suffix}"), SHAPEFILE.with_suffix(suffix).read_bytes()
        )
    _, back = loaded(services, "a/ne.shp")
    assert back.num_rows == 177


@pytest.mark.parametrize("name", ["../x.shp", "/x.shp", "a/../../x.shp", "a\\..\\x.shp", "C:/x.shp"])
def test_a_zip_whose_names_lead_out_of_it_is_refused(services, name):
    refused(services, "leads out of it", href=zipped(services, {**parts(*ALL), name: b"x"}))
    assert not (services.folder / "x.shp").exists()


def test_a_zip_with_a_link_in_it_is_refused(services):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        link = zipfile.ZipInfo("x.geojson")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    refused(services, "contains a link", href=services.put("x.zip", data.getvalue()))


def test_a_zip_bomb_is_refused_before_it_is_unpacked(services):
    href = zipped(services, {"x.geojson": b" " * 50_000_000})
    assert (services.folder / "x.zip").stat().st_size < 60_000
    refused(services, r"expands to 50 MB: at most 10 MB", href=href)
    refused(
        services,
        "has 10,001 files",
        href=zipped(services, {f"{n}.txt": b"" for n in range(10_001)}, "many.zip"),
    )


def test_a_zip_that_lies_about_its_size_is_refused(services):
    path = zipped(services, {"x.geojson": b" " * 1_000_000})
    data = (services.folder / "x.zip").read_bytes()
    size = struct.pack("<I", 1_000_000)
    assert data.count(size) == 2
    services.put("x.zip", data.replace(size, struct.pack("<I", 1_000)))
    refused(services, "a damaged zip archive", href=path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"readme.txt": b"x"}, "has no dataset of a supported format, but readme.txt"),
        ({}, "has no dataset of a supported format, but nothing"),
        (
            {"a.geojson": b"{}", "b.geojson": b"{}"},
            "has 2 datasets: name one by `member`, or extract it: a.geojson, b.geojson",
        ),
        ({"inner.zip": b"PK"}, "has no dataset of a supported format"),
    ],
)
def test_a_zip_holds_one_file_of_features(services, files, message):
    refused(services, message, href=zipped(services, files))


def test_one_of_several_may_be_named(services):
    files = {
        "a.geojson": json.dumps(collection(BOX)).encode(),
        "b.geojson": json.dumps(collection(BOX, BOX)).encode(),
    }
    assert (
        services.run("vector.prepare", href=zipped(services, files), member="b.geojson")["counts"]["rows"]
        == 2
    )
    lent_again = zipped(services, files, "again.zip")
    with pytest.raises(PermanentError, match="has no dataset 'c'"):
        services.run("vector.prepare", href=lent_again, member="c")


def test_what_is_no_zip_is_refused(services):
    refused(services, "not a zip", href=services.put("x.zip", b"PK nothing"))


# ── Where on Earth ──


@pytest.mark.parametrize(
    ("crs", "message"),
    [
        ("EPSG:999999", "target_crs is EPSG:999999, which is not a known CRS"),
        ("+proj=utm +zone=33", "expected an authority and a code"),
        ("/etc/passwd", "expected an authority and a code"),
        ("", "expected an authority and a code"),
        ("ESRI:54009", "has no EPSG code"),
        (
            "EPSG:5773",
            "has no plane or longitudes and latitudes on which features could lie: expected a projected or",
        ),
        (
            "EPSG:4978",
            "has no plane or longitudes and latitudes on which features could lie: expected a projected or",
        ),
    ],
)
def test_a_target_that_nobody_knows(services, crs, message):
    refused(services, message, href=services.put("x.geojson", collection(BOX)), target_crs=crs)


def test_a_crs_that_contradicts_the_file_is_refused(services):
    href = services.put("x.geojson", collection(BOX))
    refused(
        services, "the file is in EPSG:4326, but source_crs is EPSG:3857", href=href, source_crs="EPSG:3857"
    )


def test_a_crs_of_a_file_that_nobody_knows_is_refused(services):
    files = parts(*ALL)
    files["data/ne.prj"] = b'LOCAL_CS["Somewhere", UNIT["metre", 1]]'
    refused(services, "has no relation to the Earth", href=zipped(services, files))


def test_swapped_coordinates_are_noticed(services):
    refused(
        services,
        "latitude of 120, beyond the pole",
        href=services.put("x.geojson", collection(shapely.Point(10, 120))),
    )


def geoparquet(services, name: str, shapes: Any, srid: int, **columns: Any) -> str:
    import pyproj

    about = {"encoding": "WKB", "geometry_types": [], "crs": pyproj.CRS.from_epsg(srid).to_json_dict()}
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": about}}
    table = pa.table({**columns, "geometry": pa.array(shapely.to_wkb(shapes), pa.binary())})
    path = services.folder / name
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), path)
    return str(path)


def test_what_crosses_the_antimeridian_is_cut_there(services):
    # A square of 200 km around 180 east, on a map of the Pacific, with a hole across the line.
    square = shapely.box(3239638.0, -100_000, 3439638.0, 100_000).difference(
        shapely.box(3319638, -9000, 3359638, 9000)
    )
    line = shapely.LineString([(3239638, 0), (3439638, 0)])
    _, back = loaded(services, geoparquet(services, "pacific.parquet", [square], 3832), table="square")
    cut = shapes_of(back)[0]
    assert cut.is_valid
    assert [round(one, 3) for one in cut.bounds] == [-180, -0.904, 180, 0.904]
    assert sorted(round(shapely.bounds(one)[2] - shapely.bounds(one)[0], 2) for one in cut.geoms) == [
        0.9,
        0.9,
    ]
    import pyproj

    to = pyproj.Transformer.from_crs("EPSG:3832", "EPSG:4326", always_xy=True)
    unrolled = shapely.transform(
        square, lambda xy: np.column_stack([np.mod(to.transform(*xy.T)[0], 360), to.transform(*xy.T)[1]])
    )
    assert cut.area == pytest.approx(unrolled.area, rel=1e-9)
    prepared, back = loaded(services, geoparquet(services, "line.parquet", [line], 3832), table="line")
    assert prepared["counts"]["antimeridian_cut"] == 1
    assert shapes_of(back)[0].geom_type == "MultiLineString"
    assert shapes_of(back)[0].length == pytest.approx(200_000 / 111_319.49, rel=1e-6)


@pytest.mark.parametrize(("srid", "pole"), [(3031, -90), (3413, 90)])
def test_what_goes_around_a_pole_is_closed_over_it(services, srid, pole):
    disc = shapely.Point(0, 0).buffer(1_000_000, quad_segs=64)
    prepared, back = loaded(services, geoparquet(services, "disc.parquet", [disc], srid), table="disc")
    shape = shapes_of(back)[0]
    assert shape.is_valid
    assert prepared["bbox"][0::2] == [-180.0, 180.0]
    assert pole in prepared["bbox"]
    # The cap around the pole, as wide as the map: 360 degrees times its height.
    edge = shapely.bounds(shape)[3 if pole < 0 else 1]
    assert shape.area == pytest.approx(360 * abs(pole - edge), rel=1e-3)


def test_longitudes_beyond_180_are_brought_back(services):
    _, back = loaded(
        services,
        services.put("x.geojson", collection(shapely.box(170, 0, 190, 10), shapely.box(200, 0, 210, 1))),
    )
    first, second = sorted(shapes_of(back), key=lambda one: -one.area)
    assert sorted(one.bounds for one in first.geoms) == [(-180, 0, -170, 10), (170, 0, 180, 10)]
    assert second.bounds == (-160, 0, -150, 1)


def test_the_pole_on_a_mercator_map_is_refused(services):
    refused(services, "beyond what EPSG:3857 can represent", href=services.put("x.geojson", collection(shapely.Point(0, 90))), target_crs="EPSG:3857")  # fmt: skip


def test_a_place_that_a_map_folds_onto_another_is_refused(services):
    # Sydney on the map of Switzerland has coordinates. They are those of another place.
    sydney = services.put("x.geojson", collection(shapely.Point(151.2, -33.9)))
    refused(services, "beyond what EPSG:2056 can represent", href=sydney, target_crs="EPSG:2056")
    bern = services.put("y.geojson", collection(shapely.Point(7.438632, 46.951083)))
    _, back = loaded(services, bern, target_crs="EPSG:2056")
    assert shapely.get_coordinates(shapes_of(back))[0] == pytest.approx([2600000, 1200000], abs=2)


# ── Geometries ──


def test_a_self_intersection_is_repaired_reported_or_refused(services):
    href = services.put("x.geojson", collection(BOX, BOW_TIE))
    prepared, back = loaded(services, href, table="repaired")
    assert prepared["counts"]["invalid"] == {"Self-intersection": 1}
    assert prepared["counts"]["repaired"] == 1
    assert prepared["problems"] == [{"feature": 2, "problem": "Self-intersection[1 1]"}]
    assert shapely.is_valid(shapes_of(back)).all()
    assert sorted(shapely.area(shapes_of(back)).tolist()) == [1.0, 2.0]
    prepared, back = loaded(services, href, table="reported", invalid="report")
    assert prepared["counts"]["invalid"] == {"Self-intersection": 1}
    assert "repaired" not in prepared["counts"]
    assert shapely.is_valid(shapes_of(back)).tolist() == [True, False]
    with pytest.raises(
        PermanentError,
        match=r"feature 2 is not valid: set invalid: repair .*\(GEOS: Self-intersection\[1 1\]",
    ):
        services.run("vector.prepare", href=href, invalid="fail")


def test_a_ring_that_is_not_closed_is_closed_and_counted(services):
    open_ring = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]]}
    data = collection(BOX)
    data["features"].append({"type": "Feature", "properties": {}, "geometry": open_ring})
    href = services.put("x.geojson", data)
    refused(services, "feature 2 has a ring that is not closed", href=href, invalid="fail")
    prepared, back = loaded(services, href)
    assert prepared["counts"]["invalid"] == {"Ring not closed": 1}
    assert shapely.area(shapes_of(back)).tolist() == [1.0, 1.0]


def test_features_without_a_geometry_are_kept_dropped_or_refused(services):
    href = services.put("x.geojson", collection(BOX, None, shapely.Polygon()))
    prepared, back = loaded(services, href, table="kept")
    assert [one is None or one.is_empty for one in shapes_of(back)] == [False, True, True]
    assert (
        prepared["counts"]["rows"],
        prepared["counts"]["null_geometry"],
        prepared["counts"]["empty_geometry"],
    ) == (
        3,
        1,
        1,
    )
    prepared, back = loaded(services, href, table="dropped", missing_geometry="drop")
    assert (prepared["counts"]["rows"], prepared["counts"]["read"], prepared["counts"]["dropped"]) == (
        1,
        3,
        2,
    )
    with pytest.raises(PermanentError, match="feature 2 has no geometry"):
        services.run("vector.prepare", href=href, missing_geometry="fail")


MULTI = shapely.MultiPolygon([shapely.box(5, 5, 6, 6), BOX])


def test_mixed_types_become_multi_stay_or_are_refused(services):
    href = services.put("x.geojson", collection(BOX, MULTI))
    prepared, back = loaded(services, href, table="multi", chunk_rows=1)
    assert prepared["schema"]["geometry_type"] == "MultiPolygon"
    assert {one.geom_type for one in shapes_of(back)} == {"MultiPolygon"}
    prepared, back = loaded(services, href, table="any", mixed_types="geometry")
    assert prepared["schema"]["geometry_type"] == "Geometry"
    assert {one.geom_type for one in shapes_of(back)} == {"Polygon", "MultiPolygon"}
    with pytest.raises(PermanentError, match="has MultiPolygon, Polygon"):
        services.run("vector.prepare", href=href, mixed_types="fail")
    prepared, _ = loaded(
        services, services.put("y.geojson", collection(BOX, shapely.Point(1, 2))), table="both"
    )
    assert prepared["schema"]["geometry_type"] == "Geometry"


def test_heights_are_kept_or_dropped_and_not_made_up(services):
    href = services.put("x.geojson", collection(shapely.Point(1, 2, 3)))
    prepared, back = loaded(services, href, table="kept")
    assert prepared["schema"]["geometry_type"] == "Point Z"
    assert shapes_of(back)[0].z == 3
    prepared, back = loaded(services, href, table="flat", heights="drop")
    assert (prepared["schema"]["geometry_type"], prepared["counts"]["heights_dropped"]) == ("Point", 1)
    prepared, back = loaded(services, href, table="moved", target_crs="EPSG:3857")
    assert shapes_of(back)[0].z == 3


@pytest.mark.parametrize(
    ("heights", "message"),
    [
        ([3, 3, None, 3], "feature 3 has no height, those before it have some. Set heights: drop"),
        ([None, None, None, 1, None], "feature 4 has heights, those before it have none. Set heights: drop"),
    ],
)
def test_a_mix_of_heights_and_none_is_refused_with_the_first_feature_that_differs(services, heights, message):
    points = [shapely.Point(1, 2) if one is None else shapely.Point(1, 2, one) for one in heights]
    both = services.put("y.geojson", collection(*points))
    with pytest.raises(PermanentError, match=re.escape(message)):
        services.run("vector.prepare", href=both)
    prepared, _ = loaded(services, both, table="flat", heights="drop")
    assert prepared["counts"]["heights_dropped"] == sum(one is not None for one in heights)


def test_measures_are_dropped_and_counted_and_heights_stay(services):
    wkt = 'wkt,n\n"POINT ZM (1 2 3 4)",1\n"POINT Z (5 6 7)",2\n'
    prepared, back = loaded(services, services.put("x.csv", wkt), source_crs="EPSG:4326")
    assert prepared["counts"]["m_dropped"] == 1
    assert [one.z for one in shapes_of(back)] == [3, 7]


@pytest.mark.parametrize("junk", [b"", b"\x01", b"nonsense", b"\x01\x03\x00\x00\x00\xff\xff\xff\xff"])
def test_bytes_that_are_no_geometry_are_refused(services, junk):
    path = services.folder / "x.parquet"
    geo = {"primary_column": "g", "columns": {"g": {"encoding": "WKB"}}}
    pq.write_table(pa.table({"g": [junk]}).replace_schema_metadata({"geo": json.dumps(geo)}), path)
    refused(
        services,
        r"the geometry of feature 1 is damaged and cannot be read: correct it, .* \(GEOS: ",
        href=str(path),
    )


def test_coordinates_that_are_no_numbers_are_refused(services):
    href = geoparquet(services, "x.parquet", [shapely.Polygon([(0, 0), (1, 0), (float("inf"), 1)])], 4326)
    refused(services, "feature 1 has a coordinate that is not a number", href=href)


# ── Columns ──


def test_names_become_plain_and_do_not_collide(services):
    names = [
        "Name",
        "name",
        "NAME ",
        "näme",
        "name_2",
        "geometry",
        "xmin",
        "1st",
        "---",
        "a" * 80,
        "a" * 81,
        "select",
        "_chunk",
    ]
    data = collection(BOX)
    data["features"][0]["properties"] = {name: at for at, name in enumerate(names)}
    prepared, back = loaded(services, services.put("x.geojson", data))
    columns = {one["source_name"]: one["name"] for one in prepared["schema"]["columns"]}
    assert columns["name"] == "name"
    assert columns["name_2"] == "name_2"
    assert columns["Name"] == "name_3"
    assert (columns["xmin"], columns["1st"], columns["---"], columns["select"]) == (
        "xmin_",
        "_1st",
        "column",
        "select",
    )
    row = back.to_pylist()[0]
    assert {name: row[columns[name]] for name in names} == {name: at for at, name in enumerate(names)}


@pytest.mark.slow
def test_three_thousand_columns_are_no_trouble(services):
    data = collection(BOX)
    data["features"][0]["properties"] = {f"c{number}": number for number in range(3000)}
    prepared, back = loaded(services, services.put("x.geojson", data))
    assert len(prepared["schema"]["columns"]) == 3000
    assert back.to_pylist()[0]["c2999"] == 2999


def test_dates_times_and_json_have_types(services):
    data = collection(BOX, BOX)
    details = {
        "d": "2020-02-29",
        "t": "2020-01-02T03:04:05Z",
        "o": {"a": [1]},
        "l": [1, 2],
        "b": True,
        "mixed": 1,
    }
    data["features"][0]["properties"] = details
    data["features"][1]["properties"] = {"mixed": "x"}
    prepared, back = loaded(services, services.put("x.geojson", data))
    kinds = {one["name"]: one["type"] for one in prepared["schema"]["columns"]}
    assert kinds == {
        "d": "date",
        "t": "timestamp",
        "o": "json",
        "l": "integer[]",
        "b": "boolean",
        "mixed": "json",
    }
    row = back.to_pylist()[0]
    assert (row["d"].isoformat(), row["t"].isoformat()) == ("2020-02-29", "2020-01-02T03:04:05+00:00")
    assert (json.loads(row["o"]), row["l"]) == ({"a": [1]}, [1, 2])
    assert [json.loads(one) for one in back["mixed"].to_pylist()] == [1, "x"]


def test_numbers_that_may_have_lost_digits_are_counted(services):
    data = collection(BOX)
    data["features"][0]["properties"] = {"n": 12345678901234567890.0, "ok": 2**53 + 1}
    prepared, back = loaded(services, services.put("x.geojson", data))
    assert prepared["counts"]["digits_in_doubt"] == 1
    assert back["ok"].to_pylist() == [2**53 + 1]


def test_text_that_is_not_utf8_needs_its_encoding(services):
    files = parts(".shp", ".shx", ".dbf", ".prj")
    files["data/ne.dbf"] = files["data/ne.dbf"].replace(b"Fiji", b"Fij\xed")
    files["data/ne.cpg"] = b"UTF-8"
    href = zipped(services, files)
    refused(services, "the column 'name' is not UTF-8 .* set `encoding`", href=href)
    _, back = loaded(services, href, encoding="ISO-8859-1")
    assert "Fijí" in back["name"].to_pylist()


# ── CSV ──

CSV = "id,zip,lon,lat,pop,when,big\n1,007,10.5,50.5,1.5,2020-01-02,99999999999999999999\n2,008,-70,-33,2,2020-01-03,1\n3,,,,,,\n"


def test_a_csv_with_longitude_and_latitude(services):
    prepared, back = loaded(services, services.put("x.csv", CSV))
    kinds = {one["name"]: one["type"] for one in prepared["schema"]["columns"]}
    assert kinds == {
        "id": "integer",
        "zip": "text",
        "lon": "number",
        "lat": "number",
        "pop": "number",
        "when": "date",
        "big": "text",
    }
    assert back["zip"].to_pylist() == ["007", "008", None]
    assert back["big"].to_pylist()[0] == "99999999999999999999"
    assert [one and one.wkt for one in shapes_of(back)] == ["POINT (10.5 50.5)", "POINT (-70 -33)", None]


def test_a_csv_with_wkt_needs_its_crs(services):
    href = services.put("x.csv", 'a;geom\n"x;y";POLYGON((0 0,1 0,1 1))\n')
    refused(services, "has no CRS", href=href)
    prepared, back = loaded(services, href, source_crs="EPSG:4326")
    assert back["a"].to_pylist() == ["x;y"]
    assert prepared["counts"]["invalid"] == {"Ring not closed": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a,b\n1,2\n", "the CSV has no geometries: its columns are a, b"),
        (b"lon,lat\nx,1\n", "row 1 of the CSV has no valid coordinates: 'x', '1'"),
        (b"lon,lat,n\n1,2,\xff\n", "the CSV is not UTF-8"),
        (b"lon,lat\n1,2,3\n", "the CSV cannot be read"),
        (b"", "the CSV cannot be read"),
        (
            b"wkt\nPOINT(1)\n",
            r"the geometry of feature 1 is damaged and cannot be read: correct it, .* \(GEOS: ",
        ),
    ],
)
def test_a_csv_that_cannot_be_read(services, text, message):
    refused(services, message, href=services.put("x.csv", text), source_crs="EPSG:4326")


def test_a_csv_in_another_encoding(services):
    _, back = loaded(
        services, services.put("x.csv", "lon,lat,n\n1,2,é\n".encode("latin-1")), encoding="latin-1"
    )
    assert back["n"].to_pylist() == ["é"]


# ── Other formats ──


@pytest.mark.parametrize("suffix", [".fgb", ".gpkg", ".geojson", ".zip"])
def test_every_format_gives_the_same_rows(services, suffix):
    _, table = pyogrio.raw.read_arrow(SHAPEFILE)
    path = services.folder / f"countries{'.gpkg' if suffix == '.zip' else suffix}"
    how = {".fgb": {"SPATIAL_INDEX": "NO"}, ".geojson": {"COORDINATE_PRECISION": "17"}}.get(suffix, {})
    kind = "MultiPolygon" if suffix == ".geojson" else "Unknown"
    pyogrio.raw.write_arrow(table, path, geometry_name="wkb_geometry", geometry_type=kind, crs="EPSG:4326", layer="c", layer_options=how)  # fmt: skip
    href = zipped(services, {"c.gpkg": path.read_bytes()}) if suffix == ".zip" else str(path)
    _, back = loaded(services, href, table="back")
    back = back.sort_by("name")
    table = table.sort_by("name")
    assert back["pop_est"].to_pylist() == table["pop_est"].to_pylist()
    promoted = [shapely.multipolygons(shapely.get_parts(one)) for one in shapes_of(table)]
    assert shapely.equals_exact(shapes_of(back), promoted, tolerance=1e-12).all()


def test_a_chunk_is_never_larger_than_it_may_be(services):
    data = collection(*[shapely.Point(n % 180, 0) for n in range(2500)])
    prepared = services.run("vector.prepare", href=services.put("x.geojson", data), chunk_rows=999)
    assert [chunk["rows"] for chunk in prepared["chunks"]] == [999, 999, 502]
    prepared = services.run("vector.prepare", href=str(services.folder / "x.geojson"), chunk_mb=0.03)
    assert [chunk["rows"] for chunk in prepared["chunks"]] == [1000, 1000, 500]
    assert prepared["chunks"][2]["footprint"] == [0, 0, 179, 0]


# ── Chunks ──


def test_what_is_no_chunk_is_not_uploaded(services):
    pq.write_table(pa.table({"a": [1]}), services.folder / "x.parquet")
    for href, message in ((str(services.folder / "x.parquet"), "vector.prepare did not write it"), (services.put("y.parquet", b"x"), "not a chunk of a table, or it is damaged: run vector.prepare again|vector.prepare did not write it"), ("z.parquet", "there is no chunk")):  # fmt: skip
        with pytest.raises(PermanentError, match=message) as caught:
            services.run("vector.upload_chunk", table="t", chunk_id="a", href=href)
        assert caught.value.kind == "invalid_input"
    with pytest.raises(PermanentError, match="name a chunk"):
        services.run("vector.upload_chunk", table="t")


def test_a_dissolve_by_what_is_not_there_is_refused(services):
    href = services.put("x.geojson", collection(BOX))
    bare = collection(BOX)
    bare["features"][0]["properties"] = {}
    for params, message in (
        ({"by": ["x"], "href": href}, "no column 'x': the columns are n$"),
        ({"sums": ["x"], "href": href}, "no column 'x'"),
        (
            {"by": ["x"], "href": services.put("bare.geojson", bare)},
            "no column 'x': the features have no columns",
        ),
    ):
        with pytest.raises(PermanentError, match=message):
            services.run("vector.dissolve", **params)
    data = collection(BOX)
    data["features"][0]["properties"] = {"a": "x"}
    with pytest.raises(PermanentError, match="only numbers can be summed"):
        services.run("vector.dissolve", href=services.put("y.geojson", data), sums=["a"])
