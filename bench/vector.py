"""Features into PostGIS: 100,000 polygons through the port, and as a bare binary COPY of the same EWKB.

Both begin with EWKB in memory and end when the transaction is committed. Both tables have a spatial index;
the port also maintains the column and index of chunks, deletes the chunk's old rows, takes locks and inspects
the table. Rounds alternate.
"""

from __future__ import annotations

import gc
import statistics
import struct
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pyarrow as pa
import shapely

from bench.rows import Row
from dagmaster.geo.tables.postgis_tables import PostgisTables
from dagmaster.ports.table_schemas import TableSpec
from tests.conformance.postgis import MISSING, PROGRAMS, postgis_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COUNT = 100_000
ROUNDS = 7
RATIO = 1.2


def measure() -> Iterator[Row]:
    """Measure the port and a bare COPY in alternation."""
    if PROGRAMS is None:
        print(f"not measured: {MISSING}")
        return
    ewkb = _polygons()
    rows = pa.table({"id": pa.array(range(COUNT)), "geometry": pa.array(ewkb, pa.binary())})
    with postgis_server() as url:
        tables = PostgisTables(url)
        first, replaced, bare, unindexed = [], [], [], []
        for _ in range(ROUNDS):
            tables.create(TableSpec(name="ours", columns={"id": "integer"}, geometry_type="Polygon"))
            first.append(_elapsed(lambda: tables.replace_chunk("ours", "c00001", rows)))
            bare.append(_elapsed(_bare(url, ewkb, index=True)))
            replaced.append(_elapsed(lambda: tables.replace_chunk("ours", "c00001", rows)))
            unindexed.append(_elapsed(_bare(url, ewkb, index=False)))
            info = tables.describe("ours")
            assert info is not None
            assert info.rows == COUNT
            tables.drop("ours")
    floor = statistics.median(bare)
    # Per round: the machine may be slower in one round than in another.
    ratio = statistics.median(port / copy for port, copy in zip(first, bare, strict=True))
    yield Row("100,000 polygons, a bare binary COPY", floor, "s")
    yield Row("100,000 polygons, the same without a spatial index", statistics.median(unindexed), "s")
    yield Row("100,000 polygons to PostGIS, a chunk", statistics.median(first), "s", floor=floor)
    yield Row("100,000 polygons to PostGIS, the chunk again", statistics.median(replaced), "s", floor=floor)
    yield Row("100,000 polygons to PostGIS, to a bare COPY", ratio, "x", at_most=RATIO)


def _polygons() -> list[bytes]:
    """Return circles of 33 points at random places, as EWKB."""
    generator = np.random.default_rng(5)
    places = shapely.points(generator.uniform((-170, -80), (170, 80), (COUNT, 2)))
    shapes = shapely.set_srid(shapely.buffer(places, 0.1, quad_segs=8), 4326)
    ewkb: list[bytes] = shapely.to_wkb(shapes, include_srid=True).tolist()
    return ewkb


def _bare(url: str, ewkb: list[bytes], *, index: bool) -> Callable[[], None]:
    """Return a function that copies the polygons into a new table with a hand-written COPY."""
    with psycopg.connect(url) as connection:
        connection.execute("DROP TABLE IF EXISTS bare")
        connection.execute("CREATE TABLE bare (id bigint, geometry geometry(Polygon, 4326))")
        if index:
            connection.execute("CREATE INDEX ON bare USING gist (geometry)")

    def copy() -> None:
        pack = struct.Struct(">hiqi").pack
        command = "COPY bare (id, geometry) FROM STDIN (FORMAT binary)"
        with (
            psycopg.connect(url) as connection,
            connection.cursor() as cursor,
            cursor.copy(command) as stream,
        ):
            stream.write(b"PGCOPY\n\xff\r\n\x00" + struct.pack(">ii", 0, 0))
            for start in range(0, COUNT, 4096):
                batch: list[bytes] = []
                for number, polygon in enumerate(ewkb[start : start + 4096], start):
                    batch += (pack(2, 8, number, len(polygon)), polygon)
                stream.write(b"".join(batch))
            stream.write(struct.pack(">h", -1))

    return copy


def _elapsed(work: Callable[[], Any]) -> float:
    gc.collect()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
