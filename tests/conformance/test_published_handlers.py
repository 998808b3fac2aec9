"""Handlers that workers publish: once, in the version of live workers; and hidden jobs, which test them."""

from __future__ import annotations

from dagmaster.engine.decisions import FinishJob
from dagmaster.engine.status import JobStatus
from dagmaster.ports.handler_definitions import HandlerDefinition
from dagmaster.ports.job_filter import JobFilter
from tests.conformance.jobs import Scene, a_turn


def a_definition(name: str, version: str = "1", text: str = "{}") -> HandlerDefinition:
    return HandlerDefinition(name, version, f"hash of {text}", text)


async def test_what_a_worker_publishes_is_read_by_name(world):
    worker, reader = await world.worker(handlers={"b": "1", "a": "2"}), await world.reader()
    assert await reader.handlers() == []
    await worker.publish_handlers([])
    await worker.publish_handlers([a_definition("b", text='{"b": [1]}'), a_definition("a", "2")])
    one, two = await reader.handlers()
    assert [(each.name, each.version, each.workers) for each in (one, two)] == [("a", "2", 1), ("b", "1", 1)]
    assert two.definition == {"b": [1]}
    assert [each.name for each in await reader.handlers(limit=1)] == ["a"]
    assert [each.name for each in await reader.handlers(after=("a",), limit=9)] == ["b"]
    assert await reader.handlers(after=("b",)) == []


async def test_only_a_change_is_published_again(world):
    worker, reader = await world.worker(), await world.reader()
    await worker.publish_handlers([a_definition("a"), a_definition("b")])
    first = {each.name: each.published_at for each in await reader.handlers()}
    await world.move(10)
    await worker.publish_handlers([a_definition("a"), a_definition("b", text='{"changed": true}')])
    unchanged, changed = await reader.handlers()
    assert unchanged.published_at == first["a"]
    assert changed.published_at > first["b"]
    assert changed.definition == {"changed": True}


async def test_the_version_of_live_workers_is_shown_else_the_last_published_one(world):
    reader = await world.reader()
    old = await world.worker(handlers={"h": "1"})
    await old.publish_handlers([a_definition("h", "1")])
    await world.move(1)
    new = await world.worker(handlers={"h": "2"})
    await new.publish_handlers([a_definition("h", "2")])

    async def shown() -> tuple[str, int, tuple[str, ...]]:
        (record,) = await reader.handlers()
        return record.version, record.workers, record.other_versions

    assert await shown() == ("2", 1, ("1",))
    await new.deregister()
    assert await shown() == ("1", 1, ("2",))
    await old.deregister()
    assert await shown() == ("2", 0, ("1",))


async def test_a_hidden_job_is_in_no_list_and_no_count_but_found_by_its_id(world):
    shown = await Scene.begin(world)
    hidden = await Scene.begin(world, shown.orchestrator, is_hidden=True, name="test of h")
    reader = await world.reader()
    for job_filter in (JobFilter(), JobFilter(text="test"), JobFilter(statuses=frozenset(JobStatus))):
        jobs = [job.job_id for job in await reader.jobs(job_filter)]
        assert hidden.job_id not in jobs
    assert [job.job_id for job in await reader.jobs(JobFilter())] == [shown.job_id]
    assert sum((await reader.job_counts(JobFilter())).values()) == 1
    assert await reader.job_counts(JobFilter(text="test")) == {}
    assert await reader.newest_job_id() == shown.job_id
    assert {event.job_id for event in await reader.recent_events()} == {shown.job_id}
    assert (await reader.event_counts())["JobSubmitted"] == 1
    job = await reader.job(hidden.job_id)
    assert job is not None
    assert len(await reader.events(hidden.job_id)) == 2


async def test_a_finished_hidden_job_is_not_counted(world):
    shown = await Scene.begin(world)
    hidden = await Scene.begin(world, shown.orchestrator, is_hidden=True)
    for scene in (shown, hidden):
        turn = a_turn(await scene.now(), finished=FinishJob(JobStatus.COMPLETED))
        turn.job.status = JobStatus.COMPLETED
        assert await scene.orchestrator.commit_turns([turn], scene.orchestrator.clock.now()) == {scene.job_id}
    reader = await world.reader()
    assert await reader.job_counts(JobFilter()) == {JobStatus.COMPLETED: 1}
    completed = frozenset({JobStatus.COMPLETED})
    assert [job.job_id for job in await reader.jobs(JobFilter(statuses=completed))] == [shown.job_id]


async def test_a_claimed_task_has_the_trace_context_of_its_submit(world):
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    traced = await Scene.begin(world, trace_parent=trace)
    plain = await Scene.begin(world, traced.orchestrator)
    await traced.dispatch("a")
    await plain.dispatch("a")
    worker = await world.worker()
    claimed = {task.job_id: task.trace_parent for task in await worker.claim(5)}
    assert claimed == {traced.job_id: trace, plain.job_id: None}
