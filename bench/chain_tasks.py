"""A chain of tasks with decorators, for `bench.python_graphs`."""

from __future__ import annotations

from typing import Any

from dagmaster import task, workflow

CHAIN = 40


@task(queue="default")
async def step(x: int) -> int:
    """Return the value."""
    return x


@workflow
def decorated_chain(x: int) -> Any:
    """Let each task take the result of the one before."""
    value: Any = x
    for _ in range(CHAIN):
        value = step(value)
    return value
