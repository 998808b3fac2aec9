"""Encode Arrow rows as PostgreSQL's binary COPY: column by column, then interleaved into rows, in chunks."""

from __future__ import annotations

import struct
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagmaster.errors import PermanentError
from dagmaster.ports.table_schemas import ColumnType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from decimal import Decimal

    from dagmaster.ports.table_schemas import TableSpec

HEADER: Final = b"PGCOPY\n\xff\r\n\x00" + struct.pack(">ii", 0, 0)
TRAILER: Final = struct.pack(">h", -1)
NULL: Final = struct.pack(">i", -1)
MAX_BATCH_ROWS: Final = 4096
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Limits of the encoded rows in memory, in addition to the rows themselves."""

_HAS_SRID: Final = 0x20000000
_WKB_HEADER_BYTES: Final = 5
"""The byte order and the type."""
_NEGATIVE: Final = 0x4000
_ELEMENT_OIDS: Final = {
    "text": 25, "integer": 20, "number": 701, "boolean": 16, "date": 1082, "time": 1083, "timestamp": 1184,
    "binary": 17, "decimal": 1700,
}  # fmt: skip
"""Of the built-in types: the same in every PostgreSQL."""
_FROM_2000_DAYS: Final = 10_957
_FROM_2000_MICROSECONDS: Final = _FROM_2000_DAYS * 86_400_000_000


def encode_copy(rows: pa.Table, spec: TableSpec, chunk: str) -> Iterator[bytes]:
    """Yield the COPY stream of these rows, each with its chunk name last."""
    count = rows.num_columns + 1
    start = struct.pack(">h", count)
    last = _field(chunk.encode())
    yield HEADER
    for batch in rows.to_batches(max_chunksize=_batch_rows(rows)):
        columns: list[Any] = []
        for field, column in zip(batch.schema, batch.columns, strict=True):
            kind = spec.columns.get(field.name, "")
            if field.name == spec.geometry_column:
                columns.append(_encode_geometries(column, spec.srid))
            else:
                columns.append(_encode_column(column, kind))
        yield b"".join(
            chain.from_iterable(zip(repeat(start), *columns, repeat(last, batch.num_rows), strict=False))
        )
    yield TRAILER


def _batch_rows(rows: pa.Table) -> int:
    row_bytes = max(rows.nbytes // max(rows.num_rows, 1), 1)
    return int(max(1, min(MAX_BATCH_ROWS, MAX_BATCH_BYTES // row_bytes)))


def _field(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _encode_geometries(column: pa.Array, srid: int) -> list[bytes]:
    """Convert WKB to EWKB: the SRID follows the type. EWKB is passed through."""
    tail = struct.pack("<I", srid), struct.pack(">I", srid)
    heads: dict[bytes, bytes | None] = {}
    pack = struct.Struct(">i").pack
    fields = []
    for wkb in column.to_pylist():
        if wkb is None:
            fields.append(NULL)
            continue
        head = wkb[:_WKB_HEADER_BYTES]
        if head not in heads:
            heads[head] = _with_srid(head, tail)
        extended = heads[head]
        if extended is None:
            fields += [pack(len(wkb)) + wkb]
        else:
            fields.append(b"".join((pack(len(wkb) + 4), extended, wkb[_WKB_HEADER_BYTES:])))
    return fields


def _with_srid(head: bytes, tail: tuple[bytes, bytes]) -> bytes | None:
    if len(head) < _WKB_HEADER_BYTES or head[0] > 1:
        raise PermanentError("a geometry is not WKB: it has no type", kind="invalid_input")
    order = "<" if head[0] else ">"
    (kind,) = struct.unpack(f"{order}I", head[1:])
    if kind & _HAS_SRID:
        return None
    return head[:1] + struct.pack(f"{order}I", kind | _HAS_SRID) + tail[0 if head[0] else 1]


def _encode_column(column: pa.Array, kind: str) -> Sequence[bytes]:
    column_type = ColumnType.parse(kind)
    if column_type is None:
        raise PermanentError(f"there is no column type {kind!r}", kind="invalid_input")
    encode = _encode_lists if column_type.is_list else _encode_scalars
    return encode(column, column_type.name)


def _encode_lists(column: pa.ListArray, name: str) -> list[bytes]:
    elements = _encode_scalars(column.flatten(), name)
    fields, start = [], 0
    for length in column.value_lengths().to_pylist():
        if length is None:
            fields.append(NULL)
            continue
        part = elements[start : start + length]
        start += length
        head = struct.pack(">iii", 1 if length else 0, int(NULL in part), _ELEMENT_OIDS[name])
        dimension = struct.pack(">ii", length, 1) if length else b""
        fields.append(_field(b"".join((head, dimension, *part))))
    return fields


def _encode_scalars(column: pa.Array, name: str) -> Sequence[bytes]:
    match name:
        case "text" | "binary":
            return [
                NULL if value is None else _field(value) for value in column.cast(pa.binary()).to_pylist()
            ]
        case "json":
            return [
                NULL if value is None else _field(b"\x01" + value)
                for value in column.cast(pa.binary()).to_pylist()
            ]
        case "decimal":
            return [
                NULL if value is None else _field(_encode_numeric(value, column.type.scale))
                for value in column.to_pylist()
            ]
        case "boolean":
            return _encode_fixed(column, pa.uint8(), ">u1")
        case "integer" | "time":
            return _encode_fixed(column, pa.int64(), ">i8")
        case "number":
            return _encode_fixed(column, pa.float64(), ">f8")
        case "date":
            return _encode_fixed(column, pa.int32(), ">i4", epoch=_FROM_2000_DAYS)
        case "timestamp":
            return _encode_fixed(column, pa.int64(), ">i8", epoch=_FROM_2000_MICROSECONDS)
    raise PermanentError(f"there is no column type {name!r}", kind="invalid_input")


def _encode_numeric(value: Decimal, scale: int) -> bytes:
    """Encode a decimal with digits of base 10,000, aligned to the decimal point, the first one first."""
    is_negative, digits, _ = value.as_tuple()
    padding = -scale % 4
    rest = int("".join(map(str, digits))) * 10**padding
    groups = []
    while rest:
        rest, group = divmod(rest, 10_000)
        groups.append(group)
    weight = len(groups) - (scale + padding) // 4 - 1 if groups else 0
    sign = _NEGATIVE if is_negative and groups else 0
    return struct.pack(f">hhHh{len(groups)}H", len(groups), weight, sign, scale, *reversed(groups))


def _encode_fixed(column: pa.Array, as_type: pa.DataType, code: str, epoch: int = 0) -> Sequence[bytes]:
    """Encode fixed-length fields at once."""
    values = pc.fill_null(column.cast(as_type), pa.scalar(epoch, as_type) if epoch else pa.scalar(0, as_type))
    numbers = values.to_numpy(zero_copy_only=False)
    records = np.empty(len(numbers), dtype=[("length", ">i4"), ("value", code)])
    records["length"] = records.dtype["value"].itemsize
    records["value"] = numbers - epoch if epoch else numbers
    data, size = records.tobytes(), records.dtype.itemsize
    fields = [data[at : at + size] for at in range(0, len(data), size)]
    if column.null_count:
        for at in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            fields[at] = NULL
    return fields
