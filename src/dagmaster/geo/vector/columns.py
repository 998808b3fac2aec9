"""Column names and types that every table supports."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import re
import unicodedata
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dagmaster.errors import invalid_input
from dagmaster.geo.rules import arrow_features
from dagmaster.ports.table_schemas import CHUNK_COLUMN, MAX_DECIMAL_DIGITS, MAX_IDENTIFIER, SYSTEM_COLUMNS
from dagmaster.text_format import format_count, library_words

if TYPE_CHECKING:
    from collections.abc import Sequence

GEOMETRY: Final = "geometry"
MAX_COLUMNS: Final = 10_000
MAX_EXACT_INTEGER: Final = 2**53
"""Larger integers are not exact as doubles."""
_NANOSECONDS: Final = 1_000
"""Per microsecond, the smallest unit of a table."""

_RESERVED: Final = (GEOMETRY, CHUNK_COLUMN, *SYSTEM_COLUMNS)


def unique_column_names(names: Sequence[str]) -> list[str]:
    """Convert names to lower case a-z, digits and '_'. Names that become equal get a number, in order."""
    if len(names) > MAX_COLUMNS:
        raise invalid_input(
            f"the file has {format_count(len(names), 'column')}: at most {MAX_COLUMNS:,} are allowed. Leave"
            " some out"
        )
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
    """Return the table type of an Arrow column. The values of the column are values of that type, exactly."""
    types = pa.types
    if isinstance(arrow_type, pa.BaseExtensionType):
        return "json" if arrow_type.extension_name == "arrow.json" else column_type(arrow_type.storage_type)
    if types.is_dictionary(arrow_type) or types.is_run_end_encoded(arrow_type):
        return column_type(arrow_type.value_type)
    if types.is_decimal(arrow_type):
        return _decimal_type(arrow_type)
    if _is_list(arrow_type):
        element = column_type(arrow_type.value_type)
        return "json" if element == "json" or element.endswith("[]") else f"{element}[]"
    if types.is_nested(arrow_type):
        return "json"
    if types.is_uint64(arrow_type):
        # Half of its values are beyond a signed integer.
        return "decimal(20,0)"
    checks = (
        (types.is_boolean, "boolean"),
        (types.is_integer, "integer"),
        (types.is_floating, "number"),
        (types.is_date, "date"),
        (types.is_time, "time"),
        (types.is_timestamp, "timestamp"),
        (_is_binary, "binary"),
    )
    return next((name for check, name in checks if check(arrow_type)), "text")


def _decimal_type(arrow_type: pa.DataType) -> str:
    precision, scale = arrow_type.precision, arrow_type.scale
    if scale < 0:
        # Zeros before the decimal point.
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    return f"decimal({precision},{scale})" if precision <= MAX_DECIMAL_DIGITS else "text"


def convert_column(column: pa.Array, table_type: str, name: str, row: int) -> pa.Array:
    """Convert the values of a column to a table type. `row` is the index of the first feature."""
    try:
        return _convert(_plain(column), table_type)
    except UnicodeDecodeError as error:
        raise _not_utf8(name, row) from error
    except pa.ArrowException as error:
        if "utf8" in str(error).lower():
            raise _not_utf8(name, row) from error
        raise invalid_input(
            f"the column {name!r} has a value that is not a valid {table_type} (from feature {row + 1:,}"
            f" on): correct it, or leave the column out{library_words('Arrow', error)}"
        ) from error


def _plain(column: pa.Array) -> pa.Array:
    """Return the values without what wraps them: extension types, dictionaries, runs."""
    if isinstance(column, pa.ExtensionArray):
        return _plain(column.storage)
    if pa.types.is_dictionary(column.type):
        return _plain(column.dictionary_decode())
    if pa.types.is_run_end_encoded(column.type):
        return _plain(pc.run_end_decode(column))
    return column


def _convert(column: pa.Array, table_type: str) -> pa.Array:
    if table_type.endswith("[]"):
        return _convert_lists(column, table_type.removesuffix("[]"))
    match table_type:
        case "json":
            maps_as = "strict" if _has_text_keys(column.type) else None
            values = column.to_pylist(maps_as_pydicts=maps_as)
            return pa.array([None if value is None else _to_json(value) for value in values], pa.string())
        case "text":
            return _to_text(column)
        case "timestamp":
            return _to_utc(column)
        case "time":
            return column.cast(pa.time64("us"), safe=False)
    return column.cast(arrow_features.arrow_type(table_type))


def _convert_lists(column: pa.Array, element_type: str) -> pa.ListArray:
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        # Not a cast: that of list views mixes up their elements (pyarrow 26).
        column = pa.array(column.to_pylist(), pa.list_(column.type.value_type))
    lengths = pc.fill_null(column.value_lengths(), 0).cast(pa.int32())
    offsets = pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int32()), lengths]))
    elements = _convert(_plain(column.flatten()), element_type)
    return pa.ListArray.from_arrays(offsets, elements, mask=column.is_null())


def count_losses(column: pa.Array, converted: pa.Array) -> Counter[str]:
    """Count the values of a converted column that are not, or may not be, what they were."""
    losses: Counter[str] = Counter()
    if pa.types.is_float64(converted.type):
        values = converted.drop_null()
        is_large = pc.and_(pc.greater_equal(pc.abs(values), float(MAX_EXACT_INTEGER)), pc.is_finite(values))
        losses["digits_in_doubt"] = _count(is_large)
    column = _plain(column)
    if getattr(column.type, "unit", None) == "ns" and not pa.types.is_duration(column.type):
        nanoseconds = column.cast(pa.int64())
        whole = pc.multiply(pc.divide(nanoseconds, _NANOSECONDS), _NANOSECONDS)
        losses["nanoseconds_dropped"] = _count(pc.not_equal(nanoseconds, whole))
    return losses


def _count(is_counted: pa.Array) -> int:
    return int(pc.sum(is_counted.cast(pa.int64())).as_py() or 0)


def _not_utf8(name: str, row: int) -> Exception:
    return invalid_input(
        f"the column {name!r} is not UTF-8 (from feature {row + 1:,} on): set `encoding`, such as ISO-8859-1"
    )


def _is_list(arrow_type: pa.DataType) -> bool:
    types = pa.types
    checks = (
        types.is_list,
        types.is_large_list,
        types.is_fixed_size_list,
        types.is_list_view,
        types.is_large_list_view,
    )
    return any(check(arrow_type) for check in checks)


def _is_binary(arrow_type: pa.DataType) -> bool:
    types = pa.types
    checks = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    return any(check(arrow_type) for check in checks)


def _has_text_keys(arrow_type: pa.DataType) -> bool:
    """Return whether all maps in a nested type have text keys and so become objects, not lists of pairs."""
    if pa.types.is_map(arrow_type):
        return pa.types.is_string(arrow_type.key_type) and _has_text_keys(arrow_type.item_type)
    return all(_has_text_keys(arrow_type.field(index).type) for index in range(arrow_type.num_fields))


def _to_text(column: pa.Array) -> pa.Array:
    arrow_type = column.type
    if any(
        check(arrow_type) for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    ):
        # GDAL passes text through unchecked, and a cast to the same type does not validate it.
        column.validate(full=True)
        return column.cast(pa.string())
    if pa.types.is_null(arrow_type):
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
    return _encode_json(value)


def _encode_json(value: Any) -> str:
    """Encode a value as JSON.

    Decimals keep their digits; bytes are base64; dates, times, NaN and infinity are text.
    """
    match value:
        case dict():
            pairs = (f"{_encode_json(str(key))}: {_encode_json(item)}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        case list() | tuple():
            return f"[{', '.join(_encode_json(item) for item in value)}]"
        case Decimal():
            return format(value, "f")
        case bytes():
            return json.dumps(base64.b64encode(value).decode())
        case float() if not math.isfinite(value):
            return json.dumps(str(value))
        case dt.date() | dt.time():
            return json.dumps(value.isoformat())
    return json.dumps(value, ensure_ascii=False, default=str)


def _to_utc(column: pa.Array) -> pa.Array:
    # A time without a zone is UTC.
    return column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.timestamp("us", tz="UTC"))
