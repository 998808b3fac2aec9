"""Values of columns come out of a table as they went into the file, on GeoParquet and on PostGIS."""

from __future__ import annotations

import datetime as dt
import json
import struct
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyogrio
import pytest
import shapely

from dagmaster.errors import PermanentError
from dagmaster.geo.vector import columns, wide_integers
from tests.conformance.table_worker import tables_at
from tests.unit.geo.vector.vector_context import FolderServices

WKB = shapely.to_wkb(shapely.Point(1, 2))
UTC = dt.UTC


@pytest.fixture(params=["parquet", pytest.param("postgis", marks=pytest.mark.process)])
def services(request: pytest.FixtureRequest, tmp_path: Path) -> FolderServices:
    place = (
        str(tmp_path / "tables") if request.param == "parquet" else str(request.getfixturevalue("postgis"))
    )
    return FolderServices(tmp_path, tables_at(place))


def geoparquet(services: FolderServices, arrays: dict[str, Any], name: str = "x.parquet") -> str:
    rows = len(next(iter(arrays.values())))
    table = pa.table({**arrays, "geometry": pa.array([WKB] * rows, pa.binary())})
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB"}}}
    path = services.folder / name
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), path)
    return str(path)


def load(services: FolderServices, href: str, **params: Any) -> tuple[dict[str, str], dict[str, list[Any]]]:
    """Load a file into a table; return the types and the values of its columns."""
    table = f"t{abs(hash(str(services.folder)))}"
    services.tables.drop(table)
    output = services.run("vector.process_complete", href=href, table=table, **params)
    types = {column["name"]: column["type"] for column in output["schema"]["columns"]}
    rows = services.tables.read(table)
    services.tables.drop(table)
    return types, {name: rows[name].to_pylist() for name in types}


EXACT = {
    "int8": (pa.array([127, -128, None], pa.int8()), "integer"),
    "uint32": (pa.array([2**32 - 1, 0, None], pa.uint32()), "integer"),
    "int64": (pa.array([2**63 - 1, -(2**63), None], pa.int64()), "integer"),
    "uint64": (pa.array([2**64 - 1, 0, None], pa.uint64()), "decimal(20,0)"),
    "float32": (pa.array([0.1, float("-inf"), None], pa.float32()), "number"),
    "money": (pa.array([Decimal("-0.10"), Decimal("12345678901234567890.12"), None], pa.decimal128(22, 2)), "decimal(22,2)"),
    "wide": (pa.array([Decimal("1" * 50 + ".5"), Decimal("-0.1"), None], pa.decimal256(60, 1)), "decimal(60,1)"),
    "yes": (pa.array([True, False, None]), "boolean"),
    "day": (pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None], pa.date32()), "date"),
    "day64": (pa.array([dt.date(1969, 12, 31), dt.date(2026, 2, 28), None], pa.date64()), "date"),
    "clock": (pa.array([dt.time(0), dt.time(23, 59, 59, 999999), None], pa.time64("us")), "time"),
    "clock32": (pa.array([dt.time(12, 30, 1), dt.time(1), None], pa.time32("ms")), "time"),
    "bytes": (pa.array([b"\0\xff'", b"", None], pa.binary()), "binary"),
    "uuid": (pa.array([b"0123456789abcdef", b"\0" * 16, None], pa.binary(16)), "binary"),
    "numbers": (pa.array([[1, None, 3], [], None], pa.list_(pa.int8())), "integer[]"),
    "words": (pa.array([["a", 'b, "c"'], [None], None], pa.large_list(pa.string())), "text[]"),
    "prices": (pa.array([[Decimal("1.10")], [], None], pa.list_(pa.decimal128(9, 2))), "decimal(9,2)[]"),
    "pair": (pa.array([[1.5, 2.5], [0.0, -1.0], None], pa.list_(pa.float64(), 2)), "number[]"),
    "days": (pa.array([[dt.date(2026, 1, 1), None], [], None], pa.list_(pa.date32())), "date[]"),
    "blobs": (pa.array([[b"\0", b""], [], None], pa.list_(pa.binary())), "binary[]"),
    "category": (pa.array(["ä", "b", None]).dictionary_encode(), "text"),
}  # fmt: skip


def test_every_exact_type_comes_out_as_it_went_in(services):
    types, values = load(services, geoparquet(services, {name: array for name, (array, _) in EXACT.items()}))
    assert types == {name: column_type for name, (_, column_type) in EXACT.items()}
    for name, (array, _) in EXACT.items():
        assert values[name] == array.to_pylist(), name


def test_nested_values_come_out_as_json_with_all_their_digits(services):
    record = pa.struct(
        [
            ("price", pa.decimal128(20, 2)),
            ("when", pa.date32()),
            ("raw", pa.binary()),
            ("list", pa.list_(pa.int64())),
        ]
    )
    arrays = {
        "record": pa.array(
            [
                {
                    "price": Decimal("123456789012345678.90"),
                    "when": dt.date(2026, 1, 1),
                    "raw": b"\0",
                    "list": [1, None],
                }
            ],
            record,
        ),
        "matrix": pa.array([[[1, 2], [3]]]),
        "lookup": pa.array([[("ä", 1), ("b", None)]], pa.map_(pa.string(), pa.int32())),
        "pairs": pa.array([[(1, "x")]], pa.map_(pa.int32(), pa.string())),
        "odd": pa.array([{"x": float("nan")}]),
    }
    types, values = load(services, geoparquet(services, arrays))
    assert set(types.values()) == {"json"}
    parsed = {name: json.loads(value[0], parse_float=Decimal) for name, value in values.items()}
    assert parsed == {
        "record": {
            "price": Decimal("123456789012345678.90"),
            "when": "2026-01-01",
            "raw": "AA==",
            "list": [1, None],
        },
        "matrix": [[1, 2], [3]],
        "lookup": {"ä": 1, "b": None},
        "pairs": [[1, "x"]],
        "odd": {"x": "nan"},
    }


def test_columns_of_a_geopackage_come_out_as_they_went_in(services):
    path = services.folder / "x.gpkg"
    arrays = {
        "small": pa.array([-32768, None], pa.int16()),
        "yes": pa.array([True, None]),
        "day": pa.array([dt.date(2026, 2, 28), None], pa.date32()),
        "at": pa.array([dt.datetime(2026, 1, 1, 12, tzinfo=UTC), None], pa.timestamp("ms", tz="UTC")),
        "bytes": pa.array([b"\0\xff", None], pa.binary()),
        "geom": pa.array([WKB, WKB], pa.binary()),
    }
    pyogrio.raw.write_arrow(
        pa.table(arrays), path, geometry_name="geom", geometry_type="Point", crs="EPSG:4326"
    )
    types, values = load(services, str(path))
    assert types == {
        "small": "integer",
        "yes": "boolean",
        "day": "date",
        "at": "timestamp",
        "bytes": "binary",
    }
    assert values == {name: array.to_pylist() for name, array in arrays.items() if name != "geom"}


def test_lists_and_objects_of_a_geojson_come_out_as_they_went_in(services):
    properties = {"n": [1, 2], "t": ["a", "b"], "o": {"k": [1, {"x": None}]}, "time": "12:30:00"}
    feature = {
        "type": "Feature",
        "properties": properties,
        "geometry": {"type": "Point", "coordinates": [1, 2]},
    }
    types, values = load(
        services, services.put("x.geojson", {"type": "FeatureCollection", "features": [feature]})
    )
    assert types == {"n": "integer[]", "t": "text[]", "o": "json", "time": "time"}
    assert (values["n"], values["t"], json.loads(values["o"][0])) == (
        [[1, 2]],
        [["a", "b"]],
        {"k": [1, {"x": None}]},
    )
    assert values["time"] == [dt.time(12, 30)]


def test_nanoseconds_that_a_table_cannot_hold_are_counted(services):
    arrays = {
        "at": pa.array([1_000, 1_001, None], pa.timestamp("ns")),
        "t": pa.array([1, 0, 0], pa.time64("ns")),
    }
    href = geoparquet(services, arrays)
    assert services.run("vector.prepare", href=href)["counts"]["nanoseconds_dropped"] == 2


def test_decimals_are_summed_exactly(services):
    arrays = {
        "by": [["a"], ["a"], ["b"]],
        "price": pa.array([Decimal("0.10"), Decimal("0.20"), None], pa.decimal128(3, 2)),
    }
    output = services.run("vector.dissolve", href=geoparquet(services, arrays), by=["by"], sums=["price"])
    rows = pq.read_table(output["href"].removeprefix("file://"))
    assert rows["by"].to_pylist() == [["a"], ["b"]]
    assert rows["sum_price"].to_pylist() == [Decimal("0.30"), Decimal("0.00")]


def test_a_sum_beyond_64_bits_is_refused(services):
    href = geoparquet(services, {"n": pa.array([2**63 - 1, 1])})
    with pytest.raises(PermanentError, match="the sum of the column 'n' is beyond what integer can hold"):
        services.run("vector.dissolve", href=href, sums=["n"])


@pytest.mark.parametrize(
    ("array", "column_type", "values"),
    [
        (pa.array([Decimal("1E+3")], pa.decimal128(5, -2)), "decimal(7,0)", [Decimal(1000)]),
        (pa.array([[1, 2], None, [3]], pa.list_view(pa.int16())), "integer[]", [[1, 2], None, [3]]),
        (pa.array([[9], [1, None], None], pa.list_(pa.int8())).slice(1), "integer[]", [[1, None], None]),
        (pa.compute.run_end_encode(pa.array([1, 1, 2])), "integer", [1, 1, 2]),
        (pa.array(["a", None], pa.string_view()), "text", ["a", None]),
        (pa.nulls(2), "text", [None, None]),
    ],
)
def test_unusual_arrow_types_keep_their_values(array, column_type, values):
    assert columns.column_type(array.type) == column_type
    assert columns.convert_column(array, column_type, "x", 0).to_pylist() == values


def write_geojson(services: FolderServices, *rows: dict[str, Any]) -> str:
    geometry = {"type": "Point", "coordinates": [1, 2]}
    features = [{"type": "Feature", "properties": row, "geometry": geometry} for row in rows]
    path = services.folder / "x.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return str(path)


def test_an_integer_of_geojson_beyond_64_bits_is_text_and_the_output_says_so(services: FolderServices):
    note = f'a text with {2**64} and a "quote\\'
    href = write_geojson(
        services,
        {
            "s2": 2**64 - 1,
            "ids": [-(2**63) - 1, 5],
            "nested": {"n": 10**30},
            "largest": 2**63 - 1,
            "note": note,
        },
        {"s2": 7, "ids": [1], "nested": {"n": 1}, "largest": 1 - 10**18, "note": ""},
    )
    original = Path(href).read_bytes()
    types, values = load(services, href)
    assert values["s2"] == [str(2**64 - 1), "7"]
    assert [json.loads(text) for text in values["ids"]] == [[str(-(2**63) - 1), 5], [1]]
    assert [json.loads(text) for text in values["nested"]] == [{"n": str(10**30)}, {"n": 1}]
    assert (types["largest"], values["largest"]) == ("integer", [2**63 - 1, 1 - 10**18])
    assert values["note"] == [note, ""]
    assert services.run("vector.prepare", href=href)["counts"]["integers_as_text"] == 3
    assert Path(href).read_bytes() == original


@pytest.mark.parametrize("chunk_bytes", [1, 7, 19, 64])
def test_integers_are_recognised_wherever_a_read_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
):
    monkeypatch.setattr(wide_integers, "_CHUNK_BYTES", chunk_bytes)
    path = tmp_path / "x.json"
    texts = ["12345678901234567890", 'a "quote" and a \\', "\\"]
    numbers = [2**63, 2**63 - 1, -(10**18), 1 - 10**18, 1.5e300, 0.12345678901234567, 10**5000]
    path.write_text(
        f'{{"texts": {json.dumps(texts)}, "n": [{", ".join(map(write_number, numbers))}], "e": 1e-1234567890123456789}}'
    )
    assert wide_integers.quote_wide_integers(path) == 3
    content = json.loads(path.read_text())
    assert content["texts"] == texts
    quoted = [
        write_number(number) if number in (2**63, -(10**18), 10**5000) else number for number in numbers
    ]
    assert content["n"] == quoted


def write_number(number: float) -> str:
    return "1" + "0" * 5000 if number == 10**5000 else repr(number)


def flatgeobuf_with_bytes(values: list[int]) -> bytes:
    """Return a FlatGeobuf file with a column of signed bytes, which GDAL does not write.

    It is made of one that GDAL wrote with a column of two bytes: the type in the header, and each value.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.fgb")
        points = np.array([WKB] * len(values), dtype=object)
        numbers = [np.full(len(values), 0x0101, dtype="int16")]
        pyogrio.raw.write(
            path, points, numbers, ["n"], geometry_type="Point", crs="EPSG:4326", driver="FlatGeobuf", SPATIAL_INDEX="NO"
        )  # fmt: skip
        data = bytearray(path.read_bytes())
    (header_size,) = struct.unpack_from("<I", data, 8)
    # A column: its type (3: short, 0: byte), then the offset and the text of its name.
    at = data.index(b"n\0", 12, 12 + header_size)
    kind = data.rindex(3, 12, at)
    data[kind] = 0
    head, tail = bytes(data[: 12 + header_size]), bytes(data[12 + header_size :])
    for value in values:
        # The length of a feature's properties, the number of its column, and the value.
        tail = tail.replace(bytes.fromhex("0400000000000101"), bytes([3, 0, 0, 0, 0, 0, value % 256, 0]), 1)
    return head + tail


def test_signed_bytes_of_flatgeobuf_stay_signed(services: FolderServices):
    values = [-1, 0, 127, -128]
    (services.folder / "x.fgb").write_bytes(flatgeobuf_with_bytes(values))
    types, columns_read = load(services, str(services.folder / "x.fgb"))
    assert (types["n"], columns_read["n"]) == ("integer", values)
