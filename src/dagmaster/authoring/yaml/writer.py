"""Write plain data as YAML that the reader reads back: in one line, or as an indented block.

A text stays without quotes where every reader takes it for a text. It knows neither positions nor workflows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from dagmaster.authoring.yaml.scalars import resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dagmaster.json_types import JsonObject, JsonValue

INDENT: Final = "  "
MAX_LINE: Final = 100
_PLAIN: Final = re.compile(r"[A-Za-z_/][\w./-]*(?: [\w./-]+)*", re.ASCII)
# Booleans and nulls of YAML 1.1: other tools may take them for such.
_WORDS: Final = frozenset({"yes", "no", "on", "off", "true", "false", "null"})
# What the reader does not accept, or takes for a line break or a byte order mark.
_SPECIAL: Final = r"\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff"
_ESCAPED: Final = re.compile(f"[{_SPECIAL}]")
_LITERAL: Final = re.compile(rf"(?!\s)[^\x00-\x08\x0b-\x1f{_SPECIAL}]*(?<!\s)\n?", re.ASCII)


def write_yaml(data: JsonObject) -> str:
    return "".join(f"{line}\n" for line in block_lines(data))


def write_inline(value: JsonValue, *, quoted: bool = False) -> str:
    """Return a value in one line; `quoted`: with all texts in quotes, as in JSON."""
    if isinstance(value, str):
        return value if not quoted and _is_plain(value) else _in_quotes(value)
    if isinstance(value, Mapping):
        parts = [
            f"{write_inline(key, quoted=quoted)}: {write_inline(item, quoted=quoted)}"
            for key, item in value.items()
        ]
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(write_inline(item, quoted=quoted) for item in value) + "]"
    return json.dumps(value)


def is_block(value: JsonValue) -> bool:
    """Return whether a value takes several lines: a mapping, a long or nested list, a text with lines."""
    if isinstance(value, Mapping):
        return bool(value)
    if isinstance(value, list):
        return (
            any(isinstance(item, dict | list) and item for item in value)
            or len(write_inline(value)) > MAX_LINE
        )
    return isinstance(value, str) and "\n" in value and _LITERAL.fullmatch(value) is not None


def block_lines(value: JsonValue, indent: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from entry_lines(write_inline(key), item, indent)
    elif isinstance(value, list):
        for item in value:
            yield from item_lines(item, indent)


def entry_lines(key: str, value: JsonValue, indent: str, step: str = INDENT) -> Iterator[str]:
    if not is_block(value):
        yield f"{indent}{key}: {write_inline(value)}"
    elif isinstance(value, str):
        yield f"{indent}{key}: {'|' if value.endswith(chr(10)) else '|-'}"
        for line in value.removesuffix("\n").split("\n"):
            yield f"{indent}{step}{line}" if line else ""
    else:
        yield f"{indent}{key}:"
        yield from block_lines(value, indent + step)


def item_lines(value: JsonValue, indent: str) -> Iterator[str]:
    """Yield the lines of one item of a list; a container begins next to the dash."""
    if not isinstance(value, dict | list) or not is_block(value):
        yield f"{indent}- {write_inline(value)}"
        return
    first, *others = block_lines(value, indent + INDENT)
    yield f"{indent}- {first[len(indent) + len(INDENT) :]}"
    yield from others


def _in_quotes(text: str) -> str:
    return _ESCAPED.sub(lambda sign: f"\\u{ord(sign[0]):04x}", json.dumps(text, ensure_ascii=False))


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS and resolve(text) == text
