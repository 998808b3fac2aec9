"""Resolve unquoted YAML scalars: the core schema of YAML 1.2, without what JSON cannot express.

`no`, `on`, `12:30:00`, `2026-01-01` and `1_000` are text; `010` is ten. It knows neither positions nor keys.
"""

from __future__ import annotations

import math
import re

from dagmaster.engine.expressions.json_values import MAX_INTEGER_BITS
from dagmaster.text_format import format_count

MAX_NUMBER_LENGTH = 308

# A word that begins otherwise is text: the reader asks no further.
MAY_BE_MORE_THAN_TEXT = frozenset("~nNtTfF+-.0123456789")

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_START = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def resolve(word: str) -> str | float | bool | None:
    """Return the value of an unquoted word. A ValueError says, as a sentence, why it has none."""
    if word in _WORDS:
        return _WORDS[word]
    if word[0] not in _NUMBER_START:
        return word
    if _INTEGER.fullmatch(word):
        return _small_enough(int(_short_enough(word)))
    if _FLOAT.fullmatch(word):
        return _finite(word)
    if _OTHER_BASE.fullmatch(word):
        return _small_enough(int(_short_enough(word), base=0))
    if _NOT_FINITE.fullmatch(word):
        raise ValueError(f"{word} is not a valid JSON number")
    return word


def _small_enough(value: int) -> int:
    if value.bit_length() > MAX_INTEGER_BITS:
        raise ValueError("the number is too large")
    return value


def _finite(word: str) -> float:
    value = float(_short_enough(word))
    if math.isinf(value):
        raise ValueError(f"the number {word} is too large")
    return value


def _short_enough(word: str) -> str:
    """Return the word, or raise if it is longer than a number may be: int() is slow on millions of digits."""
    if len(word) > MAX_NUMBER_LENGTH:
        raise ValueError(
            f"a number has at most {MAX_NUMBER_LENGTH} digits, this one has"
            f" {format_count(len(word), 'character')}"
        )
    return word
