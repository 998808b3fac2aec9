"""Searching logs: lines by text and level, in both directions, without secrets."""

from __future__ import annotations

import pytest

from dagmaster.application.log_levels import LogLevel
from dagmaster.application.queries.events_and_logs import list_logs
from dagmaster.application.queries.log_lines import list_log_lines
from dagmaster.errors import CursorInvalid, NodeNotFound
from tests.unit.application.queries.test_events_and_logs import a_log
from tests.unit.application.world import SECRET, FakeReadStore, a_record, an_application, run

TEXTS = ["INFO a: read 1\nprinted\nERROR a: READ failed\n", "nothing\n", "WARNING a: slow read\nread again\n"]


def a_searched_application(texts=TEXTS):
    logs = [a_log(100.0 + number, text, number + 1) for number, text in enumerate(texts)]
    return an_application(FakeReadStore([a_record()], log_records=logs))


def test_a_search_returns_matching_lines_alone_in_either_case():
    lines = run(list_log_lines(a_searched_application(), "7", contains="read")).items
    assert [(line.line, line.level, line.text) for line in lines] == [
        (1, "info", "INFO a: read 1"),
        (3, "error", "ERROR a: READ failed"),
        (1, "warning", "WARNING a: slow read"),
        (2, None, "read again"),
    ]


def test_a_level_selects_itself_and_what_is_more_severe():
    app = a_searched_application()
    errors = run(list_log_lines(app, "7", level=LogLevel.ERROR)).items
    assert [line.text for line in errors] == ["ERROR a: READ failed"]
    both = run(list_log_lines(app, "7", level=LogLevel.WARNING, contains="slow")).items
    assert [line.text for line in both] == ["WARNING a: slow read"]


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_of_lines_have_every_line_once(limit, newest_first):
    app, texts, cursor = a_searched_application(), [], None
    while True:
        page = run(
            list_log_lines(app, "7", contains="read", cursor=cursor, limit=limit, newest_first=newest_first)
        )
        texts += [line.text for line in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    expected = ["INFO a: read 1", "ERROR a: READ failed", "WARNING a: slow read", "read again"]
    assert texts == (expected[::-1] if newest_first else expected)


def test_a_secret_is_neither_shown_nor_searched_for():
    app = a_searched_application([f"key {SECRET}\n"])
    assert run(list_log_lines(app, "7", contains=SECRET)).items == ()
    assert [line.text for line in run(list_log_lines(app, "7", contains="key")).items] == ["key ***"]


def test_a_line_names_the_chunk_that_a_page_of_logs_has():
    app = a_searched_application()
    (line,) = run(list_log_lines(app, "7", contains="slow")).items
    assert line.chunk == run(list_logs(app, "7")).items[2].cursor


def test_a_cursor_of_chunks_and_an_unknown_node_are_rejected():
    app = a_searched_application()
    with pytest.raises(CursorInvalid):
        run(list_log_lines(app, "7", cursor=run(list_logs(app, "7", limit=1)).next_cursor))
    with pytest.raises(NodeNotFound):
        run(list_log_lines(app, "7", node_id="fetsch"))


def test_logs_are_paged_backwards_from_the_end():
    app = a_searched_application()
    first = run(list_logs(app, "7", limit=2, newest_first=True))
    assert [log.text for log in first.items] == TEXTS[:0:-1]
    rest = run(list_logs(app, "7", limit=2, newest_first=True, cursor=first.next_cursor))
    assert [log.text for log in rest.items] == TEXTS[:1]
    assert rest.next_cursor is None


SPLIT = ["one\nERR", "OR a: the nee", "d", "le is long\nneedle again, nee", "dle\n", "last nee"]


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 10])
def test_a_text_that_is_split_between_chunks_is_found_once_where_its_line_begins(limit, newest_first):
    app, lines, cursor = a_searched_application(SPLIT), [], None
    while True:
        page = run(
            list_log_lines(app, "7", contains="NEEDLE", cursor=cursor, limit=limit, newest_first=newest_first)
        )
        lines += [(line.at, line.line, line.level, line.text) for line in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    expected = [(100.0, 2, "error", "ERROR a: the needle is long"), (103.0, 2, None, "needle again, needle")]
    assert lines == (expected[::-1] if newest_first else expected)


def test_the_level_of_a_line_is_that_of_its_beginning_in_another_chunk():
    app = a_searched_application(SPLIT)
    for contains in (None, "needle", "long"):
        errors = run(list_log_lines(app, "7", level=LogLevel.ERROR, contains=contains)).items
        assert [(line.at, line.text) for line in errors] == [(100.0, "ERROR a: the needle is long")]


def test_a_secret_that_is_split_between_chunks_is_redacted_in_the_joined_line():
    app = a_searched_application([f"key {SECRET[:5]}", f"{SECRET[5:]} end\n"])
    assert [line.text for line in run(list_log_lines(app, "7", contains="key")).items] == ["key *** end"]


def test_a_line_longer_than_a_chunk_is_searched_in_parts():
    app = a_searched_application(
        ["x" * 70_000, "y" * 70_000 + "nee", "dle" + "z" * 70_000, "z" * 70_000 + "\n"]
    )
    (line,) = run(list_log_lines(app, "7", contains="needle")).items
    assert "needle" in line.text
    assert len(line.text) < 300_000
