"""The text of an expression: its braces, its string literals, and its tree as Jinja's own parser reads it.

Rejects what would make the parser recurse too deep before parsing. Offsets of errors are as exact as Jinja
allows: its parser reports lines, not columns. This module does not know what an expression means, nor which
parts of the tree are allowed.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from jinja2 import Environment, TemplateSyntaxError
from jinja2 import nodes as ast
from jinja2.parser import Parser

from dagmaster.errors import ExpressionInvalid, suggestions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

MAX_LENGTH = 4096
"""Characters in one expression."""

MAX_DEPTH = 32
"""Levels of brackets, prefixes and operators in one another. A chain (`a + b + c`) is one level."""

STRING_LITERAL = re.compile(r"'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\"", re.DOTALL)
"""A string literal, as in Jinja's lexer."""

_WRONG_ESCAPE = re.compile(r"""\\(?:[^'"abfnrtv0-7xuUN\n]|[4-7][0-7]{2})""")
_PREFIXES_IN_A_ROW = re.compile(rf"(?:(?:\bnot\b|[-+])\s*){{{MAX_DEPTH + 1},}}")
_WRONG_LETTER = re.compile(r"^unexpected char .* at ([0-9]{1,4})$", re.DOTALL)
_WORD = re.compile(r"(?<!\w)[^\W\d]\w*")
# It parses; it never renders.
_ENVIRONMENT = Environment(keep_trailing_newline=True, autoescape=True)


def parse(text: str) -> ast.Expr:
    """Parse a text that is one expression into Jinja's tree."""
    if len(text) > MAX_LENGTH:
        raise ExpressionInvalid(f"the expression has more than {MAX_LENGTH} characters", offset=MAX_LENGTH)
    if not text:
        raise ExpressionInvalid("the expression is empty")
    _check_nesting(mask_strings(text))
    _check_escapes(text)
    parser: Parser | None = None
    try:
        parser = Parser(_ENVIRONMENT, text, state="variable")
        tree = parser.parse_expression()
        rest = parser.stream.current
    except TemplateSyntaxError as error:
        message = (error.message or "").replace("template", "expression")
        letter = _WRONG_LETTER.search(message)
        offset = int(letter[1]) if letter else _place(text, parser, error.lineno)
        raise ExpressionInvalid(f"the expression cannot be parsed: {message}", offset=offset) from error
    except RecursionError as error:
        raise ExpressionInvalid("the expression is nested too deep") from error
    except (ValueError, SyntaxError) as error:
        raise ExpressionInvalid(f"the expression cannot be parsed: {error}") from error
    if rest.type != "eof":
        raise ExpressionInvalid(
            f"`{rest.value}` was not expected after the expression",
            offset=_place(text, parser, rest.lineno),
            hint={"comma": "write [a, b] for a list", "assign": "write == to compare"}.get(rest.type, ""),
        )
    return tree


def strip_braces(text: str) -> tuple[str, int]:
    """Return the text between the braces, if there are any, and its offset."""
    inner = text.strip()
    if not (inner.startswith("{{") and inner.endswith("}}") and len(inner) >= len("{{}}")):
        return inner, text.index(inner)
    inner = inner[2:-2]
    if inner.startswith(("-", "+")) or inner.endswith("-"):
        raise ExpressionInvalid(
            "`{{-` and `-}}` (whitespace control) are not supported",
            offset=text.index("{{"),
            hint="put a space between the braces and the sign",
        )
    return inner.strip(), text.index("{{") + 2 + len(inner) - len(inner.lstrip())


def mask_strings(text: str) -> str:
    """Blank the contents of string literals, keeping the length of the text."""
    return STRING_LITERAL.sub(lambda literal: f"'{' ' * (len(literal[0]) - 2)}'", text)


def names_in(text: str) -> Iterator[tuple[str, int]]:
    """Yield the names that start a path, in order, with their offsets."""
    masked = mask_strings(text)
    before = ""
    for word in _WORD.finditer(masked):
        sign = masked[: word.start()].rstrip()[-1:]
        named_argument = re.match(r"\s*=(?!=)", masked[word.end() :])
        if sign not in (".", "|") and before != "is" and not named_argument:
            yield word[0], word.start()
        before = word[0]


def _place(text: str, parser: Parser | None, line: int) -> int:
    """Return the offset at which the parser stopped, from the number of tokens that are left over."""
    if parser is None:
        return line_start(text, line)
    left_over, starts, start = 0, list[int](), 0
    try:
        for _ in parser.stream:
            left_over += 1
    except (TemplateSyntaxError, ValueError):
        left_over += 1  # the stream reads one token ahead, so an invalid token hides the one before it
    with suppress(TemplateSyntaxError):
        for _, name, written in _ENVIRONMENT.lexer.tokeniter(text, None, state="variable"):
            if name != "whitespace":
                starts.append(start)
            start += len(written)
    return [*starts, len(text)][max(len(starts) - left_over, 0)]


def line_start(text: str, line: int) -> int:
    """Return the offset at which a line starts; the first line is 1."""
    starts = [0, *(end.end() for end in re.finditer(r"\r\n|\r|\n", text))]
    return starts[min(line, len(starts)) - 1]


def nearest(name: str, names: Collection[str]) -> str:
    """Return a hint with the closest name, or with all names."""
    match = suggestions.nearest(name, names)
    return f"did you mean `{match}`?" if match else f"there are: {', '.join(sorted(names))}"


def _check_nesting(masked: str) -> None:
    depth = 0
    for bracket in re.finditer(r"[()\[\]{}]", masked):
        depth += 1 if bracket[0] in "([{" else -1
        if depth > MAX_DEPTH:
            raise ExpressionInvalid(
                f"brackets are nested deeper than {MAX_DEPTH} levels", offset=bracket.start()
            )
    if deep := _PREFIXES_IN_A_ROW.search(masked):
        raise ExpressionInvalid(f"more than {MAX_DEPTH} signs in a row", offset=deep.start())
    if len(re.findall(r"\bif\b", masked)) > MAX_DEPTH:
        raise ExpressionInvalid(f"more than {MAX_DEPTH} times `if`")


def _check_escapes(text: str) -> None:
    r"""Reject `\d`: Python warns about it today and will reject it later."""
    for literal in STRING_LITERAL.finditer(text):
        if wrong := _WRONG_ESCAPE.search(literal[0].replace("\\\\", "  ")):
            raise ExpressionInvalid(
                f"`{wrong[0]}` is not an escape",
                offset=literal.start() + wrong.start(),
                hint="write two backslashes for one",
            )
