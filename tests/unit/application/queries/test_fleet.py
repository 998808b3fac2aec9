"""Who serves which queue, and why tasks wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dagmaster.application.queries.fleet import fleet, list_queues, list_workers
from dagmaster.records.fleet import DrainRecord, FleetRecord, QueueRecord, WorkerRecord
from tests.unit.application.world import FakeReadStore, an_application, run

A_QUEUE = QueueRecord(queue="light", waiting=3, waiting_exclusive=0, claimed=1, oldest_seconds=65.0)


def a_worker(*queues: str, **changes: Any) -> WorkerRecord:
    worker = WorkerRecord(
        worker_id="5", host="h", pid=9, version="1", queues=queues, concurrency=4, is_alive=True, has_died=False,
        is_draining=False, lease_seconds=6.0, silent_seconds=1.0, age_seconds=90.0, stopped_seconds=None, running=2,
        prefetched=9, processes=6, processes_busy=5, counters={"completed": 7},
    )  # fmt: skip
    return replace(worker, **changes)


def queues_of(*workers: WorkerRecord, queues: tuple[QueueRecord, ...] = (A_QUEUE,)) -> Any:
    record = FleetRecord(orchestrators=(), workers=workers, queues=queues, unowned_jobs=2)
    return run(list_queues(an_application(FakeReadStore(fleet_record=record)))).items


def test_a_queue_that_no_live_worker_serves_says_so():
    (queue,) = queues_of(a_worker("heavy"), a_worker("light", is_alive=False))
    assert (queue.workers, queue.note) == (0, "no live worker serves light")


def test_a_queue_whose_workers_all_drain_says_so():
    (queue,) = queues_of(a_worker("heavy"), a_worker("light", is_draining=True))
    assert (queue.workers, queue.note) == (0, "no worker claims from light: the only live worker is draining")
    (queue,) = queues_of(a_worker("light"), a_worker("light", is_draining=True))
    assert (queue.workers, queue.note) == (1, None)


def test_a_service_is_drained_when_it_has_seen_the_request_and_holds_nothing():
    def of(is_seen: bool, running: int, prefetched: int) -> bool:
        drain = DrainRecord(requested_seconds=3.0, is_seen=is_seen)
        worker = a_worker(is_draining=True, drain=drain, running=running, prefetched=prefetched)
        record = FleetRecord(orchestrators=(), workers=(worker,), queues=(), unowned_jobs=0)
        (view,) = run(fleet(an_application(FakeReadStore(fleet_record=record)))).workers
        assert view.drain is not None
        return bool(view.is_drained)

    assert of(True, 0, 0)
    assert not of(False, 0, 0), "it may still claim: its version does not know drains"
    assert not of(True, 1, 0)
    assert not of(True, 0, 1)


def test_a_queue_sums_what_its_workers_finished_in_the_last_minute():
    workers = (
        a_worker(finished_last_minute={"light": 30, "heavy": 2}),
        a_worker(finished_last_minute={"light": 12}),
    )
    (queue,) = queues_of(*workers)
    assert queue.finished_last_minute == 42


def test_a_worker_without_queues_serves_all_but_the_queues_of_a_run():
    both = (A_QUEUE, replace(A_QUEUE, queue="run:1"))
    runs = a_worker("run:1", is_alive=False)
    assert [queue.workers for queue in queues_of(a_worker(), runs, queues=both)] == [1, 0]
    assert [queue.workers for queue in queues_of(a_worker(), queues=both)] == [1, 1], "its worker has left"
    gone = a_worker("run:1", is_alive=False, stopped_seconds=3.0)
    assert [queue.workers for queue in queues_of(a_worker(), gone, queues=both)] == [1, 1]


def test_a_queue_that_waits_for_processes_says_so():
    assert queues_of(a_worker("light"))[0].note is None
    note = queues_of(a_worker("light", processes_busy=6))[0].note
    assert (
        note
        == "light waits although there are free slots: the worker's 6 processes for plain functions are busy (DAGMASTER_PROCESSES)"
    )


def test_a_queue_with_tasks_that_must_run_alone_says_so():
    (queue,) = queues_of(a_worker("light"), queues=(replace(A_QUEUE, waiting_exclusive=1),))
    assert queue.note == (
        "1 task waits for a worker of light that runs nothing else: workers died that ran it next to other tasks"
    )
    (queue,) = queues_of(a_worker("heavy"), queues=(replace(A_QUEUE, waiting_exclusive=1),))
    assert queue.note == "no live worker serves light"


def test_services_and_queues_are_paged_by_their_ids():
    workers = tuple(a_worker(worker_id=worker_id) for worker_id in ("7", "5", "6"))
    queues = tuple(replace(A_QUEUE, queue=queue) for queue in ("c", "a", "b"))
    record = FleetRecord(orchestrators=(), workers=workers, queues=queues, unowned_jobs=0)
    app = an_application(FakeReadStore(fleet_record=record))
    for query, key, expected in ((list_workers, "worker_id", "567"), (list_queues, "queue", "abc")):
        first = run(query(app, limit=2))
        second = run(query(app, limit=2, cursor=first.next_cursor))
        assert [getattr(view, key) for view in (*first.items, *second.items)] == list(expected)
        assert second.next_cursor is None


def test_the_fleet_is_json():
    record = FleetRecord(orchestrators=(), workers=(a_worker("light"),), queues=(A_QUEUE,), unowned_jobs=2)
    app = an_application(FakeReadStore(fleet_record=record))
    document = run(fleet(app)).to_dict()
    assert document["unowned_jobs"] == 2
    assert (document["workers"][0]["worker_id"], document["workers"][0]["queues"]) == ("5", ["light"])
    assert run(list_workers(app)).items[0].prefetched == 9
