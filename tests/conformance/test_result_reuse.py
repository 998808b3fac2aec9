"""What a job that was resumed from another finds of it, in every store."""

from __future__ import annotations

import pytest

from dagmaster.engine.events import JobStarted, ResumeRequested
from dagmaster.engine.status import AttemptStatus
from dagmaster.errors import PermanentError
from dagmaster.orchestrator.owned_job import OwnedJob
from dagmaster.ports.job_filter import JobFilter
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.reusable_results import SourceNode
from dagmaster.ports.task_ledger import TaskReport
from tests.conformance.jobs import Played, a_job, submitted

CHAIN = "{name: chain, nodes: {a: {handler: h, queue: q, params: {n: 1}, next: f}, f: {type: fan_out, source: [1, 2], task: {handler: h, queue: q, retry: none, params: {n: '{{ item }}'}}}}}"


async def played(world) -> Played:
    """Return a job of which one child failed."""
    result = await Played.begin(world, CHAIN)
    await result.work({"a": {"x": 1}})
    await result.check_rows()
    await result.work({"f__0": {"y": 2}, "f__1": PermanentError("broken")})
    return result


async def test_a_job_says_what_it_was_resumed_from_and_what_is_to_be_redone(world):
    client, orchestrator = await world.client(), await world.orchestrator()
    first = await submitted(world, client)
    second = await submitted(world, client, resumed_from=first, redo=("b", "a"))
    claimed = {each.row.id: each for each in await orchestrator.claim(10)}
    assert (claimed[first].new.resumed_from, claimed[first].new.redo) == (None, ())
    assert (claimed[second].new.resumed_from, claimed[second].new.redo) == (first, ("b", "a"))
    (again,) = await orchestrator.load_owned([second])
    assert (again.new.resumed_from, again.new.redo) == (first, ("b", "a"))
    submits = [(await world.events(job_id))[0].data for job_id in (first, second)]
    assert submits == [{}, {"resumed_from": first}]


async def test_the_jobs_that_resumed_others_are_listed(world):
    client, reader = await world.client(), await world.reader()
    first, other = await submitted(world, client), await submitted(world, client)
    second = await submitted(world, client, resumed_from=first)
    third = await submitted(world, client, resumed_from=first)
    records = await reader.jobs(JobFilter(resumed_from=frozenset({first, other, "nonsense"})))
    assert [(record.job_id, record.resumed_from) for record in records] == [(third, first), (second, first)]
    assert await reader.jobs(JobFilter(resumed_from=frozenset({third, "nonsense"}))) == []


async def test_a_job_can_only_be_resumed_from_one_that_is_there(world):
    client = await world.client()
    await submitted(world, client)
    try:
        await client.submit([a_job(world, resumed_from="123")])
    except Exception:  # noqa: BLE001 - each store has its own way to say so
        return
    raise AssertionError("a job was resumed from one that is not there")


async def test_the_past_is_what_completed_with_its_fingerprint_and_the_version_that_made_it(world):
    job = await played(world)
    past = await job.orchestrator.load_source_job(job.job_id)
    nodes = job.held.job.nodes
    assert past.job_id == job.job_id
    assert sorted(past.nodes) == [
        SourceNode("a", nodes["a"].fingerprint or b"", "7", 1),
        SourceNode("f__0", nodes["f__0"].fingerprint or b"", "7", 1),
    ]
    assert len({nodes[name].fingerprint for name in ("a", "f__0", "f__1")}) == 3


async def test_an_output_of_the_past_is_given_while_it_is_what_it_was(world):
    job = await played(world)
    past = await job.orchestrator.load_source_job(job.job_id)
    result = await job.orchestrator.load_source_outputs(job.job_id, past.nodes)
    assert {name: value.value() for name, value in result.items()} == {"a": {"x": 1}, "f__0": {"y": 2}}
    others = [node._replace(fingerprint=b"another") for node in past.nodes]
    assert await job.orchestrator.load_source_outputs(job.job_id, others) == {}
    await (await world.client()).send(job.job_id, "resume", {}, "")
    (claimed,) = await job.orchestrator.claim(10)
    job.held = OwnedJob(claimed, job.held.job.graph, job.orchestrator)
    await job.turn(ResumeRequested(("a",)))
    assert await job.orchestrator.load_source_outputs(job.job_id, past.nodes) == {}


async def test_an_output_of_the_past_is_given_with_the_version_and_the_attempt_that_made_it_or_not_at_all(
    world,
):
    job = await played(world)
    past = await job.orchestrator.load_source_job(job.job_id)
    await (await world.client()).send(job.job_id, "resume", {}, "")
    (claimed,) = await job.orchestrator.claim(10)
    job.held = OwnedJob(claimed, job.held.job.graph, job.orchestrator)
    await job.turn(ResumeRequested(("a",)))
    await job.work({"a": {"x": 1}})
    again = await job.orchestrator.load_source_job(job.job_id)
    (before,), (now,) = ([node for node in each.nodes if node.node_id == "a"] for each in (past, again))
    assert now == before._replace(attempt=2)
    assert await job.orchestrator.load_source_outputs(job.job_id, [before]) == {}
    for version in ("8", None):
        assert (
            await job.orchestrator.load_source_outputs(job.job_id, [now._replace(handler_version=version)])
            == {}
        )
    (output,) = (await job.orchestrator.load_source_outputs(job.job_id, [now])).values()
    assert output.value() == {"x": 1}


async def test_a_large_output_of_the_past_is_given_by_its_name(world):
    job = await Played.begin(world, "{name: one, nodes: {a: {handler: h, queue: q}}}")
    await world.blobs.write("jobs/a.json", b'{"x": 1}')
    (result,) = await claimed_and_reported(job, JsonText(ref="jobs/a.json"))
    assert result == "a"
    past = await job.orchestrator.load_source_job(job.job_id)
    assert await job.orchestrator.load_source_outputs(job.job_id, past.nodes) == {
        "a": JsonText(ref="jobs/a.json")
    }


async def claimed_and_reported(job: Played, output: JsonText) -> list[str]:
    tasks = await job.worker.claim(10)
    await job.worker.report(
        [TaskReport(task.task_id, task.token, AttemptStatus.COMPLETED, output=output) for task in tasks]
    )
    await job.gather()
    return [task.node_id for task in tasks]


@pytest.mark.parametrize(("deployed", "status"), [("7", "COMPLETED"), ("8", "DISPATCHED")])
async def test_a_result_is_used_again_if_its_handler_is_the_same_when_the_node_starts(
    world, deployed, status
):
    old = await Played.begin(world, "{name: one, nodes: {a: {handler: h, queue: q}}}")
    await old.worker.register((), 4, {"h": "7"})
    await old.work({"a": {"x": 1}})
    graph, orchestrator = old.held.job.graph, old.orchestrator
    await submitted(world, await world.client(), graph, resumed_from=old.job_id)
    (claimed,) = await orchestrator.claim(10)
    past = await orchestrator.load_source_job(old.job_id)
    held = OwnedJob(claimed, graph, orchestrator, source=past, reusable=orchestrator)
    await (await world.worker()).register((), 4, {"h": deployed})
    await Played(world, orchestrator, old.worker, held).turn(JobStarted())
    assert held.job.nodes["a"].status.value == status


async def test_the_versions_of_a_handler_come_from_live_workers_else_the_last_that_was_seen(world):
    orchestrator = await world.orchestrator()
    one, two, three = await world.worker(), await world.worker(), await world.worker()
    await one.register((), 4, {"h": "1", "old": "1"})
    await two.register((), 4, {"h": "2", "old": "5"})
    await three.register((), 4, {"h": "2", "new": "x"})
    known = await orchestrator.known_handlers()
    assert known.versions == {"h": {"1", "2"}, "old": {"1", "5"}, "new": {"x"}}
    assert known.served == {"h", "old", "new"}
    assert not known.is_current("h", "2")
    await world.silence(one, 60.0)
    await two.deregister()
    known = await orchestrator.known_handlers()
    assert known.versions == {"h": {"2"}, "old": {"5"}, "new": {"x"}}
    assert known.served == {"h", "new"}
    assert known.is_current("h", "2")
    assert known.is_current("old", "5")
    assert not known.is_current("old", "1")
    assert known.is_current("nobody ever had it", "3")
