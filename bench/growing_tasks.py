"""A handler that adds tasks to its own job, for `bench.python_graphs`."""

from __future__ import annotations

from dagmaster import create_result_collector, create_task, get_current_context, handler, handler_task


@handler("bench.grow", queue="default")
async def grow(count: int) -> dict[str, int]:
    """Add tasks of the handler that the fan-out runs, and one that collects their results."""
    chunk = handler_task("chunk_processor")
    tasks = [create_task(chunk, {"chunk": [number]}) for number in range(count)]
    await get_current_context().apply([tasks, create_result_collector(tasks)])
    return {"count": count}
