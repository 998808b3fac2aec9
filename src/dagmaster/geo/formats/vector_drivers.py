"""The rules of the vector drivers of pyogrio's GDAL, and of the formats that Arrow reads."""

from __future__ import annotations

from typing import Final

from dagmaster.geo.formats.driver_rules import (
    NETWORK,
    NO_FILE,
    NO_GEOMETRIES,
    REFERENCES,
    RUNS_CODE,
    WRITE_ONLY,
    DriverRule,
    FileType,
    reads,
    refused,
)

SQLITE: Final = b"SQLite format 3\0"

ARROW_FORMATS: Final[dict[str, DriverRule]] = {
    "GeoParquet": reads(".parquet", ".geoparquet", magic=b"PAR1"),
    "CSV": reads(".csv"),
}
"""Read by Arrow, without GDAL."""

VECTOR_DRIVERS: Final[dict[str, DriverRule]] = {
    # ── Read ──
    "GeoJSON": reads(".geojson", ".json"),
    "GeoJSONSeq": reads(".geojsonl", ".geojsons", ".geojsonseq", ".ndjson", ".jsonl"),
    "ESRIJSON": reads(".json"),
    "TopoJSON": reads(".json", ".topojson"),
    "JSONFG": reads(".json", ".fgjson"),
    "GPKG": reads(".gpkg", magic=SQLITE),
    "ESRI Shapefile": reads(
        FileType(suffix=".shp", required=(".shx", ".dbf"), optional=(".prj", ".cpg")), magic=b"\0\0\x27\x0a"
    ),
    "FlatGeobuf": reads(".fgb", magic=b"fgb"),
    "OpenFileGDB": reads(FileType(suffix=".gdb", markers=("a00000001.gdbtable",))),
    "LIBKML": reads(".kml", ".kmz"),
    "KML": reads(".kml"),
    # Without its .xsd: GDAL follows the includes of a schema, to other files and servers.
    "GML": reads(".gml", ".xml"),
    "GPX": reads(".gpx"),
    "MapInfo File": reads(
        FileType(suffix=".tab", required=(".dat",), optional=(".map", ".id", ".ind")),
        FileType(suffix=".mif", optional=(".mid",)),
    ),
    "SQLite": reads(".sqlite", ".db", magic=SQLITE),
    "MBTiles": reads(".mbtiles", magic=SQLITE),
    "PMTiles": reads(".pmtiles", magic=b"PMTiles"),
    "OSM": reads(".osm", ".pbf"),
    "DXF": reads(".dxf"),
    "DGN": reads(".dgn"),
    "AVCE00": reads(".e00"),
    "GeoRSS": reads(".xml", ".rss", ".georss"),
    "LVBAG": reads(".xml"),
    "MapML": reads(".mapml"),
    "JML": reads(".jml"),
    "OGR_GMT": reads(".gmt"),
    "VDV": reads(".x10"),
    "WAsP": reads(".map"),
    "Selafin": reads(".slf"),
    "Idrisi": reads(FileType(suffix=".vct", required=(".vdc",), optional=(".adc", ".avl"))),
    # The base file: its updates are separate files.
    "S57": reads(".000"),
    # Maps that GDAL places where they belong (sxf_passport.py), with the class names next to them.
    "SXF": reads(FileType(suffix=".sxf", optional=(".rsc",)), magic=b"SXF"),
    # ── Refused ──
    "CSV": refused("read by Arrow instead: GDAL takes every column for text"),
    "OGR_VRT": refused(REFERENCES, b"<OGRVRTDataSource"),
    "GDALG": refused(RUNS_CODE, b'"gdal_streamed_alg"'),
    "GPSBabel": refused(RUNS_CODE),
    "ADBC": refused(RUNS_CODE),
    "AIVector": refused(NO_FILE),
    "MEM": refused(NO_FILE),
    "Memory": refused(NO_FILE),
    "WFS": refused(NETWORK, b"<OGRWFSDataSource", b"WFS_Capabilities"),
    "OAPIF": refused(NETWORK),
    "OGCAPI": refused(NETWORK),
    "CSW": refused(NETWORK),
    "EEDA": refused(NETWORK),
    "Elasticsearch": refused(NETWORK),
    "Carto": refused(NETWORK),
    "AmigoCloud": refused(NETWORK),
    "NGW": refused(NETWORK),
    "PLSCENES": refused(NETWORK),
    "HTTP": refused(NETWORK),
    "PCIDSK": refused(REFERENCES),
    "PDS4": refused(REFERENCES, b"<Product_Observational"),
    "OGR_PDS": refused(REFERENCES),
    "EDIGEO": refused(REFERENCES),
    "MiraMonVector": refused(REFERENCES),
    "AVCBin": refused("a coverage is a directory and another one next to it"),
    "GNMFile": refused(REFERENCES),
    "GNMDatabase": refused(NETWORK),
    "MVT": refused("one tile of many, whose place is in its path"),
    "GTFS": refused("a zip archive of tables: load its stops.txt as .csv"),
    "ODS": refused(NO_GEOMETRIES),
    "XLSX": refused(NO_GEOMETRIES),
    "VICAR": refused(NO_GEOMETRIES),
    "PDF": refused(WRITE_ONLY),
    "PGDUMP": refused(WRITE_ONLY),
    "VFK": refused("writes a database next to the file"),
}
