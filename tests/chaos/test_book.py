"""The book finds what was done twice: a proof that can fail."""

from __future__ import annotations

import pytest

from tests.chaos.book import Book

COMPLETED = [(7, "a", 2, '{"mark": "m2"}')]
LINES = ["begin 7 a 1", "begin 7 a 2", "end 7 a 2 m2"]


@pytest.fixture
def book(tmp_path) -> Book:
    return Book(tmp_path / "book")


def wrong(book: Book, *more: str, may_repeat: bool = False) -> list[str]:
    book.path.write_text("".join(f"{line}\n" for line in [*LINES, *more]))
    return book.wrong(COMPLETED, may_repeat=may_repeat)


def test_an_attempt_that_was_lost_and_one_that_completed_are_all_right(book):
    assert wrong(book) == []


def test_a_completed_node_that_was_begun_again_is_found(book):
    assert wrong(book, "begin 7 a 3") == ["a completed in attempt 2, and attempt 3 was begun"]


def test_an_output_that_nobody_made_is_found(book):
    book.path.write_text("begin 7 a 2\nend 7 a 2 other\n")
    (found,) = book.wrong(COMPLETED, may_repeat=False)
    assert "attempt 2 made ['other']" in found


def test_an_attempt_that_was_begun_twice_is_found_unless_a_server_forgot_its_claim(book):
    assert wrong(book, "begin 7 a 2") == ["attempt 2 of a was begun 2 times"]
    assert wrong(book, "begin 7 a 2", may_repeat=True) == []
