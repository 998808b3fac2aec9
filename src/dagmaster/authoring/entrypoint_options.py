"""The options that `@task` gives a function, read from its source without importing its module.

Only literals are read: what a name or a call in a decorator stands for is known when the module is imported.
"""

from __future__ import annotations

import ast
import contextlib
from typing import TYPE_CHECKING, Any, Final

from dagmaster.authoring.entrypoint_sources import find_definition

if TYPE_CHECKING:
    from collections.abc import Mapping

_OPTIONS: Final = frozenset({"queue", "retry", "timeout_seconds"})


def read_options(entrypoint: str) -> Mapping[str, Any]:
    """Return the options of the `@task` decorator of a function; none if there is no certain source of it."""
    definition = find_definition(entrypoint)
    calls = [] if definition is None else [one for one in definition.decorator_list if isinstance(one, ast.Call)]
    options: dict[str, Any] = {}
    for call in calls:
        for keyword in call.keywords if ast.unparse(call.func).rpartition(".")[2] == "task" else ():
            if keyword.arg in _OPTIONS:
                with contextlib.suppress(ValueError):
                    options[keyword.arg] = ast.literal_eval(keyword.value)
    return options
