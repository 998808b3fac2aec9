"""Jobs in a list and alone: one shape, pages, secrets."""

from __future__ import annotations

import json

import pytest

from dagmaster.application.queries.job_detail import job_detail, snapshot_view
from dagmaster.application.queries.jobs import (
    count_jobs,
    job_footprints,
    job_progress,
    list_jobs,
    list_pending_commands,
)
from dagmaster.engine.status import JobStatus, NodeStatus
from dagmaster.errors import CursorInvalid, JobNotFound
from dagmaster.ports.job_filter import JobFilter
from dagmaster.ports.read_store import FootprintRecord, PendingCommand
from dagmaster.records.nodes import ChildCounts, NodeRecord, ProgressRecord, WaitInfo
from tests.unit.application.world import (
    ASKED,
    DONE,
    SECRET,
    TILES,
    FakeReadStore,
    a_record,
    a_snapshot,
    an_application,
    run,
)


def test_a_list_is_paged_by_cursors_without_gaps_or_repeats():
    app = an_application(FakeReadStore([a_record(job_id=str(number)) for number in range(1, 8)]))
    ids, cursor = [], None
    while True:
        page = run(list_jobs(app, cursor=cursor, limit=3))
        ids += [job.job_id for job in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert ids == ["7", "6", "5", "4", "3", "2", "1"]


def test_a_cursor_of_another_list_is_an_error():
    with pytest.raises(CursorInvalid):
        run(list_jobs(an_application(FakeReadStore()), cursor="nonsense"))


def test_the_filter_reaches_the_store():
    store = FakeReadStore()
    expected = JobFilter(statuses=frozenset({JobStatus.WAITING}), text="ad")
    run(list_jobs(an_application(store), expected))
    run(count_jobs(an_application(store), expected))
    assert store.filters == [expected, expected]


def test_a_job_has_the_same_values_in_a_list_and_alone():
    app = an_application(
        FakeReadStore([a_record(error={"message": "no"}, is_cancelling=True)], node_records=[DONE])
    )
    (listed,) = run(list_jobs(app)).items
    shared = listed.to_dict()
    detail = run(job_detail(app, "7")).to_dict()
    assert {key: detail[key] for key in shared} == shared
    assert set(detail) - set(shared) == {
        "inputs", "result", "attempts", "counts", "blocking_reasons", "pending_commands", "nodes",
        "dependencies",
    }  # fmt: skip


def test_last_is_the_newest_job_that_is_no_child():
    store = FakeReadStore(
        [a_record(job_id="7"), a_record(job_id="9", parent_job_id="7", parent_node_id="fetch")]
    )
    assert run(job_progress(an_application(store), "last")).job_id == "7"
    assert run(job_progress(an_application(store), None)).job_id == "7"


@pytest.mark.parametrize("wrong", ["8", "x", "٣", "-1", "7.0", ""])
def test_a_job_that_is_not_there_is_not_found(wrong):
    with pytest.raises(JobNotFound, match="there is no job"):
        run(job_detail(an_application(FakeReadStore([a_record()])), wrong))


def test_without_jobs_last_says_how_to_get_one():
    with pytest.raises(JobNotFound, match="there is no job yet"):
        run(job_detail(an_application(FakeReadStore()), "last"))


def test_a_result_in_a_blob_is_loaded_and_an_unreadable_one_is_named():
    store = FakeReadStore([a_record(result_ref="out")])
    assert run(job_detail(an_application(store, out=b'{"a": 1}'), "7")).result == {"a": 1}
    assert run(job_detail(an_application(store), "7")).result == {
        "blob": "out",
        "unreadable": "there is no blob out",
    }


def test_secrets_are_redacted_in_every_part_of_a_job():
    leak = f"it is {SECRET}!"
    store = FakeReadStore(
        [a_record(error={"message": leak, SECRET: [leak]}, result={"a": leak})],
        node_records=[
            DONE,
            NodeRecord(
                node_id="release", status=NodeStatus.WAITING, job_id="7", error={"message": leak},
                progress=ProgressRecord(current=1, total=2, message=leak),
            ),
        ],
        wait_infos={"release": WaitInfo(103.0, leak)},
    )  # fmt: skip
    app = an_application(store)
    detail = run(job_detail(app, "7"))
    text = json.dumps([detail.to_dict(), run(list_jobs(app)).to_dict()])
    assert SECRET not in text
    assert detail.inputs == {"token": "***", "size": 3}
    assert detail.nodes["release"].message == "it is ***!"


def test_a_list_reads_inputs_only_of_jobs_that_have_errors_and_secrets():
    store = FakeReadStore([a_record(job_id="7"), a_record(job_id="8", error={"message": SECRET})])
    page = run(list_jobs(an_application(store)))
    assert store.reads == ["definition x", "job 8"]
    assert [job.error for job in page.items] == [{"message": "***"}, None]


def test_children_of_fan_outs_come_only_if_they_are_asked_for():
    child = NodeRecord(
        node_id="tiles__0", status=NodeStatus.FAILED, job_id="7", parent_node_id="tiles", fan_out_index=0
    )
    store = FakeReadStore([a_record()], node_records=[DONE, TILES, child], counts={"tiles": ChildCounts()})
    assert list(run(job_detail(an_application(store), "7")).nodes) == ["fetch", "tiles", "release", "after"]
    detail = run(job_detail(an_application(store), "7", with_children=True))
    assert list(detail.nodes)[-1] == "tiles__0"
    assert detail.nodes["tiles__0"].action == "echo"
    assert detail.nodes["tiles__0"].to_dict()["fan_out_index"] == 0


def test_children_are_counted_also_those_that_have_no_row_yet():
    counts = ChildCounts({NodeStatus.COMPLETED: 4, NodeStatus.FAILED: 1, NodeStatus.RUNNING: 2}, 103.0)
    view = snapshot_view(a_snapshot(DONE, TILES, around={"children": {"tiles": counts}}))
    assert view.counts == {"COMPLETED": 5, "RUNNING": 3, "FAILED": 1, "PENDING": 5}
    tiles = view.nodes["tiles"]
    assert tiles.children is not None
    assert (tiles.started_at, tiles.children.finished, tiles.children.total) == (103.0, 5, 10)
    assert tiles.children.counts["PENDING"] == 3


def test_a_fan_out_lasts_from_when_it_began_also_if_all_its_children_were_lost_and_began_again():
    tiles = NodeRecord(
        node_id="tiles", status=NodeStatus.COMPLETED, source_count=4, started_at=101.0, finished_at=149.0
    )
    children = {"tiles": ChildCounts({NodeStatus.COMPLETED: 4}, 125.0)}
    view = snapshot_view(
        a_snapshot(DONE, tiles, around={"children": children}, finished_at=150.0, read_at=500.0)
    )
    assert view.nodes["tiles"].started_at == 101.0


def test_the_time_between_two_runs_belongs_to_no_node():
    completed = NodeStatus.COMPLETED
    tiles = NodeRecord(node_id="tiles", status=completed, source_count=4, started_at=102.0, finished_at=144.0)
    after = NodeRecord(node_id="after", status=completed, started_at=103.0, finished_at=144.0)
    view = snapshot_view(
        a_snapshot(
            DONE, tiles, after, around={"children": {"tiles": ChildCounts({completed: 4}, 102.0)}},
            status=JobStatus.COMPLETED, run=2, resumed_at=142.0, finished_at=145.0, read_at=500.0,
        )
    )  # fmt: skip
    assert view.duration_seconds == 3.0
    assert view.nodes["tiles"].started_at == 142.0
    assert view.nodes["after"].started_at is None, "when it began in this run is not stored"
    assert view.nodes["fetch"].started_at == 101.0, "it is of the first run, and was not touched"


def test_a_node_that_has_no_row_is_pending_and_a_result_of_another_job_is_marked():
    view = snapshot_view(
        a_snapshot(NodeRecord(node_id="fetch", status=NodeStatus.COMPLETED, finished_at=102.0))
    )
    assert view.nodes["after"].status is NodeStatus.PENDING
    assert view.nodes["fetch"].is_reused
    assert not snapshot_view(a_snapshot(DONE)).nodes["fetch"].is_reused
    with pytest.raises(KeyError):
        view.nodes["nothing"]


def test_programs_get_ids_as_text_and_times_in_utc():
    document = snapshot_view(a_snapshot(DONE, ASKED)).to_dict()
    assert (document["job_id"], document["owner"]["orchestrator_id"]) == ("7", "1")
    assert document["created_at"] == "1970-01-01T00:01:40Z"
    assert document["nodes"]["fetch"]["finished_at"] == "1970-01-01T00:01:42Z"
    assert "read_at" not in document
    assert document["dependencies"]["fetch"] == []
    json.dumps(document, allow_nan=False)


def test_counts_name_every_status():
    counts = run(count_jobs(an_application(FakeReadStore([a_record()]))))
    assert counts.to_dict() == {
        "counts": {"PENDING": 0, "RUNNING": 1, "WAITING": 0, "COMPLETED": 0, "FAILED": 0, "CANCELLED": 0},
        "total": 1,
    }


def test_pending_commands_are_listed():
    store = FakeReadStore([a_record()], commands=[PendingCommand("3", "cancel", "ada", 2.5)])
    (command,) = run(list_pending_commands(an_application(store), "7")).items
    assert command.to_dict() == {"command_id": "3", "kind": "cancel", "sent_by": "ada", "age_seconds": 2.5}


def test_footprints_are_geojson_and_an_invalid_one_is_left_out():
    def footprint(index: int, where: object) -> FootprintRecord:
        return FootprintRecord(
            NodeRecord(
                node_id=f"tiles__{index}",
                parent_node_id="tiles",
                fan_out_index=index,
                status=NodeStatus.FAILED,
                attempt=1,
                error={"message": f"no {SECRET}"},
            ),
            where,
        )

    store = FakeReadStore(
        [a_record()], footprint_records=[footprint(0, [0, 0, 1, 1]), footprint(1, "somewhere")]
    )
    document = run(job_footprints(an_application(store), "7")).to_dict()
    (feature,) = document["features"]
    assert document["next_cursor"] is None
    assert (document["type"], document["job_id"]) == ("FeatureCollection", "7")
    assert (feature["type"], feature["id"], feature["geometry"]["type"]) == ("Feature", "tiles__0", "Polygon")
    assert feature["properties"]["error"] == "no ***"
