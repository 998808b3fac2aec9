"""Evaluators: the closures from a scope to a value that a compiled expression consists of.

A path, `default`, and a filter such as `first` may return `Missing` instead of a value; `present` turns that
into a failure. This module does not know the grammar.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from dagmaster.engine.expressions.json_values import ABSENT, Missing, json_type, missing, pick
from dagmaster.errors import EvaluationFailed

if TYPE_CHECKING:
    from dagmaster.json_types import JsonValue

Run = Callable[[Mapping[str, Any]], Any]


def present(run: Run) -> Run:
    """Raise `EvaluationFailed` if the value is missing."""

    def check(scope: Mapping[str, Any]) -> Any:
        value = run(scope)
        if value.__class__ is Missing:
            raise EvaluationFailed(value.sentence, path=value.path)
        return value

    return check


def static_path(keys: tuple[str | int, ...]) -> Run:
    def walk(scope: Mapping[str, Any]) -> Any:
        value: Any = scope
        for index, key in enumerate(keys):
            # A dict is the usual case, and `pick` costs three times as much.
            item = value.get(key, ABSENT) if value.__class__ is dict else pick(value, key)
            if item is ABSENT:
                return missing(value, keys[: index + 1])
            value = item
        return value

    return walk


def computed_path(base: Run, path: tuple[str | int, ...], keys: Sequence[Any]) -> Run:
    """Evaluate a path that continues from `base`, which is at `path`. A key may be a closure."""

    def walk(scope: Mapping[str, Any]) -> Any:
        value = base(scope)
        walked = list[Any](path)
        for step in keys:
            if value.__class__ is Missing:
                return value
            walked.append(step(scope) if callable(step) else step)
            item = pick(value, walked[-1])
            value = missing(value, walked) if item is ABSENT else item
        return value

    return walk


def slice_between(start: Run | None, stop: Run | None) -> Run:
    """Evaluate a subscript `[start:stop]` to a slice."""

    def end(run: Run | None, scope: Mapping[str, JsonValue]) -> JsonValue:
        value = None if run is None else run(scope)
        if value is not None and value.__class__ is not int:
            raise EvaluationFailed(f"a slice goes from integer to integer, not {json_type(value)}")
        return value

    return lambda scope: slice(end(start, scope), end(stop, scope))


def secret(_scope: Mapping[str, JsonValue]) -> NoReturn:
    """Reject the evaluation of a secret: the worker fills it in."""
    raise EvaluationFailed("a secret has no value here; only the params of a task may name one")


def refused(problem: str) -> Run:
    """Evaluate what an earlier version accepted and this one refuses: it fails."""

    def fail(_scope: Mapping[str, JsonValue]) -> NoReturn:
        raise EvaluationFailed(problem)

    return fail


def default(value: Run, fallback: Run, boolean: Run | None) -> Run:
    """Evaluate the filter `default`. The fallback is evaluated only when it is needed."""

    def choose(scope: Mapping[str, Any]) -> Any:
        item = value(scope)
        if item.__class__ is Missing:
            return fallback(scope)
        if boolean is not None and not item and boolean(scope):
            return fallback(scope)
        return item

    return choose


def is_defined(value: Run) -> Run:
    return lambda scope: value(scope).__class__ is not Missing


def apply(compute: Callable[..., Any], value: Run, arguments: Mapping[str, Run]) -> Run:
    """Evaluate a filter or a prefix operator."""
    if not arguments:
        return lambda scope: compute(value(scope))
    pairs = tuple(arguments.items())
    return lambda scope: compute(value(scope), **{name: run(scope) for name, run in pairs})


def constant(value: JsonValue) -> Run:
    return lambda _scope: value


def array(items: Sequence[Run]) -> Run:
    """Evaluate `[a, b]` to a new list."""
    return lambda scope: [run(scope) for run in items]


def mapping(items: Mapping[str, Run]) -> Run:
    """Evaluate `{'a': b}` to a new dict."""
    pairs = tuple(items.items())
    return lambda scope: {key: run(scope) for key, run in pairs}


def comparison(first: Run, steps: Sequence[tuple[Callable[[Any, Any], Any], Run]]) -> Run:
    """Evaluate `a < b <= c`: each value once, up to the first comparison that is false."""
    if len(steps) == 1:
        compare, second = steps[0]
        return lambda scope: compare(first(scope), second(scope))

    def chain(scope: Mapping[str, JsonValue]) -> bool:
        left = first(scope)
        for compare, run in steps:
            right = run(scope)
            if not compare(left, right):
                return False
            left = right
        return True

    return chain


def all_of(runs: Sequence[Run]) -> Run:
    """Evaluate `a and b`: the first value that is false, else the last one, as in Python."""

    def decide(scope: Mapping[str, Any]) -> Any:
        value: JsonValue = None
        for run in runs:
            value = run(scope)
            if not value:
                break
        return value

    return decide


def any_of(runs: Sequence[Run]) -> Run:
    """Evaluate `a or b`: the first value that is true, else the last one, as in Python."""

    def decide(scope: Mapping[str, Any]) -> Any:
        value: JsonValue = None
        for run in runs:
            value = run(scope)
            if value:
                break
        return value

    return decide


def arithmetic(first: Run, steps: Sequence[tuple[Callable[[Any, Any], Any], Run]]) -> Run:
    """Evaluate `a + b - c` from left to right."""
    if len(steps) == 1:
        compute, second = steps[0]
        return lambda scope: compute(first(scope), second(scope))

    def chain(scope: Mapping[str, Any]) -> Any:
        value = first(scope)
        for compute, run in steps:
            value = compute(value, run(scope))
        return value

    return chain


def choice(test: Run, then: Run, otherwise: Run) -> Run:
    return lambda scope: then(scope) if test(scope) else otherwise(scope)
