"""The condition of a branch: an expression in which `value` is bound, with sizes such as `100MB`.

This module does not know branches or their order: it evaluates one condition.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from dagmaster.engine.expressions.expression import Expression, compile_expression
from dagmaster.engine.expressions.json_values import MAX_INTEGER_BITS, json_type
from dagmaster.engine.expressions.parser import MAX_LENGTH, mask_strings, nearest, strip_braces
from dagmaster.engine.expressions.secret_parts import NO_SECRET_INPUTS, SecretInputs
from dagmaster.errors import EvaluationFailed, ExpressionInvalid

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from dagmaster.json_types import JsonValue

UNITS: Mapping[str, int] = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
"""Bytes in each unit."""

_WORDS = {"K": "kilobytes", "M": "megabytes", "G": "gigabytes", "T": "terabytes"}
_OPERATOR = re.compile(r"<|>|==|!=|(?:not\s+)?in\b")
_SIZE = re.compile(r"(?<![\w.])([0-9]{1,30}(?:\.[0-9]{1,30})?)[ \t]?([KMGT]?i?B)\b", re.IGNORECASE)
_COUNTED = re.compile(r"_([kmgt]i?b)$", re.IGNORECASE)


def compile_condition(
    text: str,
    *,
    roots: Collection[str],
    field_name: str = "",
    secret_inputs: SecretInputs = NO_SECRET_INPUTS,
) -> Expression:
    """Compile a condition. `value` is prepended to one that starts with an operator."""
    inner, shift = strip_braces(text)
    if len(inner) > MAX_LENGTH:
        raise ExpressionInvalid(f"the condition has more than {MAX_LENGTH} characters", offset=MAX_LENGTH)
    before = "value " if _OPERATOR.match(inner) else ""
    written = before + _with_sizes(inner, 1, shift)
    try:
        expression = compile_expression(written, roots={*roots, "value"}, secret_inputs=secret_inputs)
    except ExpressionInvalid as error:
        # A size changes the length: an offset after one is only approximate.
        offset = shift + min(max(error.offset - len(before), 0), len(inner))
        hint = error.hint or ("write == to compare" if inner.startswith("=") else "")
        raise ExpressionInvalid(str(error), offset=offset, hint=hint) from error.__cause__
    if written != before + inner:
        names = [_last_name(field_name), *(str(use.keys[-1]) for use in expression.uses)]
        _refuse_counted(inner, shift, names)
    return expression


def condition_holds(expression: Expression, scope: Mapping[str, JsonValue]) -> bool:
    result = expression.evaluate(scope)
    if isinstance(result, bool):
        return result
    shown = f" {result!r:.80}" if isinstance(result, str | float) or _is_small(result) else ""
    raise EvaluationFailed(
        f"the condition `{expression.text[:200]}` returned {json_type(result)}{shown}; it must return true or"
        " false"
    )


def _is_small(value: JsonValue) -> bool:
    return isinstance(value, int) and value.bit_length() <= MAX_INTEGER_BITS


def _with_sizes(text: str, counted: int, shift: int = 0) -> str:
    """Replace the sizes in a text by numbers, in units of `counted` bytes."""
    masked, replaced, position = mask_strings(text), "", 0
    for size in _SIZE.finditer(masked):
        if size[2] not in UNITS:
            hint = nearest(size[2].upper().replace("I", "i"), UNITS)
            raise ExpressionInvalid(f"`{size[2]}` is not a unit", offset=shift + size.start(2), hint=hint)
        number = Fraction(size[1]) * UNITS[size[2]] / counted
        replaced += text[position : size.start()] + (
            str(number) if number.denominator == 1 else repr(float(number))
        )
        position = size.end()
    return replaced + text[position:]


def _last_name(field_name: str) -> str:
    """Return the last key of a path: `size_mb` in `{{ nodes.x.output.size_mb | default(0) }}`."""
    words: list[str] = re.findall(r"\w+", field_name.partition("|")[0])
    return words[-1] if words else ""


def _refuse_counted(text: str, shift: int, names: list[str]) -> None:
    """Reject the comparison of a field that counts megabytes with a size in bytes."""
    for name in names:
        if counted := _COUNTED.search(name):
            unit = next(unit for unit in UNITS if unit.lower() == counted[1].lower())
            size = next(_SIZE.finditer(mask_strings(text)))
            written = size[0].replace(" ", "")
            raise ExpressionInvalid(
                f"`{name}` counts {_WORDS[unit[0]]}, and {written} is {_with_sizes(size[0], 1)} bytes: "
                f"write `{_with_sizes(text, UNITS[unit])}`",
                offset=shift + size.start(),
                hint=f"write the number of {_WORDS[unit[0]]}, without a unit",
            )
