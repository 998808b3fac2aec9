"""Who owns a job, since when, and until when; and who is told."""

from __future__ import annotations

import asyncio

import pytest

from dagmaster.engine.decisions import FinishJob
from dagmaster.engine.status import JobStatus
from dagmaster.errors import OwnershipLost
from dagmaster.ports.audit_events import AuditEvent, EventType
from dagmaster.ports.command_kinds import CommandKind
from dagmaster.ports.json_text import JsonText
from tests.conformance.jobs import Scene, a_job, a_turn, submitted, wait_for_event


async def finished(scene: Scene, result: str = '{"n": 1}') -> None:
    """End the job of a scene."""
    turn = a_turn(await scene.now(), events=[AuditEvent(EventType.JOB_FINISHED)])
    turn.job.status = JobStatus.COMPLETED
    turn.finished, turn.result = FinishJob(JobStatus.COMPLETED, {"n": 1}), JsonText(result)
    assert await scene.orchestrator.commit_turns([turn], scene.orchestrator.clock.now()) == {scene.job_id}


# ── Claiming ──


async def test_the_most_urgent_job_is_claimed_first_then_the_oldest(world):
    client, orchestrator = await world.client(), await world.orchestrator()
    jobs = [await submitted(world, client, priority=priority) for priority in (5, 0, 10, 5, 10)]
    claimed = await orchestrator.claim(10)
    assert [job.row.id for job in claimed] == [jobs[place] for place in (2, 4, 0, 3, 1)]


async def test_one_job_is_claimed_alone_if_nobody_owns_it_and_there_is_something_to_decide(world):
    client, owner = await world.client(), await world.orchestrator()
    orchestrator = await world.orchestrator()
    first, second = [await submitted(world, client) for _ in range(2)]
    assert [job.row.id for job in await orchestrator.claim_job(second)] == [second]
    assert [job.row.id for job in await owner.claim(10)] == [first]
    assert await orchestrator.claim_job(first) == await orchestrator.claim_job(second) == []
    assert await orchestrator.claim_job("7") == []


async def test_one_job_that_is_over_is_claimed_alone_if_it_has_a_command(world):
    scene = await Scene.begin(world)
    await finished(scene)
    assert await scene.orchestrator.claim_job(scene.job_id) == []
    await scene.client.send(scene.job_id, CommandKind.RESUME, {}, "")
    assert len(await scene.orchestrator.claim_job(scene.job_id)) == 1


async def test_a_claim_takes_at_most_so_many_the_best_ones(world):
    client, orchestrator = await world.client(), await world.orchestrator()
    jobs = [await submitted(world, client, priority=priority) for priority in (1, 9, 5)]
    assert [job.row.id for job in await orchestrator.claim(2)] == [jobs[1], jobs[2]]
    assert [job.row.id for job in await orchestrator.claim(2)] == [jobs[0]]
    assert await orchestrator.claim(2) == []


async def test_a_claim_takes_at_most_so_many_also_of_jobs_that_are_over(world):
    scene = await Scene.begin(world)
    await finished(scene)
    await scene.client.send(scene.job_id, CommandKind.RESUME, {}, "")
    await submitted(world, scene.client)
    assert len(await scene.orchestrator.claim(1)) == 1


async def test_two_orchestrators_claim_each_job_once(world):
    client = await world.client()
    one, two = await world.orchestrator(), await world.orchestrator()
    jobs = {await submitted(world, client) for _ in range(12)}
    rounds = [await asyncio.gather(one.claim(2), two.claim(2)) for _ in range(7)]
    claimed = [job.row.id for both in rounds for each in both for job in each]
    assert sorted(claimed) == sorted(jobs)


async def test_each_claim_raises_the_epoch_and_appends_an_event(world):
    scene = await Scene.begin(world)
    assert (await scene.now()).epoch == 2
    await scene.write(release=True)
    other = await world.orchestrator()
    (claimed,) = await other.claim(10)
    assert (claimed.epoch, claimed.event_seq) == (4, 3)
    events = [(event.seq, event.type, event.data.get("epoch")) for event in await world.events(scene.job_id)]
    assert events[1:] == [(2, "JobClaimed", 1), (3, "JobClaimed", 4)]


async def test_with_a_queue_only_its_jobs_are_claimed(world):
    client, orchestrator = await world.client(), await world.orchestrator()
    await submitted(world, client)
    await submitted(world, client, queue="run:other")
    mine = await submitted(world, client, queue="run:mine")
    assert [job.row.id for job in await orchestrator.claim(10, "run:mine")] == [mine]
    assert len(await orchestrator.claim(10)) == 2


async def test_a_finished_job_is_claimed_again_only_if_it_has_a_command(world):
    scene = await Scene.begin(world)
    await finished(scene)
    assert await scene.orchestrator.claim(10) == []
    await scene.client.send(scene.job_id, CommandKind.RESUME, {}, "ada")
    (claimed,) = await scene.orchestrator.claim(10)
    assert (claimed.row.id, claimed.row.status) == (scene.job_id, JobStatus.COMPLETED)
    assert [command.kind for command in await scene.orchestrator.read_commands(10)] == ["resume"]


async def test_a_finished_job_keeps_its_result_when_it_rejects_a_command(world):
    scene = await Scene.begin(world)
    await finished(scene)
    before = await world.job(scene.job_id)
    await scene.client.send(scene.job_id, CommandKind.CANCEL, {}, "ada")
    (claimed,) = await scene.orchestrator.claim(10)
    (command,) = await scene.orchestrator.read_commands(10)
    turn = a_turn(claimed, commands=[command.id], events=[AuditEvent(EventType.COMMAND_REJECTED)])
    turn.job.status = JobStatus.COMPLETED
    assert await scene.orchestrator.commit_turns([turn], scene.orchestrator.clock.now()) == {scene.job_id}
    after = await world.job(scene.job_id)
    assert after.result == before.result == {"n": 1}
    assert (after.status, after.owner) == ("COMPLETED", None)


async def test_one_loads_ones_own_jobs_all_or_some_and_no_others(world):
    client = await world.client()
    one, two = await world.orchestrator(), await world.orchestrator()
    low = await submitted(world, client, priority=1)
    high = await submitted(world, client, priority=9)
    await one.claim(10)
    assert [job.row.id for job in await one.load_owned()] == [high, low]
    assert [job.row.id for job in await one.load_owned([low, "1"])] == [low]
    assert await one.load_owned([]) == []
    assert await two.load_owned() == []
    assert await two.load_owned([low]) == []


# ── Fences ──


async def test_a_turn_of_an_old_epoch_writes_nothing_while_the_other_job_of_the_call_is_written(world):
    scene = await Scene.begin(world)
    other = await Scene.begin(world, scene.orchestrator)
    stale = await scene.now()
    await scene.write(release=True)
    (again,) = await scene.orchestrator.claim(10)
    assert again.epoch == (await world.job(scene.job_id)).epoch > stale.epoch
    await scene.client.send(scene.job_id, CommandKind.CANCEL, {}, "")
    (command,) = await scene.orchestrator.read_commands(10)
    events = await world.events(scene.job_id)

    old = a_turn(stale, events=[AuditEvent(EventType.JOB_STARTED)], commands=[command.id], release=True)
    old.job.run = 7
    old.added.append(old.job.nodes["a"])
    good = a_turn(await other.now(), events=[AuditEvent(EventType.JOB_STARTED)])
    written = await scene.orchestrator.commit_turns([old, good], scene.orchestrator.clock.now())

    assert written == {other.job_id}
    assert (await world.events(other.job_id))[-1].type == "JobStarted"
    assert await world.events(scene.job_id) == events
    assert await scene.orchestrator.read_commands(10) == [command]
    assert (await world.job(scene.job_id)).epoch == again.epoch
    now = await scene.now()
    assert (now.row.run, now.nodes) == (1, ())


async def test_a_turn_from_before_the_job_was_loaded_again_writes_nothing(world):
    """Its answer was lost, and the server may still be at it when the same owner has loaded the job again."""
    scene = await Scene.begin(world)
    stale = await scene.now()
    fresh = await scene.now()
    now = scene.orchestrator.clock.now()
    assert (
        await scene.orchestrator.commit_turns(
            [a_turn(stale, events=[AuditEvent(EventType.JOB_STARTED)])], now
        )
        == set()
    )
    assert await scene.orchestrator.commit_turns(
        [a_turn(fresh, events=[AuditEvent(EventType.JOB_STARTED)])], now
    ) == {scene.job_id}


async def test_a_turn_that_leaves_out_events_or_tells_them_twice_writes_nothing(world):
    scene = await Scene.begin(world)
    held, details = await scene.now(), await world.events(scene.job_id)
    for wrong in (-1, 1):
        turn = a_turn(held, events=[AuditEvent(EventType.JOB_STARTED)])
        turn.event_seq += wrong
        assert await scene.orchestrator.commit_turns([turn], scene.orchestrator.clock.now()) == set()
    assert await world.events(scene.job_id) == details


async def test_an_owner_knows_which_jobs_are_its_own(world):
    scene = await Scene.begin(world)
    other = await world.orchestrator()
    assert (await scene.orchestrator.owned_job_ids(), await other.owned_job_ids()) == ({scene.job_id}, set())


async def test_a_turn_of_another_owner_writes_nothing(world):
    scene = await Scene.begin(world)
    other = await world.orchestrator()
    turn = a_turn(await scene.now(), events=[AuditEvent(EventType.JOB_STARTED)])
    assert await other.commit_turns([turn], other.clock.now()) == set()
    assert (await world.job(scene.job_id)).status == "PENDING"


async def test_a_released_job_is_written_no_more(world):
    scene = await Scene.begin(world)
    claimed = await scene.now()
    await scene.write(release=True)
    assert (await world.job(scene.job_id)).owner is None
    assert await scene.orchestrator.commit_turns([a_turn(claimed)], scene.orchestrator.clock.now()) == set()


# ── Leases ──


async def test_leaving_releases_every_job_and_wakes_the_others(world):
    client = await world.client()
    one, two = await world.orchestrator(), await world.orchestrator()
    jobs = {await submitted(world, client) for _ in range(3)}
    await one.claim(10)
    await world.deliver_notifications()
    two.wakeup.clear()
    two.pending_kinds.clear()
    await one.deregister()
    await wait_for_event(two.wakeup)
    assert "jobs" in two.pending_kinds
    assert {job.row.id for job in await two.claim(10)} == jobs


async def test_jobs_are_reclaimed_once_and_only_after_their_owners_lease_has_expired(world):
    scene = await Scene.begin(world)
    scanner = await world.orchestrator()
    await world.move(10)
    await scanner.heartbeat({})
    assert await scanner.reclaim() == []
    await world.move(6)
    assert await scanner.reclaim() == [scene.job_id]
    assert await scanner.reclaim() == []
    (claimed,) = await scanner.claim(10)
    assert (claimed.row.id, claimed.epoch) == (scene.job_id, 2)


async def test_a_claim_tells_whether_the_owner_before_died_or_released_the_job(world):
    scene = await Scene.begin(world)
    second = await world.orchestrator()
    await world.move(10)
    await second.heartbeat({})
    await world.move(6)
    await second.reclaim()
    await second.claim(10)
    await second.deregister()
    third = await world.orchestrator()
    await third.claim(10)
    events = [
        event.data.get("after") for event in await world.events(scene.job_id) if event.type == "JobClaimed"
    ]
    assert events == [None, "died", "released"]


async def test_a_heartbeat_keeps_jobs(world):
    scene = await Scene.begin(world)
    scanner = await world.orchestrator()
    for _ in range(3):
        await world.move(10)
        await scene.orchestrator.heartbeat({"turns": 1})
        await scanner.heartbeat({})
    assert await scanner.reclaim() == []
    assert [job.row.id for job in await scene.orchestrator.load_owned()] == [scene.job_id]


async def test_a_scanner_that_was_paused_itself_reclaims_nothing(world):
    scene = await Scene.begin(world)
    scanner = await world.orchestrator()
    await world.move(16)
    assert await scanner.reclaim() == []
    assert (await world.job(scene.job_id)).owner is not None


async def test_nothing_expires_within_one_lease_after_an_outage_of_the_store(world):
    owner = await world.orchestrator(lease_seconds=3600, worker_lease_seconds=3600)
    scene = await Scene.begin(world, owner)
    scanner = await world.orchestrator(lease_seconds=3600, worker_lease_seconds=3600)
    worker = await world.worker()
    await scene.dispatch()
    assert len(await worker.claim(1)) == 1
    # The store has been up for less than an hour; who was silent for two may have had nobody to talk to.
    await world.silence(owner, 7200)
    await world.silence(worker, 7200)
    assert await scanner.reclaim() == []
    assert await scanner.mark_lost_tasks() == []
    await owner.heartbeat({})


async def test_a_heartbeat_after_the_lease_has_expired_raises(world):
    orchestrator = await world.orchestrator()
    await world.move(10)
    await orchestrator.heartbeat({})
    await world.move(16)
    with pytest.raises(OwnershipLost):
        await orchestrator.heartbeat({})


async def test_an_expired_orchestrator_gets_an_error_and_writes_nothing(world):
    scene = await Scene.begin(world)
    claimed = await scene.now()
    scanner = await world.orchestrator()
    await world.silence(scene.orchestrator, 20)
    await world.move(16)
    await world.silence(scanner, 0)
    assert await scanner.reclaim() == [scene.job_id]
    with pytest.raises(OwnershipLost):
        await scene.orchestrator.heartbeat({})
    assert await scene.orchestrator.commit_turns([a_turn(claimed)], scene.orchestrator.clock.now()) == set()


async def test_a_job_that_is_claimed_by_an_expired_orchestrator_is_not_stuck(world):
    client = await world.client()
    paused, scanner = await world.orchestrator(), await world.orchestrator()
    await world.move(16)
    await world.silence(scanner, 0)
    await scanner.reclaim()
    # It wakes up, does not know yet, and looks for jobs first. It will come back under another name.
    job_id = await submitted(world, client)
    await paused.claim(10)
    await world.move(10)
    await scanner.heartbeat({})
    await world.move(10)
    await scanner.heartbeat({})
    await scanner.reclaim()
    assert [job.row.id for job in await scanner.claim(10)] == [job_id]


# ── Waking ──


async def test_a_submit_wakes_the_orchestrators(world):
    client, orchestrator = await world.client(), await world.orchestrator()
    await submitted(world, client)
    await wait_for_event(orchestrator.wakeup)
    assert orchestrator.pending_kinds == {"jobs"}


async def test_a_submit_to_a_queue_wakes_also_while_other_jobs_wait(world):
    client, orchestrator = await world.client(), await world.orchestrator()
    await submitted(world, client)
    await wait_for_event(orchestrator.wakeup)
    orchestrator.wakeup.clear()
    await submitted(world, client, queue="run:mine")
    await wait_for_event(orchestrator.wakeup)


async def test_a_submit_that_stores_nothing_wakes_no_orchestrator(world):
    client = await world.client()
    await submitted(world, client, idempotency_key="k")
    orchestrator = await world.orchestrator()
    await orchestrator.claim(10)
    await client.submit([a_job(world, idempotency_key="k")])
    await world.deliver_notifications()
    assert not orchestrator.wakeup.is_set()


async def test_a_command_wakes_only_the_owner(world):
    scene = await Scene.begin(world)
    await world.deliver_notifications()
    other = await world.orchestrator()
    scene.orchestrator.pending_kinds.clear()
    scene.orchestrator.wakeup.clear()
    await scene.client.send(scene.job_id, CommandKind.CANCEL, {}, "")
    await wait_for_event(scene.orchestrator.wakeup)
    assert scene.orchestrator.pending_kinds == {"commands"}
    await world.deliver_notifications()
    assert not other.wakeup.is_set()


async def test_a_command_to_an_unowned_job_wakes_the_orchestrators(world):
    scene = await Scene.begin(world)
    await finished(scene)
    other = await world.orchestrator()
    await scene.client.send(scene.job_id, CommandKind.RESUME, {}, "")
    await wait_for_event(other.wakeup)
    assert other.pending_kinds == {"jobs", "commands"}
