"""Where checks of what a caller sent run: small ones at once, others in a thread or a killable process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from dagmaster.authoring.check_budget import QUICK_STEPS, CheckBudget, CheckStopped
from dagmaster.errors import InputsInvalid, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dagmaster.engine.graph import Graph
    from dagmaster.json_types import JsonObject, JsonValue

P = ParamSpec("P")
T = TypeVar("T")


class Checks(Protocol):
    """Runs checks away from the event loop."""

    def on_behalf_of(self, actor: str) -> Checks:
        """Return the same for the requests of one caller, who has a share of it."""

    async def check(self, function: Callable[..., JsonValue], /, **arguments: Any) -> Any:
        """Call a function of a module with JSON; the answer is JSON.

        Raise `CheckLimitExceeded` if it took too much.
        """

    async def run(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call a function on what was checked."""


class LocalChecks:
    """Checks of one user's process, as of a command: in a thread, limited by its budget alone."""

    def on_behalf_of(self, actor: str) -> LocalChecks:  # noqa: ARG002 - one user has all of it
        return self

    async def check(self, function: Callable[..., JsonValue], /, **arguments: Any) -> Any:
        return await asyncio.to_thread(function, **arguments)

    async def run(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        return await asyncio.to_thread(work, *args, **options)


async def accept_inputs_apart(checks: Checks, graph: Graph, values: Mapping[str, JsonValue]) -> JsonObject:
    """Do what `accept_inputs` does: a small check at once, a large one where it can be stopped."""
    from dagmaster.authoring.inputs import accept_inputs

    try:
        return accept_inputs(graph, values, CheckBudget(QUICK_STEPS))
    except CheckStopped:
        return await accept_slowly(checks, graph, values)


async def accept_slowly(checks: Checks, graph: Graph, values: Mapping[str, JsonValue]) -> JsonObject:
    """Accept inputs whose check has spent the quick budget."""
    answer = await checks.check(check_inputs, definitions=dict(graph.inputs), values=dict(values))
    if answer["problems"]:
        raise InputsInvalid([Problem(**problem) for problem in answer["problems"]])
    inputs: JsonObject = answer["inputs"]
    return inputs


def check_inputs(definitions: dict[str, Any], values: JsonObject) -> JsonObject:
    """Check inputs in a check process; return them with their defaults, or their problems."""
    from dagmaster.authoring.inputs import accept_values

    try:
        return {"problems": [], "inputs": accept_values(definitions, values)}
    except InputsInvalid as error:
        return {"problems": [problem.to_dict() for problem in error.problems], "inputs": None}
