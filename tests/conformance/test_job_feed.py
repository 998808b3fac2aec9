"""A feed reads many jobs as the read store reads one, and wakes its reader on every turn of a watched job."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dagmaster.ports.read_store import TaskFilter
from tests.conformance.jobs import Played, Scene, submitted
from tests.conformance.stores import IN_POSTGRES
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from dagmaster.ports.orchestrator_store import OrchestratorStore

TILES = """
name: tiles
nodes:
  plan: {handler: h, queue: q, next: [tiles]}
  tiles: {type: fan_out, source: "{{ nodes.plan.output.items }}", task: {handler: h, queue: q}}
"""
UNKNOWN = ["0", "9", str(2**63), "abc", "", "1\0", "\uff11"]


class Changes:
    """The changes that a feed was called back with."""

    def __init__(self) -> None:
        self.jobs: asyncio.Queue[str] = asyncio.Queue()

    def __call__(self, job_id: str) -> None:
        self.jobs.put_nowait(job_id)

    async def next(self) -> str:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.jobs.get()


async def two_jobs(world, orchestrator: OrchestratorStore) -> tuple[Played, Played]:
    """Return two jobs whose fan-out has children, one of which has a claimed task."""
    first = await Played.begin(world, TILES, orchestrator)
    await first.work({"plan": {"items": [1, 2, 3]}})
    second = await Played.begin(world, TILES, orchestrator)
    return first, second


async def test_a_feed_reads_many_jobs_as_the_read_store_reads_each(world):
    orchestrator, reader = await world.orchestrator(), await world.reader()
    first, second = await two_jobs(world, orchestrator)
    await second.worker.claim(1)
    jobs = [first.job_id, second.job_id]
    async with reader.feed(lambda _job_id: None) as feed:
        records = {record.job_id: record for record in await feed.jobs(jobs)}
        assert list(records) == sorted(jobs, key=int, reverse=True)
        for job_id in jobs:
            alone = await reader.job(job_id)
            assert alone is not None
            names = ("status", "event_seq", "nodes_total", "nodes_finished", "created_at", "content_hash")
            assert [getattr(records[job_id], name) for name in names] == [
                getattr(alone, name) for name in names
            ]
        keys = [(job_id, node_id) for job_id in jobs for node_id in ("plan", "tiles", "tiles__1", "nothing")]
        nodes = sorted(await feed.nodes(keys), key=lambda node: (node.job_id, node.node_id))
        alone_nodes = [
            *await reader.nodes(first.job_id, ["plan", "tiles", "tiles__1"]),
            *await reader.nodes(second.job_id, ["plan", "tiles"]),
        ]
        assert nodes == sorted(alone_nodes, key=lambda node: (node.job_id, node.node_id))
        counts = await feed.child_counts([(first.job_id, "tiles"), (second.job_id, "tiles")])
        assert counts[first.job_id, "tiles"] == (await reader.child_counts(first.job_id, ["tiles"]))["tiles"]
        assert counts[second.job_id, "tiles"].counts == {}
        tasks = await feed.claimed_tasks(jobs, limit=1)
        assert tasks == [task for task in await reader.tasks(TaskFilter()) if task.worker_id is not None][:1]
        assert len(tasks) == 1


async def test_a_feed_returns_the_events_after_each_position_up_to_a_limit(world):
    orchestrator, reader = await world.orchestrator(), await world.reader()
    first, second = await two_jobs(world, orchestrator)
    events = {job_id: await reader.events(job_id) for job_id in (first.job_id, second.job_id)}
    positions = [
        (second.job_id, 1),
        (first.job_id, 0),
        (first.job_id, 3),
        (second.job_id, 2**40),
        (first.job_id, -5),
    ]
    async with reader.feed(lambda _job_id: None) as feed:
        pages = await feed.events(positions, limit=2)
        assert pages == [
            events[second.job_id][1:3],
            events[first.job_id][:2],
            events[first.job_id][3:5],
            [],
            events[first.job_id][:2],
        ]
        assert await feed.events([], limit=2) == []


async def test_ids_that_no_job_or_node_has_match_nothing(world):
    await submitted(world, await world.client(), id="7")
    reader = await world.reader()
    async with reader.feed(lambda _job_id: None) as feed:
        await feed.watch(UNKNOWN)
        assert await feed.jobs(UNKNOWN) == await feed.claimed_tasks(UNKNOWN, limit=10) == []
        assert (
            await feed.nodes([(job_id, "a") for job_id in UNKNOWN] + [("7", "nul\0"), ("7", "\ud800")]) == []
        )
        assert await feed.events([(job_id, 0) for job_id in UNKNOWN], limit=10) == [[] for _ in UNKNOWN]
        (counts,) = (await feed.child_counts([("9", "nul\0")])).values()
        assert counts.counts == {}


async def test_a_feed_is_called_on_every_turn_of_the_jobs_that_it_watches_and_of_no_other(world):
    orchestrator, reader, changes = await world.orchestrator(), await world.reader(), Changes()
    mine = await Scene.begin(world, orchestrator)
    other = await Scene.begin(world, orchestrator)
    async with reader.feed(changes) as feed:
        assert feed.has_notifications
        await feed.watch([mine.job_id])
        await world.deliver_notifications()
        for node in ("a", "b"):
            await other.dispatch(node)
            await mine.dispatch(node)
            assert await changes.next() == mine.job_id
        await feed.watch([other.job_id])
        await world.deliver_notifications()
        await mine.write()
        await other.write()
        assert await changes.next() == other.job_id
        assert changes.jobs.empty()


@IN_POSTGRES
async def test_a_feed_whose_connection_was_lost_calls_for_every_job_and_listens_again(world):
    reader, changes, scene = await world.reader(), Changes(), await Scene.begin(world)
    async with reader.feed(changes) as feed:
        await feed.watch([scene.job_id])
        await world.deliver_notifications()
        await world.disconnect(reader.subscriptions.listener)
        assert await changes.next() == scene.job_id, "the connection was lost"
        await feed.watch([scene.job_id])
        assert await changes.next() == scene.job_id, "what happened meanwhile was not notified"
        await scene.dispatch()
        assert await changes.next() == scene.job_id


@IN_POSTGRES
async def test_behind_a_pooler_a_feed_has_no_notifications_and_still_reads(world):
    job_id = await submitted(world, await world.client())
    reader = await world.reader(is_pooled=True, direct=None)
    async with reader.feed(lambda _job_id: None) as feed:
        await feed.watch([job_id])
        assert not feed.has_notifications
        assert [record.job_id for record in await feed.jobs([job_id])] == [job_id]
