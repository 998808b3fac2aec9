"""Events and logs: in order, without gaps, without secrets."""

from __future__ import annotations

from typing import Any

import pytest

from dagmaster.application.queries.events_and_logs import (
    count_events,
    follow_events,
    follow_logs,
    list_events,
    list_logs,
    recent_events,
)
from dagmaster.engine.status import JobStatus
from dagmaster.errors import NodeNotFound
from dagmaster.ports.read_store import LogRecord
from tests.unit.application.world import SECRET, FakeReadStore, a_record, an_application, an_event, run

FINISHED = {"status": JobStatus.COMPLETED, "finished_at": 110.0}


async def collect(items: Any) -> list[Any]:
    return [item async for item in items]


def a_log(at: float, text: str, chunk: int = 0) -> LogRecord:
    return LogRecord("fetch", 1, at, text, (at, "5", chunk))


def test_events_are_paged_by_their_number():
    store = FakeReadStore([a_record()], stored_events=[an_event(seq, "JobStarted") for seq in range(1, 6)])
    app = an_application(store)
    first = run(list_events(app, "7", limit=3))
    assert [event.seq for event in first.items] == [1, 2, 3]
    assert [event.seq for event in run(list_events(app, "7", cursor=first.next_cursor, limit=3)).items] == [
        4,
        5,
    ]
    assert [event.seq for event in run(list_events(app, "7", after=4)).items] == [5]


def test_an_event_has_its_sentence_and_no_secret():
    event = an_event(1, "ApprovalRequested", "release", message=f"use {SECRET}?")
    app = an_application(FakeReadStore([a_record()], stored_events=[event]))
    (view,) = run(list_events(app, "7")).items
    assert view.to_dict() == {
        "job_id": "7", "seq": 1, "type": "ApprovalRequested", "at": "1970-01-01T00:01:43Z", "by": "ada",
        "node_id": "release", "attempt": None, "event_status": "info", "checkpoint_name": None,
        "data": {"message": "use ***?"},
        "sentence": "release waits for approval: use ***?",
    }  # fmt: skip
    assert run(recent_events(app)).items == (view,)


def test_following_ends_when_the_job_has_finished():
    store = FakeReadStore(
        [a_record(**FINISHED)], stored_events=[an_event(1, "JobStarted"), an_event(2, "NodeFailed", "fetch")]
    )
    app = an_application(store)
    assert [event.seq for event in run(collect(follow_events(app, "7")))] == [1, 2]
    assert [event.seq for event in run(collect(follow_events(app, "7", node_id="fetch")))] == [2]
    with pytest.raises(NodeNotFound, match=r"no node 'fetsch'.*fetch"):
        run(collect(follow_events(app, "7", node_id="fetsch")))


def test_a_follower_sees_what_comes_later_and_stops_if_the_job_is_pruned():
    store = FakeReadStore([a_record()], stored_events=[an_event(1, "JobStarted")])

    async def work() -> list[int]:
        seen = []
        async for event in follow_events(an_application(store), "7"):
            seen.append(event.seq)
            if event.seq == 1:
                store.stored_events.append(an_event(2, "JobFinished", status="COMPLETED"))
            else:
                store.records.clear()
        return seen

    assert run(work()) == [1, 2]


def test_recent_events_are_paged_newest_first_and_counted_by_type():
    events = [an_event(seq, "JobStarted", at=100.0 + seq) for seq in range(1, 4)]
    app = an_application(FakeReadStore([a_record()], stored_events=events))
    first = run(recent_events(app, limit=2))
    assert [event.seq for event in first.items] == [3, 2]
    assert [event.seq for event in run(recent_events(app, cursor=first.next_cursor, limit=2)).items] == [1]
    assert run(count_events(app, since=100.0)).to_dict() == {
        "since": "1970-01-01T00:01:40Z", "until": None, "counts": {"JobStarted": 3}, "total": 3
    }  # fmt: skip


def test_logs_are_paged_and_redacted():
    logs = [a_log(100.0 + number, f"{number} {SECRET}\n", number) for number in range(3)]
    app = an_application(FakeReadStore([a_record()], log_records=logs))
    first = run(list_logs(app, "7", limit=2))
    assert [log.text for log in first.items] == ["0 ***\n", "1 ***\n"]
    assert [log.text for log in run(list_logs(app, "7", cursor=first.next_cursor, limit=2)).items] == [
        "2 ***\n"
    ]


def test_a_follower_of_logs_sees_a_late_chunk_and_none_twice():
    store = FakeReadStore([a_record()], log_records=[a_log(100.0, "a"), a_log(103.0, "c")])

    async def work() -> list[str]:
        texts = []
        async for log in follow_logs(an_application(store), "7"):
            texts.append(log.text)
            if log.text == "c":
                # Written by another worker at an earlier time, and visible only now.
                store.log_records.insert(1, a_log(102.0, "b"))
                store.records[:] = [a_record(**FINISHED)]
        return texts

    assert run(work()) == ["a", "c", "b"]


def test_logs_of_a_node_that_is_not_there_are_not_found():
    app = an_application(FakeReadStore([a_record()]))
    with pytest.raises(NodeNotFound, match="Did you mean 'fetch'"):
        run(list_logs(app, "7", node_id="fetsch"))
    assert run(list_logs(app, "7", node_id="fetch")).items == ()
