"""Hints for YAML mistakes: libyaml reports what it expected, this what people usually meant.

It reads the line around the mistake as text and never changes what is accepted.
"""

from __future__ import annotations

import re

from dagmaster.errors.source_map import truncate

# An expression without quotes where a value begins, on a line with no quote or comment before it.
_BARE_EXPRESSION = re.compile(r"""[^"'#]*?(?:^\s*|[-:?]\s+|[\[,]\s*)(\{\{)""")
_EXPRESSION = re.compile(r"\{\{.*?\}\}")
_COMMENT = re.compile(r"\s#.*")
# A longer line was not written by hand, and guessing about it would take longer than reading it.
_LONGEST_LINE = 1_000

# libyaml's messages and the remedy. The first match wins.
_HINTS = (
    ("block sequence entries are not allowed", "begin a list on the line below its key"),
    ("expected '-' indicator", "this line is not a part of the list above: check its indentation"),
    ("expected key", "check the indentation against the lines above, or put the value above in quotes"),
    ("could not find expected ':'", "write a key, a colon and a space: `key: value`"),
    ("',' or ']'", "a comma or the closing ']' is missing"),
    ("',' or '}'", "a comma or the closing '}' is missing"),
    ("unexpected end of stream", "the closing quote is missing"),
    ("unknown escape character", "a backslash stands for itself in single quotes: '\\d+'"),
    (
        "invalid Unicode character escape",
        "write the character itself, or \\U and its eight hexadecimal digits",
    ),
    ("undefined tag handle", "tags are not accepted: leave out the word that begins with '!'"),
    ("expected <document start>", "the document ends above this line: check the indentation and the quotes"),
)


def hint_for(problem: str, line: str, column: int) -> str:
    """Return what to do about libyaml's `problem` at this line and column (from 1)."""
    line = line[:_LONGEST_LINE]
    before, character = line[: column - 1], line[column - 1 : column]
    if "\t" in line[: len(line) - len(line.lstrip())] or character == "\t" or "tab character" in problem:
        return "indent with spaces: YAML does not accept tabs"
    bare = _BARE_EXPRESSION.match(line)
    if bare:
        return expression_hint(line, bare.start(1))
    if "mapping values are not allowed" in problem:
        return _colon_hint(line, before)
    if "cannot start any token" in problem and character:
        return f"a value that begins with {character!r} needs quotes"
    return next((hint for words, hint in _HINTS if words in problem), "")


def expression_hint(line: str, start: int) -> str:
    """Return how to write the unquoted `{{ … }}` that begins at `start` (from 0)."""
    line = line[:_LONGEST_LINE]
    expression = _EXPRESSION.match(line, start)
    if expression is None:
        return 'put the expression in quotes: "{{ ... }}"'
    rest = _COMMENT.sub("", line[expression.end() :]).strip()
    value = expression[0] if not rest or rest[0] in ",]}:" else _COMMENT.sub("", line[start:]).strip()
    return f"put the expression in quotes: {_quoted(value)}"


def _colon_hint(line: str, before: str) -> str:
    key, colon, value = before.partition(": ")
    if colon and value.strip():
        whole = _COMMENT.sub("", line[len(key) + len(colon) :]).strip()
        return f"a value with ': ' in it needs quotes: {key.strip()}: {_quoted(whole)}"
    return "the line above already has a value: check the indentation of this one"


def _quoted(text: str) -> str:
    text = truncate(text, 100)
    if '"' in text or "\\" in text:
        return "'" + text.replace("'", "''") + "'"
    return f'"{text}"'
