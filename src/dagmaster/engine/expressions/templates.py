"""JSON values with expressions in their strings: compiled once, resolved many times.

A result is never parsed again: the value of an expression is inserted as it is, braces included. A secret
becomes a typed part that only `fill_secrets` replaces (`secret_parts`). This module does not know the
values of secrets.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dagmaster.engine.expressions.expression import Expression, Path, PathUse, compile_expression
from dagmaster.engine.expressions.json_values import MAX_TEXT, check_limit, json_type, path_text, text_of
from dagmaster.engine.expressions.parser import STRING_LITERAL
from dagmaster.engine.expressions.secret_parts import (
    MAX_LEVELS,
    NO_SECRET_INPUTS,
    SecretInput,
    SecretInputs,
    SecretName,
    SecretText,
)
from dagmaster.errors import EvaluationFailed, ExpressionInvalid

if TYPE_CHECKING:
    from dagmaster.json_types import JsonValue

MAX_TOTAL = 256 * MAX_TEXT
"""Characters and items that the expressions of one resolution may produce in total."""

_OPENING = re.compile(r"\{[{%#]")
# Most templates are one path in braces. There is nothing in it that could be the end of anything else.
_ONE_PATH = re.compile(r"\{\{[A-Za-z0-9_. ]*\}\}")
_TOKEN = re.compile(rf"{STRING_LITERAL.pattern}|[\"'()\[\]{{}}]", re.DOTALL)


Resolve = Callable[[Mapping[str, Any], list[int]], Any]
"""From a scope, and a counter of the characters and items so far, to a value."""


@dataclass(frozen=True, slots=True)
class Template:
    """A compiled value.

    `uses` has the place of each path; its offset counts from the start of that string.
    """

    source: Any
    uses: tuple[tuple[Path, PathUse], ...]
    refs: tuple[Path, ...]
    _resolve: Resolve | None = field(repr=False, compare=False)

    @property
    def is_constant(self) -> bool:
        return self._resolve is None

    def resolve(self, scope: Mapping[str, Any]) -> Any:
        """Return the value in this scope.

        Lists and mappings with an expression inside are new; the rest is shared.
        """
        return self.source if self._resolve is None else self._resolve(scope, [0])


class JsonTemplate(Template):
    """A value without expressions, as JSON text, which most tasks take without parsing it."""

    __slots__ = ("text",)
    text: str
    uses = ()
    refs = ()
    _resolve = None

    def __init__(self, text: str) -> None:
        _WRITE_TEXT(self, text)

    @property
    def source(self) -> Any:
        return json.loads(self.text)


# As the constructor of a frozen class, at half the cost: 100,000 nodes of a job may have one.
_WRITE_TEXT: Final = JsonTemplate.text.__set__  # type: ignore[attr-defined]


def compile_template(value: JsonValue, *, roots: Collection[str]) -> Template:
    """Compile a JSON value, or raise the first problem, with its place in the value."""
    template, problems = compile_template_all(value, roots=roots)
    if template is None:
        raise problems[0]
    return template


def compile_template_all(
    value: Any, roots: Collection[str], secret_inputs: SecretInputs = NO_SECRET_INPUTS
) -> tuple[Template | None, list[ExpressionInvalid]]:
    """Compile a JSON value and collect all problems; with a problem there is no template."""
    compiler = _Compiler(frozenset(roots), secret_inputs)
    resolve = compiler.value(value, ())
    if compiler.problems:
        return None, compiler.problems
    return Template(value, tuple(compiler.uses), tuple(compiler.refs), resolve), []


class _Compiler:
    """Walks a value once. `None` in place of a `Resolve` means: constant."""

    __slots__ = ("problems", "refs", "roots", "secret_inputs", "uses")

    def __init__(self, roots: frozenset[str], secret_inputs: SecretInputs) -> None:
        self.roots = roots
        self.secret_inputs = secret_inputs
        self.problems: list[ExpressionInvalid] = []
        self.uses: list[tuple[Path, PathUse]] = []
        self.refs: dict[Path, None] = {}

    def value(self, value: Any, place: Path) -> Resolve | None:
        if isinstance(value, str):
            return self._string(value, place) if "{" in value else None
        if isinstance(value, Mapping | list | tuple):
            if len(place) >= MAX_LEVELS:
                self._problem(
                    ExpressionInvalid(f"the value is nested deeper than {MAX_LEVELS} levels"), place
                )
                return None
            return self._mapping(value, place) if isinstance(value, Mapping) else self._list(value, place)
        if not (
            value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
        ):
            self._problem(ExpressionInvalid(f"{json_type(value)} is not a JSON value"), place)
        return None

    def _problem(self, error: ExpressionInvalid, place: Path, shift: int = 0) -> None:
        problem = ExpressionInvalid(str(error), offset=error.offset + shift, hint=error.hint, path=place)
        problem.__cause__ = error.__cause__
        self.problems.append(problem)

    def _mapping(self, value: Mapping[JsonValue, JsonValue], place: Path) -> Resolve | None:
        items: list[tuple[str, Resolve | None, JsonValue]] = []
        for key, item in value.items():
            if not isinstance(key, str):
                self._problem(ExpressionInvalid(f"a key is a string, not {json_type(key)}"), place)
            elif "{{" in key:
                hint = "write the mapping as one expression: {{ {'key': value} }}"
                problem = ExpressionInvalid(
                    "a key cannot be an expression", offset=key.index("{{"), hint=hint
                )
                self._problem(problem, (*place, key))
            else:
                items.append((key, self.value(item, (*place, key)), item))
        if all(resolve is None for _, resolve, _ in items):
            return None
        return lambda scope, taken: {
            key: item if resolve is None else resolve(scope, taken) for key, resolve, item in items
        }

    def _list(self, value: list[JsonValue] | tuple[JsonValue, ...], place: Path) -> Resolve | None:
        items = [(self.value(item, (*place, index)), item) for index, item in enumerate(value)]
        if all(resolve is None for resolve, _ in items):
            return None
        return lambda scope, taken: [
            item if resolve is None else resolve(scope, taken) for resolve, item in items
        ]

    def _string(self, text: str, place: Path) -> Resolve | None:
        try:
            pieces = split_template(text)
        except ExpressionInvalid as error:
            self._problem(error, place)
            return None
        parts: list[str | SecretName | Expression] = []
        for offset, piece, is_text in pieces:
            part = piece if is_text else self._expression(piece, offset, place)
            if part is not None:
                parts.append(part)
        where = path_text(place)
        if len(parts) == 1 and isinstance(parts[0], Expression):
            return _whole(parts[0], where)
        return None if all(isinstance(part, str) for part in parts) else _text(tuple(parts), where)

    def _expression(self, piece: str, offset: int, place: Path) -> Expression | SecretName | None:
        try:
            expression = compile_expression(piece, roots=self.roots, secret_inputs=self.secret_inputs)
        except ExpressionInvalid as error:
            self._problem(error, place, offset)
            return None
        shift = offset + len(piece) - len(piece[2:].lstrip())
        self.uses.extend(
            (place, PathUse(use.keys, use.guarded, use.offset + shift)) for use in expression.uses
        )
        self.refs.update(dict.fromkeys(expression.refs))
        keys = expression.uses[0].keys if expression.uses else ()
        return SecretName(str(keys[1])) if keys[:1] == ("secrets",) else expression


def split_template(text: str) -> list[tuple[int, str, bool]]:
    """Split a string into pieces: offset, text, and whether it is plain text or an expression in braces."""
    if _ONE_PATH.fullmatch(text):
        return [(0, text, False)]
    pieces: list[tuple[int, str, bool]] = []
    place = 0
    while opening := _OPENING.search(text, place):
        start = opening.start()
        if opening[0] != "{{":
            syntax = "statements" if opening[0] == "{%" else "comments"
            hint = f"write {{{{ '{opening[0]}' }}}} for these two characters"
            raise ExpressionInvalid(
                f"{syntax} (`{opening[0]}`) are not part of the language", offset=start, hint=hint
            )
        if start > place:
            pieces.append((place, text[place:start], True))
        place = _end(text, start)
        pieces.append((start, text[start:place], False))
    if place < len(text):
        pieces.append((place, text[place:], True))
    return pieces


def _end(text: str, start: int) -> int:
    """Return the end of the expression that starts here, ignoring braces in strings and brackets."""
    depth = 0
    for token in _TOKEN.finditer(text, start + 2):
        sign = token[0]
        if sign in ("'", '"'):
            raise ExpressionInvalid("the string does not end", offset=token.start())
        if sign in ("(", "[", "{"):
            depth += 1
        elif sign in (")", "]", "}"):
            if not depth and text.startswith("}}", token.start()):
                return token.start() + 2
            depth -= 1
    raise ExpressionInvalid(
        "the expression does not end", offset=start, hint="write {{ '{{' }} for two braces"
    )


def _whole(expression: Expression, where: str) -> Resolve:
    """Resolve a string that is one expression: the value keeps its type."""

    def resolve(scope: Mapping[str, Any], taken: list[int]) -> Any:
        try:
            value = expression.evaluate(scope)
            if isinstance(value, str | list):
                _take(taken, len(value))
        except EvaluationFailed as error:
            raise _placed(error, where) from error
        return value

    return resolve


def _text(parts: tuple[str | SecretName | Expression, ...], where: str) -> Resolve:
    def resolve(scope: Mapping[str, Any], taken: list[int]) -> Any:
        pieces: list[str | SecretName | SecretInput] = []
        size, has_secret = 0, False
        try:
            for part in parts:
                piece = _piece(part, scope)
                pieces.append(piece)
                if isinstance(piece, str):
                    size += len(piece)
                    check_limit(size, MAX_TEXT, "characters")
                else:
                    has_secret = True
            _take(taken, size)
        except EvaluationFailed as error:
            raise _placed(error, where) from error
        return _merged(pieces) if has_secret else "".join(pieces)  # type: ignore[arg-type]

    return resolve


def _piece(part: str | SecretName | Expression, scope: Mapping[str, Any]) -> str | SecretName | SecretInput:
    if not isinstance(part, Expression):
        return part
    value = part.evaluate(scope)
    return value if isinstance(value, SecretInput) else text_of(value)


def _merged(pieces: list[str | SecretName | SecretInput]) -> SecretText:
    parts: list[str | SecretName | SecretInput] = []
    for piece in pieces:
        if parts and isinstance(piece, str) and isinstance(parts[-1], str):
            parts[-1] += piece
        elif piece != "":
            parts.append(piece)
    if len(parts) == 1 and isinstance(parts[0], SecretInput):
        # A text, although the other parts are empty: alone, a secret input keeps its type.
        parts.append("")
    return SecretText(tuple(parts))


def _take(taken: list[int], size: int) -> None:
    taken[0] += size
    check_limit(taken[0], MAX_TOTAL, "characters and items in all")


def _placed(error: EvaluationFailed, where: str) -> EvaluationFailed:
    return EvaluationFailed(str(error), path=": ".join(filter(None, (where, error.path))))
