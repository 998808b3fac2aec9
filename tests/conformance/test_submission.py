"""What a client may write: jobs, and commands to them."""

from __future__ import annotations

import asyncio
import json

import pytest

from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.job_records import Accepted, StoredWorkflow
from dagmaster.records.workflows import state_of
from tests.conformance.jobs import ONE, Scene, a_job, submitted


async def test_a_submitted_job_is_pending_and_its_first_event_names_the_submitter(world):
    client = await world.client()
    mine = await submitted(world, client, submitted_by="ada")
    nobodys = await submitted(world, client)
    assert (await world.job(mine)).status == "PENDING"
    assert (await world.job(mine)).owner is None
    events = [
        (event.seq, event.type, event.by)
        for event in (*await world.events(mine), *await world.events(nobodys))
    ]
    assert events == [(1, "JobSubmitted", "ada"), (1, "JobSubmitted", "anonymous")]


async def test_a_claimed_job_is_what_was_submitted(world):
    client, orchestrator = await world.client(), await world.orchestrator()
    job_id = await submitted(
        world,
        client,
        inputs='{"b": [1, null], "a": "ä"}',
        env='{"E": "1"}',
        priority=7,
        queue="run:x",
        workflows='{"other": "hash"}',
    )
    (claimed,) = await orchestrator.claim(10)
    assert claimed.row.id == job_id
    assert (claimed.new.workflow_id, claimed.new.version, claimed.new.content_hash) == (
        ONE.workflow_id,
        ONE.version,
        ONE.content_hash,
    )
    assert list(claimed.inputs.items()) == [("b", [1, None]), ("a", "ä")]
    assert (claimed.env, claimed.new.priority, claimed.new.queue) == ({"E": "1"}, 7, "run:x")
    assert (claimed.workflows, claimed.new.depth, claimed.new.parent) == ({"other": "hash"}, 0, None)
    assert (claimed.nodes, claimed.tasks, claimed.event_seq) == ((), {}, 2)


# ── Keys ──


async def test_the_same_key_and_body_give_the_same_job(world):
    client = await world.client()
    first = await submitted(world, client, idempotency_key="k", body_hash="x")
    again = await client.submit([a_job(world, idempotency_key="k", body_hash="x")])
    assert again == [Accepted(first, is_new=False, same=True)]
    assert [event.seq for event in await world.events(first)] == [1]


async def test_the_same_key_with_another_body_is_reported(world):
    client = await world.client()
    first = await submitted(world, client, idempotency_key="k", body_hash="x")
    again = await client.submit([a_job(world, idempotency_key="k", body_hash="y")])
    assert again == [Accepted(first, is_new=False, same=False)]


async def test_the_same_key_of_another_submitter_is_another_job(world):
    client = await world.client()
    first = await submitted(world, client, idempotency_key="k", submitted_by="ada")
    other = await submitted(world, client, idempotency_key="k", submitted_by="bob")
    assert first != other


async def test_each_submitter_of_a_shared_key_gets_its_own_job_back(world):
    client = await world.client()
    jobs = {
        name: await submitted(world, client, idempotency_key="k", submitted_by=name)
        for name in ("ada", "bob")
    }
    for name, job_id in (*jobs.items(), *reversed(jobs.items())):
        again = a_job(world, idempotency_key="k", submitted_by=name)
        assert await client.submit([again]) == [Accepted(job_id, is_new=False)]


async def test_jobs_without_a_key_are_all_new(world):
    client = await world.client()
    await submitted(world, client)
    accepted = await client.submit([a_job(world), a_job(world)])
    assert [each.is_new for each in accepted] == [True, True]


async def test_a_batch_is_answered_in_its_order_whatever_is_new(world):
    client = await world.client()
    known = await submitted(world, client, idempotency_key="k")
    one, two, three, four = jobs = [
        a_job(world),
        a_job(world, idempotency_key="k"),
        a_job(world, idempotency_key="l"),
        a_job(world, idempotency_key="l"),
    ]
    assert two.id != four.id
    assert await client.submit(jobs) == [
        Accepted(one.id, is_new=True),
        Accepted(known, is_new=False),
        Accepted(three.id, is_new=True),
        Accepted(three.id, is_new=False),
    ]


async def test_twenty_submits_of_one_key_at_once_make_one_job(world):
    clients = [await world.client() for _ in range(5)]
    await clients[0].put_graph(ONE.content_hash, json.dumps(ONE.definition))
    jobs = [a_job(world, idempotency_key="k") for _ in range(20)]
    answers = await asyncio.gather(*(clients[place % 5].submit([job]) for place, job in enumerate(jobs)))
    accepted = [each for (each,) in answers]
    assert len({each.job_id for each in accepted}) == 1
    assert [each.is_new for each in accepted].count(True) == 1
    orchestrator = await world.orchestrator()
    assert len(await orchestrator.claim(100)) == 1


# ── Commands ──


async def test_a_command_waits_until_a_turn_takes_it(world):
    scene = await Scene.begin(world)
    assert await scene.client.send(scene.job_id, CommandKind.SIGNAL, {"name": "go", "payload": [1]}, "ada")
    (command,) = await scene.orchestrator.read_commands(10)
    assert (command.job_id, command.kind, command.sent_by) == (scene.job_id, "signal", "ada")
    assert command.body == {"name": "go", "payload": [1]}
    assert await scene.orchestrator.read_commands(10) == [command]
    await scene.write(commands=[command.id])
    assert await scene.orchestrator.read_commands(10) == []


async def test_commands_come_in_the_order_in_which_they_were_sent_and_at_most_so_many(world):
    scene = await Scene.begin(world)
    for number in range(4):
        await scene.client.send(scene.job_id, CommandKind.SIGNAL, {"name": str(number)}, "")
    commands = await scene.orchestrator.read_commands(3)
    assert [command.body["name"] for command in commands] == ["0", "1", "2"]


async def test_a_command_is_read_only_by_the_owner_of_its_job(world):
    scene = await Scene.begin(world)
    other = await world.orchestrator()
    await scene.client.send(scene.job_id, CommandKind.CANCEL, {}, "")
    assert await other.read_commands(10) == []


async def test_a_turn_takes_no_command_of_another_job(world):
    scene = await Scene.begin(world)
    other = await Scene.begin(world, scene.orchestrator)
    await scene.client.send(other.job_id, CommandKind.CANCEL, {}, "")
    (command,) = await scene.orchestrator.read_commands(10)
    # It is written in one call with the turn of the job that it belongs to, or not at all.
    outsider = await Scene.begin(world, await world.orchestrator())
    await outsider.write(commands=[command.id])
    assert await scene.orchestrator.read_commands(10) == [command]


@pytest.mark.parametrize("job_id", ["1", "99999999999999999999"])
async def test_a_command_to_a_job_that_is_not_there_is_refused(world, job_id):
    client = await world.client()
    assert not await client.send(job_id, CommandKind.CANCEL, {}, "")


# ── Definitions ──


async def test_a_graph_is_kept_once_in_the_order_of_its_nodes(world):
    client, orchestrator = await world.client(), await world.orchestrator()
    await client.put_graph("hash", '{"z": 1, "a": {"c": 1, "b": 2}}')
    await client.put_graph("hash", "{}")
    definition = await orchestrator.definition("hash")
    assert json.dumps(definition) == '{"z": 1, "a": {"c": 1, "b": 2}}'
    assert await orchestrator.definition("other") is None


async def test_workflows_are_changed_only_while_they_are_as_their_caller_knows_them(world):
    client, orchestrator, reader = await world.client(), await world.orchestrator(), await world.reader()
    for content in ("one", "two", "three"):
        await client.put_graph(content, "{}")
    assert await client.publish(StoredWorkflow("w", 1, "one"), expected={"w": ""})
    known = state_of(await reader.versions("w"))
    assert await client.publish(StoredWorkflow("w", 2, "two"), expected={"w": known})
    # A caller that has read version 1 alone.
    assert not await client.publish(StoredWorkflow("w", 3, "three"), expected={"w": known})
    assert not await client.publish(
        StoredWorkflow("v", 1, "one"), StoredWorkflow("w", 3, "three"), expected={"w": known}
    )
    assert not await client.activate("w", 1, expected={"w": known})
    assert await reader.versions("v") == []
    assert await orchestrator.find_workflow("w", None) == StoredWorkflow("w", 2, "two")
    assert await client.activate("w", 1, expected={"w": state_of(await reader.versions("w"))})
    assert await orchestrator.find_workflow("w", None) == StoredWorkflow("w", 1, "one")
    # Two at once: one of them comes first, and the other one learns it.
    now = {"w": state_of(await reader.versions("w"))}
    other = await world.client()
    outcomes = await asyncio.gather(
        client.publish(StoredWorkflow("w", 3, "one"), expected=now),
        other.publish(StoredWorkflow("w", 3, "two"), expected=now),
    )
    assert sorted(outcomes) == [False, True]


async def test_a_published_workflow_is_found_by_its_version_or_as_the_active_one(world):
    client, orchestrator = await world.client(), await world.orchestrator()
    await client.put_graph("one", "{}")
    await client.put_graph("two", "{}")
    await client.publish(StoredWorkflow("w", 1, "one"))
    await client.publish(StoredWorkflow("w", 2, "two"))
    assert await orchestrator.find_workflow("w", 1) == StoredWorkflow("w", 1, "one")
    assert await orchestrator.find_workflow("w", None) == StoredWorkflow("w", 2, "two")
    assert await orchestrator.find_workflow("w", 3) is None
    assert await orchestrator.find_workflow("v", None) is None
