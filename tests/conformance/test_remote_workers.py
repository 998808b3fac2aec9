"""Workers for which a server acts: registration, claims of their handlers, receipts, wake-ups."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from dagmaster.engine.status import AttemptStatus, Isolation
from dagmaster.ports.json_text import JsonText
from dagmaster.ports.remote_workers import NewWorker
from dagmaster.ports.task_ledger import TaskReport
from tests.conformance.jobs import Scene, a_task, wait_for_event
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from dagmaster.ports.remote_workers import RemoteWorker, RemoteWorkers
    from dagmaster.ports.task_source import ClaimedTask
    from tests.conformance.stores import World

COMPLETED = AttemptStatus.COMPLETED


async def registered(
    workers: RemoteWorkers, *queues: str, handlers: tuple[str, ...] = ("h",)
) -> RemoteWorker:
    worker_id = await workers.register(
        NewWorker(registered_by="ci", host="far", queues=queues, handlers=dict.fromkeys(handlers, "2"))
    )
    worker = await workers.find(worker_id, "ci")
    assert worker is not None
    return worker


def success(task: ClaimedTask) -> TaskReport:
    return TaskReport(task.task_id, task.token, COMPLETED, output=JsonText("{}"))


async def dispatch(
    world: World,
    scene: Scene,
    handler: str,
    node: str = "a",
    *,
    attempt: int = 1,
    isolation: Isolation = Isolation.SHARED,
) -> str:
    task = a_task(world, node, attempt=attempt, isolation=isolation)
    task.handler = handler
    await scene.write(tasks=[task])
    return task.task_id


async def test_a_registered_worker_is_in_the_fleet_and_only_its_own_key_finds_it(world):
    workers, reader = await world.remote_workers(), await world.reader()
    worker_id = await workers.register(
        NewWorker(
            registered_by="ci",
            host="far",
            pid=7,
            version="3",
            queues=("q",),
            concurrency=4,
            handlers={"h": "2"},
        )
    )
    (row,) = (await reader.fleet()).workers
    assert (row.worker_id, row.host, row.pid, row.version) == (worker_id, "far", 7, "3")
    assert (row.queues, row.concurrency, row.is_alive) == (("q",), 4, True)
    assert await workers.find(worker_id, "other") is None
    assert await workers.find("no number", "ci") is None
    local = await world.worker("q")
    assert await workers.find(str(local.worker_id), "ci") is None


async def test_another_server_acts_for_a_worker_as_well(world):
    scene = await Scene.begin(world)
    one, two = await world.remote_workers(), await world.remote_workers()
    worker_id = await one.register(
        NewWorker(registered_by="ci", host="far", queues=("q",), handlers={"h": "2"})
    )
    task_id = await dispatch(world, scene, "h")
    worker = await two.find(worker_id, "ci")
    assert worker is not None
    assert worker.handlers == {"h": "2"}
    (task,) = await worker.claim_handled(5)
    first = await one.find(worker_id, "ci")
    assert first is not None
    assert await first.report_with_receipts([success(task)]) == {task_id}


async def test_the_servers_of_a_worker_add_up_what_it_did(world):
    servers = [await world.remote_workers(), await world.remote_workers()]
    worker = await registered(servers[0], "q")
    counters = []
    for workers in servers:
        mine = await workers.find(worker.id, "ci")
        mine.count("claimed", 3)
        mine.count("completed")
        await mine.heartbeat(["1"], {"running": 1})
        (row,) = (await (await world.reader()).fleet()).workers
        counters.append([*map(row.counters.get, ("claimed", "completed", "failed"))])
    assert counters == [[3, 1, None], [6, 2, None]]
    # What is counted last is stored as well.
    worker.count("failed")
    await worker.deregister()
    (row,) = (await (await world.reader()).fleet()).workers
    assert (row.counters["failed"], row.counters["completed"]) == (1, 2)


async def test_it_claims_only_tasks_of_its_handlers_in_their_order(world):
    scene = await Scene.begin(world)
    await dispatch(world, scene, "other", "a")
    two = await dispatch(world, scene, "h", "b")
    await dispatch(world, scene, "other", "b", attempt=2)
    four = await dispatch(world, scene, "h", "a", attempt=2)
    for queues in (("q",), ()):
        worker = await registered(await world.remote_workers(), *queues)
        claimed = await worker.claim_handled(5)
        assert [task.task_id for task in claimed] == [two, four]
        assert await worker.claim_handled(5) == []
        await worker.release(
            [TaskReport(task.task_id, task.token, AttemptStatus.RELEASED) for task in claimed]
        )


async def test_a_result_leaves_a_receipt_under_its_token_only(world):
    scene = await Scene.begin(world)
    workers = await world.remote_workers()
    worker = await registered(workers)
    await dispatch(world, scene, "h")
    (task,) = await worker.claim_handled(5)
    assert await workers.receipt(task.task_id, task.token) is None
    assert await worker.report_with_receipts([TaskReport(task.task_id, task.token + 1, COMPLETED)]) == set()
    assert await workers.receipt(task.task_id, task.token + 1) is None
    assert await worker.report_with_receipts([success(task)]) == {task.task_id}
    assert await worker.report_with_receipts([success(task)]) == set()
    assert await workers.receipt(task.task_id, task.token) is COMPLETED
    assert await workers.receipt(task.task_id, task.token + 1) is None
    # Another server, as after the death of this one.
    assert await (await world.remote_workers()).receipt(task.task_id, task.token) is COMPLETED


async def test_a_held_task_is_found_under_its_token_while_it_is_held(world):
    scene = await Scene.begin(world)
    workers = await world.remote_workers()
    worker, other = await registered(workers), await registered(workers)
    task_id = await dispatch(world, scene, "h")
    (task,) = await worker.claim_handled(5)
    await worker.progress({task_id: (task.token, '{"current": 1}')})
    held = await worker.held_task(task_id, task.token)
    assert held is not None
    assert (held.job_id, held.node_id, held.attempt, held.handler) == (scene.job_id, "a", 1, "h")
    assert (held.is_stopping, held.progress) == (False, '{"current": 1}')
    assert held.running_seconds >= 0
    assert await worker.held_task(task_id, task.token + 1) is None
    assert await other.held_task(task_id, task.token) is None
    await worker.report_with_receipts([success(task)])
    assert await worker.held_task(task_id, task.token) is None


async def test_each_held_task_keeps_the_fingerprints_of_its_own_secrets(world):
    scene = await Scene.begin(world)
    workers = await world.remote_workers()
    worker, other = await registered(workers), await registered(workers)
    tasks = [a_task(world, node) for node in "ab"]
    for task in tasks:
        task.secrets = '{"values": []}'
    await scene.write(tasks=tasks)
    first, second = await worker.claim_handled(5)
    prints = {second.task_id: (second.token, {"s": "2"}), first.task_id: (first.token, {"s": "1"})}
    await worker.keep_fingerprints(prints)
    # Neither under another token, nor of another worker.
    await worker.keep_fingerprints({first.task_id: (first.token + 1, {"s": "3"})})
    await other.keep_fingerprints({second.task_id: (second.token, {"s": "4"})})
    held = [await worker.held_task(task.task_id, task.token) for task in (first, second)]
    stored = [json.loads(task.secrets) for task in held if task is not None and task.secrets is not None]
    assert stored == [{"values": [], "fingerprints": {"s": number}} for number in "12"]


async def test_a_task_is_overdue_after_its_timeout_and_the_grace(world):
    scene = await Scene.begin(world)
    worker = await registered(await world.remote_workers())
    task_id = await dispatch(world, scene, "h")
    (task,) = await worker.claim_handled(5)
    await worker.mark_started({task_id: (task.token, 0.0)})
    await world.move(task.timeout_seconds + 5)
    assert await worker.overdue_tasks([task_id], 10.0) == []
    assert await worker.overdue_tasks([], 0.0) == []
    await world.move(6)
    (overdue,) = await worker.overdue_tasks([task_id, "7"], 10.0)
    assert (overdue.task_id, overdue.token) == (task_id, task.token)


async def test_the_tasks_of_a_silent_worker_are_lost_and_it_has_to_register_again(world):
    scene = await Scene.begin(world)
    workers = await world.remote_workers()
    worker = await registered(workers)
    task_id = await dispatch(world, scene, "h")
    (task,) = await worker.claim_handled(5)
    await world.move(7)
    assert len(await scene.orchestrator.mark_lost_tasks()) == 1
    assert await worker.held_task(task_id, task.token) is None
    assert await worker.report_with_receipts([success(task)]) == set()
    assert await worker.renew([task_id]) is None
    assert await worker.heartbeat([task_id], {}) is None
    assert await (await world.remote_workers()).find(worker.id, "ci") is None


async def test_only_a_heartbeat_releases_claims_that_its_worker_does_not_name(world):
    scene = await Scene.begin(world)
    worker: Any = await registered(await world.remote_workers())
    task_id = await dispatch(world, scene, "h")
    (task,) = await worker.claim_handled(5)
    await worker.heartbeat([task_id], {"draining": True})
    await world.move(31)
    # The store on PostgreSQL looks for such claims every minute.
    worker._reconcile_at = 0.0
    assert (await worker.renew([])).stops == set()
    assert await worker.held_task(task_id, task.token) is not None
    (row,) = (await (await world.reader()).fleet()).workers
    assert (row.is_alive, row.is_draining) == (True, True)
    await worker.heartbeat([], {})
    assert await worker.held_task(task_id, task.token) is None
    assert await scene.results() == [("a", 1, "RELEASED")]


async def test_an_exclusive_task_is_the_only_one_of_its_worker(world):
    scene = await Scene.begin(world)
    workers = await world.remote_workers()
    worker, other = await registered(workers), await registered(workers)
    await dispatch(world, scene, "h")
    alone = await dispatch(world, scene, "h", "b", isolation=Isolation.EXCLUSIVE)
    (task,) = await worker.claim_handled(5)
    assert await worker.claim_exclusive() is None, "it holds another task"
    await worker.report_with_receipts([success(task)])
    exclusive = await worker.claim_exclusive()
    assert exclusive is not None
    assert exclusive.task_id == alone
    more = await dispatch(world, scene, "h", "c")
    assert await worker.claim_handled(5) == [], "it holds an exclusive task"
    await worker.report_with_receipts([success(exclusive)])
    assert [task.task_id for task in await other.claim_handled(5)] == [more]


async def test_parallel_requests_of_a_worker_claim_an_exclusive_task_or_others_but_not_both(world):
    scene = await Scene.begin(world)
    servers = [await world.remote_workers() for _ in range(2)]
    worker_id = (await registered(servers[0])).id
    one, two = [await workers.find(worker_id, "ci") for workers in servers]
    assert one is not None
    assert two is not None
    for attempt in range(1, 11):
        ordinary = await dispatch(world, scene, "h", attempt=attempt)
        exclusive = {
            await dispatch(world, scene, "h", node, attempt=attempt, isolation=Isolation.EXCLUSIVE)
            for node in "bc"
        }
        first, second, others = await asyncio.gather(
            one.claim_exclusive(), two.claim_exclusive(), two.claim_handled(5)
        )
        claimed = [task for task in (first, second, *others) if task is not None]
        ids = {task.task_id for task in claimed}
        assert ids == {ordinary} or (len(ids) == 1 and ids < exclusive)
        while claimed:
            await one.report_with_receipts([success(task) for task in claimed])
            alone = await one.claim_exclusive()
            claimed = await one.claim_handled(5) if alone is None else [alone]


async def test_a_worker_that_deregisters_releases_its_tasks(world):
    scene = await Scene.begin(world)
    workers = await world.remote_workers()
    worker = await registered(workers)
    await dispatch(world, scene, "h")
    await worker.claim_handled(5)
    await worker.deregister()
    assert await world.queued() == set()
    assert await workers.find(worker.id, "ci") is None
    assert await scene.results() == [("a", 1, "RELEASED")]


async def test_one_request_of_each_kind_is_woken_and_passes_the_wake_up_on(world):
    scene = await Scene.begin(world)
    workers = await world.remote_workers()
    same, also, others = [
        await registered(workers, "q", handlers=names) for names in (("h",), ("h",), ("g",))
    ]
    with same.waiting() as first, also.waiting() as second, others.waiting() as third:
        await dispatch(world, scene, "h")
        await wait_for_event(first)
        await wait_for_event(third)
        assert not second.is_set()
        with also.waiting() as fourth:
            first.clear()
            second.set()
        assert not fourth.is_set()
    with same.waiting() as fifth:
        with also.waiting() as sixth:
            sixth.set()
        assert fifth.is_set(), "a wake-up that was not used is passed on"
    with same.waiting() as seventh:
        await dispatch(world, scene, "h", attempt=2)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await seventh.wait()
