"""The options that `@task` gives a function, read from its source without importing its module.

Only literals are read: what a name or a call in a decorator stands for is known when the module is imported.
If one option is no literal, none of them applies: a task has all options of its function, or none.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from dagmaster.sdk.entrypoint_sources import find_definition

if TYPE_CHECKING:
    from collections.abc import Mapping

DECORATOR_OPTIONS: Final = ("queue", "retry", "timeout_seconds")
"""The options of tasks that `@task` takes."""


# What `ast.literal_eval` raises of an expression that is no literal, or of one that has no value, as `{[]:
# 1}`.
_NO_LITERAL: Final = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError)


def read_options(entrypoint: str) -> Mapping[str, Any]:
    """Return the options of the `@task` decorator of a function; none if their source is not certain."""
    definition = find_definition(entrypoint)
    calls = (
        [] if definition is None else [one for one in definition.decorator_list if isinstance(one, ast.Call)]
    )
    keywords = [keyword for call in calls if _is_task(call) for keyword in call.keywords]
    if any(keyword.arg is None for keyword in keywords):
        # `**options` may have any of them.
        return {}
    try:
        return {one.arg: ast.literal_eval(one.value) for one in keywords if one.arg in DECORATOR_OPTIONS}
    except _NO_LITERAL:
        return {}


def _is_task(decorator: ast.Call) -> bool:
    return ast.unparse(decorator.func).rpartition(".")[2] == "task"
