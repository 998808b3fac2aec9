"""Answers of a server as views."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dagmaster.errors import ServerAnswerInvalid
from dagmaster.records.parsing import parse_page, parse_record
from dagmaster.records.record import Record

if TYPE_CHECKING:
    from dagmaster.client.connection import Answer
    from dagmaster.records.page import Page

V = TypeVar("V", bound=Record)


def view_of(view: type[V], answer: Answer) -> V:
    """Return the view that an answer is."""
    return parse_record(view, answer.document, read_at=answer.at)


def views_of(view: type[V], answer: Answer) -> list[V]:
    """Return the views that an answer is a list of."""
    if not isinstance(answer.document, list):
        raise ServerAnswerInvalid(f"the answer is not a list of {view.__name__}")
    return [parse_record(view, item, read_at=answer.at) for item in answer.document]


def page_of(view: type[V], answer: Answer) -> Page[V]:
    """Return the page of views that an answer is."""
    return parse_page(view, answer.document, read_at=answer.at)
