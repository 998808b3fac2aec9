"""The trace context of a submit reaches the owner of the job and the workers of its tasks."""

from __future__ import annotations

from tests.conformance.jobs import Scene

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_the_owner_and_the_worker_get_the_trace_context_of_the_submit(world):
    scene = await Scene.begin(world, trace_parent=TRACE)
    assert (await scene.now()).new.trace_parent == TRACE
    await scene.dispatch()
    worker = await world.worker("q")
    (task,) = await worker.claim(10)
    assert task.trace_parent == TRACE


async def test_a_job_without_a_trace_has_none(world):
    scene = await Scene.begin(world)
    assert (await scene.now()).new.trace_parent is None
