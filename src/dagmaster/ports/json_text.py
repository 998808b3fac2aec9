"""A JSON value as it is stored: inline text, or the name of a blob."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dagmaster.json_types import JsonValue

MAX_INLINE: Final = 64 * 1024
"""Longest JSON text that is stored in a row, in characters. A longer one is a blob, and the row holds its
name."""


_SCAN: Final = json.JSONDecoder().raw_decode


def read_json(text: str) -> JsonValue:
    """Return the value of a JSON text.

    `json.loads` looks for white space around it by two regular expressions, which takes longer than to read a
    short output.
    """
    try:
        value: JsonValue = _SCAN(text)[0]
    except ValueError:
        return json.loads(text)  # type: ignore[no-any-return]
    return value


@dataclass(slots=True)
class JsonText:
    """A JSON value as it is stored: its text, or the name of the blob that holds the text."""

    text: str | None = None
    ref: str | None = None

    def value(self) -> JsonValue:
        """Return the value, if its text is here."""
        return None if self.text is None else read_json(self.text)
