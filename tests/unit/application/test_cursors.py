"""A cursor survives the way out and back; anything else is an error, never a crash."""

from __future__ import annotations

import base64
import functools
import inspect
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagmaster.application.cursors import (
    _SHAPES,
    LARGEST_INT,
    MAX_LIMIT,
    SMALLEST_INT,
    CursorKind,
    decode_cursor,
    encode_cursor,
    start_page,
)
from dagmaster.application.queries import events_and_logs, fleet, jobs, log_lines, nodes, workflows
from dagmaster.errors import CursorInvalid, QueryInvalid
from tests.unit.application.world import TILES, FakeReadStore, a_record, an_application, run

PARTS = {
    str: st.text(st.characters(codec="utf-8"), max_size=40),
    int: st.integers(SMALLEST_INT, LARGEST_INT),
    float: st.floats(allow_nan=False, allow_infinity=False),
}
POSITIONS = st.sampled_from(list(CursorKind)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.tuples(*(PARTS[of] for of in _SHAPES[kind])))
)


@given(POSITIONS)
def test_a_position_comes_back_as_it_was(kind_and_position):
    kind, position = kind_and_position
    cursor = encode_cursor(kind, position)
    assert decode_cursor(kind, cursor) == position
    assert cursor.isascii()
    assert not set(cursor) & set("+/=&? ")


def test_no_cursor_is_the_first_page():
    assert decode_cursor(CursorKind.JOBS, None) is None


@given(st.text(max_size=200), st.sampled_from(list(CursorKind)))
def test_a_text_that_is_no_cursor_is_an_error_and_no_crash(text, kind):
    with pytest.raises(CursorInvalid):
        decode_cursor(kind, text)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists)


@given(JSON, st.sampled_from(list(CursorKind)))
def test_any_json_in_a_cursor_is_checked(document, kind):
    cursor = base64.urlsafe_b64encode(json.dumps([1, kind.value, document]).encode()).decode().rstrip("=")
    try:
        position = decode_cursor(kind, cursor)
    except CursorInvalid:
        return
    assert position is not None
    assert [type(part) for part in position] == list(_SHAPES[kind])


@given(POSITIONS, st.sampled_from(list(CursorKind)))
def test_a_cursor_of_another_list_is_refused(kind_and_position, other):
    kind, position = kind_and_position
    if kind is not other:
        with pytest.raises(CursorInvalid, match="belongs to a list of"):
            decode_cursor(other, encode_cursor(kind, position))


@given(POSITIONS, st.data())
def test_a_cut_cursor_is_refused(kind_and_position, data):
    kind, position = kind_and_position
    cursor = encode_cursor(kind, position)
    length = data.draw(st.integers(0, len(cursor) - 1))
    with pytest.raises(CursorInvalid):
        decode_cursor(kind, cursor[:length])


def test_a_number_that_no_database_stores_is_refused():
    for number in (SMALLEST_INT - 1, LARGEST_INT + 1, 10**30):
        with pytest.raises(CursorInvalid):
            decode_cursor(CursorKind.AUDIT_TRAIL, encode_cursor(CursorKind.AUDIT_TRAIL, (number,)))


def test_a_cursor_of_another_format_says_so():
    cursor = base64.urlsafe_b64encode(json.dumps([2, "jobs", ["7"]]).encode()).decode()
    with pytest.raises(CursorInvalid, match="format 2"):
        decode_cursor(CursorKind.JOBS, cursor.rstrip("="))


def test_a_cursor_nested_too_deep_is_refused():
    text = "[" * 1400
    with pytest.raises(CursorInvalid):
        decode_cursor(CursorKind.JOBS, base64.urlsafe_b64encode(text.encode()).decode().rstrip("="))


@pytest.mark.parametrize("limit", [1, MAX_LIMIT])
def test_a_page_may_have_as_many_items_as_the_limits_allow(limit):
    assert start_page(CursorKind.JOBS, encode_cursor(CursorKind.JOBS, ("7",)), limit) == ("7",)


LISTS: dict[str, Any] = {
    "jobs": jobs.list_jobs,
    "nodes": nodes.list_nodes,
    "children": functools.partial(nodes.list_children, job_id="7", fan_out="tiles"),
    "tasks": nodes.list_tasks,
    "finished tasks": nodes.list_finished_tasks,
    "events": functools.partial(events_and_logs.list_events, job_id="7"),
    "recent events": events_and_logs.recent_events,
    "logs": functools.partial(events_and_logs.list_logs, job_id="7"),
    "log lines": functools.partial(log_lines.list_log_lines, job_id="7"),
    "workflows": workflows.list_workflows,
    "versions": functools.partial(workflows.list_versions, workflow_id="flow"),
    "attempts": functools.partial(nodes.list_attempts, job_id="7", node_id="tiles"),
    "commands": functools.partial(jobs.list_pending_commands, job_id="7"),
    "orchestrators": fleet.list_orchestrators,
    "workers": fleet.list_workers,
    "queues": fleet.list_queues,
}


@pytest.mark.parametrize("limit", [0, -1, jobs.MAX_FOOTPRINTS + 1])
def test_a_page_of_footprints_may_be_longer_but_not_endless(limit):
    app = an_application(FakeReadStore([a_record()]))
    with pytest.raises(QueryInvalid, match="1 to 10,000 items"):
        run(jobs.job_footprints(app, "7", limit=limit))


@pytest.mark.parametrize("limit", [0, -1, MAX_LIMIT + 1, 2**63])
@pytest.mark.parametrize("name", list(LISTS))
def test_every_list_refuses_a_limit_that_no_page_can_have(name, limit):
    app = an_application(FakeReadStore([a_record()], node_records=[TILES]))
    with pytest.raises(QueryInvalid, match="1 to 1,000 items"):
        run(LISTS[name](app, limit=limit))


def test_every_list_is_among_those_whose_limits_are_tested():
    queries = (jobs, nodes, events_and_logs, log_lines, workflows, fleet)
    paged = [
        function
        for module in queries
        for function in vars(module).values()
        if inspect.iscoroutinefunction(function)
        and function.__module__ == module.__name__
        and "Page[" in str(inspect.signature(function).return_annotation)
        # Parts of the lists of services.
        and not function.__name__.startswith("page_of_")
    ]
    assert {getattr(function, "func", function) for function in LISTS.values()} == set(paged)
