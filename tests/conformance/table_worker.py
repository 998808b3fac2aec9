"""A process that uploads chunks as it is told, and can be killed in the middle of one.

python -m tests.conformance.table_worker PLACE TABLE ROUNDS CHUNK…    uploads each chunk, ROUNDS times
python -m tests.conformance.table_worker PLACE TABLE halfway CHUNK    says `half` in the middle, and waits for a line
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import shapely

from dagmaster.geo.rules import arrow_features
from dagmaster.geo.tables import postgis_tables, postgres_copy
from dagmaster.geo.tables.parquet_tables import ParquetTables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.ports.tables import Tables

ROWS = 40


def tables_at(place: str) -> Tables:
    """Return the adapter for a place."""
    return postgis_tables.PostgisTables(place) if "://" in place else ParquetTables(Path(place))


def rows_of(chunk: str, count: int = ROWS) -> pa.Table:
    """Return the rows of a chunk; every row names its chunk."""
    points = [shapely.to_wkb(shapely.Point(number, number / 2)) for number in range(count)]
    names = pa.array([f"{chunk}/{number}" for number in range(count)], pa.string())
    return pa.table({"name": names, "geometry": pa.array(points, pa.binary())})


def halfway() -> None:
    """Stop in the middle of the next chunk until a line comes: after half of a COPY, or before a file is moved."""

    def wait() -> None:
        print("half", flush=True)  # noqa: T201 - its output is its report
        sys.stdin.readline()

    whole = postgres_copy.encode_copy

    def halted(*arguments: Any) -> Iterator[bytes]:
        chunks = list(whole(*arguments))
        assert len(chunks) > 2
        half = len(chunks) // 2 + 1
        yield from chunks[:half]
        wait()
        yield from chunks[half:]

    vars(postgis_tables)["encode_copy"] = halted
    written = arrow_features.write_geoparquet

    def unmoved(*arguments: Any) -> Any:
        done = written(*arguments)
        wait()
        return done

    vars(arrow_features)["write_geoparquet"] = unmoved


def main(place: str, table: str, rounds: str, *chunks: str) -> None:
    """Upload."""
    tables = tables_at(place)
    if rounds == "halfway":
        halfway()
    for _ in range(1 if rounds == "halfway" else int(rounds)):
        for chunk in chunks:
            tables.replace_chunk(table, chunk, rows_of(chunk, 20_000 if rounds == "halfway" else ROWS))


if __name__ == "__main__":
    main(*sys.argv[1:])
