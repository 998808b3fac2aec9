"""One expression: Jinja's grammar, compiled once into closures over JSON values.

Jinja never renders anything, and no attribute of a Python object is ever read: `a.b` is a key. What is not
listed here is rejected when the expression is compiled. This module does not know where values come from, nor
which nodes exist: it reports which paths an expression uses (`uses`) and what a caller must load for it
(`refs`).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from jinja2 import nodes as ast

from dagmaster.engine.expressions import evaluators
from dagmaster.engine.expressions.filters import (
    ARITHMETIC,
    COMPARISONS,
    FILTERS,
    JINJA_NAMES,
    negative,
    positive,
)
from dagmaster.engine.expressions.json_values import MAX_INTEGER_BITS, Path, json_type
from dagmaster.engine.expressions.parser import (
    MAX_DEPTH,
    MAX_LENGTH,
    line_start,
    mask_strings,
    names_in,
    nearest,
    parse,
    strip_braces,
)
from dagmaster.engine.expressions.paths import reference
from dagmaster.engine.expressions.secret_parts import NO_SECRET_INPUTS, SecretInputs
from dagmaster.errors import EvaluationFailed, ExpressionInvalid
from dagmaster.text_format import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

__all__ = ["Expression", "Path", "PathUse", "compile_expression"]

MAX_OPERATIONS = 100
"""Operators, filters and slices in one expression: each may create a value of the largest size."""

_PLAIN_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_KEYWORDS = frozenset({"true", "false", "none", "True", "False", "None", "not"})
_NOT_ALONE = "{what} must be used alone, without operator, filter or subscript"
_MAY_BE_MISSING = frozenset({"first", "last", "min", "max"})
_REJECTED = {
    "Call": ("nothing can be called", "filters are written `value | name`"),
    "Concat": ("`~` is not part of the language", "write `+` between strings, or put both into the text"),
    "Pow": ("`**` is not part of the language", ""),
}


@dataclass(frozen=True, slots=True)
class PathUse:
    """One path in an expression: its literal keys, and whether it may be missing."""

    keys: Path
    guarded: bool
    offset: int


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression. It has no state and may be evaluated any number of times."""

    text: str
    uses: tuple[PathUse, ...]
    refs: tuple[Path, ...]
    _run: evaluators.Run = field(repr=False, compare=False)

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        """Return the value in this scope, or raise `EvaluationFailed`. Values of the scope are not copied."""
        try:
            return self._run(scope)
        except EvaluationFailed as error:
            if error.path:
                raise
            raise EvaluationFailed(f"{error} (in `{self.text[:200]}`)") from None
        except RecursionError as error:
            raise EvaluationFailed(f"a value is nested too deep (in `{self.text[:200]}`)") from error
        except (ArithmeticError, ValueError) as error:
            raise EvaluationFailed(f"{error} (in `{self.text[:200]}`)") from error


def compile_expression(
    text: str, *, roots: Collection[str], secret_inputs: SecretInputs = NO_SECRET_INPUTS
) -> Expression:
    """Compile one expression, with or without its braces, whose paths start at these roots."""
    inner, shift = strip_braces(text)
    try:
        return _compile(inner, frozenset(roots), secret_inputs)
    except ExpressionInvalid as error:
        raise ExpressionInvalid(str(error), offset=error.offset + shift, hint=error.hint) from error.__cause__


@lru_cache(maxsize=8192)
def _compile(text: str, roots: frozenset[str], secret_inputs: SecretInputs) -> Expression:
    compiler = _Compiler(text, roots, secret_inputs)
    # Most expressions are a plain path, and Jinja's parser is most of the cost of compiling. A test compares
    # both.
    if len(text) <= MAX_LENGTH and _PLAIN_PATH.fullmatch(text):
        keys = tuple(text.split("."))
        if keys[0] not in _KEYWORDS:
            return compiler.finish(evaluators.present(compiler.static_path(keys, offset=0, bare=True)))
    return compiler.finish(compiler.required(parse(text), 0))


class _Compiler:
    """Turns Jinja's tree into evaluators. Visits the names in source order."""

    __slots__ = ("_names", "_operations", "_refs", "_roots", "_secret_inputs", "_text", "_uses")

    def __init__(self, text: str, roots: frozenset[str], secret_inputs: SecretInputs) -> None:
        self._text = text
        self._secret_inputs = secret_inputs
        self._roots = roots
        self._uses: list[PathUse] = []
        self._refs: dict[Path, None] = {}
        self._operations = 0
        self._names: Iterator[tuple[str, int]] = names_in(text)

    def finish(self, run: evaluators.Run) -> Expression:
        return Expression(self._text, tuple(self._uses), tuple(self._refs), run)

    def required(self, node: Any, depth: int) -> evaluators.Run:
        """Compile a node to a closure that returns a value or fails."""
        if depth > MAX_DEPTH:
            raise ExpressionInvalid(f"the expression is nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, ast.Name | ast.Getattr | ast.Getitem):
            return evaluators.present(self._path(node, depth, guarded=False))
        if isinstance(node, ast.Filter):
            run = self._filter(node, depth, guarded=False)
            return evaluators.present(run) if node.name in _MAY_BE_MISSING else run
        for types, compile_node in _NODES:
            if isinstance(node, types):
                return compile_node(self, node, depth)
        raise self._rejected(node)

    def _optional(self, node: Any, depth: int) -> evaluators.Run:
        """Compile a node directly under `default` or `is defined` to a closure that may return `Missing`."""
        if isinstance(node, ast.Name | ast.Getattr | ast.Getitem):
            return self._path(node, depth, guarded=True)
        if isinstance(node, ast.Filter) and depth <= MAX_DEPTH:
            return self._filter(node, depth, guarded=True)
        return self.required(node, depth)

    def _rejected(self, node: ast.Node) -> ExpressionInvalid:
        name = type(node).__name__
        message, hint = _REJECTED.get(name, (f"`{name}` is not part of the language", ""))
        sign = getattr(node, "operator", None) or {"Concat": "~"}.get(name)
        offset = mask_strings(self._text).find(sign) if sign else line_start(self._text, node.lineno)
        return ExpressionInvalid(message, offset=offset, hint=hint)

    def _operation(self) -> None:
        self._operations += 1
        if self._operations > MAX_OPERATIONS:
            raise ExpressionInvalid(f"the expression has more than {MAX_OPERATIONS} operations")

    # ── paths ───────────────────────────────────────────────────────────────────────────────────────────────

    def _path(self, node: Any, depth: int, *, guarded: bool) -> evaluators.Run:
        steps: list[ast.Getattr | ast.Getitem] = []
        while isinstance(node, ast.Getattr | ast.Getitem):
            steps.append(node)
            node = node.node
        steps.reverse()
        if not isinstance(node, ast.Name):
            base = self._optional(node, depth + 1) if guarded else self.required(node, depth + 1)
            return evaluators.computed_path(base, ("(…)",), [self._key(step, depth) for step in steps])
        offset = next((place for name, place in self._names if name == node.name), 0)
        keys: list[str | int] = [node.name]
        for step in steps:
            key = _static_key(step)
            if key is None:
                break
            keys.append(key)
        rest = steps[len(keys) - 1 :]
        path = tuple(keys)
        base = self.static_path(path, offset=offset, guarded=guarded, bare=depth == 0, goes_on=bool(rest))
        return (
            evaluators.computed_path(base, path, [self._key(step, depth) for step in rest]) if rest else base
        )

    def static_path(
        self, keys: Path, *, offset: int, guarded: bool = False, bare: bool = False, goes_on: bool = False
    ) -> evaluators.Run:
        """Compile a path with literal keys.

        `bare`: nothing but the path; `goes_on`: a computed key follows.
        """
        ref = reference(keys, roots=self._roots, offset=offset, goes_on=goes_on)
        self._uses.append(PathUse(keys, guarded, offset))
        self._refs[ref] = None
        is_alone = bare and not goes_on and len(keys) == len(ref)
        if keys[0] != "secrets":
            problem = self._secret_input_problem(keys, is_alone=is_alone)
            if problem is None:
                return evaluators.static_path(keys)
            if self._secret_inputs.is_stored:
                return evaluators.refused(problem)
            raise ExpressionInvalid(problem, offset=offset)
        if not is_alone:
            raise ExpressionInvalid(_NOT_ALONE.format(what="a secret"), offset=offset)
        return evaluators.secret

    def _secret_input_problem(self, keys: Path, *, is_alone: bool) -> str | None:
        """Return why a path may not be used: something would be computed from a secret input."""
        secret = self._secret_inputs
        if not secret.names or keys[0] != "inputs":
            return None
        if len(keys) == 1:
            names = ", ".join(sorted(secret.names))
            return f"`inputs` as a whole includes secret inputs ({names}): name each input that is used here"
        if keys[1] not in secret.names:
            return None
        what = f"secret input {str(keys[1])!r}"
        if not secret.is_allowed:
            return f"{what} may only be used in the params of tasks and the inputs of child workflows"
        return None if is_alone else _NOT_ALONE.format(what=what)

    def _key(self, step: ast.Getattr | ast.Getitem, depth: int) -> Any:
        """Return a literal key, or the closure that computes the key."""
        key = _static_key(step)
        if key is not None:
            return key
        subscript: Any = step.arg if isinstance(step, ast.Getitem) else step
        if isinstance(subscript, ast.Const):
            raise ExpressionInvalid(
                f"{json_type(subscript.value)} is not a key", offset=line_start(self._text, step.lineno)
            )
        if not isinstance(subscript, ast.Slice):
            return self.required(subscript, depth + 1)
        if subscript.step is not None:
            raise ExpressionInvalid("a slice has a start and a stop, and no step")
        self._operation()
        ends = (
            None if end is None else self.required(end, depth + 1)
            for end in (subscript.start, subscript.stop)
        )
        return evaluators.slice_between(*ends)

    # ── filters ─────────────────────────────────────────────────────────────────────────────────────────────

    def _filter(self, node: ast.Filter, depth: int, *, guarded: bool) -> evaluators.Run:
        definition = FILTERS.get(node.name)
        if definition is None:
            place = re.search(rf"\|\s*{re.escape(node.name)}", mask_strings(self._text))
            offset = place.start() if place else 0
            raise ExpressionInvalid(
                f"there is no filter `{node.name}`", offset=offset, hint=nearest(node.name, FILTERS)
            )
        self._operation()
        if node.name == "default":
            value = self._optional(node.node, depth + 1)
            arguments = self._arguments(node, self._optional if guarded else self.required, depth)
            return evaluators.default(value, arguments["value"], arguments.get("boolean"))
        # What is missing stays missing in a part of it: `outputs | map(attribute='size') | default([])`.
        is_optional = guarded and node.name == "map"
        value = (self._optional if is_optional else self.required)(node.node, depth + 1)
        return evaluators.apply(definition.run, value, self._arguments(node, self.required, depth))

    def _arguments(
        self, node: ast.Filter, compile_node: Callable[[Any, int], evaluators.Run], depth: int
    ) -> dict[str, evaluators.Run]:
        name, definition = node.name, FILTERS[node.name]
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise ExpressionInvalid("`*` and `**` are not part of the language")
        if node.args and definition.by_name:
            hint = f"write `{name}({definition.parameters[0]}=…)`"
            raise ExpressionInvalid(f"`{name}` takes its argument by name", hint=hint)
        if len(node.args) > len(definition.parameters):
            raise ExpressionInvalid(
                f"`{name}` takes at most {format_count(len(definition.parameters), 'argument')}"
            )
        arguments: dict[str, evaluators.Run] = {}
        for parameter, argument in zip(definition.parameters, node.args, strict=False):
            arguments[parameter] = compile_node(argument, depth + 1)
        for pair in cast(
            "list[ast.Keyword]", node.kwargs
        ):  # Jinja declares them as pairs; they are keywords.
            parameter = JINJA_NAMES.get(pair.key, pair.key)
            if parameter not in definition.parameters or parameter in arguments:
                problem = "twice" if parameter in arguments else "which it does not have"
                raise ExpressionInvalid(f"`{name}` is given `{pair.key}` {problem}")
            arguments[parameter] = compile_node(pair.value, depth + 1)
        for parameter in definition.parameters[: definition.required]:
            if parameter not in arguments:
                raise ExpressionInvalid(f"`{name}` needs `{parameter}`", hint=f"write `{name}(…)`")
        return arguments

    # ── everything else ─────────────────────────────────────────────────────────────────────────────────────

    def const(self, node: ast.Const, _depth: int) -> evaluators.Run:
        value: Any = node.value
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise ExpressionInvalid(
                "unpaired surrogate in a string", offset=line_start(self._text, node.lineno)
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise ExpressionInvalid("the number is too large", offset=line_start(self._text, node.lineno))
        if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
            raise ExpressionInvalid("the number is too large", offset=line_start(self._text, node.lineno))
        return evaluators.constant(value)

    def array(self, node: ast.List | ast.Tuple, depth: int) -> evaluators.Run:
        return evaluators.array([self.required(item, depth + 1) for item in node.items])

    def mapping(self, node: ast.Dict, depth: int) -> evaluators.Run:
        items: dict[str, evaluators.Run] = {}
        for pair in node.items:
            key = pair.key.value if isinstance(pair.key, ast.Const) else None
            if not isinstance(key, str) or key in items:
                message = "keys of an object are string literals, each once"
                raise ExpressionInvalid(message, offset=line_start(self._text, pair.lineno))
            self.const(ast.Const(key, lineno=pair.lineno), depth)
            items[key] = self.required(pair.value, depth + 1)
        return evaluators.mapping(items)

    def comparison(self, node: ast.Compare, depth: int) -> evaluators.Run:
        first = self.required(node.expr, depth + 1)
        return evaluators.comparison(
            first, [(COMPARISONS[operand.op], self.required(operand.expr, depth + 1)) for operand in node.ops]
        )

    def logic(self, node: ast.And | ast.Or, depth: int) -> evaluators.Run:
        parts, operator = [], type(node)
        rest: Any = node
        while isinstance(rest, operator):
            parts.append(rest.right)
            rest = rest.left
        runs = [self.required(part, depth + 1) for part in (rest, *reversed(parts))]
        return evaluators.all_of(runs) if operator is ast.And else evaluators.any_of(runs)

    def arithmetic(self, node: ast.BinExpr, depth: int) -> evaluators.Run:
        steps: list[tuple[Callable[[Any, Any], Any], Any]] = []
        rest: Any = node
        while isinstance(rest, ast.BinExpr) and rest.operator in ARITHMETIC:
            self._operation()
            steps.append((ARITHMETIC[rest.operator], rest.right))
            rest = rest.left
        if not steps:
            raise self._rejected(node)
        first = self.required(rest, depth + 1)
        return evaluators.arithmetic(
            first, [(compute, self.required(right, depth + 1)) for compute, right in reversed(steps)]
        )

    def prefix(self, node: ast.Neg | ast.Pos, depth: int) -> evaluators.Run:
        compute = negative if isinstance(node, ast.Neg) else positive
        return evaluators.apply(compute, self.required(node.node, depth + 1), {})

    def negation(self, node: ast.Not, depth: int) -> evaluators.Run:
        run = self.required(node.node, depth + 1)
        return lambda scope: not run(scope)

    def choice(self, node: ast.CondExpr, depth: int) -> evaluators.Run:
        if node.expr2 is None:
            offset = line_start(self._text, node.lineno)
            raise ExpressionInvalid("`if` needs an `else`", offset=offset, hint="write `a if b else c`")
        then = self.required(node.expr1, depth + 1)
        test = self.required(node.test, depth + 1)
        return evaluators.choice(test, then, self.required(node.expr2, depth + 1))

    def test(self, node: ast.Test, depth: int) -> evaluators.Run:
        if node.name not in ("defined", "none"):
            hint = "there are `is defined`, `is not defined`, `is none` and `is not none`"
            raise ExpressionInvalid(f"`is {node.name}` is not part of the language", hint=hint)
        if node.args or node.kwargs or node.dyn_args or node.dyn_kwargs:
            raise ExpressionInvalid(f"`is {node.name}` takes no argument")
        if node.name == "defined":
            return evaluators.is_defined(self._optional(node.node, depth + 1))
        run = self.required(node.node, depth + 1)
        return lambda scope: run(scope) is None


_NODES: Sequence[tuple[Any, Callable[[_Compiler, Any, int], evaluators.Run]]] = (
    (ast.Const, _Compiler.const),
    (ast.List | ast.Tuple, _Compiler.array),
    (ast.Dict, _Compiler.mapping),
    (ast.Compare, _Compiler.comparison),
    (ast.And | ast.Or, _Compiler.logic),
    (ast.BinExpr, _Compiler.arithmetic),
    (ast.Neg | ast.Pos, _Compiler.prefix),
    (ast.Not, _Compiler.negation),
    (ast.CondExpr, _Compiler.choice),
    (ast.Test, _Compiler.test),
)


def _static_key(step: ast.Getattr | ast.Getitem) -> str | int | None:
    if isinstance(step, ast.Getattr):
        return step.attr
    key: Any = step.arg
    sign = 1
    if isinstance(key, ast.Neg):
        key, sign = key.node, -1
    value = key.value if isinstance(key, ast.Const) else None
    if isinstance(value, str) and sign == 1:
        return value
    return sign * value if value.__class__ is int else None
