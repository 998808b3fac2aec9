"""Answers of a server as views."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dagmaster.application.views.parsing import parse_page, parse_view
from dagmaster.application.views.view import View
from dagmaster.errors import ServerAnswerInvalid

if TYPE_CHECKING:
    from dagmaster.application.views.page import Page
    from dagmaster.client.connection import Answer

V = TypeVar("V", bound=View)


def view_of(view: type[V], answer: Answer) -> V:
    """Return the view that an answer is."""
    return parse_view(view, answer.document, read_at=answer.at)


def views_of(view: type[V], answer: Answer) -> list[V]:
    """Return the views that an answer is a list of."""
    if not isinstance(answer.document, list):
        raise ServerAnswerInvalid(f"the answer is not a list of {view.__name__}")
    return [parse_view(view, item, read_at=answer.at) for item in answer.document]


def page_of(view: type[V], answer: Answer) -> Page[V]:
    """Return the page of views that an answer is."""
    return parse_page(view, answer.document, read_at=answer.at)
