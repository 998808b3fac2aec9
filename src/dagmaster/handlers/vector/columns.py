"""Column names and types that every table supports."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dagmaster.errors import invalid_input
from dagmaster.ports.tables import CHUNK_COLUMN, MAX_IDENTIFIER, SYSTEM_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

GEOMETRY: Final = "geometry"
MAX_COLUMNS: Final = 10_000
MAX_EXACT_INTEGER: Final = 2**53
"""Larger integers are not exact as doubles."""
MAX_EXACT_DIGITS: Final = 15

_RESERVED: Final = (GEOMETRY, CHUNK_COLUMN, *SYSTEM_COLUMNS)


def unique_column_names(names: Sequence[str]) -> list[str]:
    """Convert names to lower case a-z, digits and '_'. Names that become equal get a number, in order."""
    if len(names) > MAX_COLUMNS:
        raise invalid_input(f"the file has {len(names):,} columns: at most {MAX_COLUMNS:,} are allowed")
    candidates = [safe_column_name(name) for name in names]
    unique_names: list[str] = []
    # A name that is already safe keeps it, whatever precedes it.
    kept = {name for name, candidate in zip(names, candidates, strict=True) if name == candidate}
    taken: set[str] = set()
    for name, candidate in zip(names, candidates, strict=True):
        unique, number = candidate, 1
        while unique in taken or (unique in kept and unique != name):
            number += 1
            suffix = f"_{number}"
            unique = f"{candidate[: MAX_IDENTIFIER - len(suffix)]}{suffix}"
        taken.add(unique)
        unique_names.append(unique)
    return unique_names


def safe_column_name(name: str) -> str:
    """Convert one name, without regard to others."""
    text = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    text = re.sub(r"[^a-z0-9]+", "_", text).strip("_")[: MAX_IDENTIFIER - 1].rstrip("_") or "column"
    text = f"_{text}" if text[0].isdigit() else text
    return f"{text}_" if text in _RESERVED else text


def column_type(arrow_type: pa.DataType) -> str:
    """Return the table type of an Arrow column."""
    if isinstance(arrow_type, pa.BaseExtensionType):
        return "json" if arrow_type.extension_name == "arrow.json" else column_type(arrow_type.storage_type)
    if pa.types.is_dictionary(arrow_type):
        return column_type(arrow_type.value_type)
    if pa.types.is_decimal(arrow_type):
        return "number" if arrow_type.precision <= MAX_EXACT_DIGITS else "text"
    if pa.types.is_nested(arrow_type):
        return "json"
    checks = (
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_integer, "integer"),
        (pa.types.is_floating, "number"),
        (pa.types.is_date, "date"),
        (pa.types.is_timestamp, "timestamp"),
    )
    return next((name for check, name in checks if check(arrow_type)), "text")


def convert_column(column: pa.Array, table_type: str, name: str, row: int) -> pa.Array:
    """Convert the values of a column to a table type. `row` is the index of the first feature."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    try:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        match table_type:
            case "json":
                return pa.array(
                    [None if value is None else _to_json(value) for value in column.to_pylist()], pa.string()
                )
            case "text":
                return _to_text(column)
            case "integer":
                return column.cast(pa.int64())
            case "number":
                return column.cast(pa.float64())
            case "date":
                return column.cast(pa.date32())
            case "timestamp":
                return _to_utc(column)
        return column.cast(pa.bool_())
    except UnicodeDecodeError as error:
        raise _not_utf8(name, row) from error
    except pa.ArrowException as error:
        if "UTF8" in str(error) or "utf8" in str(error):
            raise _not_utf8(name, row) from error
        problem = (
            "contains integers beyond 64 bits: convert it to text first"
            if table_type == "integer"
            else str(error)[:200]
        )
        raise invalid_input(f"the column {name!r} {problem} (from feature {row + 1:,} on)") from error


def count_doubtful_integers(column: pa.Array) -> int:
    """Count the integers in a column of doubles that may have lost digits."""
    values = column.drop_null()
    is_large = pc.and_(pc.greater_equal(pc.abs(values), float(MAX_EXACT_INTEGER)), pc.is_finite(values))
    return int(pc.sum(pc.cast(is_large, pa.int64())).as_py() or 0)


def _not_utf8(name: str, row: int) -> Exception:
    return invalid_input(
        f"the column {name!r} is not UTF-8 (from feature {row + 1:,} on): set `encoding`, as ISO-8859-1"
    )


def _to_text(column: pa.Array) -> pa.Array:
    if (
        pa.types.is_binary(column.type)
        or pa.types.is_large_binary(column.type)
        or pa.types.is_fixed_size_binary(column.type)
    ):
        return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        # GDAL passes text through unchecked, and a cast to the same type does not validate it.
        column.validate(full=True)
        return column.cast(pa.string())
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.string())
    return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())


def _to_json(value: Any) -> str:
    """Return JSON text. GDAL delivers objects and lists as JSON, and plain text among them as it is."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return json.dumps(value, ensure_ascii=False)
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _to_utc(column: pa.Array) -> pa.Array:
    # A time without a zone is UTC.
    return column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.timestamp("us", tz="UTC"))
