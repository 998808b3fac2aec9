"""The timeline of a job: columns of times, and the critical path."""

from __future__ import annotations

from dataclasses import replace

from dagmaster.application.queries.timeline import job_timeline
from dagmaster.engine.status import NodeStatus
from dagmaster.ports.timelines import TimelineRecord
from dagmaster.records.nodes import WaitInfo
from tests.unit.application.world import (
    ASKED,
    DONE,
    TILES,
    FakeReadStore,
    FakeTimelines,
    a_record,
    an_application,
    run,
)

ROWS = [
    TimelineRecord("fetch", 1, "FAILED", "h:1", 100.5, 101.0, 103.5),
    TimelineRecord("fetch", 2, "COMPLETED", "h:2", 104.0, 104.25, 106.0),
    TimelineRecord("release", 0, "WAITING", None, None, None, None),
    TimelineRecord("tiles__1", 1, "RUNNING", "h:1", 106.0, 107.0, None),
]


def store(**changes: object) -> FakeReadStore:
    nodes = [DONE, ASKED, replace(TILES, status=NodeStatus.COMPLETED, finished_at=110.5)]
    waits = {"release": WaitInfo(106.5)}
    return FakeReadStore(
        [a_record(**changes)], node_records=nodes, timelines=FakeTimelines(ROWS), wait_infos=waits
    )


def test_times_are_seconds_after_the_submission_in_columns_of_equal_length():
    view = run(job_timeline(an_application(store()), "7"))
    assert (view.origin_at, view.now_seconds, view.finished_seconds) == (100.0, 11.0, None)
    assert view.node_ids == ("fetch", "fetch", "release", "tiles__1")
    assert view.attempts == (1, 2, 0, 1)
    assert view.queued == (0.5, 4.0, None, 6.0)
    assert view.finished == (3.5, 6.0, None, None)
    assert (view.worker_names, view.workers) == (("h:1", "h:2"), (0, 1, None, 0))


def test_a_node_that_no_author_wrote_is_left_out_also_at_the_end_of_a_page():
    read = store()
    read.timelines = FakeTimelines([ROWS[0], ROWS[2]._replace(node_id="load__start"), ROWS[3]])
    app = an_application(read)
    first = run(job_timeline(app, "7", limit=2))
    assert first.node_ids == ("fetch",)
    assert run(job_timeline(app, "7", cursor=first.next_cursor, limit=2)).node_ids == ("tiles__1",)


def test_a_node_without_a_task_began_when_it_began_to_wait():
    assert run(job_timeline(an_application(store()), "7")).started == (1.0, 4.25, 6.5, 7.0)


def test_the_critical_path_has_the_last_child_of_a_fan_out_and_is_on_the_first_page_only():
    read = store()
    read.node_records = [node for node in read.node_records if node.node_id != "release"]
    read.timelines.last = {"tiles": "tiles__1", "tiles__1": "tiles__1__0"}
    app = an_application(read)
    first = run(job_timeline(app, "7", limit=2))
    assert first.critical_path == ("fetch", "tiles", "tiles__1", "tiles__1__0")
    second = run(job_timeline(app, "7", cursor=first.next_cursor, limit=2))
    assert (second.node_ids, second.critical_path) == (("release", "tiles__1"), ())
