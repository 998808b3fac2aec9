"""A small file of every vector format that handlers read, made on the spot."""

from __future__ import annotations

import json
import struct
import warnings
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyogrio
import shapely

from tests.unit.geo.formats import handwritten_vectors
from tests.unit.geo.formats.zipped_samples import zipped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POLYGONS: Final = [shapely.box(number, number, number + 1, number + 1) for number in range(3)]
POINTS: Final = [shapely.Point(number, number + 1) for number in range(3)]
LINES: Final = [shapely.LineString([(number, number, 5), (number + 1, number + 2, 5)]) for number in range(3)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A file of one driver. `params` are what its reader needs to be told, `bounds` where its features lie."""

    driver: str
    name: str
    make: Callable[[Path], None]
    rows: int = 3
    bounds: tuple[float, float, float, float] = (0.0, 0.0, 3.0, 3.0)
    params: dict[str, Any] = field(default_factory=dict)


def gdal(driver: str, name: str, geometries: list[Any] = POLYGONS, **more: Any) -> Sample:
    """Return a sample that GDAL writes."""
    columns = more.pop("columns", {"n": pa.array([1, 2, 3], pa.int32()), "name": pa.array(["a", "b", "ä"])})
    options = more.pop("options", {})

    def make(path: Path) -> None:
        table = pa.table({**columns, "geometry": pa.array(shapely.to_wkb(geometries), pa.binary())})
        kind = geometries[0].geom_type
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pyogrio.raw.write_arrow(
                table,
                str(path),
                driver=driver,
                geometry_name="geometry",
                geometry_type=kind,
                crs="EPSG:4326",
                **options,
            )

    if geometries is POINTS:
        more.setdefault("bounds", (0.0, 1.0, 2.0, 3.0))
    if geometries is LINES:
        more.setdefault("bounds", (0.0, 0.0, 3.0, 4.0))
    return Sample(driver=driver, name=name, make=make, **more)


def text(driver: str, name: str, content: str | bytes, **more: Any) -> Sample:
    """Return a sample with this content."""
    data = content.encode() if isinstance(content, str) else content
    return Sample(driver=driver, name=name, make=lambda path: void(path.write_bytes(data)), **more)


def void(_: Any) -> None:
    """Drop a result."""


# ── Formats that GDAL does not write ────────────────────────────────────────────────────────────────────────────────

TOPOJSON: Final = json.dumps(
    {
        "type": "Topology",
        "transform": {"scale": [1, 1], "translate": [0, 0]},
        "objects": {"a": {"type": "GeometryCollection", "geometries": [
            {"type": "Point", "coordinates": [number, number], "properties": {"n": number}} for number in (0, 3)
        ]}},
        "arcs": [[[0, 0], [1, 1]]],
    }
)  # fmt: skip
ESRIJSON: Final = json.dumps(
    {
        "geometryType": "esriGeometryPoint",
        "spatialReference": {"wkid": 4326},
        "fields": [{"name": "n", "type": "esriFieldTypeInteger"}],
        "features": [
            {"attributes": {"n": number}, "geometry": {"x": number, "y": number}} for number in (0, 3)
        ],
    }
)
OSM: Final = """<?xml version="1.0" encoding="UTF-8"?>
<osm version="0.6"><bounds minlat="0" minlon="0" maxlat="3" maxlon="3"/>
<node id="1" lat="0" lon="0"><tag k="name" v="a"/></node><node id="2" lat="3" lon="3"><tag k="name" v="b"/></node>
<way id="3"><nd ref="1"/><nd ref="2"/><tag k="highway" v="track"/></way></osm>
"""
E00: Final = """EXP  0 TEST.E00
ARC  3
         1         1         1         2         0         0         2
 0.00000000000000E+00 0.00000000000000E+00
 3.00000000000000E+00 3.00000000000000E+00
        -1         0         0         0         0         0         0
         0.00000000000000E+00
EOS
"""
VDV: Final = """mod; DD.MM.YYYY; HH:MM:SS; free
src; "x"; "01.01.2026"; "00:00:00"
chs; "ISO8859-1"
ver; "1.4"
ifv; "1.4"
dve; "1.4"
fft; ""
tbl; REC_ORT
atr; ORT_NR; ORT_NAME; ORT_POS_LAENGE; ORT_POS_BREITE
frm; num[6.0]; char[40]; num[10.0]; num[10.0]
rec; 1; "a"; 10000000; 10000000
rec; 2; "b"; 30000000; 30000000
end; 2
eof; 1
"""
LVBAG: Final = """<?xml version="1.0" encoding="UTF-8"?>
<sl-bag-extract:bagStand xmlns:Objecten="www.kadaster.nl/schemas/lvbag/imbag/objecten/v20200601" xmlns:gml="http://www.opengis.net/gml/3.2" xmlns:Historie="www.kadaster.nl/schemas/lvbag/imbag/historie/v20200601" xmlns:Objecten-ref="www.kadaster.nl/schemas/lvbag/imbag/objecten-ref/v20200601" xmlns:sl-bag-extract="http://www.kadaster.nl/schemas/lvbag/extract-deelbestand-lvc/v20200601" xmlns:sl="http://www.kadaster.nl/schemas/standlevering-generiek/1.0">
<sl:standBestand><sl:dataset>LVBAG</sl:dataset><sl:inhoud><sl:gebied>Nederland</sl:gebied><sl:objectTypen><sl:objectType>STA</sl:objectType></sl:objectTypen></sl:inhoud><sl:stand><sl-bag-extract:bagObject><Objecten:Standplaats>
<Objecten:identificatie domein="NL.IMBAG.Standplaats">0160030000000166</Objecten:identificatie>
<Objecten:status>Plaats aangewezen</Objecten:status>
<Objecten:geometrie><gml:Polygon srsName="urn:ogc:def:crs:EPSG::28992"><gml:exterior><gml:LinearRing><gml:posList>155000 463000 155100 463000 155100 463100 155000 463000</gml:posList></gml:LinearRing></gml:exterior></gml:Polygon></Objecten:geometrie>
<Objecten:geconstateerd>N</Objecten:geconstateerd>
</Objecten:Standplaats></sl-bag-extract:bagObject></sl:stand></sl:standBestand></sl-bag-extract:bagStand>
"""


def osm_pbf() -> bytes:
    """Return two nodes as OpenStreetMap's protocol buffers."""

    def varint(number: int) -> bytes:
        low, rest = number & 0x7F, number >> 7
        return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])

    def zigzag(number: int) -> bytes:
        return varint((number << 1) ^ (number >> 63) if number >= 0 else ((-number) << 1) - 1)

    def message(key: int, data: bytes) -> bytes:
        return varint(key << 3 | 2) + varint(len(data)) + data

    def blob(kind: bytes, data: bytes) -> bytes:
        body = varint(2 << 3) + varint(len(data)) + message(3, zlib.compress(data))
        head = message(1, kind) + varint(3 << 3) + varint(len(body))
        return struct.pack(">I", len(head)) + head + body

    def node(number: int, degrees: int) -> bytes:
        place = zigzag(degrees * 10_000_000)
        key, value = message(2, varint(1)), message(3, varint(2))
        return message(
            1, varint(1 << 3) + zigzag(number) + key + value + varint(8 << 3) + place + varint(9 << 3) + place
        )

    header = message(4, b"OsmSchema-V0.6")
    words = message(1, message(1, b"") + message(1, b"name") + message(1, b"a"))
    return blob(b"OSMHeader", header) + blob(b"OSMData", words + message(2, node(1, 0) + node(2, 3)))


def geoparquet(path: Path) -> None:
    """Write GeoParquet 1.1."""
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB", "geometry_types": []}}}  # fmt: skip
    table = pa.table({"n": [1, 2, 3], "geometry": pa.array(shapely.to_wkb(POLYGONS), pa.binary())})
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), path)


WGS84: Final = {"source_crs": "EPSG:4326"}
TWO_POINTS: Final[dict[str, Any]] = {"rows": 2, "bounds": (0.0, 0.0, 3.0, 3.0)}
SXF_BOUNDS: Final = (38.9982, 54.1256, 40.5614, 55.0140)
SAMPLES: Final = [
    gdal("GeoJSON", "x.geojson"),
    gdal("GeoJSON", "plain.json"),
    gdal("GeoJSONSeq", "x.geojsonl"),
    gdal("JSONFG", "x.fgjson"),
    text("TopoJSON", "x.topojson", TOPOJSON, params=WGS84, **TWO_POINTS),
    text("ESRIJSON", "esri.json", ESRIJSON, **TWO_POINTS),
    gdal("GPKG", "x.gpkg"),
    gdal("ESRI Shapefile", "x.shp"),
    zipped(gdal("ESRI Shapefile", "x.shp")),
    gdal("FlatGeobuf", "x.fgb"),
    gdal("OpenFileGDB", "x.gdb", [shapely.MultiPolygon([one]) for one in POLYGONS]),
    gdal("LIBKML", "x.kml"),
    gdal("LIBKML", "x.kmz"),
    gdal("KML", "old.kml"),
    gdal("GML", "x.gml"),
    gdal("GML", "x.xml"),
    gdal("GPX", "x.gpx", POINTS, columns={}, options={"layer": "waypoints"}),
    gdal("MapInfo File", "x.tab"),
    gdal("MapInfo File", "x.mif"),
    gdal("SQLite", "x.sqlite"),
    gdal("MBTiles", "x.mbtiles"),
    gdal("PMTiles", "x.pmtiles"),
    text("OSM", "x.osm", OSM, params={"layer": "points"}, **TWO_POINTS),
    text("OSM", "x.pbf", osm_pbf(), params={"layer": "points"}, **TWO_POINTS),
    gdal("DXF", "x.dxf", columns={}, params=WGS84),
    gdal("DGN", "x.dgn", LINES, columns={}, params=WGS84),
    text("AVCE00", "x.e00", E00, rows=1, params=WGS84),
    gdal("GeoRSS", "x.rss", POINTS, options={"USE_EXTENSIONS": "YES"}),
    text("LVBAG", "lvbag.xml", LVBAG, rows=1, bounds=(5.387, 52.155, 5.389, 52.157)),
    gdal("MapML", "x.mapml"),
    gdal("JML", "x.jml"),
    gdal("OGR_GMT", "x.gmt"),
    text("VDV", "x.x10", VDV, rows=2, bounds=(1.0, 1.0, 3.0, 3.0)),
    gdal("WAsP", "x.map", LINES, columns={}, params=WGS84),
    gdal("Selafin", "x.slf", POINTS, columns={"depth": [1.5, 2.5, 3.5]}, params={**WGS84, "layer": "x_p0"}),
    Sample(driver="Idrisi", name="x.vct", make=handwritten_vectors.write_idrisi, rows=2),
    Sample(driver="S57", name="x.000", make=handwritten_vectors.write_s57, rows=2, params={"layer": "BOYLAT"}),
    Sample(driver="SXF", name="x.sxf", make=handwritten_vectors.write_sxf, rows=2, bounds=SXF_BOUNDS),
    Sample(driver="SXF", name="y.sxf", make=handwritten_vectors.write_sxf_with_classes, rows=2, bounds=SXF_BOUNDS),
    Sample(driver="SXF", name="old.sxf", make=handwritten_vectors.write_sxf_3, rows=2, bounds=SXF_BOUNDS),
    Sample(driver="GeoParquet", name="x.parquet", make=geoparquet),
    text("CSV", "x.csv", "lon,lat,n\n0,0,1\n3,3,2\n", **TWO_POINTS),
]  # fmt: skip
