"""Columns as every table can have them: plain names, few types."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dagmaster.handlers.vector.dataset_files import invalid
from dagmaster.ports.tables import CHUNK_COLUMN, MAX_IDENTIFIER, SYSTEM_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Sequence

GEOMETRY: Final = "geometry"
MAX_COLUMNS: Final = 10_000
SAFE_INTEGER: Final = 2**53
"""Beyond it, a double skips whole numbers."""
SAFE_DIGITS: Final = 15

_TAKEN: Final = (GEOMETRY, CHUNK_COLUMN, *SYSTEM_COLUMNS)


def plain_names(names: Sequence[str]) -> list[str]:
    """Lower case, a-z, digits and '_'. Names that become the same get a number, in their order."""
    if len(names) > MAX_COLUMNS:
        raise invalid(f"the file has {len(names):,} columns: at most {MAX_COLUMNS:,} are taken")
    wished = [plain_column(name) for name in names]
    given: list[str] = []
    # A name that was plain from the beginning keeps it, whatever comes before it.
    kept = {name for name, wish in zip(names, wished, strict=True) if name == wish}
    taken: set[str] = set()
    for name, wish in zip(names, wished, strict=True):
        one, number = wish, 1
        while one in taken or (one in kept and one != name):
            number += 1
            tail = f"_{number}"
            one = f"{wish[: MAX_IDENTIFIER - len(tail)]}{tail}"
        taken.add(one)
        given.append(one)
    return given


def plain_column(name: str) -> str:
    """One name, without a look at the others."""
    text = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    text = re.sub(r"[^a-z0-9]+", "_", text).strip("_")[: MAX_IDENTIFIER - 1].rstrip("_") or "column"
    text = f"_{text}" if text[0].isdigit() else text
    return f"{text}_" if text in _TAKEN else text


def kind_of(type_: pa.DataType) -> str:
    """Which of the tables' types a column of Arrow has."""
    if isinstance(type_, pa.BaseExtensionType):
        return "json" if type_.extension_name == "arrow.json" else kind_of(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return kind_of(type_.value_type)
    if pa.types.is_decimal(type_):
        return "number" if type_.precision <= SAFE_DIGITS else "text"
    if pa.types.is_nested(type_):
        return "json"
    checks = (
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_integer, "integer"),
        (pa.types.is_floating, "number"),
        (pa.types.is_date, "date"),
        (pa.types.is_timestamp, "timestamp"),
    )
    return next((kind for check, kind in checks if check(type_)), "text")


def converted(column: pa.Array, kind: str, name: str, row: int) -> pa.Array:
    """The values of a column in the type of the table's. `row` is the first one's."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    try:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        match kind:
            case "json":
                return pa.array([None if one is None else _json(one) for one in column.to_pylist()], pa.string())
            case "text":
                return _text(column)
            case "integer":
                return column.cast(pa.int64())
            case "number":
                return column.cast(pa.float64())
            case "date":
                return column.cast(pa.date32())
            case "timestamp":
                return _moments(column)
        return column.cast(pa.bool_())
    except UnicodeDecodeError as error:
        raise _not_utf8(name, row) from error
    except pa.ArrowException as error:
        if "UTF8" in str(error) or "utf8" in str(error):
            raise _not_utf8(name, row) from error
        said = "holds whole numbers beyond 64 bits: make it text first" if kind == "integer" else str(error)[:200]
        raise invalid(f"the column {name!r} {said} (from feature {row + 1:,} on)") from error


def lost_digits(column: pa.Array) -> int:
    """How many whole numbers of a column of doubles may have been longer than a double is."""
    values = column.drop_null()
    large = pc.and_(pc.greater_equal(pc.abs(values), float(SAFE_INTEGER)), pc.is_finite(values))
    return int(pc.sum(pc.cast(large, pa.int64())).as_py() or 0)


def _not_utf8(name: str, row: int) -> Exception:
    return invalid(f"the column {name!r} is not UTF-8 (from feature {row + 1:,} on): say its `encoding`, as ISO-8859-1")


def _text(column: pa.Array) -> pa.Array:
    if (
        pa.types.is_binary(column.type)
        or pa.types.is_large_binary(column.type)
        or pa.types.is_fixed_size_binary(column.type)
    ):
        return pa.array([None if one is None else one.hex() for one in column.to_pylist()], pa.string())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        # GDAL hands over what it found. A cast to the same type would not look.
        column.validate(full=True)
        return column.cast(pa.string())
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.string())
    return pa.array([None if one is None else str(one) for one in column.to_pylist()], pa.string())


def _json(value: Any) -> str:
    """JSON as text. GDAL gives objects and lists as JSON, and plain text beside them as it is."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return json.dumps(value, ensure_ascii=False)
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _moments(column: pa.Array) -> pa.Array:
    # A time without a zone is taken as UTC.
    return column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.timestamp("us", tz="UTC"))
